// This transport's part of a context: the device worker, which carries notes, and the Device.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/network/device.hpp"
#include "transport/network/directory.hpp"
#include "transport/ucx/library.hpp"
#include "transport/ucx/regions.hpp"

namespace heddle::transport::ucx {

class Device;

// The device worker of a rank: the UCX worker whose address is in the rank's card, and its
// connections to those of other ranks. It carries the notes of the directory.
//
// The device's mutex guards it.
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

// Made before the rest of the device, which refers to them from the start.
struct DeviceParts {
  DeviceWorker worker_;
  Regions regions_;
};

// This transport's part of a context: UCX's context, the device worker, the regions, and what
// network::Device has for every transport.
class Device final : private DeviceParts, public network::Device {
 public:
  static base::Result<std::unique_ptr<Device>> create(bootstrap::Bootstrap& bootstrap,
                                                      const base::Environment& environment);
  ~Device() override;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] const Library& library() const { return library_; }
  [[nodiscard]] ucp_context_h context() const { return context_; }
  [[nodiscard]] Regions& regions() { return regions_; }

  // UCX reports connections that break, and can cut them off. UCX 1.13 does neither over its own
  // shared memory: there only the bootstrap reports who has died.
  [[nodiscard]] bool recovers() const { return recovers_; }
  // From 1.16 on UCX has no atomics by the target's processor on connections whose breaking it
  // reports: it cancels them ("cannot find remote protocol"; found with 1.22). Then messages to the
  // owner do the atomics.
  [[nodiscard]] bool has_atomics() const { return !recovers_ || !library_.at_least(1, 16); }
  [[nodiscard]] std::uint32_t memory_opcodes() const {
    return bit(Opcode::put) | bit(Opcode::get) | (has_atomics() ? bit(Opcode::atomic) : 0);
  }
  [[nodiscard]] ucs_status_t connect(ucp_worker_h worker, const void* address, ucp_err_handler_cb_t broken, void* arg,
                                     ucp_ep_h* endpoint) const;
  // The error for a worker that UCX does not give.
  [[nodiscard]] base::Status no_worker(ucs_status_t status) const;
  [[nodiscard]] base::Status no_network(const std::string& what) const;

  [[nodiscard]] std::string describe() const;

 private:
  Device(bootstrap::Bootstrap& bootstrap, const base::Environment& environment, const Library& library);
  base::Status set_up();
  base::Status open_context();
  base::Status configure(ucp_config_t* config);
  base::Status publish();
  base::Status probe(const void* address);
  void end_probe(ucp_worker_h worker);
  struct Flush {
    ucp_worker_h worker;
    void* request;
    bool ended;
  };
  Flush begin_flush(ucp_worker_h worker) const;
  bool has_ended(Flush* flush) const;
  std::vector<Flush> flush_all();
  void take_down();
  void bury(void* object);

  const Library& library_;
  const Functions& call_;
  ucp_context_h context_ = nullptr;
  std::string transports_;  // UCX's, as UCX_TLS; empty: as UCX chooses
  bool recovers_ = true;
  bool buried_ = false;  // a worker stays until the process ends, and so must the context
};

}  // namespace heddle::transport::ucx
