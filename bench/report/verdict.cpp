#include "report/verdict.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <tuple>

#include "driver/table.hpp"
#include "harness/statistics.hpp"

namespace heddle::bench::report {

namespace {

using harness::Record;
using harness::Standing;

constexpr double kOtherP = 0.1;  // a share that P may differ by between sessions of one machine

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
  std::sort(out.begin(), out.end(), [](const Pair& a, const Pair& b) { return a.advantage() < b.advantage(); });
  return out;
}

std::string threads_text(std::uint32_t threads) {
  return std::to_string(threads) + (threads == 1 ? " thread" : " threads");
}

// The usual way to use Heddle, not a variant of it that a bench measures as well.
bool is_plain(const Record& ours) {
  return (ours.key.sharing == "exclusive" || ours.key.sharing == "auto") && ours.key.memory == "allocated" &&
         ours.key.transport != "shmem" && !ours.key.transport.starts_with("fault");
}

// The rate with the most threads, of the first of these that was measured beside a peer.
const Pair* main_pair(const std::vector<Pair>& pairs) {
  static constexpr std::pair<std::string_view, std::string_view> kSubjects[] = {
      {"rate", "am"}, {"rate", "put"}, {"programs", "pairs_own"}, {"gups", "atomic"}};
  for (const auto& [bench, op] : kSubjects) {
    const Pair* most = nullptr;
    for (const Pair& pair : pairs) {
      const harness::Key& key = pair.ours->key;
      if (key.bench != bench || key.op != op || key.size_bytes != 8 || !is_plain(*pair.ours)) continue;
      if (most == nullptr || key.threads > most->ours->key.threads) most = &pair;
    }
    if (most != nullptr) return most;
  }
  return nullptr;
}

// The latency of a put as a multiple of P; else the bandwidth as a share of a copy's.
const Record* beside_the_limit(const std::vector<Record>& records) {
  const Record* largest = nullptr;
  for (const Record& one : records) {
    if (!is_plain(one) || one.key.op != "put") continue;
    if (one.against == "P" && one.key.bench == "pingpong" && one.key.threads == 1) return &one;
    if (one.against != "limit" || one.key.bench != "bandwidth") continue;
    if (largest == nullptr || one.key.size_bytes > largest->key.size_bytes) largest = &one;
  }
  return largest;
}

std::string quiet_words(const std::vector<Record>& records) {
  std::vector<double> noise;
  for (const Record& one : records) {
    if (one.against.empty() && one.repeats > 2 && one.median > 0) {
      noise.push_back((one.high95 - one.low95) / 2 / one.median * 100);
    }
  }
  if (noise.empty()) return "Each figure was measured once or twice: nobody knows how far it may be off.";
  std::sort(noise.begin(), noise.end());
  const double half = noise[noise.size() / 2];
  return std::string(half <= 3    ? "Quiet"
                     : half <= 10 ? "Some noise"
                                  : "!Noisy") +
         ": half of the figures are certain to ±" + percent_text(half) + ", nine of ten to ±" +
         percent_text(noise[noise.size() * 9 / 10]) + ".";
}

double median_p(const std::vector<Record>& records) {
  std::vector<double> near;
  for (const Record& one : records) {
    if (one.against.empty() && one.distance == "near") near.push_back(one.p_ns);
  }
  return harness::median_of(near);
}

std::string count_text(const std::string& whose, const std::vector<Compared>& figures, bool ours) {
  std::size_t counts[3] = {};
  for (const Compared& one : figures) {
    if (harness::is_heddle(one.after->key) == ours) ++counts[static_cast<std::size_t>(one.change.standing)];
  }
  return "Of " + std::to_string(counts[0] + counts[1] + counts[2]) + " figures " + whose + ", " +
         std::to_string(counts[0]) + " are better and " + std::to_string(counts[2]) + " worse beyond the noise; " +
         std::to_string(counts[1]) + " differ by no more than the noise.";
}

}  // namespace

std::string name_of(const Record& record) {
  const harness::Key& key = record.key;
  std::string text = key.bench + " " + key.op + " of " + driver::size_text(key.size_bytes) +
                     (key.size_bytes < 1024 ? " bytes, " : ", ") + threads_text(key.threads);
  if (key.processes > 2) text += ", " + std::to_string(key.processes) + " processes";
  const std::string& sharing = key.sharing;
  if (!sharing.empty() && sharing != "exclusive" && sharing != "own" && sharing != "none") text += ", " + sharing;
  if (key.memory != "allocated") text += ", " + key.memory;
  if (record.distance != "near") text += ", cores " + record.distance;
  return text;
}

bool is_peer(const Record& record) {
  return !harness::is_heddle(record.key) && record.key.transport != "limit";
}

