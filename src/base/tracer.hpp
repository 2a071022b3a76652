// The trace of one process: each thread notes what happens into a ring of its own, in memory that
// is a file (trace_format.hpp). The newest records are kept.
//
// Nobody calls this while a job is not traced: who might ask looks whether there is a Tracer.
//
// Any thread, but for what a ring says.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "base/thread_number.hpp"
#include "base/ticks.hpp"
#include "base/trace_format.hpp"

namespace heddle::base {

// For the thread that has it.
class TraceRing {
 public:
  // `head`: a page, and `size` records behind it (a power of two).
  TraceRing(TraceRingHead* head, std::uint64_t size)
      : head_(head),
        records_(reinterpret_cast<TraceRecord*>(reinterpret_cast<std::byte*>(head) + kTraceRingHeadBytes)),
        mask_(size - 1) {}
  [[nodiscard]] TraceRingHead* head() const { return head_; }

  void add(const TraceRecord& record) {
    records_[count_ & mask_] = record;
    // Relaxed: a reader looks at what a process has left, or is content with less.
    head_->count.store(++count_, std::memory_order_relaxed);
  }
  // Now, for one of many records in a row: 0 for three of four once they have followed each other
  // within half a microsecond for a while. Reading the time costs a fifth of a small message.
  [[nodiscard]] std::uint64_t time_of_many() {
    if (unread_ > 0) {
      --unread_;
      return 0;
    }
    const std::uint64_t now = ticks();
    in_row_ = now - read_ < kManyTicks ? in_row_ + 1 : 0;
    unread_ = in_row_ >= kRow ? kMostUnread : 0;
    read_ = now;
    return now;
  }
  // Now. It ends a row.
  [[nodiscard]] std::uint64_t time() {
    in_row_ = unread_ = 0;
    return read_ = ticks();
  }
  // It is time to look how long the thread had a core; `now`: ticks.
  [[nodiscard]] bool asks_for_core_time(std::uint64_t now) const { return now - core_time_at_ > kCoreTimeTicks; }
  // Notes it. Takes about two microseconds.
  void note_core_time();
  // The last record, if it is of this kind. Null: it is not.
  [[nodiscard]] TraceRecord* last(TraceEvent event) {
    TraceRecord& record = records_[(count_ - 1) & mask_];
    return count_ != 0 && record.event == event ? &record : nullptr;
  }

 private:
  static constexpr std::uint32_t kMostUnread = 3;
  static constexpr std::uint32_t kRow = 4;
  static constexpr std::uint64_t kManyTicks = 1500;           // about half a microsecond
  static constexpr std::uint64_t kCoreTimeTicks = 3'000'000;  // about a millisecond

  TraceRingHead* const head_;
  TraceRecord* const records_;
  const std::uint64_t mask_;
  std::uint64_t count_ = 0;
  std::uint64_t read_ = 0;
  std::uint32_t in_row_ = 0;
  std::uint32_t unread_ = 0;  // records that take no time of their own
  std::uint64_t core_time_at_ = 0;
  Fd core_time_;  // the kernel's account of the thread, once it was asked for
};

struct TraceOptions {
  std::string path;  // of the file; one of another job is replaced
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  std::uint64_t job = 0;
  std::uint64_t records = 1 << 18;  // of each thread: a power of two
  bool ordered = false;             // see TraceFileHead
};

class Tracer {
 public:
  static Result<std::unique_ptr<Tracer>> open(const TraceOptions& options);
  ~Tracer();
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  // The calling thread's. Null: it has none, which is counted.
  [[nodiscard]] TraceRing* ring() {
    TraceRing* const ring = rings_[known_thread_number()].get();
    return ring != nullptr ? ring : find_ring();
  }
  // The calling thread notes something that may happen many times in a microsecond.
  void note_many(TraceRecord record) {
    TraceRing* const ring = this->ring();
    if (ring == nullptr) return;
    record.ticks = ring->time_of_many();
    ring->add(record);
  }
  // As it does something that it has noted just before, which is soon after that.
  void note_with_last(TraceRecord record) {
    TraceRing* const ring = this->ring();
    if (ring == nullptr) return;
    record.ticks = 0;
    ring->add(record);
  }
  // Of what happens seldom: the calling thread notes it with its time.
  [[gnu::cold, gnu::noinline]] void note(TraceRecord record);
  // The same, where the thread begins or ends a wait: how long it had a core is noted with it.
  [[gnu::cold, gnu::noinline]] void note_wait(TraceRecord record);
  // The number of a name; 0: there is no room for it. The first kTraceNameBytes - 1 bytes count. It
  // is not copied at once: a literal.
  [[nodiscard]] std::uint64_t name(const char* literal) {
    const std::uint64_t known = known_names_[place_of(literal)].load(std::memory_order_relaxed);
    return known >> kNumberBits == address_of(literal) ? known & kNumberMask : find_name(literal);
  }
  // A slice of the calling thread: a call of an interface above, and its arguments.
  [[gnu::cold]] void begin_call(const char* literal, const char* text);
  [[gnu::cold]] void end_call(const char* literal);
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  static constexpr std::size_t kKnownNames = 1024;
  static constexpr unsigned kNumberBits = 16;  // an address has 48
  static constexpr std::uint64_t kNumberMask = (1U << kNumberBits) - 1;
  static_assert(kTraceNames <= kNumberMask);
  static constexpr std::size_t kCallText = 128;  // bytes of arguments that are kept

  Tracer() = default;
  static std::uint64_t address_of(const char* literal) {
    return reinterpret_cast<std::uintptr_t>(literal) & (~std::uint64_t{0} >> kNumberBits);
  }
  static std::size_t place_of(const char* literal) {
    return (address_of(literal) * 0x9E3779B97F4A7C15U >> 40) % kKnownNames;
  }
  [[nodiscard]] std::uint64_t find_name(const char* literal);
  [[nodiscard]] std::uint64_t number_of(const char* text);
  [[nodiscard]] bool create(std::uint64_t job);
  [[gnu::noinline]] TraceRing* find_ring();
  TraceRing* make_ring(std::unique_ptr<TraceRing>& ring);
  [[nodiscard]] std::size_t ring_bytes() const { return kTraceRingHeadBytes + records_ * sizeof(TraceRecord); }
  void look_at_clocks();

  std::string path_;
  Fd file_;
  TraceFileHead* head_ = nullptr;
  std::uint64_t records_ = 0;
  std::mutex mutex_;                         // guards names and the making of rings
  bool full_ = false;                        // there is no room for one more ring
  std::atomic<std::uint64_t> clocks_at_{0};  // ticks of the last look; relaxed: a hint
  // Where a name was last found: its address << kNumberBits | its number. Relaxed: one word.
  std::array<std::atomic<std::uint64_t>, kKnownNames> known_names_{};
  // By thread number + 1, of the threads that have them; 0: none. Who gets a number later sees what
  // was written before (thread_number.hpp).
  std::array<std::unique_ptr<TraceRing>, kThreadNumbers + 1> rings_;
};

}  // namespace heddle::base
