#include "harness/record.hpp"

#include <sys/utsname.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include <heddle/heddle.h>
#include "harness/statistics.hpp"

namespace heddle::bench::harness {

namespace {

// The task of the two figures. An overlap is the same task for every way to make progress; this way
// stands behind the "_". Two-sided messages of peers are compared with active messages too.
bool comparable_ops(const RecordKey& ours, const RecordKey& other) {
  if (ours.bench == "overlap") return ours.op.substr(0, ours.op.find('_')) == other.op;
  return ours.op == other.op || (ours.op == "am" && other.op == "tagged");
}

constexpr double kSameP = 1.6;
constexpr std::uint64_t kLeastRepeats = 3;  // fewer do not show how reliable a figure is

// The median P of all samples that were not disturbed: how the machine mostly stood.
double usual_p(const std::vector<Sample>& samples) {
  std::vector<double> ps;
  for (const Sample& sample : samples) {
    if (sample.distance == Distance::near && sample.p_ns > 0) ps.push_back(sample.p_ns);
  }
  return median_of(ps);
}

// The note about a figure that has no sample near the usual P.
const char* label_of(const std::vector<const Sample*>& group, double usual) {
  const auto all = [&](auto condition) { return std::all_of(group.begin(), group.end(), condition); };
  if (all([&](const Sample* one) { return one->distance == Distance::near && one->p_ns < usual; })) return "close";
  if (all([&](const Sample* one) { return one->distance != Distance::changed && one->p_ns > usual; })) return "far";
  return "changed";
}

BenchRecord aggregate_one(const RecordKey& key, const std::vector<const Sample*>& group, double usual) {
  const auto near = [usual](const Sample* sample) {
    if (sample->p_ns == 0) return true;  // one process alone has no P
    return sample->distance == Distance::near && sample->p_ns < kSameP * usual && usual < kSameP * sample->p_ns;
  };
  const bool any_near = std::any_of(group.begin(), group.end(), near);
  BenchRecord record;
  record.key = key;
  std::vector<double> values;
  std::vector<double> ps;
  for (const Sample* sample : group) {
    record.verified = record.verified && sample->verified;
    if (any_near && !near(sample)) continue;
    values.push_back(sample->value);
    ps.push_back(sample->p_ns);
  }
  const Summary summary = summarize(values);
  record.median = summary.median;
  record.low95 = summary.low95;
  record.high95 = summary.high95;
  record.best = larger_is_better(key.metric) ? summary.most : summary.least;
  record.slow99 = larger_is_better(key.metric) ? summary.low99 : summary.high99;
  record.repeats = summary.repeats;
  record.p_ns = median_of(ps);
  record.distance = any_near ? "near" : label_of(group, usual);
  return record;
}

}  // namespace

const char* distance_name(Distance distance) {
  switch (distance) {
    case Distance::near:
      return "near";
    case Distance::far:
      return "far";
    case Distance::changed:
      return "changed";
  }
  return "changed";
}

bool larger_is_better(std::string_view metric) {
  return metric == "rate" || metric == "bandwidth";
}

bool is_heddle(const RecordKey& key) {
  return key.transport.ends_with("shm") || key.transport.ends_with("loopback") ||  // fault+shm too
         // OpenSHMEM over Heddle
         key.transport.starts_with("heddle ") || key.transport == "shmem";
}

std::string peer_name(const RecordKey& key) {
  std::string name = key.transport;
  if (key.op == "tagged") name += " tagged";
  if (key.sharing == "shared" || key.sharing == "descriptor") name += " " + key.sharing;
  return name;
}

bool comparable(const RecordKey& ours, const RecordKey& other) {
  return ours.bench == other.bench && comparable_ops(ours, other) && ours.memory == other.memory &&
         ours.metric == other.metric && ours.threads == other.threads && ours.size_bytes == other.size_bytes &&
         ours.processes == other.processes;
}

Standing standing(const BenchRecord& ours, const BenchRecord& other) {
  const bool apart = ours.high95 < other.low95 || other.high95 < ours.low95;
  if (!apart || ours.repeats < kLeastRepeats || other.repeats < kLeastRepeats) return Standing::level;
  const bool larger = ours.median > other.median;
  return larger == larger_is_better(ours.key.metric) ? Standing::ahead : Standing::behind;
}

std::vector<BenchRecord> aggregate(const std::vector<Sample>& samples) {
  std::vector<RecordKey> order;
  std::map<RecordKey, std::vector<const Sample*>> groups;
  for (const Sample& sample : samples) {
    auto& group = groups[sample.key];
    if (group.empty()) order.push_back(sample.key);
    group.push_back(&sample);
  }
  const double usual = usual_p(samples);
  std::vector<BenchRecord> records;
  for (const RecordKey& key : order) records.push_back(aggregate_one(key, groups[key], usual));
  return records;
}

std::vector<BenchRecord> aggregate_apart(const std::vector<Sample>& samples) {
  std::set<RecordKey> steady;
  std::set<RecordKey> wrong;
  for (const Sample& sample : samples) {
    if (sample.distance != Distance::changed) steady.insert(sample.key);
    if (!sample.verified) wrong.insert(sample.key);
  }
  std::vector<BenchRecord> out;
  for (const Distance distance : {Distance::near, Distance::far, Distance::changed}) {
    std::vector<Sample> some;
    std::copy_if(samples.begin(), samples.end(), std::back_inserter(some), [&](const Sample& one) {
      return one.distance == distance && (distance != Distance::changed || !steady.contains(one.key));
    });
    for (BenchRecord& record : aggregate(some)) {
      // close: both cores were one physical core, near to nothing else
      if (record.distance != "close") record.distance = distance_name(distance);
      // If a result was wrong, all records of its figure say so.
      record.verified = !wrong.contains(record.key);
      out.push_back(std::move(record));
    }
  }
  return out;
}

const BenchRecord* peer_of(const BenchRecord& ratio, const std::vector<BenchRecord>& records) {
  const auto found = std::find_if(records.begin(), records.end(), [&](const BenchRecord& one) {
    return one.against.empty() && !is_heddle(one.key) && peer_name(one.key) == ratio.against &&
           comparable(ratio.key, one.key) && one.distance == ratio.distance;
  });
  return found == records.end() ? nullptr : &*found;
}

std::vector<BenchRecord> with_ratios(const std::vector<BenchRecord>& records) {
  std::vector<BenchRecord> out;
  for (const BenchRecord& ours : records) {
    out.push_back(ours);
    if (ours.key.bench == "overlap" && !is_heddle(ours.key)) add_paper_ratios(ours, records, &out);
    if (!is_heddle(ours.key)) continue;
    const auto add = [&](const std::string& against, double reference) {
      if (!(reference > 0)) return;
      BenchRecord ratio = ours;
      ratio.against = against;
      ratio.ratio = ours.median / reference;
      out.push_back(ratio);
    };
    add_paper_ratios(ours, records, &out);
    // P moves a word and its line: a longer transfer is no multiple of it.
    if (ours.key.metric == "latency" && ours.key.bench == "pingpong" && ours.key.size_bytes == 8) add("P", ours.p_ns);
    for (const BenchRecord& other : records) {
      if (is_heddle(other.key)) continue;
      const bool apart = ours.key.bench.starts_with("programs") && other.distance != ours.distance;
      const bool limit = other.key.transport == "limit" && other.key.bench == ours.key.bench &&
                         other.key.op == "memcpy" && other.key.size_bytes == ours.key.size_bytes &&
                         other.key.metric == ours.key.metric;
      const bool cma = other.key.bench == "limit" && other.key.op == "cma" && ours.key.memory == "registered" &&
                       ours.key.bench == "bandwidth" && other.key.size_bytes == ours.key.size_bytes &&
                       other.key.metric == ours.key.metric;
      if (limit) {
        add("limit", other.median);
      } else if (cma) {
        add("CMA", other.median);
      } else if (other.key.transport != "limit" && comparable(ours.key, other.key) && !apart) {
        add(peer_name(other.key), other.median);
      }
    }
  }
  return out;
}

namespace {

constexpr double kLoadedShare = 0.5;  // of the cores

std::string machine() {
  std::string model;
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line) && model.empty();) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) model = line.substr(colon + 2);
  }
  utsname name{};
  if (uname(&name) != 0) return model;
  if (model.empty()) model = name.machine;
  return model + ", " + name.sysname + " " + name.release;
}

