#include "mpi/rma/atomic.hpp"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <type_traits>

#include "mpi/core/noted_wait.hpp"
#include "mpi/rma/ask.hpp"
#include "mpi/rma/order.hpp"

namespace heddle::mpi {
namespace {

// Holds the guard. Threads of this process and of others hold it for a short time only.
class Guard {
 public:
  explicit Guard(const Guarded& where) : word_(where.control.guard) {
    code_ = take(number_of(where)) ? MPI_SUCCESS : wait(where);
  }
  ~Guard() {
    if (code_ == MPI_SUCCESS) word_.store(0, std::memory_order_release);
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  // Error: the guard is not held here, because its holder has died.
  [[nodiscard]] int code() const { return code_; }

 private:
  // The guard's value while this process holds it.
  static std::uint32_t number_of(const Guarded& where) { return static_cast<std::uint32_t>(where.win.comm->rank) + 1; }
  bool take(std::uint32_t mine) {
    std::uint32_t none = 0;
    return word_.compare_exchange_strong(none, mine, std::memory_order_acquire, std::memory_order_relaxed);
  }
  int wait(const Guarded& where);

  std::atomic<std::uint32_t>& word_;
  int code_ = MPI_SUCCESS;
};

int Guard::wait(const Guarded& where) {
  constexpr int kSpins = 200;
  constexpr int kLooks = 64;    // after so many looks, checks whether the owner lives
  constexpr int kNotes = 4096;  // after so many looks, notes this wait for reports
  int owner = 0;
  const auto fill = [&](heddle_wait_facts& facts) {
    facts.cause = HEDDLE_WAIT_LOCK;
    const auto member = static_cast<std::size_t>(owner);
    if (member < where.win.comm->members.size()) facts.rank = where.win.comm->members[member].peer.rank;
    std::snprintf(facts.text, sizeof facts.text, "the guard of accumulates on rank %d of a window, which rank %d holds",
                  where.rank, owner);
  };
  NotedWait noted(where.win.comm->lane->worker, "an accumulate of MPI", fill);
  for (int looks = 1;; ++looks) {
    const std::uint32_t now = word_.load(std::memory_order_relaxed);
    if (now == 0 && take(number_of(where))) return MPI_SUCCESS;
    if (now != 0 && looks % kLooks == 0) {
      owner = static_cast<int>(now) - 1;
      if (check_alive(where.win, owner) != MPI_SUCCESS)
        return error(MPI_ERR_PROC_ABORTED, "rank %d has died while it changed memory of rank %d of the window", owner,
                     where.rank);
      if (looks % kNotes == 0 && !where.in_handler) noted.note();
    }
    looks < kSpins ? cpu_relax() : static_cast<void>(::sched_yield());
  }
}

template <class Word>
Word load(const std::byte* from) {
  Word word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

template <class Word, class Change>
void each_word(const std::byte* operands, std::byte* target, std::byte* old, MPI_Count count, Change&& change) {
  auto* const words = reinterpret_cast<Word*>(target);
  for (MPI_Count i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i) * sizeof(Word);
    const Word operand = operands != nullptr ? load<Word>(operands + at) : Word{};
    const Word before = change(words + i, operand);
    if (old != nullptr) std::memcpy(old + at, &before, sizeof before);
  }
}

// Replaces the word by compute(operand, word).
template <class Word, class Compute>
Word exchange_computed(Word* at, Word operand, Compute&& compute) {
  Word before = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (
      !__atomic_compare_exchange_n(at, &before, compute(operand, before), true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
  }
  return before;
}

template <class Word, class Float>
Word sum_as(Word operand, Word before) {
  return std::bit_cast<Word>(static_cast<Float>(std::bit_cast<Float>(operand) + std::bit_cast<Float>(before)));
}

bool is_integer(Basic basic) {
  return basic >= Basic::int8 && basic <= Basic::uint64;
}

// Operators that the processor has, or whose computation is short. False: none of them.
template <class Word>
bool short_words(OpKind kind, Basic basic, const std::byte* operands, std::byte* target, std::byte* old,
                 MPI_Count count) {
  switch (kind) {
    case OpKind::no_op:
      if (old == nullptr) return true;
      each_word<Word>(nullptr, target, old, count,
                      [](Word* at, Word) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); });
      return true;
    case OpKind::replace:
      each_word<Word>(operands, target, old, count,
                      [](Word* at, Word operand) { return __atomic_exchange_n(at, operand, __ATOMIC_ACQ_REL); });
      return true;
    case OpKind::band:
      each_word<Word>(operands, target, old, count,
                      [](Word* at, Word operand) { return __atomic_fetch_and(at, operand, __ATOMIC_ACQ_REL); });
      return true;
    case OpKind::bor:
      each_word<Word>(operands, target, old, count,
                      [](Word* at, Word operand) { return __atomic_fetch_or(at, operand, __ATOMIC_ACQ_REL); });
      return true;
    case OpKind::bxor:
      each_word<Word>(operands, target, old, count,
                      [](Word* at, Word operand) { return __atomic_fetch_xor(at, operand, __ATOMIC_ACQ_REL); });
      return true;
    default:
      break;
  }
  if (kind != OpKind::sum) return false;
  if (is_integer(basic)) {
    each_word<Word>(operands, target, old, count,
                    [](Word* at, Word operand) { return __atomic_fetch_add(at, operand, __ATOMIC_ACQ_REL); });
    return true;
  }
  if constexpr (sizeof(Word) == sizeof(double)) {
    if (basic != Basic::float64) return false;
    each_word<Word>(operands, target, old, count,
                    [](Word* at, Word operand) { return exchange_computed(at, operand, sum_as<Word, double>); });
    return true;
  } else if constexpr (sizeof(Word) == sizeof(float)) {
    if (basic != Basic::float32) return false;
    each_word<Word>(operands, target, old, count,
                    [](Word* at, Word operand) { return exchange_computed(at, operand, sum_as<Word, float>); });
    return true;
  }
  return false;
}

// Applies the operator to one word. Repeats this if others have changed the word meanwhile.
template <class Word>
Word accumulate_word(const Op& op, const Type& element, Word* at, Word operand) {
  return exchange_computed(at, operand, [&](Word in, Word before) {
    apply(op, &in, &before, 1, element);
    return before;
  });
}

// The operator runs on a batch of words as they were; those that others have changed meanwhile are
// done one by one.
template <class Word>
void accumulate_batch(const Op& op, const Type& element, const std::byte* operands, Word* words, std::byte* old,
                      std::size_t count) {
  constexpr std::size_t kMost = 64;
  Word in[kMost];
  Word before[kMost];
  Word after[kMost];
  while (count > 0) {
    const std::size_t n = std::min(count, kMost);
    std::memcpy(in, operands, n * sizeof(Word));
    for (std::size_t i = 0; i < n; ++i) before[i] = after[i] = __atomic_load_n(words + i, __ATOMIC_RELAXED);
    apply(op, in, after, static_cast<MPI_Count>(n), element);
    for (std::size_t i = 0; i < n; ++i) {
      Word seen = before[i];
      if (!__atomic_compare_exchange_n(words + i, &seen, after[i], false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        before[i] = accumulate_word(op, element, words + i, in[i]);
    }
    if (old != nullptr) {
      std::memcpy(old, before, n * sizeof(Word));
      old += n * sizeof(Word);
    }
    operands += n * sizeof(Word);
    words += n;
    count -= n;
  }
}

template <class Word>
void accumulate_words(const Op& op, const Type& element, const std::byte* operands, std::byte* target, std::byte* old,
                      MPI_Count count) {
  if (short_words<Word>(op.kind, element.basic, operands, target, old, count)) return;
  accumulate_batch(op, element, operands, reinterpret_cast<Word*>(target), old, static_cast<std::size_t>(count));
}

constexpr std::size_t kMostElement = 64;  // bytes of the longest predefined type in memory

// One element at a time: the packed form of a pair has no gaps, its form in memory may have.
int accumulate_guarded(const Guarded& where, const Op& op, const Type& element, const std::byte* operands,
                       std::byte* target, std::byte* old, MPI_Count count) {
  alignas(kMostElement) std::byte in[kMostElement] = {};
  alignas(kMostElement) std::byte inout[kMostElement] = {};
  const auto extent = static_cast<std::size_t>(element.extent);
  const Guard guard(where);
  if (guard.code() != MPI_SUCCESS) return guard.code();
  for (MPI_Count i = 0; i < count; ++i) {
    std::byte* const at = target + i * element.extent;
    if (old != nullptr) pack(at, 1, element, old + i * element.size);
    if (op.kind == OpKind::no_op) continue;
    unpack(operands + i * element.size, element.size, in, 1, element);
    std::memcpy(inout, at, extent);
    apply(op, in, inout, 1, element);
    copy(inout, 1, element, at, 1, element);  // the gap is not the program's to see changed
  }
  return MPI_SUCCESS;
}

bool aligned_as(const std::byte* address, MPI_Count bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % static_cast<std::uintptr_t>(bytes) == 0;
}

template <class Word>
void compare_swap_word(const void* compare, const void* value, std::byte* target, void* old) {
  auto expected = load<Word>(static_cast<const std::byte*>(compare));
  __atomic_compare_exchange_n(reinterpret_cast<Word*>(target), &expected,
                              load<Word>(static_cast<const std::byte*>(value)), false, __ATOMIC_ACQ_REL,
                              __ATOMIC_ACQUIRE);
  std::memcpy(old, &expected, sizeof expected);
}

// The size of the word whose atomic instructions change one element of the type at this address; 0:
// the element is changed under the guard.
MPI_Count word_of(const Type& element, const std::byte* target) {
  if (element.size != element.extent || element.size <= 0 || element.size > 8) return 0;
  return std::has_single_bit(static_cast<std::uint64_t>(element.size)) && aligned_as(target, element.size)
             ? element.size
             : 0;
}

}  // namespace

int accumulate_here(const Guarded& where, const Op& op, const Type& element, const std::byte* operands,
                    std::byte* target, std::byte* old, MPI_Count count) {
  switch (word_of(element, target)) {
    case 8:
      accumulate_words<std::uint64_t>(op, element, operands, target, old, count);
      break;
    case 4:
      accumulate_words<std::uint32_t>(op, element, operands, target, old, count);
      break;
    case 2:
      accumulate_words<std::uint16_t>(op, element, operands, target, old, count);
      break;
    case 1:
      accumulate_words<std::uint8_t>(op, element, operands, target, old, count);
      break;
    default:
      return accumulate_guarded(where, op, element, operands, target, old, count);
  }
  return MPI_SUCCESS;
}

int compare_swap_here(const Guarded& where, const Type& element, const void* compare, const void* value,
                      std::byte* target, void* old) {
  switch (word_of(element, target)) {
    case 8:
      compare_swap_word<std::uint64_t>(compare, value, target, old);
      return MPI_SUCCESS;
    case 4:
      compare_swap_word<std::uint32_t>(compare, value, target, old);
      return MPI_SUCCESS;
    case 2:
      compare_swap_word<std::uint16_t>(compare, value, target, old);
      return MPI_SUCCESS;
    case 1:
      compare_swap_word<std::uint8_t>(compare, value, target, old);
      return MPI_SUCCESS;
    default:
      break;
  }
  const auto bytes = static_cast<std::size_t>(element.size);
  std::byte before[kMostElement];
  const Guard guard(where);
  if (guard.code() != MPI_SUCCESS) return guard.code();
  std::memcpy(before, target, bytes);
  if (std::memcmp(before, compare, bytes) == 0) std::memcpy(target, value, bytes);
  std::memcpy(old, before, bytes);
  return MPI_SUCCESS;
}

}  // namespace heddle::mpi