std::vector<std::string> answer(const std::vector<Record>& records) {
  const std::vector<Pair> pairs = beside_the_best(records);
  std::vector<std::string> out = {""};
  if (const Pair* const main = main_pair(pairs)) {
    const Standing stands = harness::standing(*main->ours, *main->best);
    const std::string peer = library_name(main->best->key.transport);
    const std::string factor = times(main->ours->median / main->best->median);
    out[0] = factor + peer + " with " + threads_text(main->ours->key.threads) +
             (stands == Standing::behind  ? " (behind)"
              : stands == Standing::level ? " (within the noise)"
                                          : "");
    out.push_back(name_of(*main->ours) + ": " + figure_text(*main->ours) + " (" + noise_words(*main->ours) +
                  ") beside " + figure_text(*main->best) + " of " + peer + " (" + noise_words(*main->best) + ").");
  } else if (!pairs.empty()) {
    out[0] = times(pairs[pairs.size() / 2].advantage()) + "as good as the best peer in the middle of " +
             std::to_string(pairs.size()) + " figures";
  }
  if (const Record* const limit = beside_the_limit(records)) {
    const bool time = limit->against == "P";
    out[0] += (out[0].empty() ? "" : ", ") + times(limit->ratio) + "the limit";
    out.push_back(name_of(*limit) + ": " + figure_text(*limit) +
                  (time ? " one way; a word from one core to the other and back takes twice P = " +
                              figure_text(limit->p_ns) + " ns."
                        : "; a plain copy is the limit."));
  }
  out[0] = out[0].empty() ? "Measured beside neither a peer nor a limit." : "On this machine: " + out[0] + ".";
  return out;
}

std::vector<std::string> verdict(const std::vector<Record>& records) {
  std::set<std::string> peers;
  for (const Record& record : records) {
    if (is_peer(record)) peers.insert(library_name(record.key.transport));
  }
  if (peers.empty()) {
    return {
        "No peer was measured, so the figures stand beside the machine's own limits only. heddle bench --peers "
        "measures UCX, MPI and OpenSHMEM beside them, where they are installed."};
  }
  const std::vector<Pair> pairs = beside_the_best(records);
  std::size_t ahead = 0;
  std::vector<std::string> out = {""};
  for (const Pair& pair : pairs) {
    const Standing stands = harness::standing(*pair.ours, *pair.best);
    ahead += stands == Standing::ahead ? 1 : 0;
    if (stands == Standing::behind) out.push_back(name_of(*pair.ours) + ": " + beside_words(*pair.ours, *pair.best));
  }
  std::string names;
  for (const std::string& peer : peers) names += (names.empty() ? "" : ", ") + peer;
  const std::size_t behind = out.size() - 1;
  out[0] = "Of " + std::to_string(pairs.size()) + " figures that a peer (" + names +
           ") was measured beside, Heddle is ahead of the best of them in " + std::to_string(ahead) + ", behind in " +
           std::to_string(behind) + ", and level in " + std::to_string(pairs.size() - ahead - behind) +
           ", where the 95 % intervals overlap or there are fewer than 3 repeats.";
  return out;
}

std::vector<std::string> trust(const harness::Results& results) {
  std::vector<std::string> out = {quiet_words(results.records)};
  if (was_loaded(results.origin)) {
    out.emplace_back(
        "!Other programs were at work when this session began: its figures are worse than those of a quiet machine.");
  }
  std::size_t figures = 0;
  std::size_t near = 0;
  bool right = true;
  for (const Record& one : results.records) {
    figures += one.against.empty() ? 1 : 0;
    near += one.against.empty() && one.distance == "near" ? 1 : 0;
    right = right && one.verified;
  }
  if (near > 0) out.push_back("P = " + figure_text(median_p(results.records)) + " ns.");
  if (near < figures) {
    out.push_back("!The cores were not near each other, or moved, in " + std::to_string(figures - near) + " of " +
                  std::to_string(figures) + " figures, which say so: read them beside their own peers only.");
  }
  if (!right) out.emplace_back("!A result was wrong: its figure says so, and counts for nothing.");
  return out;
}

Comparison compare(const harness::Results& before, const harness::Results& after) {
  Comparison out;
  for (const Record& old : before.records) {
    if (!old.against.empty()) continue;
    const auto now = std::find_if(after.records.begin(), after.records.end(), [&](const Record& one) {
      return one.against.empty() && one.key == old.key && one.distance == old.distance;
    });
    if (now != after.records.end()) out.figures.push_back({&old, &*now, change(old, *now)});
  }
  if (out.figures.empty()) return out;
  std::sort(out.figures.begin(), out.figures.end(), [](const Compared& a, const Compared& b) {
    const auto rank = [](const Compared& one) {
      return std::tuple(one.change.standing == Standing::level, !harness::is_heddle(one.after->key),
                        -std::abs(one.change.percent), one.before);  // then as they were measured
    };
    return rank(a) < rank(b);
  });
  out.summary = {count_text("of Heddle", out.figures, true), count_text("of peers and limits", out.figures, false) +
                                                                 " These show how far the machine has changed."};
  if (before.origin.machine != after.origin.machine) {
    out.summary.emplace_back("!The machines differ: compare the ratios of each run, not the times of both.");
  }
  const double earlier = median_p(before.records);
  const double later = median_p(after.records);
  if (std::abs(later - earlier) > kOtherP * earlier) {
    out.summary.push_back("!P was " + figure_text(earlier) + " ns and is " + figure_text(later) +
                          " ns: the machine itself has changed, and latencies with it.");
  }
  return out;
}

}  // namespace heddle::bench::report
