// A ring of variable-length records: one producer, one consumer, over raw memory that two processes
// may share.
//
//   control:  [tail and copy, written by the producer][head, written by the consumer], each on a
//             line pair of its own
//   data:     records, 8-byte aligned: header {bytes:24 | type:8, immediate:32}, payload padded to
//             8
//
// Positions are 64-bit indices that only grow; each side keeps its own position privately: the
// producer as the index at which the lap began and the place in the data. The memory is shared, the
// objects RecordProducer and RecordConsumer are not.
//
// Invariants
//   head <= tail, tail - head <= capacity, both multiples of 8; or head is kRejectedHead, stored
//   once and last by a consumer that takes nothing more.
//   [head, tail) is a sequence of whole records; no record wraps: a padding record fills what is
//   left at the end. Nobody writes bytes in [head, tail); the rest belongs to the producer.
//   tail is stored only after all that it publishes; a producer killed at any instruction leaves
//   whole records. head is stored only after the consumer's last read of what it frees.
//   While `copied` is i + 1, `copy` has the first words of the record at index i as it was
//   published; while the guard of line n of `rest` is i + 1, that line has the words that follow
//   those of the line before. Before the producer writes to a line it stores 0 in its guard; so a
//   consumer that has found the same i + 1 in a guard before and after it has read the words of
//   that line has read words of that record, whatever the other guards say.
//
// The copy: a short record that is published alone may lie beside the tail, too. A consumer that
// waits for it then fetches one line from the producer's cache, and not two, one after the other
// (docs/decisions/0055-copy-beside-the-tail.md). A longer one fills lines behind it as well, which
// come all at once, and which both caches have at hand. They are written first, so that a consumer
// that polls the tail does not take its line away in between. A consumer that waits where the last
// copy was as long asks for them at each look: so they are on their way together with the tail.
//
// Why a separate tail and not a header that is polled in place: measured
// (docs/decisions/0005-message-rings.md). A consumer that polls in place takes the line away
// between the producer's stores to it.
//
// The other side is not trusted: the consumer checks tail and every header before use; if one is
// wrong it says `malformed`, and must not be asked again. The producer treats an impossible head as
// "full".
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/cache_line.hpp"

namespace heddle::queue {

// Two lines, since x86 fetches them in pairs.
inline constexpr std::size_t kRingLine = base::kCacheLine < 128 ? 128 : base::kCacheLine;

// What of a copy lies in which line. The schedule explorer has shorter lines.
template <template <class> class Atomic>
struct CopyShape {
  static constexpr std::size_t kCopyWords = 6;  // with tail and copied: a line of 64 bytes
  static constexpr std::size_t kRestWords = 7;  // with the guard: a line, too
  static constexpr std::size_t kRestLines = 9;
};

// Zeroed memory is a valid empty ring.
template <template <class> class Atomic = std::atomic>
struct RingControl {
  static constexpr std::size_t kCopyWords = CopyShape<Atomic>::kCopyWords;
  static constexpr std::size_t kRestWords = CopyShape<Atomic>::kRestWords;
  static constexpr std::size_t kRestLines = CopyShape<Atomic>::kRestLines;
  static constexpr std::size_t kMostWords = kCopyWords + kRestLines * kRestWords;

