// This transport's part of a context: the adapters, the queue for notes, the regions; the rest is
// network::Device's.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/network/device.hpp"
#include "transport/verbs/device_queue.hpp"
#include "transport/verbs/events.hpp"
#include "transport/verbs/regions.hpp"

namespace heddle::transport::verbs {

class Port;

class Device final : public network::Device {
 public:
  static base::Result<std::unique_ptr<Device>> create(bootstrap::Bootstrap& bootstrap,
                                                      const base::Environment& environment);
  ~Device() override;

  // The first adapter, through which the notes go.
  [[nodiscard]] const Adapter& adapter() const { return *adapters_.front(); }
  [[nodiscard]] const std::vector<std::unique_ptr<Adapter>>& adapters() const { return adapters_; }
  // The index of the worker's adapter among them.
  [[nodiscard]] std::uint32_t adapter_index(std::uint32_t worker) const {
    return worker % static_cast<std::uint32_t>(adapters_.size());
  }
  // True: this adapter has failed, and another one works.
  [[nodiscard]] bool goes_on_without(const Adapter& adapter) const;
  [[nodiscard]] const char* link() const { return adapter().by_gid() ? "RoCE" : "InfiniBand"; }
  [[nodiscard]] Regions& regions() { return regions_; }
  [[nodiscard]] Events& events() { return events_; }
  [[nodiscard]] std::uint64_t now_ns() const { return environment().clock->now_ns(); }
  [[nodiscard]] std::string describe() const;

  // Between these calls the port gets the handshakes for its worker.
  void enter(Port& port);
  void leave(const Port& port);
  // With the mutex: a handshake for a worker. False: there is no such worker.
  bool deliver(std::uint32_t rank, std::uint32_t worker, const Hello& hello);
  // With the mutex: the adapter has failed, or a queue of the worker; null: the queue for notes.
  // All that is under way there fails.
  void note_failed(Adapter& adapter);
  void note_failed_queue(const void* port);

 private:
  Device(bootstrap::Bootstrap& bootstrap, const base::Environment& environment, Adapter::Opened opened);
  base::Status set_up();

  std::vector<std::unique_ptr<Adapter>> adapters_;
  const std::string left_out_;
  DeviceQueue queue_;
  Events events_;
  Regions regions_;
  std::vector<Port*> ports_;  // by number of the worker; guarded by the mutex
};

}  // namespace heddle::transport::verbs
