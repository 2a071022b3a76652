// Progress, waits, and the order of operations.
#include <array>
#include <atomic>
#include <cstdio>
#include <utility>

#include "api/arguments.hpp"
#include "base/fence.hpp"
#include "worker/worker.hpp"

using namespace heddle::api;  // NOLINT: the C functions below are this file's public face

namespace {

inline bool compares(uint64_t left, heddle_compare compare, uint64_t right) {
  switch (compare) {
    case HEDDLE_EQ:
      return left == right;
    case HEDDLE_NE:
      return left != right;
    case HEDDLE_GT:
      return left > right;
    case HEDDLE_GE:
      return left >= right;
    case HEDDLE_LT:
      return left < right;
    case HEDDLE_LE:
      return left <= right;
  }
  return false;
}

[[gnu::cold]] Status bad_rank(Worker& worker, uint32_t rank) {
  return heddle::base::fail(HEDDLE_ERR_RANK, "rank %u: the job has ranks 0-%u", rank, worker.size() - 1);
}

[[gnu::cold]] Status failed_operation(Status status) {
  return heddle::base::fail(status, "an operation of this counter ended with %s", heddle_status_name(status));
}

// Everything that was posted before has ended, and there is no error to tell: by loads alone, and
// without the gate. False: perhaps not.
[[gnu::always_inline]] inline bool all_ended(Worker& worker) {
  const heddle::worker::Gate* gate = worker.gate();
  const heddle::engine::Operations& operations = worker.core().operations;
  if (gate != nullptr) {
    // The queue first: a command leaves it when its operation counts as begun.
    if (gate->queued() || operations.busy()) return false;
    heddle::base::full_fence();
    if (heddle::base::has_thread_sanitizer()) [[unlikely]]
      heddle::base::show_acquire(worker.core().order());
    return true;
  }
  if (!worker.ownership().mine() || operations.busy()) return false;
  // Messages need no fence, and a fence waits until the stores for them have left this core.
  if (worker.counts().stored_directly()) heddle::base::full_fence();
  return true;
}

// The same towards any rank, where none has failed.
[[gnu::always_inline]] inline bool all_arrived(Worker& worker) {
  return worker.core().failure_epoch.load(std::memory_order_relaxed) == 0 && all_ended(worker);
}

// Those to a rank; kNobody: all.
void describe_operations(Worker& worker, uint32_t rank, heddle::tap::Wait& wait) {
  heddle::engine::Findings findings(worker.context());
  heddle::worker::look_under_way(worker, findings);
  for (heddle::tap::Awaited& thing : findings.state.under_way) {
    if (thing.cause == heddle::tap::Cause::receive) continue;
    if (rank == heddle::tap::kNobody || thing.rank == rank) wait.things.push_back(std::move(thing));
  }
}

[[gnu::noinline]] Status wait_quiet(Worker& worker) {
  if (const Status status = worker.try_quiet(); status != HEDDLE_AGAIN) return status;
  return worker.until(
      {"heddle_quiet"}, [&] { return all_ended(worker) ? HEDDLE_DONE : worker.try_quiet(); },
      [&](heddle::tap::Wait& wait) { describe_operations(worker, heddle::tap::kNobody, wait); });
}

[[gnu::noinline]] Status wait_flush(Worker& worker, uint32_t rank) {
  if (const Status status = worker.try_flush(rank); status != HEDDLE_AGAIN) return status;
  return worker.until(
      {"heddle_flush"}, [&] { return all_arrived(worker) ? HEDDLE_DONE : worker.try_flush(rank); },
      [&](heddle::tap::Wait& wait) {
        heddle::worker::awaits(wait, "the operations to rank %u", rank);
        describe_operations(worker, rank, wait);
      });
}

const char* name_of(heddle_compare compare) {
  constexpr std::array<const char*, 6> kNames = {"HEDDLE_EQ", "HEDDLE_NE", "HEDDLE_GT",
                                                 "HEDDLE_GE", "HEDDLE_LT", "HEDDLE_LE"};
  static_assert(HEDDLE_EQ == 0 && HEDDLE_NE == 1 && HEDDLE_GT == 2 && HEDDLE_GE == 3 && HEDDLE_LT == 4 &&
                HEDDLE_LE == 5);
  return kNames[static_cast<size_t>(compare)];
}

}  // namespace

