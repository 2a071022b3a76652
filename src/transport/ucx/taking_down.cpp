// Destroys a rank's device.
#include <sched.h>

#include "transport/ucx/device.hpp"
#include "transport/ucx/port.hpp"

namespace heddle::transport::ucx {
namespace {

// How long accepted messages may take to leave when their rank ends, if their peers do nothing.
constexpr std::uint64_t kLeaveNs = 200'000'000;

}  // namespace

// Accepted messages leave, as long as the peers make progress; then connections are closed,
// whatever the peers do.
Device::~Device() {
  helper_.stop();
  const std::lock_guard lock(mutex_);
  ucp_context_h const context = context_;  // take_down() may leave it to the process
  if (directory_.worker() != nullptr) {
    leave();
    take_down();
  }
  // Only now: transfers of peers to these regions may arrive while closed ports make progress.
  regions_.deregister_all(context);
  if (context_ != nullptr) call_.cleanup(context_);
}

void Device::leave() {
  const std::uint64_t until = environment_.clock->now_ns() + kLeaveNs;
  for (;;) {
    directory_.work();
    const bool moving = linger();
    if ((!moving && !directory_.has_unsent()) || environment_.clock->now_ns() > until) return;
    sched_yield();
  }
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
// nobody waits for it. An endpoint that still answers its peer's greeting must not be cut off: UCX
// 1.13 aborts. Such a worker does not end its flush, and is left as it is.
std::vector<Device::Flush> Device::flush_all() {
  std::vector<Flush> flushes;
  flushes.push_back(begin_flush(directory_.worker()));
  for (const auto& port : closed_) {
    flushes.push_back(port->transfers().has_orphans() ? Flush{nullptr, nullptr, false} : begin_flush(port->worker()));
  }
  const std::uint64_t until = environment_.clock->now_ns() + kLeaveNs;
  const auto all_ended = [&] {
    bool all = true;
    for (Flush& flush : flushes) all = (flush.worker == nullptr || has_ended(&flush)) && all;
    return all;
  };
  while (!all_ended() && environment_.clock->now_ns() < until) sched_yield();
  return flushes;
}

void Device::bury(void* object) {
  buried_ = true;
  Library::bury(object);
}

void Device::take_down() {
  const std::vector<Flush> flushes = flush_all();
  for (std::size_t i = 0; i < closed_.size(); ++i) {
    if (flushes[i + 1].ended) {
      closed_[i]->end();
      closed_[i].reset();
    } else {
      bury(closed_[i].release());
    }
  }
  closed_.clear();
  flushes[0].ended ? directory_.end() : bury(directory_.worker());
  if (!buried_) return;
  Library::bury(context_);
  context_ = nullptr;
  environment_.log.line(base::Level::info,
                        "what UCX has begun with peers that do not answer stays until the process ends");
}

}  // namespace heddle::transport::ucx
