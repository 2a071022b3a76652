// Leaving a job (decision 0040). First each rank ends its own operations, then all meet. If any
// rank has operations left when it comes, it says so, all make progress for each other until none
// has, and all meet once more: a rank's workers serve its peers until then.
#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/wait.hpp"
#include "worker/context.hpp"
#include "worker/watch.hpp"
#include "worker/worker.hpp"

namespace heddle::worker {
namespace {

// When nothing has moved for kStillNs, this rank says that it leaves although it has operations
// left, so that it hears whether all others leave as well. From then on every rank makes progress
// and none begins anything. An operation that has not moved for another kCancelNs waits for
// something that will never happen, such as the opening of a worker or the posting of a receive.
// kCancelNs is so long because a rank may have been stopped.
constexpr std::int64_t kStillNs = 2'000'000'000;
constexpr std::int64_t kCancelNs = 30'000'000'000;
// Ranks that had nothing left at the first meeting come to the second one at once, unless they are
// stopped. The others come when they have completed their operations, or have stopped waiting for
// them.
constexpr std::int64_t kPromptNs = 30'000'000'000;
constexpr std::int64_t kLateNs = Stillness::kProlongedNs + kCancelNs + kPromptNs;
constexpr std::byte kDrained{0};
constexpr std::byte kUndrained{1};

}  // namespace

class Context::Leaving {
 public:
  explicit Leaving(Context& context)
      : context_(context),
        clock_(*context.environment().clock),
        workers_(context.workers_.all()),
        waiter_(context.clock(), HEDDLE_FOREVER, &context.crowd_),
        watch_(context, nullptr, "heddle_context_leave", Watch::Scope::all) {}

  base::Status run();

 private:
  // Ranks that say that they have operations left.
  [[nodiscard]] std::size_t undrained() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(parts_, [](const auto& part) { return part.size() != 1 || part[0] != kDrained; }));
  }
  [[nodiscard]] std::uint64_t unfinished() const;
  [[nodiscard]] bool quiet() const;
  bool progress();
  [[nodiscard]] bool drain(std::int64_t still_ns, bool while_fewer);
  [[nodiscard]] base::Status finish(Collective kind, std::int64_t timeout_ns);
  [[nodiscard]] base::Status meet(std::int64_t timeout_ns);
  [[nodiscard]] base::Status drain_together();
  void warn_of_unfinished();

  Context& context_;
  base::Clock& clock_;
  const std::vector<Worker*> workers_;
  base::Waiter waiter_;
  Watch watch_;
  bool drained_ = false;
  std::vector<std::vector<std::byte>> parts_;  // what each rank said at the last meeting
};

std::uint64_t Context::Leaving::unfinished() const {
  std::uint64_t operations = 0;
  for (Worker* worker : workers_) operations += worker->unfinished_operations();
  return operations;
}

bool Context::Leaving::quiet() const {
  return std::ranges::all_of(workers_, [](Worker* worker) { return worker->try_quiet() != HEDDLE_AGAIN; });
}

// True: something has moved. False: nothing has, and the thread may have slept.
bool Context::Leaving::progress() {
  int events = context_.progress_attachment();
  for (Worker* worker : workers_) events += std::max(worker->progress(), 0);
  static_cast<void>(events > 0 ? waiter_.busy() : waiter_.idle());
  if (const std::int64_t ns = waiter_.nap_ns(); ns > 0) context_.nap(workers_, ns);
  return events > 0;
}

// Waits until the operations have ended. False: some have not, and going on is of no use.
// while_fewer: going on is of use as long as their number falls.
bool Context::Leaving::drain(std::int64_t still_ns, bool while_fewer) {
  Stillness stillness(still_ns, clock_);
  for (std::uint64_t left = unfinished(); !quiet();) {
    const bool moved = progress();
    const bool napping = waiter_.nap_ns() > 0;
    watch_.round(kNothingMore, napping);
    if (!stillness.over(moved, napping)) continue;
    const std::uint64_t still = while_fewer ? unfinished() : left;
    if (still >= std::exchange(left, still)) return false;
    stillness.renew();
  }
  return true;
}

