// The trace of one process: each thread notes what happens into a ring of its own, in memory that
// is a file (trace_file.hpp). The newest records are kept.
//
// Nothing is called here while a job is not traced: callers check whether there is a Tracer.
//
// Any thread, unless a ring says otherwise.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/fd.hpp"
#include "base/threads.hpp"
#include "tap/trace_file.hpp"

namespace heddle::tap {

// A record that may be repeated, as words that are compared at once. A TraceRecord is written in
// pieces. Reading it as words would wait until the pieces are in the cache, which took half of the
// time.
struct TraceNote {
  std::uint64_t id = 0;
  std::uint64_t bytes = 0;
  std::uint64_t who = 0;

  static constexpr std::uint64_t who_of(TraceEvent event, std::uint32_t rank, std::uint32_t peer, std::uint32_t worker,
                                        std::uint32_t detail, std::uint32_t kind) {
    return rank | std::uint64_t{peer & 0xFFU} << 32 | std::uint64_t{worker & 0xFFU} << 40 |
           std::uint64_t{static_cast<std::uint8_t>(event)} << 48 | std::uint64_t{detail & 0xFU} << 56 |
           std::uint64_t{kind & 0xFU} << 60;
  }
  [[nodiscard]] constexpr TraceEvent event() const { return static_cast<TraceEvent>(who >> 48 & 0xFFU); }
  [[nodiscard]] TraceRecord record(std::uint64_t ticks) const {
    TraceRecord made{};
    made.ticks = ticks;
    made.id = id;
    made.bytes = bytes;
    made.rank = static_cast<std::uint32_t>(who);
    made.peer = static_cast<std::uint8_t>(who >> 32);
    made.worker = static_cast<std::uint8_t>(who >> 40);
    made.event = event();
    made.detail = static_cast<unsigned>(who >> 56) & 0xFU;
    made.kind = static_cast<unsigned>(who >> 60) & 0xFU;
    return made;
  }
};

// A ring, for the thread that has it.
class TraceRing {
 public:
  // `head`: a page, and `size` records behind it (a power of two).
  TraceRing(TraceRingHead* head, std::uint64_t size)
      : head_(head),
        records_(reinterpret_cast<TraceRecord*>(reinterpret_cast<std::byte*>(head) + kTraceRingHeadBytes)),
        mask_(size - 1) {}
  [[nodiscard]] TraceRingHead* head() const { return head_; }