  alignas(kRingLine) Atomic<std::uint64_t> tail{
      0};  // release by RecordProducer::publish; acquire by RecordConsumer::take
  // Release by publish_with_copy(), with the copy; acquire by take_copy(), before it. 0: none.
  Atomic<std::uint64_t> copied{0};
  // A record: header and payload. Release by publish_with_copy(): after the 0 in `copied`; acquire
  // by take_copy(): before its second look at `copied`.
  Atomic<std::uint64_t> copy[kCopyWords]{};
  // The words of the record behind these; orders as for `copied` and `copy`.
  struct Rest {
    Atomic<std::uint64_t> copied{0};
    Atomic<std::uint64_t> words[kRestWords]{};
  };
  Rest rest[kRestLines];
  // release by RecordConsumer::give_back and reject; acquire by look_for_room and rejected
  alignas(kRingLine) Atomic<std::uint64_t> head{0};
};
static_assert(sizeof(RingControl<>) % kRingLine == 0 && offsetof(RingControl<>, rest) % 64 == 0 &&
              sizeof(RingControl<>::Rest) == 64 && std::atomic<std::uint64_t>::is_always_lock_free);

inline constexpr std::uint32_t kRecordHeaderBytes = 8;
inline constexpr std::uint32_t kMaxRecordBytes = (1U << 24) - 1;
// 0 is never valid; the ring's users use types from 2 on
inline constexpr std::uint8_t kPaddingType = 1;

constexpr std::uint32_t record_space(std::uint32_t bytes) {
  return (bytes + kRecordHeaderBytes + 7U) & ~7U;
}

// The largest payload that a ring of `capacity` bytes accepts in every state, even while the
// consumer has not returned the last quarter: padding (less than one record) and the record fit
// into half of it.
constexpr std::uint32_t largest_record(std::uint32_t capacity) {
  return (capacity / 4 & ~7U) - kRecordHeaderBytes;
}

struct Record {
  const std::byte* data = nullptr;
  std::uint32_t bytes = 0;
  std::uint32_t immediate = 0;
  std::uint8_t type = 0;
};

// A head that no ring has, and with which there is room for no record.
inline constexpr std::uint64_t kRejectedHead = std::uint64_t{1} << 63;

template <template <class> class Atomic = std::atomic>
class RecordProducer {
 public:
  RecordProducer() = default;
  // `capacity` bytes at `data`, both multiples of 8; the ring is empty and has never been used.
  RecordProducer(RingControl<Atomic>* control, std::byte* data, std::uint32_t capacity)
      : control_(control), data_(data), room_end_(capacity), capacity_(capacity), limit_(capacity) {}

  // Room for a record with `bytes` <= largest_record(); the caller fills the payload, then calls
  // publish(). Null: the ring is full. Several records may be begun before one publish().
  [[nodiscard]] std::byte* begin(std::uint8_t type, std::uint32_t immediate, std::uint32_t bytes) {
    std::byte* const payload = begin_here(type, immediate, bytes);
    return payload != nullptr ? payload : begin_after_look(type, immediate, bytes);
  }

  // Makes everything begun so far visible to the consumer.
  void publish() { publish_up_to(place_); }

  // Begins records one behind the other, in room that is already known: without a call, and with
  // the ring's position in a register. While a Row is open nothing else may be done with the ring.
  // The Row ends with end() or publish(); without either, nothing was begun.
  class Row {
   public:
    explicit Row(RecordProducer& ring)
        : ring_(ring), data_(ring.data_), at_(data_ + ring.place_), limit_(data_ + ring.limit_) {}
    // As the ring's begin(). Null: ask that one.
    [[nodiscard]] std::byte* begin(std::uint8_t type, std::uint32_t immediate, std::uint32_t bytes) {
      std::byte* const record = at_;
      const std::uint32_t space = record_space(bytes);
      if (space > static_cast<std::uint64_t>(limit_ - record)) [[unlikely]]
        return nullptr;
      at_ = record + space;
      write_header(record, type, immediate, bytes);
      return record + kRecordHeaderBytes;
    }
    // They count as begun.
    void end() { ring_.place_ = place(); }
    void publish() {
      end();
      ring_.publish_up_to(place());
    }
    // The same, for a row of one record, which begin() has returned, and with nothing begun before
    // the row: a consumer that waits for it gets it sooner. Costs a store for each word of it.
    void publish_with_copy(const std::byte* payload) {
      ring_.copy_record(payload - kRecordHeaderBytes, at_);
      publish();
    }

   private:
    [[nodiscard]] std::uint32_t place() const { return static_cast<std::uint32_t>(at_ - data_); }

    RecordProducer& ring_;
    std::byte* const data_;
    std::byte* at_;  // where the next record begins
    std::byte* const limit_;
  };

  // The consumer has found the ring malformed, and takes nothing more: there will never be room.
  [[nodiscard]] bool rejected() const { return control_->head.load(std::memory_order_acquire) == kRejectedHead; }

