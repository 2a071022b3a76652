// This transport's part of a context: the endpoint for notes, and the Device.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "transport/network/device.hpp"
#include "transport/network/directory.hpp"
#include "transport/network/losses.hpp"
#include "transport/ofi/endpoint.hpp"
#include "transport/ofi/fabric.hpp"
#include "transport/ofi/memory.hpp"

namespace heddle::transport::ofi {

class Device;

// The endpoint of a rank through which its device sends notes to those of other ranks.
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
    on_finished(*OperationContext::of(entry->op_context), FI_SUCCESS);
    return entry + 1;
  }
  void on_finished(OperationContext& operation, int error);

 private:
  // Notes are a head and at most an address.
  static constexpr std::uint32_t kNoteBytes = 1024;
  static constexpr std::uint32_t kNotes = 64;  // that libfabric may have at once
  struct Note : OperationContext {
    Note* next = nullptr;
    std::uint32_t rank = 0;
    std::byte data[kNoteBytes];
    Note() : OperationContext(Kind::note) {}  // NOLINT(cppcoreguidelines-pro-type-member-init)
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

// This transport's part of a context, which the ports of one rank share: the provider, the endpoint
// for notes, the regions. The rest is network::Device's.
class Device final : public network::Device {
 public:
  static base::Result<std::unique_ptr<Device>> create(bootstrap::Bootstrap& bootstrap,
                                                      const base::Environment& environment);
  ~Device() override;

  [[nodiscard]] const Library& library() const { return fabric_.library(); }
  [[nodiscard]] Fabric& fabric() { return fabric_; }
  [[nodiscard]] fi_info* info() const { return fabric_.info(); }
  [[nodiscard]] const DomainPlan& plan() const { return fabric_.plan(); }
  [[nodiscard]] std::string provider() const { return info()->fabric_attr->prov_name; }
  // True: its provider is "tcp", alone or below another one.
  [[nodiscard]] bool over_tcp() const { return std::strstr(info()->fabric_attr->prov_name, "tcp") != nullptr; }
  // Bytes that libfabric copies when it is called.
  [[nodiscard]] std::size_t inject_bytes() const { return info()->tx_attr->inject_size; }
  // The network itself executes all of Heddle's atomics on words of regions.
  [[nodiscard]] bool has_atomics() const { return has_atomics_; }
  [[nodiscard]] std::uint32_t memory_opcodes() const {
    return bit(Opcode::put) | bit(Opcode::get) | (has_atomics_ ? bit(Opcode::atomic) : 0);
  }
  [[nodiscard]] Regions& regions() { return regions_; }
  [[nodiscard]] DeviceEndpoint& endpoint() { return endpoint_; }
  [[nodiscard]] std::string describe() const;

 private:
  Device(bootstrap::Bootstrap& bootstrap, const base::Environment& environment, const Library& library, Info info,
         const DomainPlan& plan);
  base::Status set_up();

  Fabric fabric_;
  bool is_set_up_ = false;
  bool has_atomics_ = false;
  DeviceEndpoint endpoint_;
  Regions regions_;
};

}  // namespace heddle::transport::ofi
