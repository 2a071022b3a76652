#include "harness/record.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "harness/papers.hpp"
#include "harness/statistics.hpp"

namespace heddle::bench::harness {

namespace {

// The task of the two figures. An overlap is the same task for every way to make progress; this way
// stands behind the "_". Two-sided messages of peers are compared with active messages too.
bool comparable_ops(const Key& ours, const Key& other) {
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

Record aggregate_one(const Key& key, const std::vector<const Sample*>& group, double usual) {
  const auto near = [usual](const Sample* sample) {
    if (sample->p_ns == 0) return true;  // one process alone has no P
    return sample->distance == Distance::near && sample->p_ns < kSameP * usual && usual < kSameP * sample->p_ns;
  };
  const bool any_near = std::any_of(group.begin(), group.end(), near);
  Record record;
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

bool is_heddle(const Key& key) {
  return key.transport.ends_with("shm") || key.transport.ends_with("loopback") ||  // fault+shm too
         // OpenSHMEM over Heddle
         key.transport.starts_with("heddle ") || key.transport == "shmem";
}

std::string peer_name(const Key& key) {
  std::string name = key.transport;
  if (key.op == "tagged") name += " tagged";
  if (key.sharing == "shared" || key.sharing == "descriptor") name += " " + key.sharing;
  return name;
}

bool comparable(const Key& ours, const Key& other) {
  return ours.bench == other.bench && comparable_ops(ours, other) && ours.memory == other.memory &&
         ours.metric == other.metric && ours.threads == other.threads && ours.size_bytes == other.size_bytes &&
         ours.processes == other.processes;
}

Standing standing(const Record& ours, const Record& other) {
  const bool apart = ours.high95 < other.low95 || other.high95 < ours.low95;
  if (!apart || ours.repeats < kLeastRepeats || other.repeats < kLeastRepeats) return Standing::level;
  const bool larger = ours.median > other.median;
  return larger == larger_is_better(ours.key.metric) ? Standing::ahead : Standing::behind;
}

std::vector<Record> aggregate(const std::vector<Sample>& samples) {
  std::vector<Key> order;
  std::map<Key, std::vector<const Sample*>> groups;
  for (const Sample& sample : samples) {
    auto& group = groups[sample.key];
    if (group.empty()) order.push_back(sample.key);
    group.push_back(&sample);
  }
  const double usual = usual_p(samples);
  std::vector<Record> records;
  for (const Key& key : order) records.push_back(aggregate_one(key, groups[key], usual));
  return records;
}

std::vector<Record> aggregate_apart(const std::vector<Sample>& samples) {
  std::set<Key> steady;
  std::set<Key> wrong;
  for (const Sample& sample : samples) {
    if (sample.distance != Distance::changed) steady.insert(sample.key);
    if (!sample.verified) wrong.insert(sample.key);
  }
  std::vector<Record> out;
  for (const Distance distance : {Distance::near, Distance::far, Distance::changed}) {
    std::vector<Sample> some;
    std::copy_if(samples.begin(), samples.end(), std::back_inserter(some), [&](const Sample& one) {
      return one.distance == distance && (distance != Distance::changed || !steady.contains(one.key));
    });
    for (Record& record : aggregate(some)) {
      // close: both cores were one physical core, near to nothing else
      if (record.distance != "close") record.distance = distance_name(distance);
      // If a result was wrong, all records of its figure say so.
      record.verified = !wrong.contains(record.key);
      out.push_back(std::move(record));
    }
  }
  return out;
}

const Record* peer_of(const Record& ratio, const std::vector<Record>& records) {
  const auto found = std::find_if(records.begin(), records.end(), [&](const Record& one) {
    return one.against.empty() && !is_heddle(one.key) && peer_name(one.key) == ratio.against &&
           comparable(ratio.key, one.key) && one.distance == ratio.distance;
  });
  return found == records.end() ? nullptr : &*found;
}

std::vector<Record> with_ratios(const std::vector<Record>& records) {
  std::vector<Record> out;
  for (const Record& ours : records) {
    out.push_back(ours);
    if (ours.key.bench == "overlap" && !is_heddle(ours.key)) add_paper_ratios(ours, records, &out);
    if (!is_heddle(ours.key)) continue;
    const auto add = [&](const std::string& against, double reference) {
      if (!(reference > 0)) return;
      Record ratio = ours;
      ratio.against = against;
      ratio.ratio = ours.median / reference;
      out.push_back(ratio);
    };
    add_paper_ratios(ours, records, &out);
    // P moves a word and its line: a longer transfer is no multiple of it.
    if (ours.key.metric == "latency" && ours.key.bench == "pingpong" && ours.key.size_bytes == 8) add("P", ours.p_ns);
    for (const Record& other : records) {
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

}  // namespace heddle::bench::harness
