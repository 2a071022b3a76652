// One queue of communication, put together from its parts:
//
//   Core            transport, operations, requester, answers: what the parts share
//   Completer       handles arrivals and ends, by a table of protocols
//   protocols       active messages, tagged messages, those of the table in worker.cpp, and the
//                   extension's
//   Gate            admits one thread at a time, where several threads use the worker (gate.hpp)
//
// The inline functions of api/ execute direct operations without coming here. Everything else is
// for one thread at a time: the only thread that uses an exclusive worker, or the thread that the
// gate has let in.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/fence.hpp"
#include "base/wait.hpp"
#include "engine/completer.hpp"
#include "engine/core.hpp"
#include "engine/tapped.hpp"
#include "protocol/active_messages.hpp"
#include "protocol/tagged.hpp"
#include "tap/debug_view.hpp"
#include "worker/context.hpp"
#include "worker/descriptor.hpp"
#include "worker/sharing.hpp"
#include "worker/watch.hpp"

namespace heddle::worker {

class Gate;

class Worker final : public engine::NamesObjects, private engine::Attentive {
 public:
  static constexpr engine::HandleType kType = engine::HandleType::worker;
  struct Traits {
    Sharing sharing = Sharing::exclusive;
    bool helped = false;
    void* user = nullptr;
    bool attends = false;
  };
  static base::Result<std::unique_ptr<Worker>> open(Context& context, std::uint32_t index, const Traits& traits);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  [[nodiscard]] Context& context() const { return context_; }
  [[nodiscard]] std::uint32_t index() const { return index_; }
  [[nodiscard]] std::uint32_t size() const { return size_; }
  [[nodiscard]] std::uint32_t max_workers() const { return max_workers_; }
  [[nodiscard]] std::uint64_t max_payload() const { return max_payload_; }
  [[nodiscard]] Sharing sharing() const { return sharing_; }
  // As it was opened.
  [[nodiscard]] const Traits& traits() const { return traits_; }
  // Null: the worker is exclusive and not helped. Before a thread uses the worker, it calls use()
  // or at_once() (gate.hpp).
  [[nodiscard]] Gate* gate() { return gate_.get(); }
  // Only for a worker without a gate.
  [[nodiscard]] Ownership<>& ownership() { return ownership_; }

  // Counts of what was posted.
  [[nodiscard]] Counts& counts() { return counts_; }
  [[nodiscard]] heddle_worker_stats read_stats();
  // Whether its operations may still touch the object. Any thread.
  [[nodiscard]] bool names_remote(const engine::RemoteRegion* remote) const override;
  [[nodiscard]] bool names_counter(const engine::OperationCounter* counter) const override;

  // Called when the context knows the worker, so that handlers can be given its handle. Starts the
  // executor, if the worker has one; the executor may then run handlers at once. Throws
  // std::system_error if there can be no more threads.
  void begin();
  // Called before the context forgets the worker, since objects stay alive while a worker names
  // them. Removes the worker from its executor; everything that is queued or in flight ends with
  // CANCELLED. No other thread uses the worker.
  void end();

