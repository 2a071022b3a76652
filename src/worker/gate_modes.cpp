#include "worker/gate_modes.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace heddle::worker {

// A helper seems to be inside. For as long as a visit usually takes it is treated like any other
// thread. After that it has probably lost its core, and gets this one, again and again but not all
// the time, since it may also be running a long handler.
bool CoreGate::enter_after_helper() {
  return helper_stays() && helper_.fetch(kFetchSleepNs) && try_enter();
}

bool CoreGate::helper_stays() {
  const std::uint64_t now = worker().context().clock().now_ns();
  const std::uint32_t visit = visits_.load(std::memory_order_relaxed);
  if (visit != refused_visit_.load(std::memory_order_relaxed)) {
    refused_visit_.store(visit, std::memory_order_relaxed);
    fetch_at_.store(now + kPatienceNs, std::memory_order_relaxed);
    return false;
  }
  if (now < fetch_at_.load(std::memory_order_relaxed)) return false;
  fetch_at_.store(now + 2 * kFetchSleepNs, std::memory_order_relaxed);  // half of it is slept
  return true;
}

bool CoreGate::let_in_helper(std::uint32_t number, bool /*urgent*/) {
  // a thread of the application
  if ((number & queue::SystemHandover::kStays) != 0) return door_.try_enter();
  if (!helper_.try_claim(number)) return false;
  count_visit();
  if (door_.try_enter()) return true;
  helper_.release();
  return false;
}

void CoreGate::let_out_helper(bool helper) {
  leave();
  if (helper) helper_.release();
}

namespace {

// Looks of the owner at a claim: a short visit of a helper.
constexpr int kOwnLooks = 64;
// After that the thread inside may have lost its core, or it runs a handler; this thread does not
// wait for it.
constexpr std::int64_t kAwaitNs = 50'000;

std::uint32_t own_number() {
  return static_cast<std::uint32_t>(::syscall(SYS_gettid)) | queue::SystemHandover::kStays;
}

}  // namespace

bool AutoGate::enter_later() {
  if (!bias_.owned_by(base::thread_mark()) && take_over(true)) return true;
  for (int i = 0; i < kOwnLooks; ++i) {
    if (enter_as_owner()) return true;
    if (bias_.shared()) return DelegateGate::let_in();
    base::cpu_relax();
  }
  bias_.await_helper(kAwaitNs);
  return enter_as_owner();
}

// Lets in a thread that is not the owner.
bool AutoGate::take_over(bool urgent) {
  if (bias_.owned_by(base::thread_mark())) return false;
  // Failed attempts count, too: they have disturbed the owner as much.
  const std::uint64_t now = worker().context().clock().now_ns();
  const std::uint64_t last = tried_at_.load(std::memory_order_relaxed);
  const std::uint64_t forgiven = now > last ? (now - last) / kBearableNs : 0;
  const std::uint64_t before = hurried_.load(std::memory_order_relaxed);
  const std::uint64_t hurried = before - std::min(before, forgiven) + 1;
  tried_at_.store(now, std::memory_order_relaxed);
  hurried_.store(hurried, std::memory_order_relaxed);
  if (!bias_.take_over(base::thread_mark(), hurried > kMostHurried, own_number(), urgent)) return false;
  return enter_as_owner() || (bias_.shared() && DelegateGate::let_in_at_once());
}

bool AutoGate::enter_after_visit() {
  if (!helper_stays()) return false;
  bias_.await_helper(kFetchSleepNs);
  return enter_as_owner();
}

bool AutoGate::claim(bool urgent) {
  return !bias_.owned_by(base::thread_mark()) && claim_as(own_number(), urgent);
}

class OffloadGate::Side {
 public:
  explicit Side(OffloadGate& gate) : gate_(gate), completer_(gate.worker().completer()) {}