  [[nodiscard]] std::uint64_t index() const { return lap_ + place_; }
  // The consumer will not look again at what lies before this index. Partner: give_back(). 0 where
  // the head is impossible.
  [[nodiscard]] std::uint64_t freed() const {
    const std::uint64_t head = control_->head.load(std::memory_order_acquire);
    return index() - head > capacity_ ? 0 : head;
  }

  // The number of records of `type` in a ring whose consumer has never freed anything, so that all
  // records are in their first lap. 0: the consumer has freed something.
  [[nodiscard]] std::uint64_t count_untouched(std::uint8_t type) const {
    if (lap_ != 0 || control_->head.load(std::memory_order_acquire) != 0) return 0;
    std::uint64_t count = 0;
    for (std::uint32_t place = 0; place < place_;) {
      std::uint64_t header = 0;
      std::memcpy(&header, data_ + place, sizeof header);
      if (static_cast<std::uint8_t>(header >> 24) == type) ++count;
      place += record_space(static_cast<std::uint32_t>(header & kMaxRecordBytes));
    }
    return count;
  }

 private:
  static constexpr std::uint32_t kAhead = 256;

  std::byte* begin_here(std::uint8_t type, std::uint32_t immediate, std::uint32_t bytes) {
    const std::uint32_t space = record_space(bytes);
    const std::uint32_t place = place_;
    if (space > limit_ - place) [[unlikely]]
      return nullptr;
    place_ = place + space;
    write_header(data_ + place, type, immediate, bytes);
    return data_ + place + kRecordHeaderBytes;
  }
  [[gnu::noinline]] std::byte* begin_after_look(std::uint8_t type, std::uint32_t immediate, std::uint32_t bytes) {
    if (place_ == capacity_) next_lap();
    const std::uint32_t space = record_space(bytes);
    const std::uint32_t to_end = capacity_ - place_;
    const std::uint64_t end = index() + space + (space > to_end ? to_end : 0);
    if (end > room_end_ && !look_for_room(end)) return nullptr;
    if (space > to_end) {
      write_header(data_ + place_, kPaddingType, 0, to_end - kRecordHeaderBytes);
      next_lap();
    }
    limit_ = static_cast<std::uint32_t>(std::min<std::uint64_t>(capacity_, room_end_ - lap_));
    return begin_here(type, immediate, bytes);
  }
  void next_lap() {
    lap_ += capacity_;
    place_ = 0;
    limit_ = 0;
  }
  // Whether there is room up to the index `end` by now. An impossible head counts as no room.
  bool look_for_room(std::uint64_t end) {
    const std::uint64_t head = control_->head.load(std::memory_order_acquire);
    if (index() - head > capacity_) return false;
    room_end_ = head + capacity_;
    return end <= room_end_;
  }
  // The record [begin, end), which begins where the published ones end.
  void copy_record(const std::byte* begin, const std::byte* end) {
    using Control = RingControl<Atomic>;
    const auto words = static_cast<std::size_t>(end - begin) / sizeof(std::uint64_t);
    if (words > Control::kCopyWords) {
      if (words > Control::kMostWords) return;
      copy_rest(begin, words);
    }
    copy_guarded(control_->copied, control_->copy, begin, std::min(words, Control::kCopyWords));
  }
  // What does not lie in the tail's line. Inline: a call would cost those that have none registers.
  [[gnu::always_inline]] void copy_rest(const std::byte* begin, std::size_t words) {
    using Control = RingControl<Atomic>;
    const std::byte* from = begin + Control::kCopyWords * sizeof(std::uint64_t);
    std::size_t left = words - Control::kCopyWords;
    auto* line = control_->rest;
    constexpr std::size_t kLine = Control::kRestWords * sizeof(std::uint64_t);
    for (; left >= Control::kRestWords; left -= Control::kRestWords, ++line, from += kLine) copy_line(*line, from);
    if (left != 0) copy_guarded(line->copied, line->words, from, left);
  }
  // Release: partners of RecordConsumer's loads, of the words (which come after the 0), and of the
  // guard (which comes after the words).
  static void copy_word(Atomic<std::uint64_t>& to, const std::byte* from) {
    std::uint64_t word = 0;
    std::memcpy(&word, from, sizeof word);
    to.store(word, std::memory_order_release);
  }
  void copy_guarded(Atomic<std::uint64_t>& guard, Atomic<std::uint64_t>* to, const std::byte* from, std::size_t words) {
    guard.store(0, std::memory_order_relaxed);
    for (std::size_t i = 0; i < words; ++i) copy_word(to[i], from + i * sizeof(std::uint64_t));
    guard.store(index() + 1, std::memory_order_release);
  }
  void copy_line(typename RingControl<Atomic>::Rest& line, const std::byte* from) {
    line.copied.store(0, std::memory_order_relaxed);
#pragma GCC unroll 8
    for (std::size_t i = 0; i < RingControl<Atomic>::kRestWords; ++i)
      copy_word(line.words[i], from + i * sizeof(std::uint64_t));
    line.copied.store(index() + 1, std::memory_order_release);
  }
  void publish_up_to(std::uint32_t place) {
    control_->tail.store(lap_ + place, std::memory_order_release);
    // The consumer last read the next record's line a lap ago: acquire it for writing before it is
    // needed.
    base::prefetch_for_writing(data_ + (place + kAhead < capacity_ ? place + kAhead : 0));
  }

