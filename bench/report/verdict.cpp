#include "report/verdict.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>

#include "driver/table.hpp"
#include "report/plot.hpp"

namespace heddle::bench::report {

namespace {

using harness::Record;

constexpr double kLevel = 0.05;  // nearer to a peer than that is neither ahead nor behind

// How many times as good as the peer: larger is better, whatever the metric.
double advantage(const Record& record) {
  return harness::larger_is_better(record.key.metric) ? record.ratio : 1 / record.ratio;
}

// The peers of a session: whoever did the work and is neither Heddle nor the machine.
std::set<std::string> peers_of(const std::vector<Record>& records) {
  std::set<std::string> peers;
  for (const Record& record : records) {
    if (!harness::is_heddle(record.key) && record.key.transport != "limit") peers.insert(record.key.transport);
  }
  return peers;
}

bool is_peer(const std::set<std::string>& peers, const std::string& against) {
  return peers.contains(against.substr(0, against.find(' ')));
}

// Each of Heddle's figures with the peer that comes out best beside it.
std::vector<Record> beside_the_best(const std::vector<Record>& records, const std::set<std::string>& peers) {
  std::map<harness::Key, Record> best;
  for (const Record& record : records) {
    if (record.against.empty() || !(record.ratio > 0) || !is_peer(peers, record.against)) continue;
    const auto [found, added] = best.emplace(record.key, record);
    if (!added && advantage(record) < advantage(found->second)) found->second = record;
  }
  std::vector<Record> out;
  for (const auto& [key, record] : best) out.push_back(record);
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
  if (key.memory == "registered") text += ", registered";
  return text;
}

}  // namespace

std::string verdict(const std::vector<Record>& records) {
  const std::set<std::string> peers = peers_of(records);
  if (peers.empty()) {
    return "<p>No peer was measured in this session, so the figures stand beside the machine's own limits only. "
           "<code>heddle bench --peers</code> measures UCX, MPI and OpenSHMEM beside them, where they are "
           "installed.</p>";
  }
  std::vector<Record> figures = beside_the_best(records, peers);
  std::sort(figures.begin(), figures.end(),
            [](const Record& a, const Record& b) { return advantage(a) < advantage(b); });
  std::size_t ahead = 0;
  std::string behind;
  std::size_t behind_count = 0;
  for (const Record& record : figures) {
    if (advantage(record) > 1 + kLevel) ++ahead;
    if (advantage(record) >= 1 - kLevel) continue;
    ++behind_count;
    behind += "<li>" + escape(name_of(record)) + ": " + escape(record.against) + " is " + times(1 / advantage(record)) +
              " as good</li>\n";
  }
  std::string names;
  for (const std::string& peer : peers) names += (names.empty() ? "" : ", ") + escape(peer);
  std::string out = "<p>Of " + std::to_string(figures.size()) + " figures that a peer (" + names +
                    ") was measured beside, Heddle is ahead of the best of them in <b>" + std::to_string(ahead) +
                    "</b>, level within 5 % in <b>" + std::to_string(figures.size() - ahead - behind_count) +
                    "</b>, and behind in <b>" + std::to_string(behind_count) + "</b>" +
                    (behind.empty() ? ".</p>" : ":</p>\n<ul>" + behind + "</ul>");
  return out;
}

}  // namespace heddle::bench::report
