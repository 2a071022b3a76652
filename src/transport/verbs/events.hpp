// The events that adapters report, besides completions: a port that goes down, a queue with an
// error, an adapter that has failed. The helper reads them when they come.
#pragma once

#include "base/fd.hpp"
#include "transport/verbs/adapter.hpp"

namespace heddle::transport::verbs {

class Device;

class Events {
 public:
  explicit Events(Device& device) : device_(device) {}
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;

  // `channel`: another descriptor that is watched with those of the adapters. SYSTEM.
  base::Status open(int channel);
  // Readable while an adapter has told something, or the channel has.
  [[nodiscard]] int descriptor() const { return watched_.get(); }
  // Reads the events that have come. With the device's mutex.
  void read();

 private:
  base::Status watch(int descriptor);
  void read(Adapter& adapter);
  void fail(Adapter& adapter, const char* why);
  void take(Adapter& adapter, const ibv_async_event& event);
  void take_port(const Adapter& adapter, ibv_event_type type);
  void fail_queue(const Adapter& adapter, const void* worker, const char* what);

  Device& device_;
  base::Fd watched_;
};

}  // namespace heddle::transport::verbs
