#include "observe/trace/recording.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "base/fd.hpp"
#include "tap/trace_file.hpp"

namespace heddle::observe::trace {

namespace {

using tap::TraceEvent;
using tap::TraceFileHead;
using tap::TraceMoment;
using tap::TraceRecord;
using tap::TraceRingHead;

template <std::size_t N>
std::string text_of(const std::array<char, N>& text) {
  std::string found(text.data(), ::strnlen(text.data(), N));
  // They are shown in terminals.
  std::ranges::replace_if(found, [](unsigned char c) { return c < ' ' || c > '~'; }, '?');
  return found;
}

std::int64_t signed_ns(std::uint64_t ns) {
  return static_cast<std::int64_t>(ns);
}

constexpr double kLongestBlind = 3600e9;  // ns
// Nanoseconds of a tick, and of the clocks: a sound file has none beyond.
constexpr double kLeastRate = 0.01;
constexpr double kMostRate = 1000;
constexpr std::uint64_t kLatest = std::uint64_t{1} << 61;
constexpr std::uint32_t kMostRanks = 1U << 20;
constexpr std::uint64_t kMostRecords = std::uint64_t{1} << 40;  // of a ring

}  // namespace

// A process that was killed may have left any bytes in the record that it was writing.
base::Result<Process> head_of(const std::string& path) {
  const FileMapping file(path);
  if (file.bytes() < tap::kTraceHeadBytes) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "%s cannot be read, or is cut off in its head", path.c_str());
  }
  const auto& head = *file.at<TraceFileHead>(0);
  if (head.magic != tap::kTraceMagic) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "%s is no trace of this version of Heddle", path.c_str());
  }
  if (head.rank >= head.size || head.size > kMostRanks) {  // others make lists of as many
    return base::fail(HEDDLE_ERR_ARGUMENT, "%s is damaged: its head is of rank %u of %u", path.c_str(), head.rank,
                      head.size);
  }
  Process process;
  process.path = path;
  process.rank = head.rank;
  process.size = head.size;
  process.process = head.process;
  process.job = head.job;
  process.ordered = head.ordered != 0;
  process.host = text_of(head.host);
  process.machine = text_of(head.machine) + process.host;
  process.untraced = head.untraced.load(std::memory_order_relaxed);
  const std::size_t names = std::min<std::size_t>(head.names.load(std::memory_order_acquire), tap::kTraceNames);
  for (std::size_t i = 0; i < names; ++i) process.names.push_back(text_of(head.text[i]));
  const TraceMoment& first = head.first;
  const TraceMoment& last = head.last[head.last_at.load(std::memory_order_acquire) % head.last.size()];
  if (last.ticks <= first.ticks || last.monotonic_ns <= first.monotonic_ns) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "%s was cut off before its process had begun", path.c_str());
  }
  const double rate =
      static_cast<double>(last.monotonic_ns - first.monotonic_ns) / static_cast<double>(last.ticks - first.ticks);
  if (rate < kLeastRate || rate > kMostRate || last.monotonic_ns > kLatest || first.calendar_ns > kLatest) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "%s is damaged: its clocks say what none does", path.c_str());
  }
  process.first_ticks = first.ticks;
  process.first_ns = signed_ns(first.monotonic_ns);
  process.clock = {process.first_ticks, process.first_ns, rate};
  // It may have been killed long after its last look at the clocks.
  process.last_ticks = last.ticks + static_cast<std::uint64_t>(kLongestBlind / rate);
  process.began_ns = signed_ns(first.calendar_ns);
  return process;
}