  // ---- any thread that the sharing mode permits -------------------------------------------------
  // Number of events, 0 if another thread is inside, or ERR_STATE from inside a handler.
  int progress();
  // DONE, AGAIN, or the first unreported error (which is then reported).
  base::Status try_flush(std::uint32_t rank);
  base::Status try_quiet();
  // DONE: nothing is under way. Errors are left to flush and quiet.
  base::Status try_drain();
  // Makes progress until attempt() returns something else than AGAIN. STATE: it returned AGAIN
  // inside a handler. For describe(), see Watch::round().
  template <class Attempt, class Describe = decltype(kNothingMore)&>
  base::Status until(const WaitCall& wait, Attempt&& attempt, Describe&& describe = kNothingMore);
  // heddle_worker_wait; `handle` is this worker's.
  base::Status wait_moved(std::uint64_t handle, std::int64_t timeout_ns);
  // heddle_worker_wait_for: the condition's call is not null.
  base::Status wait_for(const heddle_wait_condition& condition, std::int64_t timeout_ns);
  // A number that changes whenever any thread has moved something. It changes after the handlers
  // and callbacks have run, so a thread that sees the change sees what they did.
  [[nodiscard]] std::uint64_t moved() const {
    return core_.moves.load(std::memory_order_acquire) + messages_.tasks().ran();
  }
  // DONE: no answer to a peer waits here for room.
  base::Status try_answer();
  // The number of operations that have not ended, plus the records of commands in the queue of the
  // sharing mode.
  std::uint64_t unfinished_operations();
  // heddle_run_tasks; `handle` is this worker's.
  int run_tasks(heddle_worker handle, std::uint32_t most, std::int64_t timeout_ns);
  // Credit for a message of class USER: DONE; AGAIN: its target must handle some first.
  base::Status take_credit(heddle_peer target, const heddle_am_message& message);
  // For Context::nap(): arms the worker, so that arrivals ring.
  using Rest = worker::Rest;
  // *armed, if not null: whether the transport was armed; it is not armed() any more once something
  // arrives.
  [[nodiscard]] Rest lie_down(bool* armed = nullptr);
  // heddle_worker_descriptor and heddle_worker_arm.
  [[nodiscard]] Descriptor& descriptor() { return descriptor_; }
  // ==== what follows is for the thread inside: the one thread of an exclusive worker, or who
  // passed the gate

  // One command: a put, a get, or a message that fits one of the transport's.
  [[gnu::always_inline]] base::Status post(transport::Command& command, const engine::CallersCompletion& completion) {
    if (protocol::is_tagged(command)) {
      return tagged_.post_numbered(command, [&] { return core_.requester.post(command, completion); });
    }
    return core_.requester.post(command, completion);
  }
  // Several prepared commands, see Requester::post().
  std::size_t post(std::span<transport::Command> prepared);
  // Frees what was reserved for a message that was never posted.
  void give_back(const transport::Command& command);

  // The parts. Their headers say which of their functions any thread may call.
  [[nodiscard]] engine::Core& core() { return core_; }
  [[nodiscard]] const engine::Core& core() const { return core_; }
  [[nodiscard]] engine::Completer& completer() { return completer_; }
  [[nodiscard]] protocol::ActiveMessages& messages() { return messages_; }
  [[nodiscard]] protocol::Tagged& tagged() { return tagged_; }
  // The protocol with this number, see wire::extension(); null: there is none. Number 0: the
  // protocol of the room above.
  [[nodiscard]] engine::Protocol* extension(std::uint32_t number = 0) const {
    return completer_.at(wire::kExtensionRow + number);
  }

 private:
  Worker(Context& context, std::uint32_t index, const Traits& traits,
         std::unique_ptr<transport::TransportWorker> transport);

  class Rounds;
  void note_task(tap::TraceEvent event, std::uint32_t handler);
  // Progress on other workers by a thread that waits on this one, in round `round` of the wait, or
  // before a nap. Returns the number of events.
  int attend(std::uint32_t round);
  // `rests`: the wait does not spin any more.
  static bool attends_in(std::uint32_t round, bool rests) {
    constexpr std::uint32_t kUndisturbed = 64;
    return rests || round % kUndisturbed == 0;
  }
  int attend_before_nap();
  void called() override { context_.inspection().noticed(*this); }
  void add(OpenExtension open_one, std::span<const std::uint32_t> rows);

  // Members that every posting thread reads, and that nobody writes. They are on lines of their
  // own, since the thread inside writes the rest all the time.
  Context& context_;
  std::unique_ptr<Gate> gate_;  // goes first, see ~Worker: its executor uses all the rest
  std::uint32_t index_;
  const Sharing sharing_;
  std::uint32_t size_;
  std::uint32_t max_workers_;
  std::uint64_t max_payload_;
  std::unique_ptr<transport::TransportWorker> transport_;
  Ownership<> ownership_;  // of a worker of one thread, which writes it

  alignas(base::kCacheLine) Counts counts_;
  engine::Core core_;
  protocol::ActiveMessages messages_;
  protocol::Tagged tagged_;
  std::vector<std::unique_ptr<engine::Protocol>> others_;  // of the table, and the extension
  engine::Completer completer_;
  Descriptor descriptor_{*this};  // its thread looks at the others
  const Traits traits_;
};

// What the rounds of a wait on a worker have in common: looks at the others, the time, rest.
class Worker::Rounds {
 public:
  Rounds(Worker& worker, const WaitCall& wait)
      : worker_(worker),
        waiter_(worker.context_.clock(), wait.timeout_ns, &worker.context_.crowd()),
        watch_(worker.context_, &worker, wait.call),
        rings_(wait.rings) {}

