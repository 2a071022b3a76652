#include "worker/gate_offload.hpp"

namespace heddle::engine {
namespace {

constexpr std::uint64_t kPollsOfAWait = 8;
// 200 us at most, if nobody waits any more.
constexpr std::uint32_t kLooksBetweenWaits = 4;

}  // namespace

OffloadGate::OffloadGate(Worker& worker, std::unique_ptr<Inbox> inbox)
    : CoreGate(worker, std::move(inbox), true), one_thread_(worker.context().one_thread()) {}

void OffloadGate::begin() {
  executor_ = &worker().context().executors().of(worker().index());
  inbox().set_executor(executor_);
  executor_->add(this);
}

void OffloadGate::end() {
  if (executor_ != nullptr) executor_->remove(this);
  Gate::end();
}

// Handlers and callbacks of this worker. Tagged messages keep the order of the calls.
base::Status OffloadGate::post_from_inside(transport::Command& command, const Completion& completion) {
  return is_tagged(command) && queued() ? inbox().put(command, completion) : worker().post(command, completion);
}

// An executor that sleeps would not poll for what a handler has posted here. Nobody sets the bit
// but who is inside.
void OffloadGate::let_out() {
  const bool wake = wanted_by_work() && wake_completer();
  CoreGate::let_out();
  if (wake) executor_->wake_completer();
}

// Inside. True: who polls sleeps, or is about to, and is to be woken.
bool OffloadGate::wake_completer() {
  return executor_->apart() ? std::exchange(completer_asleep_, false) : inbox().wake_up();
}

// Where threads share cores, one that waits would have to give its core to the executor, and the
// executor would have to give it back, for each thing that it waits for. But such a thread does the
// executor's work by itself whenever it polls. So the executor stays away while others poll, and
// for some looks more, since they may be between two waits. Somebody who computes and polls now and
// then is not enough.
OffloadGate::Others OffloadGate::look_at_others() {
  const std::uint64_t others = polls() - own_polls_;
  const bool wait = others - std::exchange(seen_polls_, others) >= kPollsOfAWait;
  if (calls_.load(std::memory_order_relaxed) != 0 || !(aside() || worker().context().crowd().crowded())) {
    looks_left_ = 0;
    return Others::do_not_wait;
  }
  if (wait) looks_left_ = kLooksBetweenWaits + 1;
  if (looks_left_ == 0) return Others::do_not_wait;
  --looks_left_;
  return wait ? Others::wait : Others::waited_lately;
}

void OffloadGate::stand_aside(bool now) {
  if (now != aside()) aside_.store(now, std::memory_order_relaxed);
}

OffloadGate::Round OffloadGate::execute_round(ExecutorRole role) {
  const Others others = role == ExecutorRole::both ? look_at_others() : Others::do_not_wait;
  stand_aside(others == Others::wait);
  if (aside()) return Round::aside;
  if (!enter()) return Round::waiting;
  std::size_t done = role != ExecutorRole::completions ? drain() : 0;
  if (role != ExecutorRole::commands) {
    count_poll();
    ++own_polls_;
    completer_asleep_ = false;
    done += static_cast<std::size_t>(worker().completer().progress());
  }
  const bool open = role == ExecutorRole::commands ? inbox().stalled() : wanted_by_work();
  leave();
  if (done != 0) return Round::busy;
  if (open) return Round::waiting;
  stand_aside(others == Others::waited_lately);
  return aside() ? Round::aside_briefly : Round::idle;
}

bool OffloadGate::prepare_sleep(ExecutorRole role) {
  if (!enter()) return false;
  bool may = role == ExecutorRole::commands ? !inbox().stalled() : !wanted_by_work();
  // Armed or not where the transport cannot ring: then the sleep is short.
  if (may && role != ExecutorRole::commands && worker().core().can_ring()) may = worker().completer().arm();
  if (may && role != ExecutorRole::completions) may = inbox().prepare_sleep();
  completer_asleep_ = may && role == ExecutorRole::completions;
  leave();
  return may;
}

bool OffloadGate::is_quiet() {
  if (!worker().core().can_ring()) return true;
  if (!enter()) return false;
  const bool quiet = !worker().core().transport.has_arrivals();
  leave();
  return quiet;
}

}  // namespace heddle::engine
