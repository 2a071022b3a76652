// The device worker of a rank: the UCX worker whose address is in the rank's card, and its
// connections to those of other ranks. It carries the notes of the directory.
//
// The device's mutex guards it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "transport/network/courier.hpp"
#include "transport/ucx/common.hpp"

namespace heddle::transport::ucx {

class Device;

class DeviceWorker final : public network::Courier {
 public:
  // `device`: not used before it is complete.
  DeviceWorker(Device& device, const Functions& call) : device_(device), call_(call) {}

  // It receives notes from now on. SYSTEM.
  base::Status open();
  // Null: it is not open.
  [[nodiscard]] ucp_worker_h worker() const { return worker_; }
  // At the end: closes its connections, whatever the peers do, and destroys it.
  void end();

  // ---- for the directory: see network::Courier
  [[nodiscard]] base::Status check_card(const network::CardHead& card, std::uint32_t rank) const override;
  [[nodiscard]] base::Status connect(std::uint32_t rank, std::span<const std::byte> address) override;
  [[nodiscard]] base::Status send(std::uint32_t rank, Bytes* note) override;
  bool progress() override;
  [[nodiscard]] bool arm() override { return call_.worker_arm(worker_) == UCS_OK; }
  [[nodiscard]] bool sending() const override { return sending_ != 0; }
  void disconnect(std::uint32_t rank) override;
  [[nodiscard]] bool closes() const override { return !closing_.empty(); }

 private:
  // The connection to the device worker of a rank.
  struct Line {
    DeviceWorker* from = nullptr;
    std::uint32_t rank = 0;
    std::uint64_t tried_since = 0;  // ns
    ucp_ep_h endpoint = nullptr;
  };
  // A note on its way, as on_sent() gets it back from UCX.
  struct Sent {
    Bytes bytes;
    DeviceWorker* from;
  };
  Line& line(std::uint32_t rank);
  static ucs_status_t on_note(void* arg, const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
                              const ucp_am_recv_param_t* param);
  static void on_sent(void* request, ucs_status_t status, void* user);
  static void on_broken(void* arg, ucp_ep_h endpoint, ucs_status_t status);

  Device& device_;
  const Functions& call_;
  ucp_worker_h worker_ = nullptr;
  std::vector<std::unique_ptr<Line>> lines_;  // by rank; null: not tried yet
  std::size_t known_lines_ = 0;
  std::vector<void*> closing_;  // requests of endpoints
  std::uint32_t sending_ = 0;   // notes that UCX has not finished
};

}  // namespace heddle::transport::ucx
