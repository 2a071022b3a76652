// A bounded ring of 64-byte records in one process's memory: many producers, one consumer. Threads
// use it to hand commands to the executor of a worker (the queue of LLCL, Endo and Taura, with the
// sleeping bit in the tail that they describe as a trial).
//
//   tail    position << 1 | asleep    the next record that a producer claims
//   head    position                  the consumer's; every record before it is free again
//   record  {visible, body}           64 bytes; visible = lap << 8 | number of records of the
//                                     command that begins here
//
// A position counts records since the beginning and only grows: 63 bits, so no ABA. Its place is
// position % capacity, its lap position / capacity + 1. A command takes one record or several in a
// row; they may wrap around the end of the ring, since each record is addressed by itself.
//
// Invariants
//   head <= taken by the consumer <= tail, tail - head <= capacity.
//   A record in [head, tail) belongs to the producer that claimed it until the command's first
//   record is visible, then to the consumer until release(). All others are free.
//   `visible` is written only in a command's first record, with that record's lap, which differs
//   from every earlier value there. So it is never cleared, and the later records of a command,
//   whose `visible` keeps its old value, are never taken for a first record.
//   asleep set => the tail is what the consumer has taken: the bit is set by a compare-and-swap
//   from that very tail, and every claim clears it. So exactly one producer, the first one to
//   claim, learns that it must wake the consumer.
//
// Why compare-and-swap and not fetch_add: a claim that does not fit could not be undone, since
// others have claimed behind it; nor could fetch_add clear the sleeping bit. README.md has the cost
// of both.
//
// A producer that stops between claim() and publish() holds up the commands behind its own; the
// other producers go on until the ring is full.
//
// asleep is also a lock: the thread that clears it is the consumer until its prepare_sleep()
// succeeds. A dedicated executor keeps the role while it sleeps and is only woken. Where there is
// no executor (delegate mode), a producer whose publish() returns true is the consumer, and a
// thread that wants to help calls wake_up().
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/cache_line.hpp"

namespace heddle::queue {

inline constexpr std::size_t kCommandRecordBytes = 64;

// A body of plain bytes, for commands that have no type of their own.
struct CommandBytes {
  alignas(8) std::byte bytes[kCommandRecordBytes - sizeof(std::uint64_t)];
};

// Body: what a record carries besides its header, at most 56 bytes; default constructible.
template <class Body = CommandBytes, template <class> class Atomic = std::atomic>
class CommandQueue {
 public:
  // of one command, which has at most capacity() of them, too
  static constexpr std::uint32_t kMostRecords = 255;

  // The records of one command, as claim() and take() give them.
  struct Command {
    std::uint64_t position = 0;
    std::uint32_t records = 0;
    bool wake = false;  // of a claim: the consumer slept
    explicit operator bool() const { return records != 0; }
    [[nodiscard]] std::uint64_t end() const { return position + records; }
  };

  // At least `capacity` records (rounded up to a power of two, two at least). The consumer is
  // awake.
  explicit CommandQueue(std::uint32_t capacity)
      : records_(std::bit_ceil(capacity < 2 ? 2U : capacity)),
        mask_(records_.size() - 1),
        lap_shift_(static_cast<std::uint32_t>(std::countr_zero(records_.size()))) {}
  CommandQueue(const CommandQueue&) = delete;
  CommandQueue& operator=(const CommandQueue&) = delete;

  [[nodiscard]] std::uint32_t capacity() const { return static_cast<std::uint32_t>(mask_ + 1); }

  // The body of record `i` of a command that is claimed and not yet published, or taken and not yet
  // released.
  [[nodiscard]] Body& body(const Command& command, std::uint32_t i = 0) { return at(command.position + i).body; }

  // ---- producers: any thread ----

  // Claims room for a command; empty: the ring is full, nothing happened. The caller must publish
  // what it has claimed, and soon.
  [[nodiscard]] Command claim(std::uint32_t records = 1) {
    assert(records >= 1 && records <= kMostRecords && records <= capacity());
    std::uint64_t tail = tail_.load(std::memory_order_relaxed);
    do {
      if (!has_room((tail >> 1) + records)) return {};
    } while (!tail_.compare_exchange_weak(tail, ((tail >> 1) + records) << 1, std::memory_order_acquire));
    return {tail >> 1, records, (tail & kAsleep) != 0};
  }

  // The records of the command are written. True: the caller must wake the consumer now (or, where
  // that is agreed, become the consumer).
  [[nodiscard]] bool publish(const Command& command) {
    at(command.position)
        .visible.store(lap(command.position) << kRecordsBits | command.records, std::memory_order_release);
    return command.wake;
  }

  // A command of one record: claims it, has write(body) write it, and publishes it.
  enum class Put : std::uint8_t {
    full,  // nothing happened
    done,
    wake  // done, and what publish() says
  };
  template <class Write>
  [[nodiscard]] Put put(Write&& write) {
    const Command claimed = claim();
    if (!claimed) return Put::full;
    // The queue's own words are read before the body is written, since the write could change
    // anything.
    Record& record = at(claimed.position);
    const std::uint64_t visible = lap(claimed.position) << kRecordsBits | 1;
    write(record.body);
    record.visible.store(visible, std::memory_order_release);
    return claimed.wake ? Put::wake : Put::done;
  }

  // Everything queued before this call has been executed when executed() has reached the result.
  // "Before": by this thread, or ordered before this call by other means.
  [[nodiscard]] std::uint64_t claimed() const { return tail_.load(std::memory_order_relaxed) >> 1; }

  // The position up to which release() has freed records: those commands' effects are visible to
  // the caller.
  [[nodiscard]] std::uint64_t executed() const { return head_.load(std::memory_order_acquire); }

