#include <sched.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <new>
#include <type_traits>

#include "mpi/core/progress.hpp"
#include "mpi/rma/ask.hpp"
#include "mpi/rma/operations.hpp"
#include "mpi/rma/win.hpp"

namespace heddle::mpi {

namespace {

constexpr std::uint32_t kMostAsked = 64;     // pieces that one target has not answered yet
constexpr std::uint64_t kPieceBytes = 4096;  // of one message, without the runs' descriptions
constexpr std::size_t kPieceRuns = 128;

int check_same(const Side& side, const Reach& reach, const Type& element, const char* name) {
  const Type* const other = element_of(*side.type);
  const bool alike = other != nullptr && other->basic == element.basic && other->size == element.size;
  if (!alike && side.bytes() != 0)
    return error(MPI_ERR_TYPE, "the %s's datatype is not made of the basic type of the target's: use the same one",
                 name);
  if (side.bytes() == reach.bytes()) return MPI_SUCCESS;
  return error(MPI_ERR_COUNT, "%s: count and datatype describe %lld bytes, but those of the target %lld", name,
               static_cast<long long>(side.bytes()), static_cast<long long>(reach.bytes()));
}

// ---- mapped memory ------------------------------------------------------------------------------

int accumulate_runs(const Accumulation& what, const Type& element, const std::byte* operands, std::byte* old) {
  const Reach& reach = what.reach;
  const Guarded where{*reach.win, reach.rank, *reach.far().control};
  if (reach.type == &element)
    return accumulate_here(where, *what.op, element, operands, reach.memory, old, reach.count);
  for (const Run& run : runs_of(reach.count, *reach.type, element, 0)) {
    const auto count = static_cast<MPI_Count>(run.count);
    if (const int code = accumulate_here(where, *what.op, element, operands,
                                         reach.memory + static_cast<std::ptrdiff_t>(run.offset), old, count);
        code != MPI_SUCCESS)
      return code;
    if (operands != nullptr) operands += count * element.size;
    if (old != nullptr) old += count * element.size;
  }
  return MPI_SUCCESS;
}

int accumulate_mapped(const Accumulation& what, const Type& element) {
  std::unique_ptr<std::byte[]> packed;
  std::unique_ptr<std::byte[]> packed_old;
  const std::byte* operands = nullptr;
  std::byte* old = nullptr;
  const auto bytes = static_cast<std::size_t>(what.reach.bytes());
  if (what.op->kind != OpKind::no_op) {
    operands = static_cast<const std::byte*>(begin_of(what.origin.buffer, *what.origin.type));
    if (!what.origin.type->contiguous) {
      packed = std::make_unique<std::byte[]>(bytes);
      pack(what.origin.buffer, what.origin.count, *what.origin.type, packed.get());
      operands = packed.get();
    }
  }
  if (what.old != nullptr) {
    old = static_cast<std::byte*>(begin_of(what.old->buffer, *what.old->type));
    if (!what.old->type->contiguous) {
      packed_old = std::make_unique<std::byte[]>(bytes);
      old = packed_old.get();
    }
  }
  const int code = accumulate_runs(what, element, operands, old);
  if (code == MPI_SUCCESS && packed_old != nullptr)
    unpack(packed_old.get(), static_cast<MPI_Count>(bytes), what.old->buffer, what.old->count, *what.old->type);
  return code;
}

// ---- messages -----------------------------------------------------------------------------------

// Cuts the runs into pieces.
class Pieces {
 public:
  Pieces(const Accumulation& what, const Type& element, Tracker* tracker)
      : what_(what), element_(element), tracker_(tracker), size_(static_cast<std::uint64_t>(element.size)) {}

  int send(const std::vector<Run>& runs) {
    const std::uint64_t most = std::max<std::uint64_t>(1, kPieceBytes / size_);
    for (Run run : runs) {
      while (run.count > 0) {
        const std::uint64_t count = std::min(run.count, most - elements_);
        piece_.push_back({run.offset, count});
        elements_ += count;
        run.count -= count;
        run.offset += count * static_cast<std::uint64_t>(element_.extent);
        if (elements_ < most && piece_.size() < kPieceRuns) continue;
        if (const int code = send_piece(); code != MPI_SUCCESS) return code;
      }
    }
    return piece_.empty() ? MPI_SUCCESS : send_piece();
  }

