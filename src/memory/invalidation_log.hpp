// A log of the memory of this process that has gone: one writer at a time reports it to any number
// of readers, each at its own pace.
//
// A reader remembers the generation up to which it has read, and compares it before every use of
// what it has cached about memory: one acquire load and a comparison. The log never waits for a
// reader; a reader that is more than kEvents behind has lost events, and must assume that all
// memory has gone.
//
// generation: 0: nobody watches (never, or no longer; also in the child of a fork, see UnmapWatch).
// Odd: events are being written; the memory that has gone is not known until the generation is even
// again. Otherwise: 2 + 2 × (events written).
// Invariants
//   begin() makes the generation odd before the event is read from its source, and so before the
//   thread that unmapped goes on; end() makes it even after the events are in their slots.
//   Event n is in slot n mod kEvents. A slot is overwritten only between begin() and end(), by one
//   of at most kBatch events. A reader that has read a slot reads the generation again: if another
//   event had been in the slot, it would see a generation that is too far on.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace heddle::memory {

// [begin, end), mostly whole pages.
struct Gone {
  std::uint64_t begin;
  std::uint64_t end;
};

template <template <class> class Atomic = std::atomic, std::uint32_t kEventsOfLog = 512, std::uint32_t kBatchOfLog = 16>
class InvalidationLog {
 public:
  static constexpr std::uint64_t kEvents = kEventsOfLog;
  static constexpr std::uint32_t kBatch = kBatchOfLog;  // events between begin() and end(), at most
  static constexpr std::uint64_t kNobody = 0;
  enum class Read : std::uint8_t { event, lost };

  // ---- the writer, of which there is one at a time

  // A watch exists from now on.
  void open() { generation_.store(kFirst, std::memory_order_release); }
  void begin() {
    // Comes before the slots, each of which is a release store, and before what the caller does to
    // let the unmapping thread go on.
    generation_.store(generation_of(next_) + 1, std::memory_order_release);
  }
  void add(Gone gone) {
    Slot& slot = slots_[next_++ % kEvents];
    slot.begin.store(gone.begin, std::memory_order_release);
    slot.end.store(gone.end, std::memory_order_release);
  }
  void end() { generation_.store(generation_of(next_), std::memory_order_release); }
  // Nobody watches any more.
  void close() { generation_.store(kNobody, std::memory_order_release); }

  // ---- readers

  [[nodiscard]] std::uint64_t generation() const { return generation_.load(std::memory_order_acquire); }
  [[nodiscard]] static bool settled(std::uint64_t generation) { return generation % 2 == 0; }
  // The first event that a reader of this generation has not read.
  [[nodiscard]] static std::uint64_t event_of(std::uint64_t generation) { return (generation - kFirst) / 2; }
  // Reads event n, which was written before a generation that the caller has seen; lost: it has
  // been overwritten since.
  [[nodiscard]] Read read(std::uint64_t n, Gone* gone) const {
    const Slot& slot = slots_[n % kEvents];
    gone->begin = slot.begin.load(std::memory_order_acquire);
    gone->end = slot.end.load(std::memory_order_acquire);
    // A reader that has seen a word of a later event sees here at least the generation that
    // announced it.
    const std::uint64_t now = generation_.load(std::memory_order_relaxed);
    if (now == kNobody) return Read::lost;
    const std::uint64_t may_be_written = event_of(now) + (settled(now) ? 0 : kBatch);
    return may_be_written > n + kEvents ? Read::lost : Read::event;
  }

 private:
  static constexpr std::uint64_t kFirst = 2;
  static std::uint64_t generation_of(std::uint64_t event) { return kFirst + 2 * event; }
  struct Slot {
    // release by add(), after begin(); partner: the acquire load in read()
    Atomic<std::uint64_t> begin{0};
    Atomic<std::uint64_t> end{0};  // the same
  };

  // release by the writer; partners: generation(), and the last load of read()
  Atomic<std::uint64_t> generation_{kNobody};
  std::uint64_t next_ = 0;  // the writer's: the next event
  std::array<Slot, kEvents> slots_;
};

}  // namespace heddle::memory
