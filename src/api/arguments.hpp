// Helpers that the C functions share: they turn handles into objects and bad arguments into
// messages, and let no exception cross the C ABI.
//
// The checks that every operation makes are inline and cost one branch. The text of an error is
// made in arguments.cpp, out of line.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <exception>
#include <span>
#include <utility>

#include "base/error.hpp"
#include "worker/context.hpp"
#include "worker/gate.hpp"
#include "worker/worker.hpp"

namespace heddle::api {

using base::Status;
using engine::find_handle;
using engine::OperationCounter;
using engine::Region;
using engine::RemoteRegion;
using worker::Context;
using worker::Sharing;
using worker::Tally;
using worker::Worker;

[[gnu::cold]] Status bad_handle(const char* what, std::uint64_t id);
[[gnu::cold]] Status null_argument(const char* function, const char* argument);
// True: `worker` may access [offset, offset + bytes) of `remote` by commands.
inline bool accessible(Worker& worker, const RemoteRegion& remote, std::uint64_t offset, std::uint64_t bytes) {
  return &worker.core().objects == remote.owner && remote.is(RemoteRegion::Barred::no) && remote.range(offset, bytes);
}
// Explains why `worker` may not access [offset, offset + bytes) of `remote` by commands; DONE if it
// may, once the owner has been met.
[[gnu::cold]] Status explain_access(const Worker& worker, const RemoteRegion& remote, std::uint64_t offset,
                                    std::uint64_t bytes);
// The owner of the region has not been met yet: this would be the first access to its memory.
inline bool unmet(const RemoteRegion& remote) {
  return remote.is(RemoteRegion::Barred::unmet);
}
// Meets the owner. DONE: try the operation again, which may be direct now, and never unmet. AGAIN:
// its card is under way. Another error says why the owner cannot be met. After that error, as after
// AGAIN, the region may be gone.
[[gnu::cold]] Status meet(RemoteRegion& remote);
// For a waiting call in a handler: an operation that becomes direct once the owner has been met
// needs no wait. DONE: the region of this handle is met, or not open; else as meet().
[[gnu::cold]] Status meet_now(std::uint64_t handle);
[[gnu::cold]] Status out_of_memory();

// Text for reports of threads that wait until their operation is accepted.
[[gnu::cold]] void describe_refused(Worker& worker, tap::Wait& wait);

// Runs set-up code and turns its exceptions into a status.
template <class Function>
Status guarded(Function&& function) noexcept {
  try {
    return std::forward<Function>(function)();
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const std::exception& error) {
    return base::fail(HEDDLE_ERR_SYSTEM, "%s", error.what());
  }
}

// True: the worker may raise the counter. The workers of the counter's context may, and keep the
// counter while they refer to it; or only one of them may, by one thread at a time: an owner before
// might be looking at the worker in a wait, so the caller takes it over and waits for that look.
inline bool raised_by(const OperationCounter& counter, Worker& worker) {
  if (counter.only() == 0) return &counter.owner() == &worker.core().objects;
  if (counter.only() != worker.core().handle.id) return false;
  worker.ownership().come_by();
  return true;
}

// Resolves a completion. False: its counter does not exist, or this worker may not raise it; or it
// is one of a send only.
inline bool resolved(Worker& worker, const heddle_completion* from, engine::CallersCompletion* to) {
  if (from == nullptr) return true;
  if (from->when == HEDDLE_WHEN_MATCHED) [[unlikely]]
    return false;
  to->fn = from->fn;
  to->arg = from->arg;
  to->when = from->when;
  if (from->counter.id == 0) return true;
  to->counter = find_handle<OperationCounter>(from->counter.id);
  return to->counter != nullptr && raised_by(*to->counter, worker);
}
// Explains why resolved() or counter_fits() is false; DONE if neither is.
[[gnu::cold]] Status explain_completion(Worker& worker, const heddle_completion& completion);
inline Status resolve(Worker& worker, const heddle_completion* from, engine::CallersCompletion* to) {
  return from == nullptr || resolved(worker, from, to) ? HEDDLE_DONE : explain_completion(worker, *from);
}

// True: the completion has no counter.
inline bool uncounted(const heddle_completion* completion) {
  return completion == nullptr || completion->counter.id == 0;
}

// True: an operation that is done at once raises nothing: it has no counter, or an existing one
// that counts only posted operations.
inline bool nothing_raised(const heddle_completion* completion) {
  if (uncounted(completion)) return true;
  const OperationCounter* counter = find_handle<OperationCounter>(completion->counter.id);
  return counter != nullptr && !counter->counts_done();
}

// True: a direct operation may continue. A counter that does not exist is an error even if nothing
// raises it; a counter that will be raised must belong to this worker.
inline bool counter_fits(Worker& worker, const heddle_completion* completion) {
  if (uncounted(completion)) [[likely]] {
    return true;
  }
  const OperationCounter* counter = find_handle<OperationCounter>(completion->counter.id);
  return counter != nullptr && (!counter->counts_done() || raised_by(*counter, worker));
}

// Called at the end of a try_ function that got this completion: an operation that is done at once
// raises a counter that also counts such operations.
void raise_done(const heddle_completion& completion);
inline Status counted(Status status, const heddle_completion* completion) {
  if (status == HEDDLE_DONE && completion != nullptr && completion->counter.id != 0) [[unlikely]]
    raise_done(*completion);
  return status;
}

inline Status again(Worker& worker) {
  worker.counts().add(&worker::Tally::again);
  return HEDDLE_AGAIN;
}

// The blocking form `call` of a try_ function: makes progress until the operation is accepted.
// describe(worker, wait): as for Watch::round().
template <class Attempt, class Describe>
Status blocking(const char* call, heddle_worker handle, Attempt&& attempt, Describe&& describe) {
  const Status first = attempt();
  if (first != HEDDLE_AGAIN) [[likely]] {
    return first;
  }
  Worker* worker = find_handle<Worker>(handle.id);
  return worker->until({call}, std::forward<Attempt>(attempt), [&](tap::Wait& wait) { describe(*worker, wait); });
}
template <class Attempt>
Status blocking(const char* call, heddle_worker handle, Attempt&& attempt) {
  return blocking(call, handle, std::forward<Attempt>(attempt), describe_refused);
}

// The completion of an operation for which its call waits; it lies on the stack of that call.
class AwaitedCompletion {
 public:
  [[nodiscard]] heddle_completion completion() { return {&told, this, {}, HEDDLE_WHEN_REMOTE}; }
  // Makes progress until the operation, which was posted, has ended.
  [[nodiscard]] Status wait(const char* call, heddle_worker handle);

