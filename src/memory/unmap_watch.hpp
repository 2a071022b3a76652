// The watch on unmapped memory, and the log by which caches hear of it.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "base/error.hpp"
#include "base/fd.hpp"

namespace heddle::memory {

// [begin, end), mostly whole pages.
struct Gone {
  std::uint64_t begin;
  std::uint64_t end;
};

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
  [[nodiscard]] static bool stable(std::uint64_t generation) { return generation % 2 == 0; }
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
    const std::uint64_t may_be_written = event_of(now) + (stable(now) ? 0 : kBatch);
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

// Tells registration caches when memory of this process is unmapped or loses its pages;
// docs/decisions/0026 says why this way.
//
// It uses the kernel's userfaultfd events, so it sees every unmapping: by the program, by malloc
// inside libc, by another runtime, or by a bare system call. Only memory that was given to watch()
// is watched; other memory that the program unmaps costs it nothing. Reported are munmap, mmap over
// it, an mremap that shrinks or moves, a brk that shrinks, madvise DONTNEED, FREE and REMOVE. The
// kernel holds the thread that does so (some microseconds) until the log has been made odd: when
// its call returns, no cache uses a registration of what is gone.
//
// Another thread may be given the same addresses while the first is still inside its call, sooner
// than the event is logged. stable() closes that window, for a system call of 0.2 µs; the caches
// call it for large ranges (Options::check_bytes).
//
// Not reported, so forget() is there: ftruncate and hole punching of shared memory,
// MADV_GUARD_INSTALL. Rejected by watch(), so not cached: files other than shared memory,
// initialised data of programs, System V shared memory, memory that another userfaultfd of the
// program watches. The kernel rejects a userfaultfd that the program wants for memory that we watch
// (EBUSY), until the caches no longer use that memory. In the child of a fork nobody watches: the
// generation is 0 there.
//
// The thread that reads the events never allocates, and takes no lock under which another thread
// allocates, frees or unmaps: the thread that unmaps may hold malloc's locks, or ours.
class UnmapWatch {
 public:
  using Log = InvalidationLog<>;

  // How the kernel is asked. `protection`: by watching for write protection, which is never set, so
  // that only events come (Linux 5.7 on x86, 6.10 on aarch64; any user). `missing`: by watching for
  // missing pages, where `protection` cannot be had and the kernel allows it (before Linux 5.11, or
  // vm.unprivileged_userfaultfd): the first touch of a page that is missing ends the watch of its
  // registration. `told`: not at all; only forget() reports.
  enum class Way : std::uint8_t { protection, missing, told };

  // The watch of the process, opened for the first caller and closed when the last one releases it.
  // UNSUPPORTED: this kernel does not have it, or forbids it; the message says what. Without
  // `asks_kernel`: a second one, which never asks the kernel (`told`).
  static base::Result<std::shared_ptr<UnmapWatch>> of_process(bool asks_kernel = true);
  // A separate watch; for tests.
  static base::Result<std::shared_ptr<UnmapWatch>> open(Way way);

  UnmapWatch(const UnmapWatch&) = delete;
  UnmapWatch& operator=(const UnmapWatch&) = delete;
  ~UnmapWatch();

  // True: this process is a child, forked after the watch was opened.
  [[nodiscard]] bool inherited() const;
  [[nodiscard]] Way way() const { return way_; }
  [[nodiscard]] const Log& log() const { return *log_; }

  // From now on the loss of these pages is logged, until unwatch() has been called as often for the
  // same range. False: they cannot be watched. Any thread.
  [[nodiscard]] bool watch(std::uint64_t begin, std::uint64_t end);
  void unwatch(std::uint64_t begin, std::uint64_t end);

  // As if the range had been unmapped: for losses that the kernel does not report. When it returns,
  // no cache uses a registration of it. Any thread.
  void forget(std::uint64_t begin, std::uint64_t end);

  // True: the log knows of all watched memory that is being unmapped. A thread may have got
  // addresses from the kernel before this call, and then find the generation unchanged: if its
  // memory is not what a cache remembers of these addresses, then the cache has been told. One
  // system call.
  [[nodiscard]] bool stable() const;

  // Number of ranges that are registered with the kernel now; for tests.
  [[nodiscard]] std::size_t watched_pieces() const;

 private:
  struct Piece {
    std::uint64_t end;
    std::uint32_t users;
  };
  explicit UnmapWatch(Way way) : way_(way) {}
  base::Status start();
  base::Status open_descriptor();
  base::Status map_log();
  base::Status prove();
  void run();
  [[nodiscard]] bool take_events();
  [[nodiscard]] bool let_touch(std::uint64_t address);
  void split(std::uint64_t at);
  [[nodiscard]] bool ask_kernel(std::uint64_t begin, std::uint64_t end) const;
  bool leave_kernel(std::uint64_t begin, std::uint64_t end) const;

  const Way way_;
  pid_t process_ = 0;  // the process that opened it; its children have no thread
  base::Fd descriptor_;
  base::Fd stop_;
  Log* log_ = nullptr;  // a mapping of its own, which a fork wipes
  // guards writing to *log_; under it nothing is called that could unmap
  std::mutex writing_;
  std::atomic<bool> proving_{false};  // prove() unmaps now; relaxed: the unmapping orders it
  // stable() has said no meanwhile; relaxed: the log's generation orders it
  std::atomic<bool> rejected_{false};
  // guards pieces_; the thread that reads events never takes it
  mutable std::mutex pieces_mutex_;
  std::map<std::uint64_t, Piece> pieces_;  // by begin; disjoint; each has users
  std::thread thread_;
};

}  // namespace heddle::memory