namespace {

// Records that took no time of their own stand between two that did: as soon after the first as the
// others of their row follow each other, which two looks at the clock half a microsecond apart
// tell.
void set_times(const Process& process, std::vector<Moment>& moments) {
  std::int64_t before = 0;
  for (Moment& moment : moments) {
    const std::uint64_t ticks = moment.record.ticks;
    if (ticks >= process.first_ticks && ticks <= process.last_ticks) before = std::max(before, process.at(ticks));
    moment.ns = before;
  }
  // The ring may begin with records whose time was lost with those before them.
  const auto known = std::ranges::find_if(moments, [](const Moment& moment) { return moment.ns != 0; });
  if (known == moments.end()) return moments.clear();
  for (auto at = moments.begin(); at != known; ++at) at->ns = known->ns;
}

// The records of a ring that are still there.
class Ring {
 public:
  Ring(const TraceRingHead& head, const TraceRecord* first, std::uint64_t records)
      : first_(first), records_(records), count_(head.count.load(std::memory_order_acquire)) {
    // Full, its oldest record may be the one that was just overwritten when the process was killed.
    begin_ = count_ - (count_ < records ? count_ : records - 1);
    happened_ = count_ + head.folded.load(std::memory_order_relaxed);
    for (std::uint64_t n = count_; n > begin_; --n) {
      const TraceRecord& record = at(n - 1);
      if (record.event != TraceEvent::repeated) continue;
      happened_ = count_ + record.bytes + record.id - 1;  // newer than what the head says
      break;
    }
  }
  void read(Thread& thread) const;
  [[nodiscard]] std::uint64_t happened() const { return happened_; }

 private:
  [[nodiscard]] const TraceRecord& at(std::uint64_t n) const { return first_[n % records_]; }
  [[nodiscard]] std::uint64_t first_single() const;
  static void repeat(const TraceRecord& repeated, std::uint64_t known, std::vector<Moment>& moments);

  const TraceRecord* const first_;
  const std::uint64_t records_;
  const std::uint64_t count_;
  std::uint64_t begin_ = 0;
  std::uint64_t happened_ = 0;  // in all, with what had no room
};

// The record from which on runs are read as single records. There are at most as many single
// records as a ring holds.
std::uint64_t Ring::first_single() const {
  std::uint64_t room = records_;
  std::uint64_t n = count_;
  for (; n > begin_; --n) {
    const TraceRecord& record = at(n - 1);
    if (record.event != TraceEvent::repeated) continue;
    if (record.id > room) break;
    room -= record.id;
  }
  return n;
}

// `known`: the last time that was read before.
void Ring::repeat(const TraceRecord& repeated, std::uint64_t known, std::vector<Moment>& moments) {
  TraceRecord record = moments.back().record;
  const bool timed = known != 0 && repeated.ticks >= known;
  const double each = timed ? static_cast<double>(repeated.ticks - known) / static_cast<double>(repeated.id) : 0;
  for (std::uint64_t i = 1; i <= repeated.id; ++i) {
    record.id += tap::trace_step(record.event, record.id);
    record.ticks = timed ? known + static_cast<std::uint64_t>(each * static_cast<double>(i)) : 0;
    moments.push_back({0, record});
  }
}

void Ring::read(Thread& thread) const {
  const std::uint64_t single = first_single();
  std::uint64_t listed = 0;
  std::uint64_t known = 0;
  for (std::uint64_t n = begin_; n < count_; ++n) {
    const TraceRecord& record = at(n);
    if (record.event != TraceEvent::repeated) {
      thread.moments.push_back({0, record});
      ++listed;
    } else if (!thread.moments.empty()) {  // otherwise the record that it repeats is gone
      if (n >= single) {
        repeat(record, known, thread.moments);
      } else {
        thread.moments.back().more += record.id;
      }
      listed += record.id;
    }
    if (record.ticks != 0) known = record.ticks;
  }
  thread.lost = happened_ - std::min(listed, happened_);
}

}  // namespace

