#include "memory/unmap_watch.hpp"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <new>
#include <span>
#include <system_error>

#include "base/threads.hpp"

namespace heddle::memory {
namespace {

constexpr std::uint64_t kEvents = UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_UNMAP;
constexpr int kUserModeOnly = 1;  // UFFD_USER_MODE_ONLY, which older headers lack

std::uint64_t page_bytes() {
  return static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}
// Pages may be larger than page_bytes(); then the kernel rejects a range that is not of whole
// pages.
constexpr std::array<std::uint64_t, 7> kLargePages = {1u << 16, 1u << 19, 1u << 21, 1u << 25,
                                                      1u << 28, 1u << 29, 1u << 30};

base::Fd descriptor(int flags) {
  return base::Fd(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | flags)));
}

}  // namespace

base::Result<std::shared_ptr<UnmapWatch>> UnmapWatch::of_process(bool asks_kernel) {
  static std::mutex mutex;
  static std::array<std::weak_ptr<UnmapWatch>, 2> both;
  const std::lock_guard lock(mutex);
  std::weak_ptr<UnmapWatch>& shared = both[asks_kernel ? 1 : 0];
  if (std::shared_ptr<UnmapWatch> watch = shared.lock(); watch && !watch->inherited()) return watch;
  base::Result<std::shared_ptr<UnmapWatch>> opened = open(asks_kernel ? Way::protection : Way::told);
  if (!opened && asks_kernel) {
    const std::string why = base::last_message();
    opened = open(Way::missing);
    if (!opened) return base::fail(opened.status(), "%s", why.c_str());
  }
  shared = *opened;
  return opened;
}

base::Result<std::shared_ptr<UnmapWatch>> UnmapWatch::open(Way way) {
  std::shared_ptr<UnmapWatch> watch(new UnmapWatch(way));
  const base::Status status = watch->start();
  if (status != HEDDLE_DONE) return status;
  return watch;
}

base::Status UnmapWatch::start() {
  process_ = ::getpid();
  if (const base::Status status = map_log(); status != HEDDLE_DONE) return status;
  if (way_ == Way::told) {
    log_->open();
    return HEDDLE_DONE;
  }
  if (const base::Status status = open_descriptor(); status != HEDDLE_DONE) return status;
  stop_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop_.valid()) return base::fail_errno(HEDDLE_ERR_SYSTEM, "unmapped memory cannot be watched: eventfd");
  log_->open();
  try {
    thread_ = base::start_quiet_thread([this] { run(); });
  } catch (const std::system_error& error) {
    return base::fail(HEDDLE_ERR_SYSTEM, "unmapped memory cannot be watched: there is no thread to be had (%s)",
                      error.what());
  }
  return prove();
}

base::Status UnmapWatch::open_descriptor() {
  const bool protection = way_ == Way::protection;
  // Only a privileged process may handle faults of the kernel's own accesses; Way::protection never
  // has such faults.
  base::Fd fd = descriptor(protection ? kUserModeOnly : 0);
  if (!fd.valid() && errno == EINVAL && protection) fd = descriptor(0);
  if (!fd.valid()) {
    return base::fail_errno(HEDDLE_ERR_UNSUPPORTED, "unmapped memory cannot be watched: userfaultfd is not allowed");
  }
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = kEvents | (protection ? UFFD_FEATURE_PAGEFAULT_FLAG_WP : 0);
  if (::ioctl(fd.get(), UFFDIO_API, &api) != 0) {
    return base::fail_errno(HEDDLE_ERR_UNSUPPORTED,
                            "unmapped memory cannot be watched: this kernel's userfaultfd lacks %s",
                            protection ? "write protection or events" : "events");
  }
  descriptor_ = std::move(fd);
  return HEDDLE_DONE;
}

