// auto: exclusive to the thread that uses it, as long as that is one thread; then shared, as
// `delegate` (queue/handover.hpp). A thread that finds another owner takes over. When that is tried
// often, or when more threads have come than queue::Bias has places for, all share.
//
// With small-message offload it is shared from the beginning, since any thread may take the credit
// of messages that wait in the queue.
//
// Invariants
//   While one thread owns the worker, what else is counted by atomic operations (credit
//   for tagged messages) is counted inside, by plain ones: Gate::visit_owned(), enter_own().
//   place_ is not null exactly while the owner is inside by enter(), claimed_ while somebody is
//   inside by a claim; both are written inside.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "base/fence.hpp"
#include "queue/handover.hpp"
#include "worker/gate_delegate.hpp"

namespace heddle::engine {

class AutoGate final : public DelegateGate {
 public:
  // The owner's fast paths do not tell ThreadSanitizer about the order of the threads inside, since
  // that would make them longer. So the worker is shared from the beginning if the process has
  // ThreadSanitizer.
  AutoGate(Worker& worker, std::unique_ptr<Inbox> inbox)
      : DelegateGate(worker, std::move(inbox)),
        bias_(!registers() && base::membarrier_private_ready() && !base::has_thread_sanitizer()) {
    set_bias(bias_);
  }

  void fetch_helper() override {
    if (bias_.shared()) return DelegateGate::fetch_helper();
    bias_.fetch_helper(kFetchSleepNs);
  }
  [[nodiscard]] bool disturbs() const override { return !bias_.shared() && !bias_.owned_by(base::thread_mark()); }
  [[nodiscard]] bool wanted() const override { return bias_.looks_wanted(); }

 private:
  [[nodiscard]] bool queues() const override { return bias_.shared(); }
  [[nodiscard]] bool leaves_others_commands() const override { return bias_.shared(); }
  static constexpr std::int64_t kFetchSleepNs = 1'000'000;
  // A take-over costs a microsecond or two, which is negligible once in kBearableNs. kMostHurried
  // take-overs beyond that rate show that several threads use the worker at once, and not one after
  // the other.
  static constexpr std::uint64_t kBearableNs = 1'000'000;
  static constexpr std::uint64_t kMostHurried = 64;

  base::Status post_now(transport::Command& command, const Completion& completion) override {
    if (bias_.shared()) return DelegateGate::post_now(command, completion);
    Place* const place = enter_own();
    if (place == nullptr) [[unlikely]]
      return post_or_queue(command, completion);
    const base::Status status = worker().post(command, completion);
    leave_own(place, status);
    return status;
  }
  bool let_in() override { return bias_.shared() ? DelegateGate::let_in() : enter_as_owner() || enter_later(); }
  bool let_in_at_once() override {
    if (bias_.shared()) return DelegateGate::let_in_at_once();
    return enter_as_owner() || take_over(false) || (helped_.load(std::memory_order_relaxed) && enter_after_visit());
  }
  // A thread that only looks does not become the owner.
  bool let_in_unless_held() override {
    return bias_.shared() ? DelegateGate::let_in_unless_held() : enter_as_owner() || claim(false);
  }
  void let_out() override {
    if (claimed_ != nullptr) return give_back();
    Place* const place = std::exchange(place_, nullptr);
    if (place == nullptr) return DelegateGate::let_out();
    mark_outside();
    queue::Bias<>::leave(place);
  }
  bool let_in_helper(std::uint32_t number, bool urgent) override {
    if (bias_.shared()) return DelegateGate::let_in_helper(number, urgent);
    // A thread of the application becomes the owner as in any other call. By claims it would hold
    // up the present owner again and again, for as long as it goes on.
    if ((number & queue::SystemHandover::kStays) != 0) return enter_as_owner() || take_over(urgent);
    if (!claim_as(number, urgent)) return false;
    count_visit();
    helped_.store(true, std::memory_order_relaxed);
    return true;
  }
  void let_out_helper(bool helper) override {
    if (claimed_ == nullptr) return DelegateGate::let_out_helper(helper);
    // A thread of the application may leave something under way while the helpers sleep.
    const bool call = !helper && must_call_helpers();
    helped_.store(false, std::memory_order_relaxed);
    give_back();
    if (call) wake_helpers();
  }

  bool enter_as_owner() {
    Place* const place = bias_.enter(base::thread_mark());
    if (place != nullptr) place_ = place;
    return place != nullptr;
  }
  // The ways in for a thread that is not the owner, or that finds another thread inside. False: not
  // now. The first one waits for about as long as a short post takes.
  bool enter_later();
  bool take_over(bool urgent);
  // A helper that is inside makes progress calls of others fail. This fetches a helper that stays
  // too long.
  bool enter_after_visit();
  bool claim(bool urgent);
  bool claim_as(std::uint32_t number, bool urgent) {
    Place* const place = bias_.claim(number, urgent);
    if (place != nullptr) claimed_ = place;
    return place != nullptr;
  }
  void give_back() {
    Place* const place = std::exchange(claimed_, nullptr);
    mark_outside();
    queue::Bias<>::give_back(place);
  }

  queue::Bias<> bias_;
  Place* place_ = nullptr;
  Place* claimed_ = nullptr;
  // Hints about attempts to take over; relaxed: when the last one was, and how many there were
  // until then beyond one in each kBearableNs.
  std::atomic<std::uint64_t> tried_at_{0};
  std::atomic<std::uint64_t> hurried_{0};
  std::atomic<bool> helped_{false};  // a helper is inside by a claim; relaxed: a hint
};

}  // namespace heddle::engine