  // After a look in vain. `events`: what the round has moved; `seen`: moved() before it. False: the
  // time is over.
  [[nodiscard]] bool go_on(int events, std::uint64_t seen) {
    ++round_;
    if (worker_.traits_.attends) [[unlikely]]
      events += attend();
    if (!(events > 0 ? waiter_.busy() : waiter_.idle())) {
      watch_.may_resume();
      return false;
    }
    const std::int64_t ns = waiter_.nap_ns();
    rested_ = ns > 0;
    if (rested_) [[unlikely]]
      nap(ns, seen);
    return true;
  }
  // See Watch::round().
  template <class Describe>
  void watch(Describe&& describe) {
    watch_.round(describe, rested_);
  }
  // See WaitCall.
  void set_rings(bool rings) { rings_ = rings; }
  // In the last go_on() it was time to sleep.
  [[nodiscard]] bool rested() const { return rested_; }
  [[nodiscard]] std::uint32_t round() const { return round_; }

 private:
  int attend();
  void nap(std::int64_t ns, std::uint64_t seen);

  Worker& worker_;
  base::Waiter waiter_;
  Watch watch_;
  std::uint32_t round_ = 0;
  // After another worker has moved, the others are looked at in each of so many rounds: somebody
  // makes one access after the other.
  std::uint32_t near_ = 0;
  bool rings_;
  bool rested_ = false;
  // the next nap is taken even if the worker has moved: one was not, for that
  bool sleeps_ = false;
};

// Out of line: its callers hardly ever wait, and should save no registers for that.
template <class Attempt, class Describe>
[[gnu::noinline]] base::Status Worker::until(const WaitCall& wait, Attempt&& attempt, Describe&& describe) {
  Rounds rounds(*this, wait);
  for (;;) {
    const std::uint64_t seen = moved();
    const base::Status status = attempt();
    if (status != HEDDLE_AGAIN) {
      base::show_acquire(core_.order());
      return status;
    }
    if (engine::inside_of() != nullptr) [[unlikely]] {
      return engine::reject_wait(wait.call);
    }
    const int events = progress();
    if (events > 0) {  // mostly what is awaited: the wait is over without what follows
      if (const base::Status now = attempt(); now != HEDDLE_AGAIN) {
        base::show_acquire(core_.order());
        return now;
      }
    }
    if (events < 0) return static_cast<base::Status>(events);
    if (!rounds.go_on(events, seen)) return HEDDLE_ERR_TIMEOUT;
    rounds.watch(describe);
  }
}

// Progress by a thread that polls a worker whose traits say that it attends: the thread is as good
// as one that waits, and its polls that find nothing are the rounds.
int progress_attending(Worker& worker);

// What a worker tells about itself, in reports and for the verdict on why a job does not move.

// Logs what is under way. Any thread.
void report_operations(Worker& worker);
// Tells it to the findings. Any thread; if the worker has no gate, only the thread that uses it.
// False: another thread is inside, and the findings say so. Throws std::bad_alloc.
bool look_inside(Worker& worker, engine::Findings& findings);
// Tells only what the worker has under way, in findings.state; nothing if another thread is inside.
void look_under_way(Worker& worker, engine::Findings& findings);
// Tells what any thread may tell about a worker without a gate that another thread uses. `still`:
// no thread has polled it for a while. Throws std::bad_alloc.
void look_from_outside(Worker& worker, bool still, engine::Findings& findings);
// The same as look_inside() for the thread inside.
void find_inside(Worker& worker, engine::Findings& findings);

// Tells a debugger where the worker's numbers are. The worker is open.
void show(Worker& worker, tap::DebugWorker& shown);

// Numbers that change when something happens. They are read while other threads write them.
// `calls`: by threads of the program.
struct Glimpse {
  std::uint64_t moves;
  std::uint64_t calls;
};
[[nodiscard]] Glimpse glimpse(Worker& worker);

}  // namespace heddle::worker