 private:
  std::unique_ptr<Asked> make() const {
    auto asked = std::make_unique<Asked>();
    AskHeader& header = asked->header;
    header.question = Question::accumulate;
    header.detail = static_cast<std::uint8_t>(what_.op->kind);
    header.fetch = what_.old != nullptr ? 1 : 0;
    header.type = element_number(element_);
    header.runs = static_cast<std::uint32_t>(piece_.size());
    header.offset = piece_[0].offset;
    header.count = piece_[0].count;
    asked->win = what_.reach.win;
    asked->rank = what_.reach.rank;
    if (what_.old == nullptr) return asked;
    asked->result = what_.old->buffer;
    asked->result_count = what_.old->count;
    asked->result_from = static_cast<MPI_Count>(from_);
    asked->result_type = retain(what_.old->type);
    return asked;
  }

  int send_piece() {
    const std::uint64_t bytes = elements_ * size_;
    if (const int code = wait_asked(*what_.reach.win, what_.reach.rank, kMostAsked); code != MPI_SUCCESS) return code;
    std::unique_ptr<Asked> asked = make();
    const std::size_t told = piece_.size() == 1 ? 0 : piece_.size() * sizeof(Run);
    const std::size_t carried = what_.op->kind == OpKind::no_op ? 0 : bytes;
    asked->payload_bytes = told + carried;
    if (asked->payload_bytes != 0) asked->payload = std::make_unique<std::byte[]>(asked->payload_bytes);
    if (told != 0) std::memcpy(asked->payload.get(), piece_.data(), told);
    if (carried != 0)
      pack_part(what_.origin.buffer, what_.origin.count, *what_.origin.type, static_cast<MPI_Count>(from_),
                static_cast<MPI_Count>(bytes), asked->payload.get() + told);
    if (tracker_ != nullptr) tracker_->add();
    asked->tracker = tracker_;
    const int code = post_ask(std::move(asked));
    if (code != MPI_SUCCESS && tracker_ != nullptr) tracker_->end(code);
    from_ += bytes;
    elements_ = 0;
    piece_.clear();
    return code;
  }

  const Accumulation& what_;
  const Type& element_;
  Tracker* const tracker_;
  const std::uint64_t size_;
  std::uint64_t from_ = 0;      // bytes sent
  std::uint64_t elements_ = 0;  // of the piece
  std::vector<Run> piece_;
};

}  // namespace

std::uint32_t element_number(const Type& element) {
  return static_cast<std::uint32_t>(&element - g_basic_types);
}

int keep_order(const Reach& reach) {
  if (reach.win->unordered || reach.far().asked.load(std::memory_order_relaxed) == 0) return MPI_SUCCESS;
  // If all that was posted to the rank is there, the next question comes after it. Else the answers
  // are waited for: a fence would wait for long messages of the lane, too, which their receivers
  // may take later, and make progress on this lane only.
  const std::uint32_t job_rank = reach.win->comm->members[static_cast<std::size_t>(reach.rank)].peer.rank;
  const heddle_status status = heddle_try_flush(reach.win->comm->lane->worker, job_rank);
  return status == HEDDLE_AGAIN ? wait_asked(*reach.win, reach.rank, 1) : code_of(status);
}

int check_accumulation(const Accumulation& what) {
  if (what.op->kind == OpKind::user)
    return error(MPI_ERR_OP, "an operator made by MPI_Op_create: accumulates take only predefined ones");
  // There is nothing to combine: no elements, or elements of an empty type, which has no basic
  // type.
  if (what.reach.bytes() == 0) return MPI_SUCCESS;
  const Type* const element = element_of(*what.reach.type);
  if (element == nullptr)
    return error(MPI_ERR_TYPE, "target_datatype: accumulates need elements of one predefined type");
  if (const int code = check_op(*what.op, *element); code != MPI_SUCCESS) return code;
  if (what.op->kind != OpKind::no_op)
    if (const int code = check_same(what.origin, what.reach, *element, "origin"); code != MPI_SUCCESS) return code;
  return what.old == nullptr ? MPI_SUCCESS : check_same(*what.old, what.reach, *element, "result");
}

int accumulate(const Accumulation& what, Tracker* tracker) {
  if (what.reach.bytes() == 0) return MPI_SUCCESS;
  const Type& element = *element_of(*what.reach.type);
  if (what.op->kind == OpKind::no_op && what.old == nullptr) return MPI_SUCCESS;
  if (what.reach.memory != nullptr) return accumulate_mapped(what, element);
  if (const int code = keep_order(what.reach); code != MPI_SUCCESS) return code;
  return Pieces(what, element, tracker).send(runs_of(what.reach.count, *what.reach.type, element, what.reach.offset));
}

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