int heddle_worker_progress(heddle_worker handle) {
  Worker* worker = find_handle<Worker>(handle.id);
  if (worker == nullptr) return bad_handle("worker", handle.id);
  if (worker->traits().attends) [[unlikely]]
    return heddle::worker::progress_attending(*worker);
  return worker->ownership().mine() ? worker->completer().progress() : worker->progress();
}

heddle_status heddle_worker_wait(heddle_worker handle, int64_t timeout_ns) {
  Worker* worker = find_handle<Worker>(handle.id);
  if (worker == nullptr) return bad_handle("worker", handle.id);
  const Status status = worker->wait_moved(handle.id, timeout_ns);
  if (status != HEDDLE_ERR_TIMEOUT) return status;
  return heddle::base::fail(status, "heddle_worker_wait: after %lld ns nothing of worker %u has moved",
                            static_cast<long long>(timeout_ns), worker->index());
}

heddle_status heddle_worker_wait_for(heddle_worker handle, const heddle_wait_condition* given, int64_t timeout_ns) {
  Worker* worker = find_handle<Worker>(handle.id);
  if (worker == nullptr) return bad_handle("worker", handle.id);
  if (given == nullptr) return null_argument("worker_wait_for", "condition");
  heddle_wait_condition condition{};
  const Status read = read_options("heddle_wait_condition", given, kFirstWaitCondition, &condition);
  if (read != HEDDLE_DONE) return read;
  if (condition.ready == nullptr) return null_argument("worker_wait_for", "condition->ready");
  if (condition.call == nullptr) condition.call = "heddle_worker_wait_for";
  const Status status = worker->wait_for(condition, timeout_ns);
  if (status != HEDDLE_ERR_TIMEOUT) return status;
  return heddle::base::fail(status, "%s: not within %lld ns", condition.call, static_cast<long long>(timeout_ns));
}

heddle_status heddle_worker_descriptor(heddle_worker handle, int* descriptor) {
  Worker* worker = find_handle<Worker>(handle.id);
  if (worker == nullptr) return bad_handle("worker", handle.id);
  if (descriptor == nullptr) return null_argument("worker_descriptor", "descriptor");
  *descriptor = -1;
  return guarded([&]() -> Status {
    const auto opened = worker->descriptor().open();
    if (!opened) return opened.status();
    *descriptor = *opened;
    return HEDDLE_DONE;
  });
}

heddle_status heddle_worker_arm(heddle_worker handle) {
  Worker* worker = find_handle<Worker>(handle.id);
  if (worker == nullptr) return bad_handle("worker", handle.id);
  if (heddle::engine::inside_of() != nullptr) return heddle::engine::reject_wait("heddle_worker_arm");
  return worker->descriptor().arm();
}

int heddle_context_progress(heddle_context handle) {
  Context* context = find_handle<Context>(handle.id);
  if (context == nullptr) return bad_handle("context", handle.id);
  if (heddle::engine::inside_of() != nullptr) return heddle::engine::reject_progress();
  return context->helpers().advance_all();
}

heddle_status heddle_fence(heddle_worker handle) {
  Worker* worker = find_handle<Worker>(handle.id);
  if (worker == nullptr) return bad_handle("worker", handle.id);
  // Direct operations take effect at once, so a fence between stores orders them. Operations that a
  // transport has accepted may overtake each other and later direct operations, so they are waited
  // for.
  if (!all_ended(*worker) && worker->try_drain() == HEDDLE_AGAIN) {
    const Status status = worker->until({"heddle_fence"}, [&] { return worker->try_drain(); });
    if (status != HEDDLE_DONE) return status;
  }
  heddle::base::full_fence();  // also orders a put before a later get
  return HEDDLE_DONE;
}

heddle_status heddle_try_flush(heddle_worker handle, uint32_t rank) {
  Worker* worker = find_handle<Worker>(handle.id);
  if (worker == nullptr) return bad_handle("worker", handle.id);
  if (rank >= worker->size()) return bad_rank(*worker, rank);
  return all_arrived(*worker) ? HEDDLE_DONE : worker->try_flush(rank);
}

heddle_status heddle_flush(heddle_worker handle, uint32_t rank) {
  Worker* worker = find_handle<Worker>(handle.id);
  if (worker == nullptr) return bad_handle("worker", handle.id);
  if (rank >= worker->size()) return bad_rank(*worker, rank);
  return all_arrived(*worker) ? HEDDLE_DONE : wait_flush(*worker, rank);
}