  static void write_header(std::byte* record, std::uint8_t type, std::uint32_t immediate, std::uint32_t bytes) {
    const std::uint64_t header = bytes | std::uint64_t{type} << 24 | std::uint64_t{immediate} << 32;
    std::memcpy(record, &header, sizeof header);
  }

  RingControl<Atomic>* control_ = nullptr;
  std::byte* data_ = nullptr;
  std::uint64_t lap_ = 0;       // the index of data_[0]
  std::uint64_t room_end_ = 0;  // index up to which there is room, by the head that was last seen
  std::uint32_t capacity_ = 0;
  std::uint32_t place_ = 0;  // of the next record in data_; capacity_ where a lap has ended
  // Places up to it may be written: at least place_, and not beyond room_end_.
  std::uint32_t limit_ = 0;
};

enum class Take : std::uint8_t { none, record, malformed };

template <template <class> class Atomic = std::atomic>
class RecordConsumer {
 public:
  RecordConsumer() = default;
  RecordConsumer(RingControl<Atomic>* control, const std::byte* data, std::uint32_t capacity)
      : control_(control), data_(data), due_(capacity / 8), portion_(capacity / 8), capacity_(capacity) {}

  // True: there is a record that look() has seen.
  [[nodiscard]] bool knows() const { return index_ != tail_; }
  // Whether there is a record: record, none or malformed.
  [[nodiscard]] Take look() {
    if (index_ != tail_) return Take::record;
    const std::uint64_t tail = control_->tail.load(std::memory_order_acquire);
    if (tail == index_) {
      // nothing to do: the producer may be blocked
      if (free_ > due_) give_back();
      for (std::size_t i = 0; i < rest_lines_; ++i) __builtin_prefetch(&control_->rest[i]);
      return Take::none;
    }
    if (tail - returned_ > capacity_ || tail < index_ || tail % 8 != 0) return Take::malformed;
    tail_ = tail;
    return Take::record;
  }

  // The next record; its bytes stay valid until release().
  [[nodiscard]] Take take(Record* record) {
    for (;;) {
      if (const Take found = look(); found != Take::record) return found;
      std::uint64_t header = 0;
      // read once: the producer may change it meanwhile
      std::memcpy(&header, data_ + place_, sizeof header);
      const auto bytes = static_cast<std::uint32_t>(header & kMaxRecordBytes);
      const auto type = static_cast<std::uint8_t>(header >> 24);
      const std::uint32_t space = record_space(bytes);
      if (type == 0 || space > tail_ - index_ || space > capacity_ - place_) return Take::malformed;
      const std::byte* payload = data_ + place_ + kRecordHeaderBytes;
      index_ += space;
      place_ += space;
      if (place_ == capacity_) place_ = 0;
      if (type == kPaddingType) {
        if (place_ != 0) return Take::malformed;
        continue;
      }
      *record = {payload, bytes, static_cast<std::uint32_t>(header >> 32), type};
      return Take::record;
    }
  }

