#include "tofu/emulator/engine.hpp"

#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/clock.hpp"
#include "base/threads.hpp"
#include "base/wait.hpp"
#include "tofu/emulator/process.hpp"
#include "tofu/emulator/report.hpp"

namespace tofu_emulator {
namespace {

constexpr std::uint64_t kLookNs = 100'000'000;
constexpr std::int64_t kStalledNapNs = 1'000'000;
// another process may end the job without waking this one
constexpr std::int64_t kLongNapNs = 1'000'000'000;
constexpr std::uint64_t kCulpritNs = 10'000'000'000;
constexpr std::uint64_t kDeathLookNs = 1'000'000'000;
constexpr std::uint32_t kRoundsBetweenClocks = 256;
// strict mode counts time in rounds: twice the longest delay of a packet
constexpr std::uint32_t kDelayedSpins = 1024;

std::uint64_t now_ns() {
  return heddle::base::SystemClock().now_ns();
}

// The kernel's struct sched_attr, whose header clashes with newer C libraries.
struct SchedulingAttributes {
  std::uint32_t size;
  std::uint32_t policy;
  std::uint64_t flags;
  std::int32_t nice;
  std::uint32_t priority;
  std::uint64_t runtime_ns;  // of an ordinary thread: its slice, since Linux 6.12
  std::uint64_t deadline_ns;
  std::uint64_t period_ns;
};

// Lets this thread have a core soon after it wakes, although the program's threads keep all cores
// busy: each message of a program that polls memory would otherwise take a time slice or more. A
// thread with a short slice comes before others; a higher priority, which needs a right, does the
// same on older kernels. Without either it works too, slowly.
void ask_for_a_core_at_once() {
  constexpr std::uint64_t kSliceNs = 100'000;  // the shortest that the kernel takes
  constexpr std::int32_t kNice = -10;
  SchedulingAttributes wanted{};
  if (::syscall(SYS_sched_getattr, 0, &wanted, sizeof wanted, 0) != 0 || wanted.policy != SCHED_OTHER) return;
  wanted.runtime_ns = kSliceNs;
  const std::int32_t own = wanted.nice;
  wanted.nice = std::min(own, kNice);
  if (::syscall(SYS_sched_setattr, 0, &wanted, 0) == 0) return;
  wanted.nice = own;
  (void)::syscall(SYS_sched_setattr, 0, &wanted, 0);
}

}  // namespace

Engine::Engine(Process& process)
    : process_(process),
      world_(process.world()),
      strict_(process.settings().strict()),
      step_(process.settings().step),
      memory_(process.settings().strict()),
      job_watch_(process.settings().watchdog_s * std::uint64_t{1'000'000'000}),
      bell_(&process.world().entry(process.number()).doorbell),
      targets_(process.world().processes()),
      sources_(process.world().processes()),
      delayed_requests_(process.settings().seed * 2 + process.number()),
      delayed_responses_(process.settings().seed * 2 + 1 + process.number()) {
  if (step_) world_.entry(process_.number()).engine_runs.store(1, std::memory_order_release);
}

Engine::~Engine() {
  if (!thread_.joinable()) return;
  stop_.store(true, std::memory_order_seq_cst);
  bell_.ring();
  thread_.join();
}

Engine::Pause::Pause(Engine& engine) : engine_(engine) {
  engine_.pauses_.fetch_add(1, std::memory_order_relaxed);
  engine_.rounds_mutex_.lock();
  engine_.pauses_.fetch_sub(1, std::memory_order_relaxed);
}

Engine::Pause::~Pause() {
  engine_.rounds_mutex_.unlock();
}

void Engine::add_user() {
  if (users_++ != 0 || step_) return;
  stop_.store(false, std::memory_order_seq_cst);
  world_.entry(process_.number()).engine_runs.store(1, std::memory_order_release);
  thread_ = heddle::base::start_quiet_thread([this] { run(); });
}

void Engine::remove_user() {
  if (--users_ != 0 || step_) return;
  stop_.store(true, std::memory_order_seq_cst);
  bell_.ring();
  thread_.join();
  world_.entry(process_.number()).engine_runs.store(0, std::memory_order_release);
}

void Engine::ring() {
  if (step_) {
    (void)step();
  } else {
    bell_.ring();
  }
}

std::size_t Engine::step() {
  if (!step_) return 0;
  const Pause pause(*this);
  const std::size_t done = round();
  if (now_ns() >= next_look_ns_) look();
  return done;
}

// With more runnable threads than cores, spinning takes time from threads that could make progress,
// and a yield costs as much as their time slices: then the engine sleeps at once, since a thread
// that is woken comes before those that run.
void Engine::run() {
  pthread_setname_np(pthread_self(), "utofu-engine");
  Memory::let_faults_in();
  if (process_.crowded()) ask_for_a_core_at_once();
  {
    const std::lock_guard lock(rounds_mutex_);
    thread_id_ = ::gettid();
  }
  const std::uint32_t spins = process_.crowded() ? 8 : 400;
  const std::uint32_t yields = process_.crowded() ? 0 : 20;
  std::uint32_t idle = 0;
  while (!stop_.load(std::memory_order_seq_cst)) {
    std::size_t done = 0;
    bool delayed = false;
    {
      const std::lock_guard lock(rounds_mutex_);
      for (std::uint32_t i = 0; i < 16 && pauses_.load(std::memory_order_relaxed) == 0; ++i) {
        const std::size_t now = round();
        done += now;
        if (now == 0) break;
      }
      if (++rounds_ % kRoundsBetweenClocks == 0 && now_ns() >= next_look_ns_) look();
      delayed = !delayed_requests_.empty() || !delayed_responses_.empty();
    }
    while (pauses_.load(std::memory_order_relaxed) != 0) ::sched_yield();
    if (done != 0) {
      idle = 0;
    } else if (++idle < (delayed ? std::max(spins, kDelayedSpins) : spins)) {
      if (!process_.crowded()) heddle::base::cpu_relax();
    } else if (delayed) {
      // where a polling program has the only core, a yield takes a whole time slice: yield once,
      // not in each round
      ::sched_yield();
      idle = 0;
    } else if (idle < spins + yields) {
      ::sched_yield();
    } else {
      sleep_until_rung();
      idle = spins;
    }
  }
}

std::size_t Engine::round() {
  stalled_ = false;
  std::size_t done = receive(Channel::responses) + receive(Channel::requests);
  if (strict_) done += release_delayed();
  for (EmulatedCq* cq : process_.cqs()) done += execute(*cq);
  done += process_.gates().progress(process_, *this);
  flush();
  moved_ += done;
  return done;
}

// Publishes the records put into rings, with one check of each target's doorbell, and wakes
// processes that may wait for room in our rings.
void Engine::flush() {
  const std::uint32_t own = process_.number();
  for (const std::uint32_t process : unpublished_) {
    Target& to = targets_[process];
    ProcessEntry& entry = world_.entry(process);
    // Answers first: an acknowledgement must be visible before requests that the program sends
    // because of the acknowledged data.
    for (const Channel which : {Channel::responses, Channel::requests}) {
      const auto channel = static_cast<std::size_t>(which);
      if (!to.unpublished[channel]) continue;
      to.unpublished[channel] = false;
      to.ends[channel].publish();
      entry.filled[channel][own / 64].fetch_or(std::uint64_t{1} << (own % 64), std::memory_order_seq_cst);
    }
    if (process != own) Doorbell<>(&entry.doorbell).ring();
  }
  unpublished_.clear();
  // If this wake-up is too early for their check of the ring, they sleep only for a short time.
  for (const std::uint32_t process : freed_)
    if (process != own) Doorbell<>(&world_.entry(process).doorbell).ring();
  freed_.clear();
}

bool Engine::something_there() const {
  if (stop_.load(std::memory_order_seq_cst)) return true;
  const ProcessEntry& entry = world_.entry(process_.number());
  for (const auto& channel : entry.filled) {
    for (const auto& word : channel)
      if (word.load(std::memory_order_seq_cst) != 0) return true;
  }
  return std::any_of(process_.cqs().begin(), process_.cqs().end(),
                     [](const EmulatedCq* cq) { return cq->has_command(); }) ||
         !process_.gates().idle();
}

void Engine::sleep_until_rung() {
  std::int64_t most_ns = kLongNapNs;
  bool stalled = false;
  {
    const std::lock_guard guard(rounds_mutex_);  // rounds may run on another thread, in drain()
    stalled = stalled_;
    if (stalled) {
      most_ns = kStalledNapNs;
    } else if (messages_.open_count() != 0) {
      most_ns = static_cast<std::int64_t>(kLookNs);
    }
    publish_moved();
  }
  bell_.sleep(
      [this, stalled] {
        // work that is there cannot proceed until room is made or time has passed
        if (stalled) return false;
        const std::lock_guard guard(rounds_mutex_);
        return something_there();
      },
      most_ns);
  const std::lock_guard guard(rounds_mutex_);
  if (now_ns() >= next_look_ns_) look();
}

bool Engine::gone(std::uint32_t process) {
  return target(process).dead || world_.entry(process).engine_runs.load(std::memory_order_acquire) == 0;
}

// At intervals: looks for dead processes and stalled queues.
void Engine::look() {
  const std::uint64_t now = now_ns();
  next_look_ns_ = now + kLookNs;
  const std::uint32_t ended = world_.ended().load(std::memory_order_relaxed);
  if (ended != 0 && ended != process_.number() + 1) {
    end_with_the_job(ended - 1);
  }
  look_at_peers();
  look_for_deaths(now);
  look_at_stalls(now);
  publish_moved();
  look_at_job(now);
}

// The launcher reports the process that ends first. That must be the process that knows the cause,
// which may take time to dump core.
void Engine::end_with_the_job(std::uint32_t by) {
  warn("process %u has ended the job", by);
  const std::uint64_t since = now_ns();
  heddle::base::Nap nap;
  while (!world_.died(by) && now_ns() - since < kCulpritNs) nap.take();
  std::_Exit(EXIT_FAILURE);
}

// A program may wait for ever for a process that has died: for a notice, or for a word in memory.
// One of the remaining processes reports the death, whether or not it communicates with the dead
// one.
void Engine::look_for_deaths(std::uint64_t now) {
  if (now < next_death_look_ns_) return;
  next_death_look_ns_ = now + kDeathLookNs;
  for (std::uint32_t process = 0; process < targets_.size(); ++process) {
    if (!world_.died(process)) continue;
    if (world_.entry(process).death_told.exchange(1, std::memory_order_relaxed) != 0) continue;
    warn("%s; what is sent to it ends with UTOFU_ERR_MRQ_PEER", world_.describe_death(process).c_str());
  }
}

void Engine::look_at_peers() {
  if (!stalled_ && messages_.open_count() == 0) return;
  std::vector<bool> concerned(targets_.size(), stalled_);
  messages_.for_each([&concerned](const Message& message) { concerned[message.process] = true; });
  for (std::uint32_t process = 0; process < targets_.size(); ++process) {
    Target& to = targets_[process];
    if (concerned[process] && to.made && !to.dead) to.dead = world_.died(process);
  }
  constexpr auto kResponses = static_cast<std::size_t>(Channel::responses);
  messages_.for_each([this](Message& message) {
    // First check whether the process will not answer any more, then whether it has answered: an
    // answer sent before its end still counts.
    const DirectoryOwner owner = world_.cq_owner(message.target.node, message.target.tni, message.target.cq);
    const bool same = owner.somebody() && owner.generation == message.generation;
    if (!gone(message.process) && same) return;
    if (source(message.process).ends[kResponses].has_more()) {
      // A process that was killed after it published an answer may not have set its bit in
      // `filled`.
      filled_[kResponses][message.process / 64] |= std::uint64_t{1} << (message.process % 64);
      return;
    }
    if (delayed_responses_.empty()) complete(message, UTOFU_ERR_MRQ_PEER, 0, message.model_ns);
  });
}

void Engine::drain(EmulatedCq& cq) {
  std::uint64_t before = cq.pointers().executed;
  for (std::uint64_t since = now_ns();;) {
    {
      const Pause pause(*this);
      (void)round();
      if (!cq.has_command() && !cq.begun()) return;
      const std::uint64_t executed = cq.pointers().executed;
      if (executed != before) since = now_ns();
      before = executed;
      if (now_ns() - since > kLookNs) look();
      if (now_ns() - since > 100 * kLookNs) return;
    }
    ::sched_yield();
  }
}

void Engine::forget(const EmulatedCq& cq) {
  messages_.for_each([this, &cq](Message& message) {
    if (message.cq == &cq) messages_.close(message);
  });
}

void Engine::forget(EmulatedCq& cq, std::uint16_t slot) {
  messages_.for_each([&](Message& message) {
    if (message.cq != &cq || message.slot != slot) return;
    if (strict_ && message.opcode == Opcode::get) cq.stags().finished(message.local_stadd);
    --cq.open_messages;
    messages_.close(message);
  });
}

std::size_t Engine::under_way(const EmulatedVcq& vcq) {
  const Pause pause(*this);
  std::size_t count = vcq.cq->waiting_of(vcq.slot);
  messages_.for_each([&](const Message& message) {
    if (message.cq == vcq.cq && message.slot == vcq.slot && !gone(message.process)) ++count;
  });
  return count;
}

void Engine::reseed(std::uint64_t seed) {
  const Pause pause(*this);
  delayed_requests_.reseed(seed * 2 + process_.number());
  delayed_responses_.reseed(seed * 2 + 1 + process_.number());
}

}  // namespace tofu_emulator
