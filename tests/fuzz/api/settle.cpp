// A wait for a worker's operations ends only if no rank keeps them open. Here the rank does its
// part, and reports operations that still do not end.
#include <sched.h>

#include <algorithm>

#include "rank.hpp"

namespace heddle::tests::api {

// Gives no room to what was claimed, which ends it.
void Rank::drop_claimed() {
  for (Receive& one : receives) {
    const bool open = std::ranges::any_of(workers.live, [&](const auto& own) { return own.handle.id == one.worker; });
    if (!one.claimed || !open) continue;
    const heddle_status status = heddle_try_recv_claimed({one.worker}, nullptr, 0, &one.receive, nullptr);
    if (status == HEDDLE_AGAIN) continue;
    one.claimed = false;
    one.posted = status == HEDDLE_POSTED;
  }
}

// The operations that may be left wait for this rank (messages to its other workers, long ones that
// nobody receives or that were claimed), or for the other one, which serves meanwhile. Every other
// operation that does not end is a finding.
bool Rank::settle(heddle_worker worker) {
  const auto left = [&] { return heddle_try_quiet(worker) == HEDDLE_AGAIN; };
  if (!left()) return true;
  if (inside_) return false;
  const std::int64_t begun = now_ns();
  const auto patience = static_cast<std::int64_t>(settings_.patience * 1e9);
  trace_.outside("settling");
  while (left()) {
    serve();
    const std::int64_t lasts = now_ns() - begun;
    if (lasts > kKeptNs) drop_claimed();
    if (lasts > patience) wrong("an operation does not end, although both ranks do all that it may wait for");
    sched_yield();
  }
  trace_.outside(nullptr);
  return true;
}

}  // namespace heddle::tests::api