  static constexpr std::size_t kCopyBytes = RingControl<Atomic>::kMostWords * sizeof(std::uint64_t);

  // Call it after look() has said `record`: takes the next record from its copy beside the tail,
  // with the payload in `room` of kCopyBytes, if the copy is there, is of `type`, and has at most
  // `most_bytes`.
  [[nodiscard]] bool take_copy(std::uint8_t type, std::uint32_t most_bytes, std::byte* room, Record* record) {
    constexpr std::size_t kHere = RingControl<Atomic>::kCopyWords * sizeof(std::uint64_t);
    constexpr std::size_t kRestBytes = RingControl<Atomic>::kRestWords * sizeof(std::uint64_t);
    const std::uint64_t wanted = index_ + 1;
    if (control_->copied.load(std::memory_order_acquire) != wanted) return false;
    const std::uint64_t header = control_->copy[0].load(std::memory_order_acquire);
    const auto bytes = static_cast<std::uint32_t>(header & kMaxRecordBytes);
    const std::uint32_t space = record_space(bytes);
    if (static_cast<std::uint8_t>(header >> 24) != type || bytes > most_bytes || space > kCopyBytes ||
        space > tail_ - index_ || space > capacity_ - place_) {
      return false;
    }
    read_copy(&control_->copy[1], room, std::min<std::size_t>(space, kHere) - kRecordHeaderBytes);
    if (space > kHere && !read_rest(wanted, room + kHere - kRecordHeaderBytes, space - kHere)) return false;
    if (control_->copied.load(std::memory_order_relaxed) != wanted) return false;
    rest_lines_ = space <= kHere ? 0 : (space - kHere + kRestBytes - 1) / kRestBytes;
    index_ += space;
    place_ = place_ + space == capacity_ ? 0 : place_ + space;
    *record = {room, bytes, static_cast<std::uint32_t>(header >> 32), type};
    return true;
  }
  // Lines that are known to be written are fetched this far ahead: a processor looks too few
  // records ahead by itself. Worth 15 % between far cores, where a line takes 500 ns.
  static constexpr std::uint32_t kSoon = 192;

  // Takes records of `type` with at most `most_bytes` while they are known to be visible, at most
  // `most` of them, and none behind a portion(): visit(number, payload, bytes, immediate). Returns
  // how many. look() and take() say whether there is a next record, and which.
  template <class Visit>
  std::size_t take_known(std::uint8_t type, std::uint32_t most_bytes, std::size_t most, Visit&& visit) {
    std::size_t count = 0;
    std::uint64_t known = tail_ - index_;
    std::uint64_t left = 0;
    if (known > portion_) [[unlikely]]
      left = known - portion_;
    std::uint32_t place = place_;
    while (count < most && known > left) {
      std::uint64_t header = 0;
      std::memcpy(&header, data_ + place, sizeof header);
      const auto bytes = static_cast<std::uint32_t>(header & kMaxRecordBytes);
      const std::uint32_t space = record_space(bytes);
      if (static_cast<std::uint8_t>(header >> 24) != type || bytes > most_bytes || space > known ||
          space > capacity_ - place) [[unlikely]] {
        break;
      }
      if (known > kSoon) __builtin_prefetch(data_ + (place + kSoon < capacity_ ? place + kSoon : 0));
      visit(count++, data_ + place + kRecordHeaderBytes, bytes, static_cast<std::uint32_t>(header >> 32));
      known -= space;
      place = place + space == capacity_ ? 0 : place + space;
    }
    index_ = tail_ - known;
    place_ = place;
    return count;
  }

  // Who takes this much should release it, so that the producer goes on while it is read.
  [[nodiscard]] std::uint64_t portion() const { return portion_; }
  // What was taken since the last release().
  [[nodiscard]] std::uint64_t taken() const { return index_ - free_; }

