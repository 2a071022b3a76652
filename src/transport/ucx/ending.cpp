// The end of a rank's home.
#include <sched.h>

#include "transport/ucx/home.hpp"
#include "transport/ucx/station.hpp"

namespace heddle::transport::ucx {
namespace {

// How long what was accepted may take to leave when its rank ends, if its peers do nothing.
constexpr std::uint64_t kLeaveNs = 200'000'000;
constexpr std::uint64_t kCloseNs = 2'000'000'000;

}  // namespace

// What was accepted leaves, as long as the peers play their part; then connections end, whatever the peers do.
Home::~Home() {
  helper_.stop();
  const std::lock_guard lock(mutex_);
  ucp_context_h const context = context_;  // take_down() may leave it to the process
  if (worker_ != nullptr) {
    leave();
    take_down();
  }
  // Not before: what peers have on its way to these regions arrives while closed workers are moved on.
  for (const auto& [id, region] : regions_) call_.mem_unmap(context, region.memory);
  if (context_ != nullptr) call_.cleanup(context_);
}

void Home::leave() {
  const std::uint64_t until = environment_.clock->now_ns() + kLeaveNs;
  for (;;) {
    work();
    const bool moving = linger();
    if ((!moving && !has_unsent()) || environment_.clock->now_ns() > until) return;
    sched_yield();
  }
}

// An endpoint that still answers its peer's greeting must not be cut off: UCX 1.13 aborts. Such a worker does not end its flush, and is
// left as it is.
std::vector<Home::Flush> Home::flush_all() {
  std::vector<Flush> flushes;
  const auto begin = [&](ucp_worker_h worker) {
    const ucp_request_param_t params{};
    void* request = call_.worker_flush_nbx(worker, &params);
    flushes.push_back({worker, request, request == nullptr});
  };
  begin(worker_);
  for (const auto& station : closed_) {
    if (station->has_orphans()) {
      flushes.push_back({nullptr, nullptr, false});
    } else {
      begin(station->worker());
    }
  }
  const std::uint64_t until = environment_.clock->now_ns() + kLeaveNs;
  const auto ended = [&](Flush& flush) {
    if (flush.ended || UCS_PTR_IS_ERR(flush.request)) return flush.ended;
    if (flush.worker == nullptr) return true;  // nobody waits for that one
    call_.worker_progress(flush.worker);
    if (call_.request_check_status(flush.request) == UCS_INPROGRESS) return false;
    call_.request_free(flush.request);
    return flush.ended = true;
  };
  const auto all_ended = [&] {
    bool all = true;
    for (Flush& flush : flushes) all = ended(flush) && all;
    return all;
  };
  while (!all_ended() && environment_.clock->now_ns() < until) sched_yield();
  return flushes;
}

void Home::take_down() {
  const std::vector<Flush> flushes = flush_all();
  for (std::size_t i = 0; i < closed_.size(); ++i) {
    if (flushes[i + 1].ended) {
      closed_[i]->end();
      closed_[i].reset();
    } else {
      buried_ = true;
      Library::bury(closed_[i].release());
    }
  }
  closed_.clear();
  if (flushes[0].ended) {
    end_endpoints();
    call_.worker_destroy(worker_);
  } else {
    buried_ = true;
    Library::bury(worker_);
  }
  worker_ = nullptr;
  if (!buried_) return;
  Library::bury(context_);
  context_ = nullptr;
  environment_.log.line(base::Level::info,
                        "what UCX has begun with peers that do not answer stays until the process ends");
}

void Home::end_endpoints() {
  for (const auto& peer : peers_) {
    if (peer != nullptr) drop(*peer);
  }
  const std::uint64_t until = environment_.clock->now_ns() + kCloseNs;
  while (!closing_.empty() && environment_.clock->now_ns() < until) work();
}

}  // namespace heddle::transport::ucx
