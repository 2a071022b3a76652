#include "driver/verdict.hpp"

#include <algorithm>
#include <cstdio>
#include <set>
#include <tuple>
#include <utility>

#include "driver/table.hpp"
#include "harness/options.hpp"

namespace heddle::bench::driver {

namespace {

using harness::Distance;
using harness::Record;
using harness::Sample;

// The same row of the table: the same task at the same distance, whoever does it.
bool same_row(const Record& a, const Record& b) {
  return a.key.bench == b.key.bench && a.key.op == b.key.op && a.key.metric == b.key.metric &&
         a.key.threads == b.key.threads && a.key.processes == b.key.processes && a.key.size_bytes == b.key.size_bytes &&
         a.distance == b.distance;
}

bool better(const Record& a, const Record& b) {
  return harness::larger_is_better(a.key.metric) ? a.median > b.median : a.median < b.median;
}

std::vector<const Record*> peers_of(const Record& ours, const std::vector<Record>& records) {
  std::vector<const Record*> out;
  for (const Record& other : records) {
    if (other.against.empty() && !harness::is_heddle(other.key) && same_row(ours, other)) out.push_back(&other);
  }
  std::sort(out.begin(), out.end(), [](const Record* a, const Record* b) { return better(*a, *b); });
  return out;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text,
                value >= 1000  ? "%.0f"
                : value >= 100 ? "%.1f"
                : value >= 1   ? "%.2f"
                               : "%.3f",
                value);
  return text;
}

std::string with_interval(const Record& record) {
  if (record.repeats < 3) return number(record.median) + " (" + std::to_string(record.repeats) + "x)";
  return number(record.median) + " [" + number(record.low95) + "-" + number(record.high95) + "]";
}

std::string name_of(const harness::Key& key) {
  const bool usual = key.sharing == "exclusive" || key.sharing == "single" || key.sharing == "own";
  return usual ? key.transport : key.transport + " " + key.sharing;
}

std::string row(const Record& ours, const std::vector<Record>& records) {
  char line[512];
  std::snprintf(line, sizeof line, "  %-14s%8s %3u %3u  %-7s%-17s%-28s",
                (ours.key.op + (ours.key.memory == "malloc" ? " malloc" : "")).c_str(),
                size_text(ours.key.size_bytes).c_str(), ours.key.processes, ours.key.threads, ours.key.unit.c_str(),
                name_of(ours.key).c_str(), with_interval(ours).c_str());
  std::string out = line;
  const auto peers = peers_of(ours, records);
  if (!peers.empty()) {
    const Record& best = *peers.front();
    std::snprintf(line, sizeof line, "%-15s%-28s%6.2f  %-13s", name_of(best.key).c_str(), with_interval(best).c_str(),
                  best.median > 0 ? ours.median / best.median : 0, ahead(ours, records).c_str());
    out += line;
  } else {
    std::snprintf(line, sizeof line, "%-15s%-28s%6s  %-13s", "-", "", "", "");
    out += line;
  }
  std::snprintf(line, sizeof line, "%6.0f %-8s", ours.p_ns, ours.distance.c_str());
  out += line;
  if (!ours.verified) out += "WRONG RESULT ";
  for (std::size_t i = 1; i < peers.size(); ++i) out += name_of(peers[i]->key) + " " + number(peers[i]->median) + "  ";
  for (const Record* peer : peers) {
    if (!peer->verified) out += "WRONG RESULT of " + name_of(peer->key) + " ";
  }
  out.erase(out.find_last_not_of(' ') + 1);
  return out + "\n";
}

}  // namespace

std::vector<Record> records_of(const std::vector<Sample>& samples) {
  std::set<harness::Key> steady;
  std::vector<Sample> near;
  std::vector<Sample> far;
  std::vector<Sample> changed;
  for (const Sample& sample : samples) {
    if (sample.distance == Distance::changed) continue;
    steady.insert(sample.key);
    (sample.distance == Distance::near ? near : far).push_back(sample);
  }
  for (const Sample& sample : samples) {
    if (!steady.contains(sample.key)) changed.push_back(sample);
  }
  std::vector<Record> out;
  for (const auto& [some, label] : {std::pair(&near, "near"), std::pair(&far, "far"), std::pair(&changed, "changed")}) {
    for (Record& record : harness::aggregate(*some)) {
      if (record.distance != "close")
        record.distance = label;  // both cores were one physical core: near to nothing else
      out.push_back(record);
    }
  }
  // A result that was wrong is said of all rows of its figure.
  std::set<harness::Key> wrong;
  for (const Sample& sample : samples) {
    if (!sample.verified) wrong.insert(sample.key);
  }
  for (Record& record : out) record.verified = record.verified && !wrong.contains(record.key);
  return out;
}

std::vector<Record> with_best_peer(const std::vector<Record>& records) {
  std::vector<Record> out;
  for (const Record& ours : records) {
    out.push_back(ours);
    if (!harness::is_heddle(ours.key)) continue;
    const auto peers = peers_of(ours, records);
    if (peers.empty() || !(peers.front()->median > 0)) continue;
    Record beside = ours;
    beside.against = name_of(peers.front()->key);
    beside.ratio = ours.median / peers.front()->median;
    out.push_back(beside);
  }
  return out;
}

std::string ahead(const Record& ours, const std::vector<Record>& records) {
  const auto peers = peers_of(ours, records);
  if (peers.empty()) return {};
  switch (harness::standing(ours, *peers.front())) {
    case harness::Standing::ahead:
      return "heddle";
    case harness::Standing::behind:
      return peers.front()->key.transport;
    case harness::Standing::level:
      break;
  }
  return "level";
}

std::string programs_table(const std::vector<Record>& records) {
  std::vector<const Record*> ours;
  for (const Record& record : records) {
    if (record.against.empty() && harness::is_heddle(record.key)) ours.push_back(&record);
  }
  std::sort(ours.begin(), ours.end(), [](const Record* a, const Record* b) {
    const auto place = [](const Record* one) {
      const auto& names = harness::kProgramNames;
      const auto found = std::find_if(names.begin(), names.end(), [&](const std::string& name) {
        return one->key.op == name || (one->key.op.starts_with(name + "_") && one->key.op != "latency_mt");
      });
      return std::tuple(one->key.bench, found - names.begin(), one->key.op.size(), one->key.op, one->key.processes,
                        // in order of measuring, then
                        one->key.size_bytes, one->key.threads, one->distance, one);
    };
    return place(a) < place(b);
  });
  std::string out;
  std::string bench;
  for (const Record* record : ours) {
    if (record->key.bench != bench) {
      bench = record->key.bench;
      char line[256];
      std::snprintf(line, sizeof line, "\n%-16s%8s %3s %3s  %-7s%-17s%-28s%-15s%-28s%6s  %-13s%6s\n", bench.c_str(),
                    "bytes", "prc", "thr", "unit", "heddle", "median [95 %]", "best peer", "median [95 %]", "ratio",
                    "ahead", "P ns");
      out += line;
    }
    out += row(*record, records);
  }
  if (!out.empty()) {
    out +=
        "\nratio: Heddle's median / the best peer's; ns: smaller is better, Mop/s and GB/s: larger. ahead: whose "
        "interval is apart "
        "on the better side; level: they overlap, or fewer than 3 repeats, which (2x) counts. near, far: P below or "
        "above 150 ns "
        "throughout.\n";
  }
  return out;
}

}  // namespace heddle::bench::driver
