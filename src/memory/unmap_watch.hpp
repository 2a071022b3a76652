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
// than the event is logged. settled() closes that window, for a system call of 0.2 µs; the caches
// call it for large ranges (Options::check_bytes).
//
// Not reported, so forget() is there: ftruncate and hole punching of shared memory,
// MADV_GUARD_INSTALL. Refused by watch(), so not cached: files other than shared memory,
// initialised data of programs, System V shared memory, memory that another userfaultfd of the
// program watches. The kernel refuses a userfaultfd that the program wants for memory that we watch
// (EBUSY), until the caches no longer use that memory. In the child of a fork nobody watches: the
// generation is 0 there.
//
// The thread that reads the events never allocates, and takes no lock under which another thread
// allocates, frees or unmaps: the thread that unmaps may hold malloc's locks, or ours.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "memory/invalidation_log.hpp"

namespace heddle::memory {

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
  [[nodiscard]] bool settled() const;

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
  // settled() has said no meanwhile; relaxed: the log's generation orders it
  std::atomic<bool> refused_{false};
  // guards pieces_; the thread that reads events never takes it
  mutable std::mutex pieces_mutex_;
  std::map<std::uint64_t, Piece> pieces_;  // by begin; disjoint; each has users
  std::thread thread_;
};

}  // namespace heddle::memory