 private:
  static void told(void* self, heddle_status status) {
    static_cast<AwaitedCompletion*>(self)->status_.store(status, std::memory_order_release);
  }
  // Release in told(), acquire in wait(): the waiting thread sees the operation's data.
  std::atomic<Status> status_{HEDDLE_POSTED};
};

// The waiting form `call` of an operation whose blocking form is post(completion). In a handler it
// meets an owner that has not been met yet, if that needs no wait; so a caller that tries again
// makes progress. at_once(region): true if an operation on that region is never posted; `remote` is
// the handle.
template <class AtOnce, class Post>
Status until_ended(const char* call, heddle_worker handle, std::uint64_t remote, AtOnce&& at_once, Post&& post) {
  if (engine::inside_of() != nullptr) [[unlikely]] {
    const Status met = meet_now(remote);
    if (met != HEDDLE_DONE && met != HEDDLE_AGAIN) return met;
    // one that is not open, or whose owner has died, is an error at once
    const RemoteRegion* region = find_handle<RemoteRegion>(remote);
    const bool waits = region != nullptr && !region->is(RemoteRegion::Barred::failed) && !at_once(*region);
    if (waits) return engine::reject_wait(call);
  }
  AwaitedCompletion awaited;
  const heddle_completion completion = awaited.completion();
  const Status status = post(&completion);
  return status == HEDDLE_POSTED ? awaited.wait(call, handle) : status;
}

// Structures that contain their size. They can grow, while programs built against older or newer
// headers still work.
//
// A smaller structure is an older one: the fields that it lacks get their defaults. A larger
// structure is a newer one: it is accepted if everything that this version does not know is zero,
// since zero means the default there. New fields are appended, and never placed into the padding at
// the end of an earlier version: callers count that padding but need not clear it. No version will
// ever be longer than kMostOptions. A larger size comes from uninitialized memory; the structure is
// then not read.

// The sizes of the first versions. They never change.
inline constexpr std::size_t kFirstContextOptions = 40;
inline constexpr std::size_t kFirstWorkerOptions = 16;
inline constexpr std::size_t kFirstWorkerStats = 96;
inline constexpr std::size_t kFirstCounterOptions = 16;
inline constexpr std::size_t kFirstRegionOptions = 16;
inline constexpr std::size_t kFirstWaitCondition = 40;
inline constexpr std::size_t kFirstTeamWaits = 40;
inline constexpr std::size_t kMostOptions = 4096;
static_assert(sizeof(heddle_context_options) >= kFirstContextOptions && sizeof(void*) == 8);
static_assert(sizeof(heddle_worker_options) >= kFirstWorkerOptions);
static_assert(sizeof(heddle_worker_stats) >= kFirstWorkerStats);
static_assert(sizeof(heddle_counter_options) >= kFirstCounterOptions);
static_assert(sizeof(heddle_region_options) >= kFirstRegionOptions);
static_assert(sizeof(heddle_wait_condition) >= kFirstWaitCondition);
static_assert(sizeof(heddle_team_waits) >= kFirstTeamWaits);

namespace detail {

[[gnu::cold]] inline base::Status too_small(const char* what, std::size_t size, std::size_t first, std::size_t own) {
  return base::fail(HEDDLE_ERR_ARGUMENT, "%s of size %zu: this version has %zu, the first had %zu; set size = sizeof",
                    what, size, own, first);
}

[[gnu::cold]] inline base::Status too_large(const char* what, std::size_t size, std::size_t own) {
  return base::fail(HEDDLE_ERR_ARGUMENT,
                    "%s of size %zu: this version has %zu, no version has more than %zu; set size = sizeof", what, size,
                    own, kMostOptions);
}

// Structures of pointers and 64-bit numbers: half a field would be read as a whole one.
[[gnu::cold]] inline base::Status cut_off(const char* what, std::size_t size) {
  return base::fail(HEDDLE_ERR_ARGUMENT, "%s of size %zu: no version of it ends inside a field; set size = sizeof",
                    what, size);
}

}  // namespace detail

// Copies the caller's options over the defaults in *to; to->size becomes this version's size.
// ARGUMENT: `from` is no version of these options, or asks for something that this version does not
// have. `from` may be null: the defaults.
template <class Options>
base::Status read_options(const char* what, const Options* from, std::size_t first, Options* to) {
  if (from == nullptr) return HEDDLE_DONE;
  const std::size_t size = from->size;
  if (size < first) return detail::too_small(what, size, first, sizeof(Options));
  if (size > kMostOptions) return detail::too_large(what, size, sizeof(Options));
  if (size % alignof(Options) != 0) return detail::cut_off(what, size);
  const auto* bytes = reinterpret_cast<const unsigned char*>(from);
  for (std::size_t i = sizeof(Options); i < size; ++i) {
    if (bytes[i] == 0) continue;
    return base::fail(HEDDLE_ERR_ARGUMENT,
                      "%s of size %zu: byte %zu is set, which this version (size %zu) does not know; leave newer "
                      "fields zero or use a newer library",
                      what, size, i, sizeof(Options));
  }
  std::memcpy(to, from, std::min(size, sizeof(Options)));
  to->size = sizeof(Options);
  return HEDDLE_DONE;
}

// Copies as much of `from` as fits the caller's structure, and clears fields that only the caller's
// version has; to->size stays the caller's.
template <class Results>
base::Status write_results(const char* what, const Results& from, std::size_t first, Results* to) {
  const std::size_t size = to->size;
  if (size < first) return detail::too_small(what, size, first, sizeof(Results));
  if (size > kMostOptions) return detail::too_large(what, size, sizeof(Results));
  if (size % alignof(Results) != 0) return detail::cut_off(what, size);
  const std::size_t known = std::min(size, sizeof(Results));
  auto* bytes = reinterpret_cast<unsigned char*>(to);
  const auto* source = reinterpret_cast<const unsigned char*>(&from);
  static_assert(offsetof(Results, size) == 0);
  std::memcpy(bytes + sizeof size, source + sizeof size, known - sizeof size);
  std::memset(bytes + known, 0, size - known);
  return HEDDLE_DONE;
}

}  // namespace heddle::api
