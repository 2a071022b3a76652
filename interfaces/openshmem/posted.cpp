#include "openshmem/posted.hpp"

#include <cstdio>

#include "openshmem/checks.hpp"
#include "openshmem/deaths.hpp"
#include "openshmem/patience.hpp"

namespace heddle::shmem {
namespace {

// If the outcome came by a completion, heddle_last_error belongs to another call.
void check_outcome(Call call, heddle_status status, int pe) {
  if (status >= 0) [[likely]]
    return;
  if (status == HEDDLE_ERR_PEER_FAILED) fail_by_death(call, pe);
  fail(call, "%s: the operation to PE %d ended with it", heddle_status_name(status), pe);
}

// The completion of an operation that its caller waits for. It lies on the caller's stack: the
// engine does not access it after the callback's store.
class Outcome {
 public:
  explicit Outcome(heddle_when when) : completion_{&Outcome::arrived, this, {}, when} {}
  [[nodiscard]] const heddle_completion* completion() const { return &completion_; }

  // `pe`: the PE that the operation is for.
  void await(Call call, heddle_worker worker, int pe) {
    // Acquire. Partner: the callback's store, by any thread of this process that makes progress.
    wait_until_true(
        call, worker, [this] { return status_.load(std::memory_order_acquire) != HEDDLE_POSTED; },
        [](heddle_wait_facts& facts) { awaits(facts, "the answer by messages has not come"); });
    check_outcome(call, status_.load(std::memory_order_relaxed), pe);
  }

 private:
  static void arrived(void* self, heddle_status status) {
    static_cast<Outcome*>(self)->status_.store(status, std::memory_order_release);
  }

  heddle_completion completion_;
  std::atomic<heddle_status> status_{HEDDLE_POSTED};
};

// The way that an operation to `pe` goes.
struct Way {
  heddle_when when;
  Until until;
  int pe;
};

// Calls `post(completion)`, and waits as the way says.
template <class Post>
void run(Call call, Context& context, const Way& way, const Post& post) {
  if (checks_everything()) check_thread(call, context);
  if (!context.posted.load(std::memory_order_relaxed)) context.posted.store(true, std::memory_order_relaxed);
  const auto accepted = [&](heddle_status status) {
    if (status == HEDDLE_ERR_PEER_FAILED) [[unlikely]]
      fail_by_death(call, way.pe);
    return must(call, status);
  };
  if (way.until == Until::posted) {
    accepted(post(nullptr));
    return;
  }
  Outcome outcome(way.when);
  if (accepted(post(outcome.completion())) == HEDDLE_POSTED) outcome.await(call, context.worker, way.pe);
}

// The bytes from the beginning of the first block to the end of the last.
std::size_t extent(Call call, const Strided& shape, std::size_t stride) {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(shape.blocks - 1, stride, &bytes) ||
      __builtin_add_overflow(bytes, shape.block_bytes, &bytes)) {
    fail(call, "%zu blocks with a stride of %zu bytes do not fit the address space", shape.blocks, stride);
  }
  return bytes;
}

// A word that one operation reads and writes.
Place locate_word(Call call, const char* argument, const void* address, std::size_t bytes) {
  const Place place = locate(call, argument, address, bytes);
  if (!is_aligned(address, bytes)) fail(call, "%s %p is not a multiple of its %zu bytes", argument, address, bytes);
  return place;
}

Place locate_atomic(Call call, heddle_atomic_op op, const void* dest) {
  return locate_word(call, "dest", dest, op >= HEDDLE_ADD64 ? 8 : 4);
}

// Checks the caller's local buffer, which may be any memory.
void check_own(Call call, const char* argument, const void* address) {
  if (address == nullptr) fail(call, "%s is null", argument);
}

void fetch_atomic(Call call, Context& context, heddle_atomic_op op, const void* dest, const heddle_fetch& fetch, int pe,
                  Until until) {
  const int world = checked_pe(call, context, pe);
  const Place place = locate_atomic(call, op, dest);
  run(call, context, {HEDDLE_WHEN_REMOTE, until, world}, [&](const heddle_completion* completion) {
    return heddle_fetch_atomic(context.worker, op, place.on(world), &fetch, completion);
  });
}

}  // namespace

void post_put(Call call, Context& context, void* dest, const void* source, std::size_t bytes, int pe, Until until) {
  const int world = checked_pe(call, context, pe);
  if (bytes == 0) return;
  check_own(call, "source", source);
  const Place place = locate(call, "dest", dest, bytes);
  run(call, context, {HEDDLE_WHEN_LOCAL, until, world}, [&](const heddle_completion* completion) {
    return heddle_put(context.worker, source, bytes, place.on(world), completion);
  });
}

