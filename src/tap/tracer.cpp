#include "tap/tracer.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>

namespace heddle::tap {
namespace {

std::uint64_t clock_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(now.tv_nsec);
}

TraceMoment this_moment() {
  return {base::ticks(), clock_ns(CLOCK_MONOTONIC), clock_ns(CLOCK_REALTIME)};
}

void* map(const base::Fd& file, std::size_t offset, std::size_t bytes) {
  int error = EINTR;
  while (error == EINTR) error = posix_fallocate(file.get(), static_cast<off_t>(offset), static_cast<off_t>(bytes));
  if (error != 0) {
    errno = error;
    return nullptr;
  }
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), static_cast<off_t>(offset));
  if (at == MAP_FAILED) return nullptr;
#ifdef MADV_POPULATE_WRITE
  // Without this the first record of each page would cost a page fault. Old kernels do not have it.
  static_cast<void>(::madvise(at, bytes, MADV_POPULATE_WRITE));
#endif
  return at;
}

// Long enough that the first moments tell the rate of ticks to some hundred-thousandths, should the
// process not live to look again.
constexpr timespec kFirstLook{0, 2'000'000};
// Whole pages, of any machine.
constexpr std::uint64_t kLeastRecords = kTraceRingHeadBytes / sizeof(TraceRecord);
constexpr int kMostContexts = 10'000;             // of one rank in a job
constexpr std::uint64_t kLookTicks = 30'000'000;  // about 10 ms between looks at the clocks

}  // namespace

base::Result<std::unique_ptr<Tracer>> Tracer::open(const TraceOptions& options) {
  std::unique_ptr<Tracer> tracer(new (std::nothrow) Tracer);
  if (tracer == nullptr) return base::fail(HEDDLE_ERR_NO_MEMORY, "there is no memory for the trace");
  tracer->path_ = options.path;
  tracer->records_ = std::bit_ceil(std::max<std::uint64_t>(options.records, kLeastRecords));
  if (!tracer->create(options.job)) {
    return base::fail_errno(HEDDLE_ERR_CONFIG, "the trace %s (HEDDLE_TRACE) cannot be written", options.path.c_str());
  }
  void* const at = map(tracer->file_, 0, kTraceHeadBytes);
  if (at == nullptr) {
    return base::fail_errno(HEDDLE_ERR_NO_MEMORY, "there is no room for the trace %s", options.path.c_str());
  }
  tracer->head_ = new (at) TraceFileHead;
  TraceFileHead& head = *tracer->head_;
  head.rank = options.rank;
  head.size = options.size;
  head.process = static_cast<std::uint64_t>(::getpid());
  head.job = options.job;
  head.ring_records = tracer->records_;
  head.ordered = options.ordered ? 1 : 0;
  static_cast<void>(::gethostname(head.host.data(), head.host.size() - 1));
  if (const base::Fd boot(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC)); boot.valid()) {
    static_cast<void>(::read(boot.get(), head.machine.data(), 36));
  }
  head.first = this_moment();
  ::nanosleep(&kFirstLook, nullptr);
  tracer->look_at_clocks(base::ticks());
  return tracer;
}

Tracer::~Tracer() {
  if (head_ == nullptr) return;
  clocks_at_.store(0, std::memory_order_relaxed);
  look_at_clocks(base::ticks());
  for (const auto& ring : rings_) {
    if (ring != nullptr) ::munmap(ring->head(), ring_bytes());
  }
  ::munmap(head_, kTraceHeadBytes);
}

