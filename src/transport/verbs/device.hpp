// This transport's part of a context: the adapter, the queue for notes, the regions; the rest is
// network::Device's.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/network/device.hpp"
#include "transport/verbs/device_queue.hpp"
#include "transport/verbs/regions.hpp"

namespace heddle::transport::verbs {

class Port;

class Device final : public network::Device {
 public:
  static base::Result<std::unique_ptr<Device>> create(bootstrap::Bootstrap& bootstrap,
                                                      const base::Environment& environment);
  ~Device() override;

  [[nodiscard]] const Adapter& adapter() const { return *adapter_; }
  [[nodiscard]] const char* link() const { return adapter_->by_gid() ? "RoCE" : "InfiniBand"; }
  [[nodiscard]] Regions& regions() { return regions_; }
  [[nodiscard]] std::uint64_t now_ns() const { return environment().clock->now_ns(); }
  [[nodiscard]] std::string describe() const;

  // From its opening to its end.
  void enter(Port& port);
  void leave(const Port& port);
  // With the mutex: a handshake for a worker. False: there is no such worker.
  bool deliver(std::uint32_t rank, std::uint32_t worker, const Hello& hello);

 private:
  Device(bootstrap::Bootstrap& bootstrap, const base::Environment& environment, std::unique_ptr<Adapter> adapter);
  base::Status set_up();

  std::unique_ptr<Adapter> adapter_;
  DeviceQueue queue_;
  Regions regions_;
  std::vector<Port*> ports_;  // by number of the worker; guarded by the mutex
};

}  // namespace heddle::transport::verbs