  void add(const TraceRecord& record) {
    if (run_.again != 0) [[unlikely]]
      end_run();
    put(record);
  }
  // As add(), `times` times, for events that may happen many times in a row. If the event is that
  // of the last record (see TraceEvent::repeated), that record is counted up, by a single store.
  [[gnu::always_inline]] void add_alike(const TraceNote& note, std::uint64_t ticks, std::uint64_t times = 1) {
    if (!goes_on(note, ticks) || run_.again == 0) [[unlikely]]
      return add_otherwise(note, ticks, times);
    run_.id += run_.step * times;
    run_.again += times;
    if (ticks != 0) [[unlikely]]
      run_.repeated->ticks = run_.ticks = ticks;
    // The last step, and a single store: whatever ends the process, no more is counted than has
    // happened.
    std::atomic_ref(run_.repeated->id).store(run_.again, std::memory_order_release);
  }
  // For TraceRepeat: names the run that the next record may go on with; 0: there is none.
  [[nodiscard]] std::uint64_t run() const { return run_.again != 0 && run_.end == count_ ? count_ : 0; }
  // True: nothing else was noted since, and the run is not too long yet.
  [[nodiscard]] bool goes_on(std::uint64_t run) { return run == count_ && (unread_ != 0 || lasts()); }
  // One more of the run that goes on.
  void go_on() {
    --unread_;
    run_.id += run_.step;
    std::atomic_ref(run_.repeated->id).store(++run_.again, std::memory_order_release);
  }
  // The time for one of many records in a row; 0: not worth a look at the clock, which costs a
  // fifth of a small message. The faster the records follow each other, the fewer of them look, so
  // that two looks are a quarter to half a microsecond apart.
  [[nodiscard]] std::uint64_t time_of_many() {
    if (unread_ > 0) [[likely]] {
      --unread_;
      return 0;
    }
    if (kept_ != 0) [[unlikely]] {
      unread_ = stretch_ - 1;
      return std::exchange(kept_, 0);
    }
    const std::uint64_t now = base::ticks();
    const std::uint64_t took = now - read_;
    if (took >= kManyTicks) {
      stretch_ = 1;
    } else if (took < kManyTicks / 2 && stretch_ < kLongestStretch) {
      stretch_ *= 2;
    }
    unread_ = stretch_ - 1;
    read_ = now;
    return now;
  }
  // Now. It ends a row.
  [[nodiscard]] std::uint64_t time() {
    unread_ = 0;
    kept_ = 0;
    stretch_ = 1;
    return read_ = base::ticks();
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
  static constexpr std::uint32_t kLongestStretch = 16;
  static constexpr std::uint64_t kManyTicks = 1500;           // about half a microsecond
  static constexpr std::uint64_t kCoreTimeTicks = 3'000'000;  // about a millisecond
  // About two microseconds: times within a run are interpolated from its begin and its end.
  static constexpr std::uint64_t kLongestRun = 6000;

  // The last record, if it may be repeated, and how often it was.
  struct Run {
    std::uint64_t end = 0;  // count_ while nothing else was noted; 0: there is none
    // what a record must have to go on with it
    std::uint64_t id = 0;
    std::uint64_t bytes = 0;
    std::uint64_t who = 0;
    std::uint64_t step = 0;
    std::uint64_t begin = 0;  // ticks
    std::uint64_t ticks = 0;  // of the last one whose time was read
    std::uint64_t again = 0;
    TraceRecord* repeated = nullptr;  // the last record, where that says how often
  };

  [[nodiscard]] bool goes_on(const TraceNote& note, std::uint64_t ticks) const {
    if (run_.end != count_ || run_.id != note.id || run_.bytes != note.bytes || run_.who != note.who) return false;
    return ticks == 0 || lasts_until(ticks);
  }
  [[nodiscard]] bool lasts_until(std::uint64_t ticks) const {
    return ticks - run_.ticks < kManyTicks && ticks - run_.begin < kLongestRun;
  }
  void put(const TraceRecord& record) {
    TraceRecord& place = records_[count_ & mask_];
    // One by one: a copy of the whole waits for its pieces (TraceNote).
    place.ticks = record.ticks;
    place.id = record.id;
    place.bytes = record.bytes;
    place.rank = record.rank;
    place.peer = record.peer;
    place.worker = record.worker;
    place.event = record.event;
    place.detail = record.detail;
    place.kind = record.kind;
    // Behind the record, whatever ends the process.
    head_->count.store(++count_, std::memory_order_release);
  }
  bool lasts();
  void add_otherwise(const TraceNote& note, std::uint64_t ticks, std::uint64_t times);
  void end_run();

  TraceRingHead* const head_;
  TraceRecord* const records_;
  const std::uint64_t mask_;
  std::uint64_t count_ = 0;
  Run run_;
  std::uint64_t folded_ = 0;
  std::uint64_t read_ = 0;
  std::uint64_t kept_ = 0;    // the next record's time, which was read already; 0: it was not
  std::uint32_t unread_ = 0;  // records that take no time of their own
  std::uint32_t stretch_ = 1;
  std::uint64_t core_time_at_ = 0;
  base::Fd core_time_;  // the kernel's account of the thread, once it was asked for
};

// For code that notes the same event many times: if it has compared the event with the last one
// itself, it need not compare records. For one thread at a time.
class TraceRepeat {
 public:
  // True: the calling thread has noted nothing else since begin(), so note() suffices if the event
  // is the one noted before begin().
  [[nodiscard]] bool suffices() const { return base::is_thread(thread_) && ring_->goes_on(run_); }
  void note() { ring_->go_on(); }
  // The calling thread has just noted it, in its ring.
  void begin(TraceRing& ring) {
    ring_ = &ring;
    run_ = ring.run();
    thread_ = base::known_thread_number();
  }
  void end() { thread_ = kNone; }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  // The number of the thread whose ring it is: no other thread has that number or that ring
  // meanwhile.
  std::uint32_t thread_ = kNone;
  std::uint64_t run_ = 0;
  TraceRing* ring_ = nullptr;
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
  static base::Result<std::unique_ptr<Tracer>> open(const TraceOptions& options);
  ~Tracer();
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  // The calling thread's. Null: it has none, which is counted.
  [[nodiscard]] TraceRing* ring() {
    TraceRing* const ring = rings_[base::known_thread_number()].get();
    return ring != nullptr ? ring : find_ring();
  }
  // The calling thread notes something that may happen many times in a microsecond.
  void note_many(TraceRecord record) {
    TraceRing* const ring = this->ring();
    if (ring == nullptr) return;
    record.ticks = ring->time_of_many();
    ring->add(record);
  }
  // The same for an event that may be the same as before (TraceRing::add_alike).
  void note_alike(const TraceNote& note) {
    TraceRing* const ring = this->ring();
    if (ring != nullptr) ring->add_alike(note, ring->time_of_many());
  }
  // The same, `times` times, for an event that happens soon after another one that the thread has
  // just noted.
  void note_with_last(const TraceNote& note, std::uint64_t times = 1) {
    TraceRing* const ring = this->ring();
    if (ring != nullptr) ring->add_alike(note, 0, times);
  }
  // For rare events: the calling thread notes the event with its time.
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
  void look_at_clocks(std::uint64_t now);

  std::string path_;
  base::Fd file_;
  TraceFileHead* head_ = nullptr;
  std::uint64_t records_ = 0;
  std::mutex mutex_;                         // guards names and the making of rings
  bool full_ = false;                        // there is no room for one more ring
  std::atomic<std::uint64_t> clocks_at_{0};  // ticks of the last look; relaxed: a hint
  // Where a name was last found: its address << kNumberBits | its number. Relaxed: one word.
  std::array<std::atomic<std::uint64_t>, kKnownNames> known_names_{};
  // By thread number + 1, for the threads that have numbers; 0: none. A thread that gets a number
  // later sees what was written before (base/threads.hpp).
  std::array<std::unique_ptr<TraceRing>, base::kThreadNumbers + 1> rings_;
};

}  // namespace heddle::tap