  bool enter() { return gate_.enter(); }
  void leave() { gate_.leave(); }
  std::size_t drain() { return gate_.drain(); }
  std::size_t poll() {
    gate_.count_poll();
    return static_cast<std::size_t>(completer_.progress());
  }
  [[nodiscard]] std::uint64_t polls() const { return gate_.polls(); }
  [[nodiscard]] bool stalled() const { return gate_.inbox().stalled(); }
  [[nodiscard]] bool under_way() const { return completer_.under_way(); }
  [[nodiscard]] bool can_ring() const { return gate_.worker().core().can_ring(); }
  bool arm() { return completer_.arm(); }
  [[nodiscard]] bool has_arrivals() const { return gate_.worker().core().transport.has_arrivals(); }
  bool prepare_queue() { return gate_.inbox().prepare_sleep(); }
  bool wake_queue() { return gate_.inbox().wake_up(); }
  [[nodiscard]] bool crowded() const {
    const base::Crowd& crowd = gate_.worker().context().crowd();
    return crowd.crowded() || !crowd.spare();
  }

 private:
  OffloadGate& gate_;
  engine::Completer& completer_;
};

OffloadGate::OffloadGate(Worker& worker, std::unique_ptr<Inbox> inbox)
    : CoreGate(worker, std::move(inbox), true), one_thread_(worker.context().one_thread()) {}

void OffloadGate::begin() {
  executor_ = &worker().context().executor();
  inbox().set_executor(executor_);
  executor_->add(this);
}

void OffloadGate::end() {
  if (executor_ != nullptr) executor_->remove(this);
  Gate::end();
}

base::Status OffloadGate::post_here(transport::Command& command, const engine::CallersCompletion& completion) {
  if (starts_here()) return post_from_inside(command, completion);
  // A helper, which may lose its core inside, would have to claim the gate (CoreGate).
  const bool posts = aside() && !one_thread_ && queue::this_helper() == 0;
  return posts ? post_aside(command, completion) : inbox().put(command, completion);
}

// Handlers and callbacks of this worker. Tagged messages keep the order of the calls.
base::Status OffloadGate::post_from_inside(transport::Command& command, const engine::CallersCompletion& completion) {
  return protocol::is_tagged(command) && queued() ? inbox().put(command, completion)
                                                  : worker().post(command, completion);
}

// What others queue meanwhile is for the threads that wait, as all that is queued while the
// executor stands aside. It may have come back to sleep for long since the caller has looked.
base::Status OffloadGate::post_aside(transport::Command& command, const engine::CallersCompletion& completion) {
  // Commands that this thread has queued go first.
  if (queued() || !door().try_enter()) return inbox().put(command, completion);
  // A command that goes to a dead rank is lost: who drains the queue looks for dead ranks first.
  if (!worker().completer().knows_failures()) [[unlikely]] {
    door().exit();
    return inbox().put(command, completion);
  }
  bool wake_some = false;
  const base::Status status = post_inside(command, completion, &wake_some);
  Side side(*this);
  const bool wake = status == HEDDLE_POSTED && standby_.must_wake_executor(side);
  door().exit();
  if (wake) executor_->wake();
  if (wake_some) wake_helpers();
  // The queue may have room where the transport has none.
  return status == HEDDLE_AGAIN ? inbox().put(command, completion) : status;
}

// An executor that sleeps would not poll for the operations that a handler has posted here.
void OffloadGate::let_out() {
  Side side(*this);
  const bool wake = standby_.must_wake_executor(side);
  CoreGate::let_out();
  if (wake) executor_->wake();
}

Round OffloadGate::execute_round() {
  Side side(*this);
  return standby_.round(side);
}

bool OffloadGate::prepare_sleep() {
  Side side(*this);
  return standby_.prepare_sleep(side);
}

bool OffloadGate::prepare_nap() {
  Side side(*this);
  return standby_.prepare_nap(side);
}

bool OffloadGate::is_quiet() {
  Side side(*this);
  return standby_.is_quiet(side);
}

void OffloadGate::end_sleep() {
  Side side(*this);
  standby_.end_sleep(side);
}

}  // namespace heddle::worker
