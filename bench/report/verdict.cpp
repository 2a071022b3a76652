#include "report/verdict.hpp"

#include <algorithm>
#include <cstdio>
#include <set>

#include "driver/table.hpp"
#include "report/plot.hpp"

namespace heddle::bench::report {

namespace {

using harness::Record;

// One of Heddle's figures and the peer's that is best at the same task, while the cores stood
// alike.
struct Pair {
  const Record* ours;
  const Record* best;
  // How many times as good: larger is better, whatever the metric.
  [[nodiscard]] double advantage() const {
    const double ratio = ours->median / best->median;
    return harness::larger_is_better(ours->key.metric) ? ratio : 1 / ratio;
  }
};

// Whoever did the work and is neither Heddle nor the machine.
bool is_peer(const Record& record) {
  return !harness::is_heddle(record.key) && record.key.transport != "limit";
}

std::vector<Pair> beside_the_best(const std::vector<Record>& records) {
  std::vector<Pair> out;
  for (const Record& ours : records) {
    if (!harness::is_heddle(ours.key) || !ours.against.empty() || !(ours.median > 0)) continue;
    Pair pair{&ours, nullptr};
    for (const Record& peer : records) {
      if (!is_peer(peer) || !peer.against.empty() || peer.distance != ours.distance || !(peer.median > 0) ||
          !harness::comparable(ours.key, peer.key)) {
        continue;
      }
      if (pair.best == nullptr || Pair{&ours, &peer}.advantage() < pair.advantage()) pair.best = &peer;
    }
    if (pair.best != nullptr) out.push_back(pair);
  }
  return out;
}

std::string times(double factor) {
  char text[32];
  std::snprintf(text, sizeof text, factor >= 10 ? "%.0f ×" : "%.2g ×", factor);
  return text;
}

std::string name_of(const Record& record) {
  const harness::Key& key = record.key;
  std::string text = key.bench + " " + key.op + " of " + driver::size_text(key.size_bytes) + ", " +
                     std::to_string(key.threads) + (key.threads == 1 ? " thread" : " threads");
  if (!key.sharing.empty() && key.sharing != "exclusive") text += ", " + key.sharing;
  if (key.memory == "registered" || key.memory == "malloc") text += ", " + key.memory;
  if (record.distance != "near") text += ", cores " + record.distance;
  return text;
}

}  // namespace

std::string verdict(const std::vector<Record>& records) {
  std::set<std::string> peers;
  for (const Record& record : records) {
    if (is_peer(record)) peers.insert(record.key.transport);
  }
  if (peers.empty()) {
    return "<p>No peer was measured in this session, so the figures stand beside the machine's own limits only. "
           "<code>heddle bench --peers</code> measures UCX, MPI and OpenSHMEM beside them, where they are "
           "installed.</p>";
  }
  std::vector<Pair> pairs = beside_the_best(records);
  std::sort(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) { return a.advantage() < b.advantage(); });
  std::size_t ahead = 0;
  std::size_t behind = 0;
  std::string list;
  for (const Pair& pair : pairs) {
    const harness::Standing stands = standing(*pair.ours, *pair.best);
    ahead += stands == harness::Standing::ahead ? 1 : 0;
    if (stands != harness::Standing::behind) continue;
    ++behind;
    list += "<li>" + escape(name_of(*pair.ours)) + ": " + escape(pair.best->key.transport) + " is " +
            times(1 / pair.advantage()) + " as good</li>\n";
  }
  std::string names;
  for (const std::string& peer : peers) names += (names.empty() ? "" : ", ") + escape(peer);
  return "<p>Of " + std::to_string(pairs.size()) + " figures that a peer (" + names +
         ") was measured beside, Heddle is ahead of the best of them in <b>" + std::to_string(ahead) +
         "</b>, behind in <b>" + std::to_string(behind) + "</b>, and level in <b>" +
         std::to_string(pairs.size() - ahead - behind) +
         "</b>, where the 95 % intervals overlap or there are fewer than 3 repeats" +
         (list.empty() ? ".</p>" : ". Behind in:</p>\n<ul>" + list + "</ul>");
}

}  // namespace heddle::bench::report