std::string now() {
  const std::time_t time = std::time(nullptr);
  std::tm parts{};
  char text[40] = "";
  if (localtime_r(&time, &parts) != nullptr) std::strftime(text, sizeof text, "%Y-%m-%d %H:%M %z", &parts);
  return text;
}

std::string version() {
  return std::to_string(HEDDLE_VERSION_MAJOR) + "." + std::to_string(HEDDLE_VERSION_MINOR) + "." +
         std::to_string(HEDDLE_VERSION_PATCH);
}

}  // namespace

Origin origin_of(const std::string& command, std::size_t cores) {
  Origin origin{now(), machine(), version(), command, static_cast<double>(cores), 0};
  if (getloadavg(&origin.load, 1) != 1) origin.load = 0;
  return origin;
}

bool was_loaded(const Origin& origin) {
  return origin.load > kLoadedShare * origin.cores;
}

namespace {

constexpr double kLlclPostCycles = 216;  // one thread, RDMA READ on Tofu

class Ratios {
 public:
  Ratios(const BenchRecord& ours, const std::vector<BenchRecord>& records, std::vector<BenchRecord>* out)
      : ours_(ours), key_(ours.key), records_(records), out_(out) {}

  void overhead() {
    if (key_.metric == "cycles" && key_.threads == 1) add("LLCL", kLlclPostCycles);
    if (key_.metric == "rate") {
      double best = 0;
      for (const BenchRecord& other : records_) {
        RecordKey same = other.key;
        same.threads = key_.threads;
        same.workers = key_.workers;
        if (same == key_) best = std::max(best, other.median);
      }
      add("best", best);
    }
    if (key_.metric != "latency" || key_.sharing == "exclusive") return;
    const double alone = median_of([](RecordKey& key) { with_own_workers(key, "exclusive"); });
    add("exclusive", alone);
    if (alone > 0) add("P added", ours_.p_ns, ours_.median - alone);
  }
  void duplex() {
    if (key_.processes != 2 || key_.threads == 1) return;
    for (const BenchRecord& other : records_) {
      const RecordKey& its = other.key;
      const bool same = its.bench == key_.bench && its.op == key_.op && its.size_bytes == key_.size_bytes &&
                        its.memory == key_.memory && its.processes == 2 * key_.threads && its.threads == 1;
      if (!same || !other.against.empty()) continue;
      const bool own = its.transport == key_.transport;
      if (own || !is_heddle(its)) add(own ? "processes" : its.transport + " processes", other.median);
    }
  }
  void overlap() {
    const std::size_t end = std::min(key_.op.find('_'), key_.op.size());
    const std::string policy = key_.op.substr(end);
    if (key_.op.substr(0, end) == "communication" || key_.op.substr(0, end) == "compute") return;
    const double communication = median_of([&](RecordKey& key) { key.op = "communication" + policy; });
    const double compute = median_of([&](RecordKey& key) { key.op = "compute" + policy; });
    if (!(communication > 0) || !(compute > 0)) return;
    add("max", std::max(communication, compute));
    add("sum", communication + compute);
  }
  void network() {
    if (key_.transport == "heddle ofi")
      add("heddle ucx", median_of([](RecordKey& key) { key.transport = "heddle ucx"; }));
    if (key_.sharing != "offload" || key_.metric != "rate") return;
    add("direct", median_of([](RecordKey& key) { key.sharing = "shared"; }));
    add("own workers", median_of([](RecordKey& key) { with_own_workers(key, "exclusive"); }));
  }
  void all() {
    if (key_.bench == "overhead") overhead();
    if (key_.bench == "fairness" && key_.op == "deviation") add("even share", kFairnessEven);
    if (key_.bench == "duplex") duplex();
    if (key_.bench == "convolution") add("none", median_of([](RecordKey& key) { key.op = "none"; }));
    if (key_.bench == "overlap") overlap();
    if (key_.bench.starts_with("network_")) network();
    if (key_.bench == "mixed_job") add("shm alone", median_of([](RecordKey& key) { key.transport = "shm"; }));
    if (key_.transport == "shmem" && key_.sharing == "multiple")
      add("contexts", median_of([](RecordKey& key) { with_own_workers(key, "contexts"); }));
  }