base::Status wrong_path(const std::string& path) {
  const char* const name = path.c_str();
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return base::fail(HEDDLE_ERR_ARGUMENT,
                      "%s is a directory; give the FILE of `heddle run --trace FILE`, or the PATH of HEDDLE_TRACE=PATH",
                      name);
  }
  if (tap::is_trace_file(path)) {
    const std::string whole = tap::without_rank(path);
    if (!whole.empty()) {
      return base::fail(HEDDLE_ERR_ARGUMENT, "%s is the part of one rank; give %s, which means all ranks", name,
                        whole.c_str());
    }
    return base::fail(HEDDLE_ERR_ARGUMENT, "%s is the part of one rank; call it PATH.rank0, and give PATH", name);
  }
  if (std::filesystem::exists(path, error)) {
    return base::fail(HEDDLE_ERR_ARGUMENT,
                      "there are no files %s.rank0, …, which a job leaves with HEDDLE_TRACE=%s; there is only %s", name,
                      name, name);
  }
  return base::fail(HEDDLE_ERR_ARGUMENT,
                    "%s does not exist, nor do %s.rank0, …, which a job leaves with HEDDLE_TRACE=%s", name, name, name);
}

base::Result<std::vector<Process>> find(const std::string& path, std::vector<std::string>* others) {
  std::vector<Process> all;
  for (const std::string& file : tap::trace_files(path)) {
    if (!tap::is_trace_file(file)) {
      others->push_back(file);
      continue;
    }
    auto process = head_of(file);
    if (process) {
      all.push_back(std::move(*process));
    } else {
      others->push_back(file);
    }
  }
  if (all.empty() && !others->empty()) {
    return base::fail(
        HEDDLE_ERR_ARGUMENT,
        "%s holds nothing that can be drawn: it is no trace, or its process was ended before it had begun",
        others->front().c_str());
  }
  if (all.empty()) return wrong_path(path);
  const std::uint64_t job = std::ranges::max_element(all, {}, &Process::began_ns)->job;
  const auto rest = std::ranges::partition(all, [&](const Process& process) { return process.job == job; });
  for (const Process& process : rest) others->push_back(process.path);
  all.erase(rest.begin(), rest.end());
  std::ranges::sort(
      all, [](const Process& a, const Process& b) { return a.rank != b.rank ? a.rank < b.rank : a.path < b.path; });
  return all;
}

base::Result<std::vector<Thread>> read(const Process& process) {
  const FileMapping file(process.path);
  if (file.bytes() < tap::kTraceHeadBytes) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "%s cannot be read any more", process.path.c_str());
  }
  const auto& head = *file.at<TraceFileHead>(0);
  const std::uint64_t records = head.ring_records;
  if (!std::has_single_bit(records) || records > kMostRecords) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "%s is damaged: its rings have %llu records", process.path.c_str(),
                      static_cast<unsigned long long>(records));
  }
  const std::size_t ring_bytes = tap::kTraceRingHeadBytes + records * sizeof(TraceRecord);
  std::vector<Thread> threads;
  for (std::size_t i = 0; i < head.rings.load(std::memory_order_acquire); ++i) {
    const std::size_t offset = tap::kTraceHeadBytes + i * ring_bytes;
    if (offset + ring_bytes > file.bytes()) break;  // it was cut off
    const auto& ring = *file.at<TraceRingHead>(offset);
    Thread& thread = threads.emplace_back();
    thread.number = ring.thread;
    thread.name = text_of(ring.name);
    const Ring records_of(ring, file.at<TraceRecord>(offset + tap::kTraceRingHeadBytes), records);
    records_of.read(thread);
    set_times(process, thread.moments);
    if (thread.moments.empty()) thread.lost = records_of.happened();
  }
  return threads;
}

// Clocks of several machines.

namespace {

using tap::TraceEvent;

constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

// From worker to worker.
using Way = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;

// The shortest that a message took from one machine to another, by their own clocks: the true time
// plus the difference of the clocks.
class Shortest {
 public:
  explicit Shortest(const std::vector<Process>& processes) : processes_(processes) {}