  // Any thread. True: the command at executed() is published, so a thread that becomes the consumer
  // has something to take.
  [[nodiscard]] bool ready() const {
    const std::uint64_t head = head_.load(std::memory_order_acquire);
    return records_[head & mask_].visible.load(std::memory_order_acquire) >> kRecordsBits == lap(head);
  }

  // ---- the consumer: one thread at a time ----

  // The next command, in the order of the claims; its records stay valid until release(). False: it
  // is not visible yet.
  [[nodiscard]] bool take(Command* command) {
    const std::uint64_t visible = at(next_).visible.load(std::memory_order_acquire);
    if (visible >> kRecordsBits != lap(next_)) return false;
    *command = {next_, static_cast<std::uint32_t>(visible & kMostRecords), false};
    next_ += command->records;
    return true;
  }

  // Takes commands of one record while they are visible and visit(body) says yes, up to the end of
  // the ring and at most `most`. Returns how many. take() says whether there is a next one, and
  // which.
  template <class Visit>
  std::size_t take_row(std::size_t most, Visit&& visit) {
    const std::uint64_t wanted = lap(next_) << kRecordsBits | 1;  // in each of them
    const std::uint64_t place = next_ & mask_;
    Record* const first = &records_[place];
    Record* const end = first + std::min<std::size_t>(most, mask_ + 1 - place);
    Record* record = first;
    while (record != end && record->visible.load(std::memory_order_acquire) == wanted && visit(record->body)) ++record;
    const auto taken = static_cast<std::size_t>(record - first);
    next_ += taken;
    return taken;
  }

  // Takes back take() of the command at `position` and of all after it: the next take() gives that
  // command again. Not for commands that have been released.
  void put_back(std::uint64_t position) { next_ = position; }

  // `last` and all commands taken before it are executed, and the consumer will not read their
  // records again. One call for a batch is enough.
  void release(const Command& last) { head_.store(last.end(), std::memory_order_release); }

  // True: nothing is claimed beyond what was taken, and the next producer that claims learns that
  // it has to wake the consumer. False: there is something to take, or will be at once. A dedicated
  // consumer calls wake_up() after its sleep, however the sleep ended.
  [[nodiscard]] bool prepare_sleep() {
    std::uint64_t tail = next_ << 1;
    return tail_.compare_exchange_strong(tail, tail | kAsleep, std::memory_order_release, std::memory_order_relaxed);
  }

  // Ends the sleep. The consumer calls it after its sleep. Another thread calls it only to take
  // over the role (delegate mode), or if it then wakes the consumer itself, since no producer will.
  // True: the consumer slept, and this call ended its sleep. False: it is awake, or a producer has
  // ended its sleep; that producer's call to wake it is on its way or over.
  [[nodiscard]] bool wake_up() {
    std::uint64_t tail = tail_.load(std::memory_order_relaxed);
    while ((tail & kAsleep) != 0) {
      if (tail_.compare_exchange_weak(tail, tail & ~kAsleep, std::memory_order_acquire)) return true;
    }
    return false;
  }

  // For a debugger: show(name, word, by how many bits its number is shifted). An odd tail: the
  // consumer sleeps.
  template <class Show>
  void show(Show&& show) const {
    show("queue claimed", tail_, 1U);
    show("queue executed", head_, 0U);
    show("queue tail", tail_, 0U);
  }

 private:
  static constexpr std::uint64_t kAsleep = 1;
  static constexpr std::uint32_t kRecordsBits = 8;

  struct alignas(kCommandRecordBytes) Record {
    // Release by publish(), acquire by take() and ready(): the body. Zero, the value before the
    // first lap, is no lap.
    Atomic<std::uint64_t> visible{0};
    Body body{};
  };
  static_assert(sizeof(Record) == kCommandRecordBytes || sizeof(Atomic<std::uint64_t>) != sizeof(std::uint64_t),
                "the body is larger than 56 bytes");

  Record& at(std::uint64_t position) { return records_[position & mask_]; }
  [[nodiscard]] std::uint64_t lap(std::uint64_t position) const { return (position >> lap_shift_) + 1; }

  // `end` may be out of date, and then less than the head: the claim's compare-and-swap then fails.
  [[nodiscard]] bool fits(std::uint64_t end, std::uint64_t head) const {
    return static_cast<std::int64_t>(end - 1 - head) <= static_cast<std::int64_t>(mask_);
  }

  [[nodiscard]] bool has_room(std::uint64_t end) {
    if (fits(end, known_head_.load(std::memory_order_acquire))) return true;
    const std::uint64_t head = head_.load(std::memory_order_acquire);
    if (!fits(end, head)) return false;
    // may replace a newer value, which does no harm
    known_head_.store(head, std::memory_order_release);
    return true;
  }

  // Read only after construction.
  std::vector<Record> records_;
  std::uint64_t mask_;
  std::uint32_t lap_shift_;

  // Claims follow one another in the order of this word's changes; the ring needs no other order
  // from it. Besides: release by prepare_sleep(), acquire by claim() and wake_up(): the consumer's
  // role passes on with next_ and all else that it guards.
  alignas(base::kCacheLine) Atomic<std::uint64_t> tail_{0};
  // The value of head_ that some producer saw last. Release and acquire by has_room(): passes on
  // what that producer acquired. Changes once a lap, so that each producer has it in its cache.
  alignas(base::kCacheLine) Atomic<std::uint64_t> known_head_{0};
  // Release by release(); acquire by has_room() (the records may be written again), executed() and
  // ready() (effects).
  alignas(base::kCacheLine) Atomic<std::uint64_t> head_{0};
  std::uint64_t next_ = 0;  // the consumer's: position of the next command
};

}  // namespace heddle::queue