 private:
  static void with_own_workers(RecordKey& key, const char* sharing) {
    key.sharing = sharing;
    key.workers = key.threads;
  }
  // The value of another figure of the same run, whose key differs by `change`; 0: there is none.
  template <class Change>
  [[nodiscard]] double median_of(Change&& change) const {
    RecordKey key = key_;
    change(key);
    if (key == key_) return 0;
    const auto found = std::find_if(records_.begin(), records_.end(), [&](const BenchRecord& other) {
      return other.against.empty() && other.key == key;
    });
    return found == records_.end() ? 0 : found->median;
  }
  void add(const std::string& against, double reference) { add(against, reference, ours_.median); }
  // A figure that adds nothing, or has nothing to compare with, has no ratio.
  void add(const std::string& against, double reference, double value) {
    if (!(reference > 0) || !(value > 0)) return;
    out_->push_back(ours_);
    out_->back().against = against;
    out_->back().ratio = value / reference;
  }

  const BenchRecord& ours_;
  const RecordKey& key_;
  const std::vector<BenchRecord>& records_;
  std::vector<BenchRecord>* out_;
};

}  // namespace

void add_paper_ratios(const BenchRecord& ours, const std::vector<BenchRecord>& records, std::vector<BenchRecord>* out) {
  Ratios(ours, records, out).all();
}

}  // namespace heddle::bench::harness