heddle_status heddle_try_quiet(heddle_worker handle) {
  Worker* worker = find_handle<Worker>(handle.id);
  if (worker == nullptr) return bad_handle("worker", handle.id);
  return all_ended(*worker) ? HEDDLE_DONE : worker->try_quiet();
}

heddle_status heddle_quiet(heddle_worker handle) {
  Worker* worker = find_handle<Worker>(handle.id);
  if (worker == nullptr) return bad_handle("worker", handle.id);
  return all_ended(*worker) ? HEDDLE_DONE : wait_quiet(*worker);
}

heddle_status heddle_counter_wait(heddle_worker handle, heddle_counter counter_handle, uint64_t value,
                                  int64_t timeout_ns) {
  Worker* worker = find_handle<Worker>(handle.id);
  if (worker == nullptr) return bad_handle("worker", handle.id);
  // Found anew at each look: a callback that runs meanwhile may free it.
  const auto attempt = [&] {
    const OperationCounter* counter = find_handle<OperationCounter>(counter_handle.id);
    if (counter == nullptr) [[unlikely]]
      return bad_handle("counter", counter_handle.id);
    if (counter->status() != HEDDLE_DONE) return failed_operation(counter->status());
    if (counter->value() < value) return HEDDLE_AGAIN;
    counter->learnt();
    return HEDDLE_DONE;
  };
  if (const Status status = attempt(); status != HEDDLE_AGAIN) return status;
  const auto now = [&]() -> unsigned long long {
    const OperationCounter* counter = find_handle<OperationCounter>(counter_handle.id);
    return counter == nullptr ? 0 : counter->value();
  };
  const auto describe = [&](heddle::tap::Wait& wait) {
    heddle::worker::awaits(wait, "the counter is %llu, awaited %llu", now(), static_cast<unsigned long long>(value));
  };
  const Status status = worker->until({"heddle_counter_wait", timeout_ns}, attempt, describe);
  if (status != HEDDLE_ERR_TIMEOUT) return status;
  return heddle::base::fail(status, "heddle_counter_wait: after %lld ns the counter is %llu, awaited %llu",
                            static_cast<long long>(timeout_ns), now(), static_cast<unsigned long long>(value));
}

heddle_status heddle_signal_wait(heddle_worker handle, const uint64_t* word, heddle_compare compare, uint64_t value,
                                 int64_t timeout_ns) {
  Worker* worker = find_handle<Worker>(handle.id);
  if (worker == nullptr) return bad_handle("worker", handle.id);
  if (word == nullptr) return null_argument("signal_wait", "word");
  if (reinterpret_cast<uintptr_t>(word) % 8 != 0) {
    return heddle::base::fail(HEDDLE_ERR_ALIGNMENT, "the signal word %p is not 8-byte aligned",
                              static_cast<const void*>(word));
  }
  if (compare < HEDDLE_EQ || compare > HEDDLE_LE) {
    return heddle::base::fail(HEDDLE_ERR_ARGUMENT, "%d is not a heddle_compare", static_cast<int>(compare));
  }
  const std::atomic_ref<uint64_t> signal(*const_cast<uint64_t*>(word));
  const auto attempt = [&] {
    // Acquire: a thread that sees the signal sees its data. Partner: the release in put_signal.
    return compares(signal.load(std::memory_order_acquire), compare, value) ? HEDDLE_DONE : HEDDLE_AGAIN;
  };
  const auto describe = [&](heddle::tap::Wait& wait) {
    heddle::worker::awaits(wait, "the word at %p is %llu, awaited %s %llu; nobody here knows who should write it",
                           static_cast<const void*>(word),
                           static_cast<unsigned long long>(signal.load(std::memory_order_relaxed)), name_of(compare),
                           static_cast<unsigned long long>(value));
    wait.things.push_back({.cause = heddle::tap::Cause::word, .what = "word", .tag = {}});
  };
  const Status status = worker->until({"heddle_signal_wait", timeout_ns}, attempt, describe);
  if (status == HEDDLE_DONE) {
    heddle::base::show_acquire(const_cast<uint64_t*>(word));
    heddle::base::show_learnt();  // comes after all that the signal's writer had waited for
  }
  if (status != HEDDLE_ERR_TIMEOUT) return status;
  return heddle::base::fail(status, "heddle_signal_wait: after %lld ns the word at %p is %llu, awaited %s %llu",
                            static_cast<long long>(timeout_ns), static_cast<const void*>(word),
                            static_cast<unsigned long long>(signal.load(std::memory_order_relaxed)), name_of(compare),
                            static_cast<unsigned long long>(value));
}
