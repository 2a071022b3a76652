// Destroys a rank's device.
#include <sched.h>

#include "transport/ucx/device.hpp"
#include "transport/ucx/port.hpp"

namespace heddle::transport::ucx {
namespace {

// How long UCX's operations may take to end when their rank ends, if the peers do nothing.
constexpr std::uint64_t kFlushNs = 200'000'000;

// All ports of this device are of this transport.
Port* port_of(network::Port* port) {
  return static_cast<Port*>(port);
}

}  // namespace

// Accepted messages leave, as long as the peers make progress; then connections are closed,
// whatever the peers do.
Device::~Device() {
  helper().stop();
  const std::lock_guard lock(mutex());
  ucp_context_h const context = context_;  // take_down() may leave it to the process
  if (worker_.worker() != nullptr) {
    leave();
    take_down();
  }
  // Only now: transfers of peers to these regions may arrive while closed ports make progress.
  regions_.deregister_all(context);
  if (context_ != nullptr) call_.cleanup(context_);
}

Device::Flush Device::begin_flush(ucp_worker_h worker) const {
  const ucp_request_param_t params{};
  void* request = call_.worker_flush_nbx(worker, &params);
  return {worker, request, request == nullptr};
}

bool Device::has_ended(Flush* flush) const {
  if (flush->ended || UCS_PTR_IS_ERR(flush->request)) return flush->ended;
  call_.worker_progress(flush->worker);
  if (call_.request_check_status(flush->request) == UCS_INPROGRESS) return false;
  call_.request_free(flush->request);
  return flush->ended = true;
}

// Flushes of the device worker, then of the closed ports; a null worker: the port has orphans, and
// nobody waits for it. An endpoint that still answers its peer's handshake must not be cut off: UCX
// 1.13 aborts. Such a worker does not end its flush, and is left as it is.
std::vector<Device::Flush> Device::flush_all() {
  std::vector<Flush> flushes;
  flushes.push_back(begin_flush(worker_.worker()));
  for (const auto& retired_port : retired()) {
    Port* port = port_of(retired_port.get());
    flushes.push_back(port->transfers().has_orphans() ? Flush{nullptr, nullptr, false} : begin_flush(port->worker()));
  }
  const std::uint64_t until = environment().clock->now_ns() + kFlushNs;
  const auto all_ended = [&] {
    bool all = true;
    for (Flush& flush : flushes) all = (flush.worker == nullptr || has_ended(&flush)) && all;
    return all;
  };
  while (!all_ended() && environment().clock->now_ns() < until) sched_yield();
  return flushes;
}

void Device::bury(void* object) {
  buried_ = true;
  Library::bury(object);
}

void Device::take_down() {
  const std::vector<Flush> flushes = flush_all();
  for (std::size_t i = 0; i < retired().size(); ++i) {
    std::unique_ptr<network::Port> port = std::move(retired()[i]);
    if (flushes[i + 1].ended) {
      port_of(port.get())->end();
    } else {
      bury(port.release());
    }
  }
  retired().clear();
  flushes[0].ended ? worker_.end() : bury(worker_.worker());
  if (!buried_) return;
  Library::bury(context_);
  context_ = nullptr;
  environment().log.line(base::Level::info,
                         "what UCX has begun with peers that do not answer stays until the process ends");
}

}  // namespace heddle::transport::ucx
