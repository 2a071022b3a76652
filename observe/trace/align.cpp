// Clocks of several machines.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "observe/trace/recording.hpp"

namespace heddle::observe::trace {
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
