// The sharing modes, one class each: on Gate, or on CoreGate if a refused thread leaves. gate.hpp
// tells what they do; their table is in gate.cpp.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "base/fence.hpp"
#include "base/wait.hpp"
#include "queue/handover.hpp"
#include "queue/locks.hpp"
#include "worker/executor.hpp"
#include "worker/gate.hpp"

namespace heddle::worker {

// exclusive, helped: the owner pays two plain stores (queue/handover.hpp), and waits only for a
// helper, which leaves soon.
class ExclusiveGate final : public Gate {
 public:
  ExclusiveGate(Worker& worker, std::unique_ptr<Inbox> inbox) : Gate(worker, std::move(inbox)) {}

  void fetch_helper() override { handover_.fetch_helper(kFetchSleepNs); }
  [[nodiscard]] bool disturbs() const override { return true; }
  [[nodiscard]] bool wanted() const override { return handover_.looks_inside(); }

 private:
  static constexpr std::int64_t kFetchSleepNs = 1'000'000;

  base::Status post_now(transport::Command& command, const engine::CallersCompletion& completion) override {
    if (inside()) return worker().post(command, completion);
    handover_.enter();
    bool wake = false;
    const base::Status status = post_inside(command, completion, &wake);
    handover_.leave();
    if (wake) [[unlikely]]
      wake_helpers();
    return status;
  }
  bool let_in() override {
    handover_.enter();
    return true;
  }
  void let_out() override {
    mark_outside();
    handover_.leave();
  }
  bool let_in_helper(std::uint32_t number, bool urgent) override {
    return urgent ? handover_.try_claim_urgently(number) : handover_.try_claim(number);
  }
  void let_out_helper(bool helper) override {
    // A thread of the application may leave something under way while the helpers sleep.
    const bool call = !helper && must_call_helpers();
    mark_outside();
    handover_.release();
    if (call) wake_helpers();
  }
  [[nodiscard]] bool counts_visitors() const override { return false; }

  alignas(base::kCacheLine) queue::Handover<> handover_;
};

// The common part of the modes in which a thread that finds another one inside does not wait for
// long: shared, delegate, offload.
//
// Invariant: a helper that is inside has claimed helper_. So a thread that is refused for long
// because of the helper fetches it (queue/locks.hpp), whichever way in it uses.
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

// shared: a thread that posts and finds another one inside waits for about as long as a short post
// takes, then gets AGAIN.
class SharedGate : public CoreGate {
 public:
  SharedGate(Worker& worker, std::unique_ptr<Inbox> inbox) : CoreGate(worker, std::move(inbox)) {}

 protected:
  base::Status post_now(transport::Command& command, const engine::CallersCompletion& completion) override {
    if (!door().try_enter()) [[unlikely]]
      return post_or_queue(command, completion);
    bool wake = false;
    const base::Status status = post_inside(command, completion, &wake);
    door().exit();
    if (wake) [[unlikely]]
      wake_helpers();
    return status;
  }

 private:
  // Looks at a busy worker: a holder that was descheduled, or runs handlers, is not waited for.
  static constexpr int kLooks = 64;

  bool try_enter() override {
    if (door().try_enter()) return true;
    for (int i = 0; i < kLooks; ++i) {
      base::cpu_relax();
      if (door().try_enter()) return true;
    }
    return false;
  }
};

// delegate: a thread that posts and finds another one inside leaves its command in the queue, and
// the thread inside executes the command before it leaves.
//
// Invariant: a command that is visible in the queue is executed by its producer, or by the thread
// that was inside when the producer looked (queue/locks.hpp), or by the next thread that makes
// progress: where the transport took no more (Inbox::stalled()), and where others went on queueing
// until the thread inside had done its share (Delegation::kRounds).
class DelegateGate : public CoreGate {
 public:
  DelegateGate(Worker& worker, std::unique_ptr<Inbox> inbox) : CoreGate(worker, std::move(inbox)) {}