void post_get(Call call, Context& context, void* dest, const void* source, std::size_t bytes, int pe, Until until) {
  const int world = checked_pe(call, context, pe);
  if (bytes == 0) return;
  check_own(call, "dest", dest);
  const Place place = locate(call, "source", source, bytes);
  run(call, context, {HEDDLE_WHEN_REMOTE, until, world}, [&](const heddle_completion* completion) {
    return heddle_get(context.worker, dest, bytes, place.on(world), completion);
  });
}

void post_put_strided(Call call, Context& context, void* dest, const void* source, const Strided& shape, int pe) {
  const int world = checked_pe(call, context, pe);
  if (shape.blocks == 0 || shape.block_bytes == 0) return;
  check_own(call, "source", source);
  const Place place = locate(call, "dest", dest, extent(call, shape, shape.dest_stride));
  const heddle_strided strided{shape.block_bytes, shape.blocks, shape.source_stride, shape.dest_stride};
  run(call, context, {HEDDLE_WHEN_LOCAL, Until::complete, world}, [&](const heddle_completion* completion) {
    return heddle_put_strided(context.worker, source, place.on(world), &strided, completion);
  });
}

void post_get_strided(Call call, Context& context, void* dest, const void* source, const Strided& shape, int pe) {
  const int world = checked_pe(call, context, pe);
  if (shape.blocks == 0 || shape.block_bytes == 0) return;
  check_own(call, "dest", dest);
  const Place place = locate(call, "source", source, extent(call, shape, shape.source_stride));
  const heddle_strided strided{shape.block_bytes, shape.blocks, shape.dest_stride, shape.source_stride};
  run(call, context, {HEDDLE_WHEN_REMOTE, Until::complete, world}, [&](const heddle_completion* completion) {
    return heddle_get_strided(context.worker, dest, place.on(world), &strided, completion);
  });
}

void post_put_signal(Call call, Context& context, void* dest, const void* source, std::size_t bytes,
                     const Signal& signal, int pe, Until until) {
  const int world = checked_pe(call, context, pe);
  if (signal.op != SHMEM_SIGNAL_SET && signal.op != SHMEM_SIGNAL_ADD) {
    fail(call, "sig_op %d is neither SHMEM_SIGNAL_SET nor SHMEM_SIGNAL_ADD", signal.op);
  }
  const Place word = locate_word(call, "sig_addr", signal.address, sizeof(std::uint64_t));
  const heddle_signal wanted{word.on(world), signal.value,
                             signal.op == SHMEM_SIGNAL_SET ? HEDDLE_SIGNAL_SET : HEDDLE_SIGNAL_ADD};
  if (bytes != 0) check_own(call, "source", source);
  // Without data the signal is still sent; any symmetric address serves as dest.
  const Place place = bytes == 0 ? word : locate(call, "dest", dest, bytes);
  run(call, context, {HEDDLE_WHEN_LOCAL, until, world}, [&](const heddle_completion* completion) {
    return heddle_put_signal(context.worker, source, bytes, place.on(world), &wanted, completion);
  });
}

void post_atomic(Call call, Context& context, heddle_atomic_op op, void* dest, std::uint64_t operand, int pe) {
  const int world = checked_pe(call, context, pe);
  const Place place = locate_atomic(call, op, dest);
  run(call, context, {HEDDLE_WHEN_REMOTE, Until::posted, world}, [&](const heddle_completion* completion) {
    return heddle_atomic(context.worker, op, place.on(world), operand, completion);
  });
}

std::uint64_t post_fetch_atomic(Call call, Context& context, heddle_atomic_op op, const void* dest,
                                std::uint64_t operand, std::uint64_t compare, int pe) {
  std::uint64_t wide = 0;
  std::uint32_t narrow = 0;
  const bool is_wide = op >= HEDDLE_ADD64;
  const heddle_fetch fetch{operand, compare, is_wide ? static_cast<void*>(&wide) : &narrow};
  fetch_atomic(call, context, op, dest, fetch, pe, Until::complete);
  return is_wide ? wide : narrow;
}

void post_fetch_atomic_nbi(Call call, Context& context, heddle_atomic_op op, const void* dest,
                           const heddle_fetch& fetch, int pe) {
  fetch_atomic(call, context, op, dest, fetch, pe, Until::posted);
}

}  // namespace heddle::shmem
