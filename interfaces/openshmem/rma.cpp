#include "openshmem/rma.hpp"

#include <algorithm>
#include <cstdio>

#include "openshmem/checks.hpp"
#include "openshmem/patience.hpp"

namespace heddle::shmem {

namespace {

// glibc copies some KiB by one instruction. Current AMD processors execute it 25 times as slowly if
// the target begins 1 to 63 bytes after the source, modulo 4096. This happens with memory from
// malloc and a symmetric page (decision 0049). glibc copies pieces of less than 2 KiB in another
// way. Source and target may overlap.
void copy_long(std::byte* to, const std::byte* from, std::size_t bytes) {
  constexpr std::uintptr_t kPage = 4096;
  constexpr std::uintptr_t kLine = 64;
  constexpr std::size_t kPiece = 31 * kLine;
  const std::uintptr_t after = reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from);
  const bool apart = after >= bytes && -after >= bytes;
  if (apart && after % kPage - 1 < kLine - 1) {
    std::size_t piece = kPiece;
    asm("" : "+r"(piece));  // a length that the compiler knows becomes just such an instruction
    for (; bytes > piece; to += piece, from += piece, bytes -= piece) std::memcpy(to, from, piece);
  }
  std::memmove(to, from, bytes);
}

// Naturally aligned 1-, 2-, 4- and 8-byte copies are single accesses. Source and target may be the
// same memory.
inline void copy_bytes(void* to, const void* from, std::size_t bytes) {
  switch (bytes) {
    case 8:
      std::memcpy(to, from, 8);
      return;
    case 4:
      std::memcpy(to, from, 4);
      return;
    case 2:
      std::memcpy(to, from, 2);
      return;
    case 1:
      std::memcpy(to, from, 1);
      return;
    default:
      copy_long(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
      return;
  }
}

void copy_blocks(std::byte* to, const std::byte* from, const Strided& shape) {
  for (std::size_t i = 0; i < shape.blocks; ++i) {
    copy_bytes(to + i * shape.dest_stride, from + i * shape.source_stride, shape.block_bytes);
  }
}

// The extent on one side. If it overflows, the result fits no segment, and the message path reports
// the error.
std::size_t extent(const Strided& shape, std::size_t stride) {
  if (shape.blocks == 0) return 0;
  std::size_t bytes = 0;
  const bool large = __builtin_mul_overflow(shape.blocks - 1, stride, &bytes) ||
                     __builtin_add_overflow(bytes, shape.block_bytes, &bytes);
  return large ? SIZE_MAX : bytes;
}

}  // namespace

void put_bytes(ShmemContext& context, void* dest, const void* source, std::size_t bytes, int pe, Call call) {
  if (std::byte* to = direct(context, dest, bytes, pe); to != nullptr && source != nullptr) [[likely]] {
    copy_bytes(to, source, bytes);
    return;
  }
  post_put(call, context, dest, source, bytes, pe, Until::complete);
}

void get_bytes(ShmemContext& context, void* dest, const void* source, std::size_t bytes, int pe, Call call) {
  if (const std::byte* from = direct(context, source, bytes, pe); from != nullptr && dest != nullptr) [[likely]] {
    copy_bytes(dest, from, bytes);
    return;
  }
  post_get(call, context, dest, source, bytes, pe, Until::complete);
}

void put_bytes_nbi(ShmemContext& context, void* dest, const void* source, std::size_t bytes, int pe, Call call) {
  if (std::byte* to = direct(context, dest, bytes, pe); to != nullptr && source != nullptr) [[likely]] {
    copy_bytes(to, source, bytes);
    return;
  }
  post_put(call, context, dest, source, bytes, pe, Until::posted);
}

void get_bytes_nbi(ShmemContext& context, void* dest, const void* source, std::size_t bytes, int pe, Call call) {
  if (const std::byte* from = direct(context, source, bytes, pe); from != nullptr && dest != nullptr) [[likely]] {
    copy_bytes(dest, from, bytes);
    return;
  }
  post_get(call, context, dest, source, bytes, pe, Until::posted);
}

Strided checked_shape(Call call, std::size_t element_bytes, std::ptrdiff_t dst, std::ptrdiff_t sst,
                      std::size_t block_elements, std::size_t blocks) {
  const bool bad_block = block_elements > PTRDIFF_MAX / element_bytes;
  const auto least = static_cast<std::ptrdiff_t>(std::max<std::size_t>(bad_block ? 1 : block_elements, 1));
  if (bad_block || dst < least || sst < least) {
    fail(call, "dst %td, sst %td: strides are at least the %zu elements of a block", dst, sst, block_elements);
  }
  std::size_t dest_stride = 0;
  std::size_t source_stride = 0;
  if (__builtin_mul_overflow(static_cast<std::size_t>(dst), element_bytes, &dest_stride) ||
      __builtin_mul_overflow(static_cast<std::size_t>(sst), element_bytes, &source_stride)) {
    fail(call, "dst %td, sst %td: the stride does not fit the address space", dst, sst);
  }
  return {block_elements * element_bytes, blocks, dest_stride, source_stride};
}

void put_blocks(ShmemContext& context, void* dest, const void* source, const Strided& shape, int pe, Call call) {
  if (std::byte* to = direct(context, dest, extent(shape, shape.dest_stride), pe); to != nullptr && source != nullptr) {
    copy_blocks(to, static_cast<const std::byte*>(source), shape);
    return;
  }
  post_put_strided(call, context, dest, source, shape, pe);
}

void get_blocks(ShmemContext& context, void* dest, const void* source, const Strided& shape, int pe, Call call) {
  if (const std::byte* from = direct(context, source, extent(shape, shape.source_stride), pe);
      from != nullptr && dest != nullptr) {
    copy_blocks(static_cast<std::byte*>(dest), from, shape);
    return;
  }
  post_get_strided(call, context, dest, source, shape, pe);
}

void put_bytes_signal(ShmemContext& context, void* dest, const void* source, std::size_t bytes, const Signal& signal,
                      int pe, Until until, Call call) {
  std::byte* word = direct(context, signal.address, sizeof(std::uint64_t), pe);
  if (word != nullptr && is_signal(signal.address, signal.op)) {
    if (bytes == 0) return change_word(word, signal.value, signal.op);
    if (std::byte* to = direct(context, dest, bytes, pe); to != nullptr && source != nullptr) {
      copy_bytes(to, source, bytes);
      change_word(word, signal.value, signal.op);
      return;
    }
  }
  post_put_signal(call, context, dest, source, bytes, signal, pe, until);
}

void change_signal(ShmemContext& context, std::uint64_t* sig_addr, std::uint64_t signal, int op, int pe, Call call) {
  std::byte* word = direct(context, sig_addr, sizeof(std::uint64_t), pe);
  if (word != nullptr && is_aligned(sig_addr, sizeof(std::uint64_t))) {
    change_word(word, signal, op);
    return;
  }
  post_put_signal(call, context, nullptr, nullptr, 0, {sig_addr, signal, op}, pe, Until::posted);
}

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
void run(Call call, ShmemContext& context, const Way& way, const Post& post) {
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
RemotePlace locate_word(Call call, const char* argument, const void* address, std::size_t bytes) {
  const RemotePlace place = locate(call, argument, address, bytes);
  if (!is_aligned(address, bytes)) fail(call, "%s %p is not a multiple of its %zu bytes", argument, address, bytes);
  return place;
}

RemotePlace locate_atomic(Call call, heddle_atomic_op op, const void* dest) {
  return locate_word(call, "dest", dest, op >= HEDDLE_ADD64 ? 8 : 4);
}

// Checks the caller's local buffer, which may be any memory.
void check_own(Call call, const char* argument, const void* address) {
  if (address == nullptr) fail(call, "%s is null", argument);
}

void fetch_atomic(Call call, ShmemContext& context, heddle_atomic_op op, const void* dest, const heddle_fetch& fetch,
                  int pe, Until until) {
  const int world = checked_pe(call, context, pe);
  const RemotePlace place = locate_atomic(call, op, dest);
  run(call, context, {HEDDLE_WHEN_REMOTE, until, world}, [&](const heddle_completion* completion) {
    return heddle_fetch_atomic(context.worker, op, place.on(world), &fetch, completion);
  });
}

}  // namespace

void post_put(Call call, ShmemContext& context, void* dest, const void* source, std::size_t bytes, int pe,
              Until until) {
  const int world = checked_pe(call, context, pe);
  if (bytes == 0) return;
  check_own(call, "source", source);
  const RemotePlace place = locate(call, "dest", dest, bytes);
  run(call, context, {HEDDLE_WHEN_LOCAL, until, world}, [&](const heddle_completion* completion) {
    return heddle_put(context.worker, source, bytes, place.on(world), completion);
  });
}

void post_get(Call call, ShmemContext& context, void* dest, const void* source, std::size_t bytes, int pe,
              Until until) {
  const int world = checked_pe(call, context, pe);
  if (bytes == 0) return;
  check_own(call, "dest", dest);
  const RemotePlace place = locate(call, "source", source, bytes);
  run(call, context, {HEDDLE_WHEN_REMOTE, until, world}, [&](const heddle_completion* completion) {
    return heddle_get(context.worker, dest, bytes, place.on(world), completion);
  });
}

void post_put_strided(Call call, ShmemContext& context, void* dest, const void* source, const Strided& shape, int pe) {
  const int world = checked_pe(call, context, pe);
  if (shape.blocks == 0 || shape.block_bytes == 0) return;
  check_own(call, "source", source);
  const RemotePlace place = locate(call, "dest", dest, extent(call, shape, shape.dest_stride));
  const heddle_strided strided{shape.block_bytes, shape.blocks, shape.source_stride, shape.dest_stride};
  run(call, context, {HEDDLE_WHEN_LOCAL, Until::complete, world}, [&](const heddle_completion* completion) {
    return heddle_put_strided(context.worker, source, place.on(world), &strided, completion);
  });
}

void post_get_strided(Call call, ShmemContext& context, void* dest, const void* source, const Strided& shape, int pe) {
  const int world = checked_pe(call, context, pe);
  if (shape.blocks == 0 || shape.block_bytes == 0) return;
  check_own(call, "dest", dest);
  const RemotePlace place = locate(call, "source", source, extent(call, shape, shape.source_stride));
  const heddle_strided strided{shape.block_bytes, shape.blocks, shape.dest_stride, shape.source_stride};
  run(call, context, {HEDDLE_WHEN_REMOTE, Until::complete, world}, [&](const heddle_completion* completion) {
    return heddle_get_strided(context.worker, dest, place.on(world), &strided, completion);
  });
}

void post_put_signal(Call call, ShmemContext& context, void* dest, const void* source, std::size_t bytes,
                     const Signal& signal, int pe, Until until) {
  const int world = checked_pe(call, context, pe);
  if (signal.op != SHMEM_SIGNAL_SET && signal.op != SHMEM_SIGNAL_ADD) {
    fail(call, "sig_op %d is neither SHMEM_SIGNAL_SET nor SHMEM_SIGNAL_ADD", signal.op);
  }
  const RemotePlace word = locate_word(call, "sig_addr", signal.address, sizeof(std::uint64_t));
  const heddle_signal wanted{word.on(world), signal.value,
                             signal.op == SHMEM_SIGNAL_SET ? HEDDLE_SIGNAL_SET : HEDDLE_SIGNAL_ADD};
  if (bytes != 0) check_own(call, "source", source);
  // Without data the signal is still sent; any symmetric address serves as dest.
  const RemotePlace place = bytes == 0 ? word : locate(call, "dest", dest, bytes);
  run(call, context, {HEDDLE_WHEN_LOCAL, until, world}, [&](const heddle_completion* completion) {
    return heddle_put_signal(context.worker, source, bytes, place.on(world), &wanted, completion);
  });
}

void post_atomic(Call call, ShmemContext& context, heddle_atomic_op op, void* dest, std::uint64_t operand, int pe) {
  const int world = checked_pe(call, context, pe);
  const RemotePlace place = locate_atomic(call, op, dest);
  run(call, context, {HEDDLE_WHEN_REMOTE, Until::posted, world}, [&](const heddle_completion* completion) {
    return heddle_atomic(context.worker, op, place.on(world), operand, completion);
  });
}

std::uint64_t post_fetch_atomic(Call call, ShmemContext& context, heddle_atomic_op op, const void* dest,
                                std::uint64_t operand, std::uint64_t compare, int pe) {
  std::uint64_t wide = 0;
  std::uint32_t narrow = 0;
  const bool is_wide = op >= HEDDLE_ADD64;
  const heddle_fetch fetch{operand, compare, is_wide ? static_cast<void*>(&wide) : &narrow};
  fetch_atomic(call, context, op, dest, fetch, pe, Until::complete);
  return is_wide ? wide : narrow;
}

void post_fetch_atomic_nbi(Call call, ShmemContext& context, heddle_atomic_op op, const void* dest,
                           const heddle_fetch& fetch, int pe) {
  fetch_atomic(call, context, op, dest, fetch, pe, Until::posted);
}

}  // namespace heddle::shmem