 protected:
  base::Status post_now(transport::Command& command, const engine::CallersCompletion& completion) override {
    // Commands that this thread has queued go first.
    if (queued() || !door().try_enter()) [[unlikely]]
      return post_or_queue(command, completion);
    bool wake = false;
    const base::Status status = post_inside(command, completion, &wake);
    if (door().exit_unless([this] { return inbox().ready(); }, 0)) [[unlikely]]
      stay();
    if (wake) [[unlikely]]
      wake_helpers();
    return status;
  }
  void let_out() override {
    for (int looks = 0;; ++looks) {
      const bool stalled = inbox().stalled();  // no use in trying again at once
      mark_outside();
      if (stalled) return door().exit();
      if (!door().exit_unless([this] { return inbox().ready(); }, looks)) return;
      mark_inside();
      // helpers see the commands of others that it leaves under way, though it may be a helper
      // itself
      count_entry();
      drain();
    }
  }
  [[nodiscard]] bool queues() const override { return true; }
  void after_queueing() override {
    if (door().help()) stay();
  }
  [[nodiscard]] bool leaves_others_commands() const override { return true; }

  // Inside, for what others have queued.
  void stay() {
    mark_inside();
    count_entry();
    drain();
    leave();
  }
};

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

  base::Status post_now(transport::Command& command, const engine::CallersCompletion& completion) override {
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

// offload: a thread that posts leaves its command in the queue, and the executor, a thread of the
// library, executes it. Progress of others is skipped while the executor is inside. Where threads
// share cores and the executor stands aside for those that wait, a thread that posts does so by
// itself if nobody is inside and nothing is queued, as in mode delegate.
//
// Standby: how the executor sleeps, how it stands aside for threads that wait, and what wakes
// it.
class OffloadGate final : public CoreGate {
 public:
  OffloadGate(Worker& worker, std::unique_ptr<Inbox> inbox);

  void begin() override;
  void end() override;
  [[nodiscard]] bool may_call() const override { return executor_->is_this_thread(); }
  void call_begins() override {
    if (standby_.call_begins()) executor_->wake();
  }
  void call_ends() override { standby_.call_ends(); }
  [[nodiscard]] bool executor_polls() const override { return !aside(); }
  [[nodiscard]] bool may_advance() const override { return !one_thread_ || executor_->is_this_thread(); }

  // ---- the executor ----
  Round execute_round();
  // The last round was Round::aside or aside_briefly.
  [[nodiscard]] bool aside() const { return standby_.aside(); }
  // See Standby.
  [[nodiscard]] bool prepare_sleep();
  [[nodiscard]] bool prepare_nap();
  [[nodiscard]] bool is_quiet();
  void end_sleep();

 private:
  class Side;  // what standby_ does inside the worker

  base::Status post_now(transport::Command& command, const engine::CallersCompletion& completion) override {
    if (engine::inside_of() != nullptr || aside()) [[unlikely]]
      return post_here(command, completion);
    return inbox().put(command, completion);
  }
  // Out of line: else every thread that posts saves registers for it.
  [[gnu::noinline]] base::Status post_here(transport::Command& command, const engine::CallersCompletion& completion);
  base::Status post_from_inside(transport::Command& command, const engine::CallersCompletion& completion);
  // While the executor stands aside, threads that post do as in mode delegate.
  base::Status post_aside(transport::Command& command, const engine::CallersCompletion& completion);
  void let_out() override;
  // Only for handlers and callbacks of this worker. A thread-local mark tells a thread that it runs
  // one; inside_ lies on a line that the executor writes all the time.
  [[nodiscard]] bool starts_here() const override { return engine::inside_of() == &worker().core(); }
  [[nodiscard]] bool queues() const override { return true; }
  void run_on_executor(void (*run)(void*), void* what) override {
    executor_->call([&] { run(what); });
  }

  const bool one_thread_;         // Context::one_thread()
  Executor* executor_ = nullptr;  // from begin() to end()
  Standby<> standby_;
};

}  // namespace heddle::worker