  // First everything that was sent, then the arrivals.
  void add_sent(const Process& process, const Moment& moment) {
    const tap::TraceRecord& record = moment.record;
    if (record.event != TraceEvent::posted || record.kind == 0 || record.rank >= processes_.front().size) return;
    sent_[{process.rank, record.worker, record.rank, record.peer}][record.id] = moment.ns;
  }
  void add_arrived(const Process& process, const Moment& moment) {
    const tap::TraceRecord& record = moment.record;
    if (record.event != TraceEvent::arrived) return;
    const auto way = sent_.find({record.rank, record.peer, process.rank, record.worker});
    if (way == sent_.end()) return;
    const auto sent = way->second.find(record.id);
    const Process* const sender = of_rank(record.rank);
    if (sent == way->second.end() || sender == nullptr || sender->machine == process.machine) return;
    auto [at, first] = took_.try_emplace({sender->machine, process.machine}, moment.ns - sent->second);
    if (!first) at->second = std::min(at->second, moment.ns - sent->second);
  }
  // kNone: there was no message.
  [[nodiscard]] std::int64_t took(const std::string& from, const std::string& to) const {
    const auto found = took_.find({from, to});
    return found == took_.end() ? kNone : found->second;
  }

 private:
  [[nodiscard]] const Process* of_rank(std::uint32_t rank) const {
    const auto found = std::ranges::find(processes_, rank, &Process::rank);
    return found == processes_.end() ? nullptr : &*found;
  }

  const std::vector<Process>& processes_;
  std::map<Way, std::map<std::uint64_t, std::int64_t>> sent_;
  std::map<std::pair<std::string, std::string>, std::int64_t> took_;
};

// Machines reached from the first one, each by messages to and from one that is known.
void set_offsets(std::vector<Process>& processes, const Shortest& shortest) {
  std::map<std::string, std::int64_t> offsets{{processes.front().machine, 0}};
  const std::int64_t calendar = processes.front().began_ns - processes.front().first_ns;
  for (bool more = true; more;) {
    more = false;
    for (const Process& process : processes) {
      if (offsets.contains(process.machine)) continue;
      for (const auto& [machine, offset] : offsets) {
        const std::int64_t to = shortest.took(machine, process.machine);
        const std::int64_t back = shortest.took(process.machine, machine);
        if (to == kNone || back == kNone) continue;
        // Half of the difference is that of the clocks, if both ways take the same time.
        offsets[process.machine] = offset - (to - back) / 2;
        more = true;
        break;
      }
      if (more) break;
    }
  }
  for (Process& process : processes) {
    const auto found = offsets.find(process.machine);
    process.offset_ns = found != offsets.end() ? found->second : process.began_ns - process.first_ns - calendar;
  }
}

}  // namespace

namespace {

// The counter is one for all cores of a machine: so the measurement of the process that has watched
// the clocks for longest holds for all, and is the best.
void share_clocks(std::vector<Process>& processes) {
  std::map<std::string, const Process*> best;
  const auto span = [](const Process& process) { return process.last_ticks - process.first_ticks; };
  for (const Process& process : processes) {
    const Process*& known = best[process.machine];
    if (known == nullptr || span(*known) < span(process)) known = &process;
  }
  std::vector<Process> shared = processes;
  for (Process& process : shared) {
    const Process& from = *best[process.machine];
    process.clock = from.clock;
  }
  processes = std::move(shared);
}

}  // namespace

base::Status align(std::vector<Process>& processes) {
  share_clocks(processes);
  const auto same = [&](const Process& process) { return process.machine == processes.front().machine; };
  if (std::ranges::all_of(processes, same)) return HEDDLE_DONE;
  Shortest shortest(processes);
  for (const bool arrivals : {false, true}) {
    for (const Process& process : processes) {
      if (!process.ordered) continue;
      auto threads = read(process);
      if (!threads) return threads.status();
      for (const Thread& thread : *threads) {
        for (const Moment& moment : thread.moments) {
          arrivals ? shortest.add_arrived(process, moment) : shortest.add_sent(process, moment);
        }
      }
    }
  }
  set_offsets(processes, shortest);
  return HEDDLE_DONE;
}

}  // namespace heddle::observe::trace
