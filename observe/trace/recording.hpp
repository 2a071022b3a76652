// The files of a traced job, as they were left by its processes: read, checked, and their times
// brought to one clock.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "tap/trace_file.hpp"

namespace heddle::observe::trace {

// A record, and when it was: nanoseconds of the clock of the job (CLOCK_MONOTONIC of the machine of
// its first process).
struct Moment {
  std::int64_t ns = 0;
  tap::TraceRecord record{};
  // For a run with too many single records: how many records followed this one that are equal to
  // it, except that the number of the message increases by one each time.
  std::uint64_t more = 0;
};

// The records of one thread, in order; times never go back. Runs (tap::TraceEvent::repeated) are
// single records again, the newest of as many as a ring holds; their times are spread evenly from
// the first to the last that was read, which is two microseconds later at most.
struct Thread {
  std::uint64_t number = 0;  // in the system
  std::string name;          // empty: it has none
  std::uint64_t lost = 0;    // older records, which had no room
  std::vector<Moment> moments;
};

// The facts about a process, without its records.
struct Process {
  std::string path;
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  std::uint64_t process = 0;  // its number in the system
  std::uint64_t job = 0;
  bool ordered = false;
  std::string host;
  std::string machine;         // those of one have one clock
  std::uint64_t untraced = 0;  // records of threads that had no room
  std::int64_t began_ns = 0;   // by the calendar
  std::vector<std::string> names;
  std::uint64_t first_ticks = 0;
  std::uint64_t last_ticks = 0;  // none of its records is later
  std::int64_t first_ns = 0;     // by the clock of its machine
  // From ticks to that clock, and on to that of the job.
  struct Clock {
    std::uint64_t ticks = 0;
    std::int64_t ns = 0;
    double ns_per_tick = 1;
  };
  Clock clock;
  std::int64_t offset_ns = 0;

  [[nodiscard]] std::int64_t at(std::uint64_t ticks) const {
    const double since = static_cast<double>(static_cast<std::int64_t>(ticks - clock.ticks)) * clock.ns_per_tick;
    constexpr double kMost = 1e18;  // what is damaged may say anything
    return clock.ns + offset_ns + static_cast<std::int64_t>(std::clamp(since, -kMost, kMost));
  }
  // The name of a number. "": it had no room.
  [[nodiscard]] const char* name(std::uint64_t number) const {
    return number == 0 || number > names.size() ? "" : names[number - 1].c_str();
  }
};

// The files of the job that was traced last among PATH.rank*, in the order of ranks. `others`:
// files that belong to other jobs, or cannot be read, which are left out. ARGUMENT: no other is
// there.
base::Result<std::vector<Process>> find(const std::string& path, std::vector<std::string>* others);
// ARGUMENT: nothing of a job can be read there. The message says what PATH is, and what to give
// instead.
base::Status wrong_path(const std::string& path);
// The facts that a file has of its process. ARGUMENT: it is no such file, or damaged.
base::Result<Process> head_of(const std::string& file);
// The records of a process.
base::Result<std::vector<Thread>> read(const Process& process);
// Sets offset_ns of processes on other machines than the first: by the calendars of the machines,
// and by messages in both directions between two of them, none of which arrives before it was sent.
base::Status align(std::vector<Process>& processes);

// A file in memory, for as long as it is looked at.
class FileMapping {
 public:
  explicit FileMapping(const std::string& path) {
    const base::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat status{};
    if (!file.valid() || ::fstat(file.get(), &status) != 0 || status.st_size <= 0) return;
    bytes_ = static_cast<std::size_t>(status.st_size);
    at_ = ::mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  }
  FileMapping(const FileMapping&) = delete;
  FileMapping& operator=(const FileMapping&) = delete;
  ~FileMapping() {
    if (at_ != MAP_FAILED) ::munmap(const_cast<void*>(at_), bytes_);
  }
  [[nodiscard]] std::size_t bytes() const { return at_ == MAP_FAILED ? 0 : bytes_; }
  template <class Value>
  [[nodiscard]] const Value* at(std::size_t offset) const {
    return reinterpret_cast<const Value*>(static_cast<const std::byte*>(at_) + offset);
  }

 private:
  const void* at_ = MAP_FAILED;
  std::size_t bytes_ = 0;
};

}  // namespace heddle::observe::trace