// A file that another job has left is replaced. A file of this job belongs to an earlier context of
// this rank: the next number is tried. The writer of a file holds a lock on it.
bool Tracer::create(std::uint64_t job) {
  const std::string first = path_;
  for (int number = 2; number < kMostContexts; ++number) {
    const int made = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    const int error = errno;
    file_.reset(made);
    if (made >= 0) return ::flock(made, LOCK_EX | LOCK_NB) == 0;
    if (error != EEXIST) {
      errno = error;
      return false;
    }
    const base::Fd there(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
    std::array<std::uint64_t, 4> begin{};  // magic; rank and size; process; job
    static_assert(offsetof(TraceFileHead, job) == 24);
    const bool ours = there.valid() && ::read(there.get(), begin.data(), sizeof begin) == ssize_t{sizeof begin} &&
                      begin[0] == kTraceMagic;
    if (!ours) {
      errno = EEXIST;
      return false;
    }
    if (begin[3] == job) {
      path_ = first + "-" + std::to_string(number);
      continue;
    }
    if (::flock(there.get(), LOCK_EX | LOCK_NB) != 0 || ::unlink(path_.c_str()) != 0) return false;
  }
  errno = EEXIST;
  return false;
}

void Tracer::look_at_clocks(std::uint64_t now) {
  if (now - clocks_at_.load(std::memory_order_relaxed) < kLookTicks) return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  clocks_at_.store(now, std::memory_order_relaxed);
  const std::uint32_t next = 1 - head_->last_at.load(std::memory_order_relaxed);
  head_->last[next] = this_moment();
  head_->last_at.store(next, std::memory_order_release);
}

// The next record of the run takes its time now. False: it does not go on; its time is kept for
// time_of_many().
bool TraceRing::lasts() {
  const std::uint64_t now = time_of_many();
  if (asks_for_core_time(now)) note_core_time();  // which ends the run
  if (run_.again == 0 || !lasts_until(now)) {
    unread_ = 0;
    kept_ = now;
    return false;
  }
  ++unread_;  // the record itself
  run_.repeated->ticks = run_.ticks = now;
  return true;
}

// The first, or the second of a run.
void TraceRing::add_otherwise(const TraceNote& note, std::uint64_t ticks, std::uint64_t times) {
  if (!goes_on(note, ticks)) {
    add(note.record(ticks));
    const std::uint64_t now = ticks != 0 ? ticks : read_;
    const std::uint64_t step = trace_step(note.event(), note.id);
    run_ = {count_, note.id + step, note.bytes, note.who, step, now, now, 0, nullptr};
    if (--times == 0) return;
  }
  TraceRecord repeated{};
  repeated.ticks = ticks;
  repeated.id = times;
  repeated.bytes = folded_;
  repeated.event = TraceEvent::repeated;
  put(repeated);
  run_.repeated = &records_[(count_ - 1) & mask_];
  run_.end = count_;
  run_.id += run_.step * times;
  run_.again = times;
  if (ticks != 0) run_.ticks = ticks;
}

void TraceRing::end_run() {
  folded_ += run_.again - 1;
  run_.again = run_.end = 0;
  head_->folded.store(folded_, std::memory_order_relaxed);
}

void Tracer::note(TraceRecord record) {
  TraceRing* const ring = this->ring();
  if (ring == nullptr) return;
  record.ticks = ring->time();
  ring->add(record);
  look_at_clocks(record.ticks);
}

void Tracer::note_wait(TraceRecord record) {
  note(record);
  TraceRing* const ring = this->ring();
  if (ring != nullptr && ring->asks_for_core_time(base::ticks())) ring->note_core_time();
}

// Nothing where the kernel keeps no such account.
void TraceRing::note_core_time() {
  core_time_at_ = base::ticks();
  const int error = errno;
  std::array<char, 64> text{};
  const auto read = [&] {
    return core_time_.valid() && ::pread(core_time_.get(), text.data(), text.size() - 1, 0) > 0;
  };
  // The ring may have been another thread's, which has ended.
  if (!read()) core_time_.reset(::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC));
  const bool known = text[0] != '\0' || read();
  errno = error;
  if (!known) return;
  TraceRecord record{};
  char* rest = nullptr;
  record.bytes = std::strtoull(text.data(), &rest, 10);
  record.id = std::strtoull(rest, nullptr, 10);
  record.ticks = time();
  record.worker = kNoTraceWorker;
  record.event = TraceEvent::core_time;
  add(record);
}

TraceRing* Tracer::find_ring() {
  const std::uint32_t number = base::thread_number();
  if (number != base::kNoThreadNumber) {
    if (TraceRing* const ring = make_ring(rings_[number + 1]); ring != nullptr) return ring;
  }
  head_->untraced.fetch_add(1, std::memory_order_relaxed);
  return nullptr;
}

// Null: there is no room for it.
TraceRing* Tracer::make_ring(std::unique_ptr<TraceRing>& ring) {
  const std::lock_guard lock(mutex_);
  if (ring != nullptr || full_) return ring.get();
  const std::uint32_t index = head_->rings.load(std::memory_order_relaxed);
  void* const at = map(file_, kTraceHeadBytes + index * ring_bytes(), ring_bytes());
  if (at == nullptr) {
    full_ = true;
    return nullptr;
  }
  auto* const head = new (at) TraceRingHead;
  head->thread = static_cast<std::uint64_t>(::syscall(SYS_gettid));
  static_cast<void>(::pthread_getname_np(::pthread_self(), head->name.data(), head->name.size()));
  ring.reset(new (std::nothrow) TraceRing(head, records_));
  if (ring == nullptr) {
    ::munmap(at, ring_bytes());
    full_ = true;
    return nullptr;
  }
  head_->rings.store(index + 1, std::memory_order_release);
  return ring.get();
}

void Tracer::begin_call(const char* literal, const char* text) {
  TraceRecord record{};
  record.id = name(literal);
  record.event = TraceEvent::call_begin;
  note(record);
  record.event = TraceEvent::call_text;
  const std::size_t bytes = ::strnlen(text, kCallText - 1);
  for (std::size_t at = 0; at < bytes; at += 16) {
    std::array<char, 16> piece{};
    std::memcpy(piece.data(), text + at, std::min<std::size_t>(bytes - at, piece.size()));
    std::memcpy(&record.id, piece.data(), 8);
    std::memcpy(&record.bytes, piece.data() + 8, 8);
    if (TraceRing* const ring = this->ring(); ring != nullptr) {
      record.ticks = 0;
      ring->add(record);
    }
  }
}

void Tracer::end_call(const char* literal) {
  TraceRecord record{};
  record.id = name(literal);
  record.event = TraceEvent::call_end;
  note(record);
}

std::uint64_t Tracer::find_name(const char* text) {
  const std::uint64_t number = number_of(text);
  known_names_[place_of(text)].store(address_of(text) << kNumberBits | number, std::memory_order_relaxed);
  return number;
}

std::uint64_t Tracer::number_of(const char* text) {
  const std::lock_guard lock(mutex_);
  const std::uint32_t known = head_->names.load(std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < known; ++i) {
    if (std::strncmp(head_->text[i].data(), text, kTraceNameBytes - 1) == 0) return i + 1;
  }
  if (known == kTraceNames) {
    head_->unnamed.fetch_add(1, std::memory_order_relaxed);
    return 0;
  }
  std::strncpy(head_->text[known].data(), text, kTraceNameBytes - 1);
  head_->names.store(known + 1, std::memory_order_release);
  return known + 1;
}

}  // namespace heddle::tap
