// The endpoint of a rank through which its device sends notes to those of other ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/network/courier.hpp"
#include "transport/network/patience.hpp"
#include "transport/ofi/endpoint.hpp"

namespace heddle::transport::ofi {

class Device;

class DeviceEndpoint final : public network::Courier {
 public:
  explicit DeviceEndpoint(Device& device) : device_(device), notes_(kNotes) {}

  // NO_MEMORY, SYSTEM.
  base::Status open();
  void close();
  [[nodiscard]] const network::Bytes& address() const { return endpoint_.address(); }
  // The address of another rank's device endpoint, to which a worker has connected, or of this one.
  [[nodiscard]] const network::Bytes& address_of(std::uint32_t rank) const;
  [[nodiscard]] int descriptor() const { return endpoint_.descriptor(); }
  [[nodiscard]] fid_ep* ep() const { return endpoint_.ep(); }
  [[nodiscard]] Scope scope() const { return endpoint_.scope(); }

  // ---- Courier
  [[nodiscard]] base::Status check_card(const network::CardHead& card, std::uint32_t rank) const override;
  [[nodiscard]] base::Status connect(std::uint32_t rank, std::span<const std::byte> address) override;
  [[nodiscard]] base::Status send(std::uint32_t rank, network::Bytes* note) override;
  bool progress() override { return endpoint_.progress(*this) != 0; }
  [[nodiscard]] bool arm() override { return endpoint_.arm(); }
  [[nodiscard]] bool sending() const override { return sending_ != 0; }
  void disconnect(std::uint32_t rank) override { ranks_[rank].open = false; }
  // libfabric closes the connection when it finds it broken, or with the endpoint.
  [[nodiscard]] bool closes() const override { return false; }

  // ---- see Endpoint::progress()
  void on_receive(const std::byte* data, std::size_t bytes);
  const fi_cq_msg_entry* on_done(const fi_cq_msg_entry* entry, const fi_cq_msg_entry* /*end*/) {
    on_finished(*Operation::of(entry->op_context), FI_SUCCESS);
    return entry + 1;
  }
  void on_finished(Operation& operation, int error);

 private:
  // Notes are a head and at most an address.
  static constexpr std::uint32_t kNoteBytes = 1024;
  static constexpr std::uint32_t kNotes = 64;  // that libfabric may have at once
  struct Note : Operation {
    Note* next = nullptr;
    std::uint32_t rank = 0;
    std::byte data[kNoteBytes];
    Note() : Operation(Kind::note) {}  // NOLINT(cppcoreguidelines-pro-type-member-init)
  };
  struct Rank {
    network::Bytes bytes;  // of its address
    fi_addr_t address = FI_ADDR_NOTAVAIL;
    bool open = false;
    network::Patience patience;  // while libfabric takes nothing for it, or not its address
  };

  base::Status not_inserted(std::uint32_t rank, long answer);
  base::Status not_sent(std::uint32_t rank, long answer);
  bool is_over(Rank& rank);

  Device& device_;
  network::Pool<Note> notes_;
  void* descriptor_of_notes_ = nullptr;
  Endpoint endpoint_;
  std::vector<Rank> ranks_;
  std::uint32_t sending_ = 0;
};

}  // namespace heddle::transport::ofi