base::Status UnmapWatch::map_log() {
  void* memory = ::mmap(nullptr, sizeof(Log), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return base::fail_errno(HEDDLE_ERR_NO_MEMORY, "unmapped memory cannot be watched: mmap");
  log_ = new (memory) Log;
  // A child has the caches of its parent, but neither the thread nor the events: it finds zeros,
  // which say that nobody watches.
  if (::madvise(memory, sizeof(Log), MADV_WIPEONFORK) != 0) {
    return base::fail_errno(HEDDLE_ERR_UNSUPPORTED, "unmapped memory cannot be watched: madvise(WIPEONFORK)");
  }
  return HEDDLE_DONE;
}

// Checks that the kernel reports unmapping, and that stable() can say no, before either is relied
// on.
base::Status UnmapWatch::prove() {
  const std::uint64_t page = page_bytes();
  void* memory = ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return base::fail_errno(HEDDLE_ERR_NO_MEMORY, "unmapped memory cannot be watched: mmap");
  *static_cast<volatile std::byte*>(memory) = std::byte{1};
  const auto begin = reinterpret_cast<std::uint64_t>(memory);
  const bool watched = watch(begin, begin + page);
  const std::uint64_t before = log_->generation();
  proving_.store(true, std::memory_order_relaxed);
  ::munmap(memory, page);
  proving_.store(false, std::memory_order_relaxed);
  std::uint64_t after = log_->generation();
  while (!Log::stable(after)) {
    ::sched_yield();
    after = log_->generation();
  }
  if (watched) unwatch(begin, begin + page);
  if (watched && after != before && after != Log::kNobody && rejected_.load(std::memory_order_relaxed) && stable()) {
    return HEDDLE_DONE;
  }
  return base::fail(HEDDLE_ERR_UNSUPPORTED, "unmapped memory cannot be watched: userfaultfd does not %s here",
                    !watched          ? "watch ordinary memory"
                    : after == before ? "tell of munmap"
                                      : "say that memory is changing");
}

UnmapWatch::~UnmapWatch() {
  if (thread_.joinable()) {
    if (!inherited()) {
      const std::uint64_t one = 1;
      while (::write(stop_.get(), &one, sizeof one) < 0 && errno == EINTR) {
      }
      thread_.join();
    } else {
      thread_.detach();  // it exists in the parent only
    }
  }
  if (log_ != nullptr) ::munmap(log_, sizeof(Log));
}

bool UnmapWatch::inherited() const {
  return process_ != ::getpid();
}

// ---- the thread that reads events ---------------------------------------------------------------

void UnmapWatch::run() {
  std::array<pollfd, 2> fds = {{{descriptor_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}}};
  bool good = true;
  while (good) {
    const int ready = ::poll(fds.data(), fds.size(), -1);
    if (ready < 0 && errno != EINTR) good = false;
    if (ready <= 0) continue;
    if (fds[1].revents != 0) break;
    if (proving_.load(std::memory_order_relaxed) && !stable()) rejected_.store(true, std::memory_order_relaxed);
    good = (fds[0].revents & (POLLERR | POLLHUP | POLLNVAL)) == 0 && take_events();
  }
  {
    const std::lock_guard lock(writing_);
    log_->close();
  }
  // A thread that unmaps from now on, even in join(), must not wait for this thread. The
  // descriptor's number stays taken: other threads may still use it.
  ::dup2(stop_.get(), descriptor_.get());
}

// False: no more events can be read.
bool UnmapWatch::take_events() {
  std::array<uffd_msg, Log::kBatch> events;
  const std::lock_guard lock(writing_);
  log_->begin();  // reading the events lets the threads that they hold go on
  // NOLINTNEXTLINE(clang-analyzer-unix.BlockInCriticalSection): the descriptor does not block
  const ssize_t got = ::read(descriptor_.get(), events.data(), sizeof events);
  const std::size_t count = got < 0 ? 0 : static_cast<std::size_t>(got) / sizeof(uffd_msg);
  bool good = got >= 0 || errno == EAGAIN || errno == EINTR;
  for (const uffd_msg& event : std::span(events).first(count)) {
    switch (event.event) {
      case UFFD_EVENT_UNMAP:
      case UFFD_EVENT_REMOVE:
        log_->add({event.arg.remove.start, event.arg.remove.end});
        break;
      case UFFD_EVENT_REMAP:
        log_->add({event.arg.remap.from, event.arg.remap.from + event.arg.remap.len});
        // The kernel goes on watching the memory at its new address, where no cache has asked for
        // it.
        leave_kernel(event.arg.remap.to, event.arg.remap.to + event.arg.remap.len);
        break;
      case UFFD_EVENT_PAGEFAULT:
        good = let_touch(event.arg.pagefault.address) && good;
        break;
      default:
        break;
    }
  }
  log_->end();
  return good;
}

// A page of a watched range is missing, so it is not the page that was registered. The thread that
// touches it goes on when the range is no longer watched.
bool UnmapWatch::let_touch(std::uint64_t address) {
  const std::uint64_t page = page_bytes();
  const std::uint64_t begin = address & ~(page - 1);
  log_->add({begin, begin + page});
  bool left = leave_kernel(begin, begin + page);
  for (const std::uint64_t large : kLargePages) {
    const std::uint64_t aligned = address & ~(large - 1);
    if (!left && large > page) left = leave_kernel(aligned, aligned + large);
  }
  // Unregistering wakes the threads that wait there before it ends the watch, so this thread may
  // have come back and wait again; and if another thread unregistered the range before, nobody is
  // woken at all.
  uffdio_range range{begin, page};
  return ::ioctl(descriptor_.get(), UFFDIO_WAKE, &range) == 0;
}

// ---- ranges -------------------------------------------------------------------------------------

bool UnmapWatch::ask_kernel(std::uint64_t begin, std::uint64_t end) const {
  if (way_ == Way::told) return true;
  uffdio_register what{};
  what.range = {begin, end - begin};
  what.mode = way_ == Way::protection ? UFFDIO_REGISTER_MODE_WP : UFFDIO_REGISTER_MODE_MISSING;
  return ::ioctl(descriptor_.get(), UFFDIO_REGISTER, &what) == 0;
}

bool UnmapWatch::leave_kernel(std::uint64_t begin, std::uint64_t end) const {
  if (way_ == Way::told) return true;
  uffdio_range range{begin, end - begin};
  return ::ioctl(descriptor_.get(), UFFDIO_UNREGISTER, &range) == 0;
}

bool UnmapWatch::watch(std::uint64_t begin, std::uint64_t end) {
  const std::lock_guard lock(pieces_mutex_);
  // Always: the memory that others watch at these addresses may be gone, and this may be something
  // new.
  if (!ask_kernel(begin, end)) return false;
  split(begin);
  split(end);
  std::uint64_t at = begin;
  auto piece = pieces_.lower_bound(begin);
  while (at != end) {
    if (piece != pieces_.end() && piece->first == at) {
      ++piece->second.users;
      at = piece->second.end;
      ++piece;
      continue;
    }
    const std::uint64_t gap_end = piece == pieces_.end() || piece->first > end ? end : piece->first;
    pieces_.emplace_hint(piece, at, Piece{gap_end, 1});
    at = gap_end;
  }
  return true;
}

void UnmapWatch::unwatch(std::uint64_t begin, std::uint64_t end) {
  const std::lock_guard lock(pieces_mutex_);
  auto piece = pieces_.lower_bound(begin);
  while (piece != pieces_.end() && piece->first < end) {
    if (--piece->second.users != 0) {
      ++piece;
      continue;
    }
    // fails where the memory is gone; then it is not watched, either
    leave_kernel(piece->first, piece->second.end);
    piece = pieces_.erase(piece);
  }
}

// After this no piece reaches across `at`.
void UnmapWatch::split(std::uint64_t at) {
  auto piece = pieces_.upper_bound(at);
  if (piece == pieces_.begin()) return;
  piece = std::prev(piece);
  if (piece->first == at || piece->second.end <= at) return;
  pieces_.emplace(at, piece->second);
  piece->second.end = at;
}

std::size_t UnmapWatch::watched_pieces() const {
  const std::lock_guard lock(pieces_mutex_);
  return pieces_.size();
}

void UnmapWatch::forget(std::uint64_t begin, std::uint64_t end) {
  if (inherited()) return;  // the mutex may have been held when the process forked
  const std::lock_guard lock(writing_);
  if (log_->generation() == Log::kNobody) return;
  log_->begin();
  log_->add({begin, end});
  log_->end();
}

bool UnmapWatch::stable() const {
  if (way_ == Way::told) return true;
  // There is no such mode, so this never does anything: it fails at once with EAGAIN while an event
  // is on its way, else with EINVAL.
  uffdio_zeropage nothing{};
  nothing.range = {reinterpret_cast<std::uint64_t>(log_), page_bytes()};
  nothing.mode = ~std::uint64_t{0};
  return ::ioctl(descriptor_.get(), UFFDIO_ZEROPAGE, &nothing) == 0 || errno != EAGAIN;
}

}  // namespace heddle::memory