base::Status Context::Leaving::finish(Collective kind, std::int64_t timeout_ns) {
  base::Timeout timeout(timeout_ns, clock_);
  base::Status status = HEDDLE_DONE;
  while ((status = context_.test_exchange(kind, &parts_)) == HEDDLE_AGAIN) {
    static_cast<void>(progress());
    if (timeout.over()) return context_.not_arrived(timeout_ns);
    watch_.round([&](tap::Wait& wait) { context_.describe_awaited(kind, wait); }, waiter_.nap_ns() > 0);
  }
  return status;
}

base::Status Context::Leaving::meet(std::int64_t timeout_ns) {
  const std::byte mine[] = {drained_ ? kDrained : kUndrained};
  const base::Status status = context_.begin_exchange(Collective::leave, mine);
  return status == HEDDLE_DONE ? finish(Collective::leave, timeout_ns) : status;
}

// Called after all ranks have met.
base::Status Context::Leaving::drain_together() {
  const bool others = undrained() > (drained_ ? 0U : 1U);
  if (!drained_ && !drain(context_.size() == 1 ? 0 : kCancelNs, false)) warn_of_unfinished();
  drained_ = true;
  if (context_.size() == 1) return HEDDLE_DONE;
  // Rank 0, whose bootstrap may keep the job together, is the last to go.
  const std::int64_t timeout_ns = others || context_.rank() == 0 ? kLateNs : kPromptNs;
  const base::Status status = meet(timeout_ns);
  if (status != HEDDLE_ERR_TIMEOUT) return status;
  context_.environment().log.line(
      base::Level::warn,
      "heddle_context_leave: all ranks have met to leave, but one has not gone on for %.3g s (is it stopped?)%s; this "
      "rank leaves",
      static_cast<double>(timeout_ns) / 1e9, context_.missing().c_str());
  return HEDDLE_DONE;
}

base::Status Context::Leaving::run() {
  drained_ = drain(kStillNs, true);
  const std::lock_guard lock(context_.exchange_mutex_);
  // A barrier that timed out here is still being waited for elsewhere.
  if (context_.in_exchange_) static_cast<void>(finish(Collective::barrier, base::Timeout::kForever));
  // If other ranks are in another collective, this rank leaves all the same: if it stayed, their
  // leave would wait for it.
  base::Status status = meet(base::Timeout::kForever);
  if (status == HEDDLE_DONE) {
    // From here on every rank only leaves. If a rank has died, the others have met as well, perhaps
    // for something else.
    context_.bootstrap().note_all_leave();
    if (undrained() > 0) status = drain_together();
  } else if (!drained_ && !drain(context_.size() == 1 ? 0 : kCancelNs, false)) {
    warn_of_unfinished();
  }
  if (Attachment* attached = context_.attachment(); attached != nullptr) attached->end();
  for (Worker* worker : workers_) context_.end_worker(worker);
  context_.bootstrap().leave();
  context_.left_ = true;
  // the living have all been waited for
  return status == HEDDLE_ERR_PEER_FAILED ? HEDDLE_DONE : status;
}

// Logs the workers whose operations will be cancelled when these workers end.
void Context::Leaving::warn_of_unfinished() {
  for (Worker* worker : workers_) {
    if (worker->try_quiet() != HEDDLE_AGAIN) continue;
    context_.environment().log.line(
        base::Level::warn,
        "heddle_context_leave: worker %u has operations that nobody will complete, since all ranks leave "
        "(messages to a worker that was never opened, or that nobody has received?); they end with CANCELLED",
        worker->index());
  }
}

base::Status Context::leave() {
  if (engine::inside_of() != nullptr) return engine::reject_wait("heddle_context_leave");
  return Leaving(*this).run();
}

}  // namespace heddle::worker
