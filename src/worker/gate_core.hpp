// The common part of the modes in which a thread that finds another one inside does not wait for
// long: shared, delegate, offload.
//
// Invariant: a helper that is inside has claimed helper_. So a thread that is refused for long
// because of the helper fetches it (queue/locks.hpp), whichever way in it uses.
#pragma once

#include <atomic>

#include "queue/locks.hpp"
#include "worker/gate.hpp"

namespace heddle::engine {

class CoreGate : public Gate {
 public:
  void fetch_helper() override { static_cast<void>(helper_.fetch(kFetchSleepNs)); }

 protected:
  using Gate::Gate;

  bool let_in_at_once() override { return door_.try_enter() || (helper_.claimed() && enter_after_helper()); }
  bool let_in() override { return try_enter() || (helper_.claimed() && enter_after_helper()); }
  void let_out() override {
    mark_outside();
    door_.exit();
  }
  bool let_in_helper(std::uint32_t number, bool urgent) override;
  void let_out_helper(bool helper) override;
  // Shared: a moment's wait.
  virtual bool try_enter() { return door_.try_enter(); }
  [[nodiscard]] queue::Delegation<>& door() { return door_; }
  // True: a helper has been inside, and has made others fail, for so long that the caller must
  // fetch it.
  bool helper_stays();
  // Called by a helper that is inside, or about to be.
  void count_visit() { visits_.store(visits_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }

 private:
  // How long a helper may be inside before the threads that it keeps out fetch it; and for how long
  // one of them then sleeps. These threads sleep at most half of the time, in calls that otherwise
  // do not wait.
  static constexpr std::uint64_t kPatienceNs = 50'000;
  static constexpr std::uint64_t kFetchSleepNs = 1'000'000;

  bool enter_after_helper();

  alignas(base::kCacheLine) queue::Delegation<> door_;
  queue::HelperClaim<> helper_;
  // Hints of threads that are kept out by a helper; relaxed: the value of visits_ at that moment,
  // and from when on (ns) the helper is to be fetched.
  std::atomic<std::uint32_t> refused_visit_{0};
  std::atomic<std::uint64_t> fetch_at_{0};
  // of helpers; written by one of them at a time, relaxed: a number that changes
  std::atomic<std::uint32_t> visits_{0};
};

}  // namespace heddle::engine