  // The record that was taken last, before any release(), could not be dealt with: the next take()
  // gives it again.
  void put_back(const Record& record) {
    place_ = static_cast<std::uint32_t>(record.data - data_) - kRecordHeaderBytes;
    index_ -= record_space(record.bytes);
  }

  // Whether take() would find something, or would find the ring malformed.
  [[nodiscard]] bool has_more() const { return control_->tail.load(std::memory_order_acquire) != index_; }

  [[nodiscard]] bool rejected() const { return rejected_; }
  // Rejects the ring: takes nothing more. The producer learns this, and finds no room from then on.
  void reject() {
    rejected_ = true;
    control_->head.store(kRejectedHead, std::memory_order_release);
  }

  // The consumer will not look again at what it has taken so far. The producer learns this a
  // quarter of the ring at a time, so that the head's line moves rarely.
  void release() {
    free_ = index_;
    if (free_ - returned_ >= capacity_ / 4) give_back();
  }
  // The same, but the producer waits for more than room in the ring: it learns it at the next look
  // that finds nothing; `now`: at once.
  void release_soon(bool now) {
    free_ = index_;
    if (now) return give_back();
    due_ = returned_;
  }

 private:
  // `bytes`: of whole words. Acquire: partner of copy_guarded()'s release of the words: the look at
  // the guard that follows finds the 0, or what came after it, if a word is of a later record.
  static void read_copy(const Atomic<std::uint64_t>* from, std::byte* to, std::size_t bytes) {
    for (std::size_t i = 0; i * sizeof(std::uint64_t) < bytes; ++i) read_word(from[i], to + i * sizeof(std::uint64_t));
  }
  static void read_word(const Atomic<std::uint64_t>& from, std::byte* to) {
    const std::uint64_t word = from.load(std::memory_order_acquire);
    std::memcpy(to, &word, sizeof word);
  }
  // The words of the record `wanted` that do not lie in the tail's line: `bytes` of whole words.
  // False: they have been written over.
  [[gnu::noinline]] bool read_rest(std::uint64_t wanted, std::byte* to, std::size_t bytes) const {
    constexpr std::size_t kWords = RingControl<Atomic>::kRestWords;
    constexpr std::size_t kLine = kWords * sizeof(std::uint64_t);
    const auto* line = control_->rest;
    // The guards. Acquire: partner of the release in copy_guarded() and copy_line().
    for (; bytes >= kLine; bytes -= kLine, ++line, to += kLine) {
      if (line->copied.load(std::memory_order_acquire) != wanted) return false;
#pragma GCC unroll 8
      for (std::size_t i = 0; i < kWords; ++i) read_word(line->words[i], to + i * sizeof(std::uint64_t));
      if (line->copied.load(std::memory_order_relaxed) != wanted) return false;
    }
    if (bytes == 0) return true;
    if (line->copied.load(std::memory_order_acquire) != wanted) return false;
    read_copy(line->words, to, bytes);
    return line->copied.load(std::memory_order_relaxed) == wanted;
  }
  void give_back() {
    if (rejected_) [[unlikely]] {
      return;
    }
    returned_ = free_;
    due_ = free_ + capacity_ / 8;
    control_->head.store(free_, std::memory_order_release);
  }

  RingControl<Atomic>* control_ = nullptr;
  const std::byte* data_ = nullptr;
  std::uint64_t index_ = 0;     // of the next record
  std::uint64_t tail_ = 0;      // as last seen
  std::uint64_t free_ = 0;      // everything before it was released
  std::uint64_t returned_ = 0;  // the head as last stored
  std::uint64_t due_ = 0;       // when free_ is beyond it, it is time to store it
  std::uint64_t portion_ = 0;
  bool rejected_ = false;
  std::uint32_t capacity_ = 0;
  std::uint32_t place_ = 0;     // of the next record in data_
  std::size_t rest_lines_ = 0;  // of the last copy
};

// A ring of `bytes` bytes in all: control first, then data.
constexpr std::uint32_t ring_capacity(std::uint64_t bytes) {
  return static_cast<std::uint32_t>((bytes - sizeof(RingControl<>)) & ~std::uint64_t{7});
}

}  // namespace heddle::queue
