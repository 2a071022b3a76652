#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "driver/driver.hpp"
#include "harness/statistics.hpp"
#include "report/report.hpp"

namespace heddle::bench::report {

namespace {

struct Word {
  std::string_view name;
  const char* meaning;
};

constexpr Word kWords[] = {
    {"limit", "what the machine can do: cache lines to and fro, copies"},
    {"pingpong", "half a round trip of each operation"},
    {"rate", "small operations per second, by threads"},
    {"bandwidth", "large operations, beside plain copies"},
    {"atomics", "atomic operations, alone and on one word"},
    {"gups", "random updates of one table"},
    {"reaction", "how soon an arrival is handled while the program computes, by progress policy"},
    {"compute", "what helpers take from a program that computes, by progress policy"},
    {"overhead", "posting, latency and rate for each sharing mode"},
    {"fairness", "which of 8 threads run the handlers"},
    {"duplex", "both directions at once, by threads and by processes"},
    {"convolution", "a step of a matrix split among threads, by progress policy"},
    {"oversubscription", "more processes and threads than cores"},
    {"overlap", "send or receive, compute, wait: what of the transfer is hidden"},
    {"programs", "what programs do, with each library's own waits"},
    {"pingpong_1line", "a word between two cores and back in one cache line, half the round trip"},
    {"pingpong_2lines", "the same with a line that each core writes: P"},
    {"ring_each", "records of 8 bytes through a ring of one producer and one consumer, each published by itself"},
    {"ring_16", "the same, 16 records published at once"},
    {"fadd_alone", "an atomic addition by one core alone"},
    {"fadd_contended", "an atomic addition to one word by both cores at once"},
    {"memcpy", "a copy into memory that both processes map, which the other process does not read: the limit of a put"},
    {"memcpy_fresh", "the same from memory that the other core has just written"},
    {"memcpy_get", "a copy out of memory that both processes map: the limit of a get"},
    {"cma", "a copy by the kernel out of the other process (process_vm_readv)"},
    {"copy_in_out_256K", "one process copies into a ring of 256 KiB that both map, the other copies out of it"},
    {"copy_in_out_4M", "the same with a ring of 4 MiB, larger than a core's second-level cache"},
    {"put", "a write into the other process's memory"},
    {"put_wait", "a write, and the other process waits for it by the library's wait"},
    {"put_flush", "a write and the wait until it is complete at the target"},
    {"get", "a read of the other process's memory"},
    {"fadd", "an atomic fetch-and-add in the other process's memory"},
    {"am", "an active message: a handler runs at the target"},
    {"tagged", "a send and the receive that matches it by its tag"},
    {"latency", "a message there and back, half of the time, as OSU measures it"},
    {"bw", "windows of 64 messages (8 above 64 KiB) one way, each window answered"},
    {"bibw", "the same both ways at once"},
    {"mbw_mr", "the same counted in messages, by one or several pairs of processes"},
    {"latency_mt", "a message there and back; whichever of several threads has it answers"},
    {"pingpong_mt_own",
     "a message there and back between each thread and its partner, all at once, each by a queue of its own"},
    {"pingpong_mt_one", "the same, all threads of a process by one queue"},
    {"put_latency", "a write with a signal there and back, half of the time"},
    {"put_window", "64 writes and a flush"},
    {"get_window", "64 reads and a flush"},
    {"pairs_own", "each thread sends windows to the thread of its number, each by a queue of its own"},
    {"pairs_one", "the same, all threads of a process by one queue"},
    {"pairs_any", "the same, received from any source"},
    {"rpc_16", "questions of 64 bytes and their answers, 16 outstanding"},
    {"rpc_32", "the same, 32 outstanding"},
    {"rpc_128", "the same, 128 outstanding"},
    {"rpc_mt_16", "questions and answers of several threads, 16 outstanding in each"},
    {"rpc_mt_32", "the same, 32 outstanding"},
    {"rpc_mt_128", "the same, 128 outstanding"},
    {"halo", "a step of an exchange with two neighbours, by each thread"},
    {"fan_in", "seven processes send to one, which receives from any"},
    {"exchange_flag", "a buffer put to each other process and a flag behind it, the wait for all flags, all read"},
    {"exchange_count", "the same with one atomic count instead of flags"},
    {"exchange_barrier", "the same with a barrier instead of the wait"},
    {"overlap_alone", "a transfer that nobody computes beside"},
    {"overlap_added", "what a transfer adds to a computation that lasts as long"},
    {"persistent",
     "a collective operation made before: from when the last member has begun to when the last has ended"},
    {"nonblocking", "the same, started and waited for by calls of their own"},
    {"blocking", "the same by one call"},
    {"one_after_another", "barriers without anything between them"},
    {"get_put", "GUPS: read a random word, change it, write it back"},
    {"atomic", "GUPS: change a random word by an atomic exclusive or"},
};

std::string formatted(const char* format, double value) {
  char text[40];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

constexpr double kSteady = 3;  // percent
constexpr double kNoisy = 15;
constexpr double kUseless = 100;
constexpr std::uint64_t kLeastRepeats = 3;  // harness::standing

}  // namespace

std::string percent_text(double percent) {
  return formatted(percent < 9.95 ? "%.2g %%" : "%.0f %%", percent);
}

std::string figure_text(double value) {
  return formatted(value >= 99.95 ? "%.0f" : value >= 9.995 ? "%.1f" : "%.2f", value);
}

std::string figure_text(const harness::BenchRecord& record) {
  return figure_text(record.median) + " " + record.key.unit;
}

std::string meaning(const std::string& name) {
  const auto found =
      std::find_if(std::begin(kWords), std::end(kWords), [&](const Word& one) { return one.name == name; });
  return found != std::end(kWords) ? found->meaning : "";
}

std::string library_name(const std::string& name) {
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"openmpi", "Open MPI"}, {"mpich", "MPICH"},    {"oshmem", "Open MPI's OpenSHMEM"},
      {"ucx", "UCX"},          {"ofi", "libfabric"},  {"shmem", "Heddle OpenSHMEM"},
      {"impi", "Intel MPI"},   {"limit", "the limit"}};
  if (name == "shm" || name == "loopback") return "Heddle";
  if (name.starts_with("fault")) return "Heddle on a fabric";
  if (name.starts_with("heddle ")) return "Heddle over " + name.substr(7);
  for (const auto& [own, theirs] : kNames) {
    if (name == own || name.starts_with(std::string(own) + " ")) return std::string(theirs) + name.substr(own.size());
  }
  return name;
}

std::string noise_words(const harness::BenchRecord& record) {
  if (record.repeats < kLeastRepeats) {
    return std::string("measured ") + (record.repeats < 2 ? "once" : "twice") + ": its noise is unknown";
  }
  if (!(record.median > 0)) return {};
  const double percent = (record.high95 - record.low95) / 2 / record.median * 100;
  if (percent > kUseless) return "useless: ±" + percent_text(percent) + ", which says nothing";
  if (percent > kNoisy) return "noisy: ±" + percent_text(percent) + ", only a rough figure";
  return (percent <= kSteady ? "steady: ±" : "±") + percent_text(percent);
}

std::string times(double ratio) {
  return formatted(ratio >= 9.95 ? "%.0f × " : ratio >= 1.995 ? "%.1f × " : "%.2f × ", ratio);
}

std::string ratio_words(const harness::BenchRecord& ours, double ratio, const std::string& against) {
  const bool machine = against == "P" || against == "limit" || against == "P added";
  return times(ratio) + library_name(against) + (ours.key.metric == "latency" && !machine ? "'s time" : "");
}

std::string beside_words(const harness::BenchRecord& ours, const harness::BenchRecord& peer) {
  const std::string ratio = ratio_words(ours, ours.median / peer.median, harness::peer_name(peer.key));
  switch (harness::standing(ours, peer)) {
    case harness::Standing::ahead:
      return ratio + ": ahead";
    case harness::Standing::behind:
      return ratio + ": behind";
    case harness::Standing::level:
      break;
  }
  return ratio + ": level, within the noise";
}

Change change(const harness::BenchRecord& before, const harness::BenchRecord& after) {
  Change out;
  if (!(before.median > 0) || !(after.median > 0)) return out;
  const double ratio = after.median / before.median;
  out.percent = (ratio - 1) * 100;
  out.standing = harness::standing(after, before);
  const bool larger = harness::larger_is_better(after.key.metric);
  const bool time = larger || after.key.metric == "latency" || after.key.metric == "cycles";
  const bool better = larger == (ratio > 1);
  const double factor = std::max(ratio, 1 / ratio);
  if (std::abs(out.percent) < 0.5) {
    out.words = "the same";
  } else if (factor >= 2) {
    out.words = formatted("%.2g × as ", factor) + (time ? better ? "fast" : "slow" : ratio > 1 ? "many" : "few");
  } else {
    out.words = percent_text(std::abs(out.percent)) + (time        ? better ? " faster" : " slower"
                                                       : ratio > 1 ? " more"
                                                                   : " fewer");
  }
  if (before.repeats < kLeastRepeats || after.repeats < kLeastRepeats) {
    out.words += "; with fewer than 3 repeats nobody knows the noise";
    return out;
  }
  // The halves of the intervals that face each other: the difference is beyond their sum if the
  // intervals are apart.
  const double noise = ratio > 1 ? before.high95 - before.median + after.median - after.low95
                                 : before.median - before.low95 + after.high95 - after.median;
  out.words += std::string(out.standing == harness::Standing::level ? ", within" : ", beyond") + " the noise of ±" +
               percent_text(noise / before.median * 100);
  return out;
}

namespace {

using harness::BenchRecord;
using harness::Standing;

constexpr double kOtherP = 0.1;  // a share that P may differ by between sessions of one machine

// One of Heddle's figures and the peer's that is best at the same task, while the cores stood
// alike.
struct Pair {
  const BenchRecord* ours;
  const BenchRecord* best;
  // How many times as good: larger is better, whatever the metric.
  [[nodiscard]] double advantage() const {
    const double ratio = ours->median / best->median;
    return harness::larger_is_better(ours->key.metric) ? ratio : 1 / ratio;
  }
};

std::vector<Pair> beside_the_best(const std::vector<BenchRecord>& records) {
  std::vector<Pair> out;
  for (const BenchRecord& ours : records) {
    if (!harness::is_heddle(ours.key) || !ours.against.empty() || !(ours.median > 0)) continue;
    Pair pair{&ours, nullptr};
    for (const BenchRecord& peer : records) {
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
bool is_plain(const BenchRecord& ours) {
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
      const harness::RecordKey& key = pair.ours->key;
      if (key.bench != bench || key.op != op || key.size_bytes != 8 || !is_plain(*pair.ours)) continue;
      if (most == nullptr || key.threads > most->ours->key.threads) most = &pair;
    }
    if (most != nullptr) return most;
  }
  return nullptr;
}

// The latency of a put as a multiple of P; else the bandwidth as a share of a copy's.
const BenchRecord* beside_the_limit(const std::vector<BenchRecord>& records) {
  const BenchRecord* largest = nullptr;
  for (const BenchRecord& one : records) {
    if (!is_plain(one) || one.key.op != "put") continue;
    if (one.against == "P" && one.key.bench == "pingpong" && one.key.threads == 1) return &one;
    if (one.against != "limit" || one.key.bench != "bandwidth") continue;
    if (largest == nullptr || one.key.size_bytes > largest->key.size_bytes) largest = &one;
  }
  return largest;
}

std::string quiet_words(const std::vector<BenchRecord>& records) {
  std::vector<double> noise;
  for (const BenchRecord& one : records) {
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

double median_p(const std::vector<BenchRecord>& records) {
  std::vector<double> near;
  for (const BenchRecord& one : records) {
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

std::string name_of(const BenchRecord& record) {
  const harness::RecordKey& key = record.key;
  std::string text = key.bench + " " + key.op + " of " + driver::size_text(key.size_bytes) +
                     (key.size_bytes < 1024 ? " bytes, " : ", ") + threads_text(key.threads);
  if (key.processes > 2) text += ", " + std::to_string(key.processes) + " processes";
  const std::string& sharing = key.sharing;
  if (!sharing.empty() && sharing != "exclusive" && sharing != "own" && sharing != "none") text += ", " + sharing;
  if (key.memory != "allocated") text += ", " + key.memory;
  if (record.distance != "near") text += ", cores " + record.distance;
  return text;
}

bool is_peer(const BenchRecord& record) {
  return !harness::is_heddle(record.key) && record.key.transport != "limit";
}

std::vector<std::string> answer(const std::vector<BenchRecord>& records) {
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
  if (const BenchRecord* const limit = beside_the_limit(records)) {
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

std::vector<std::string> verdict(const std::vector<BenchRecord>& records) {
  std::set<std::string> peers;
  for (const BenchRecord& record : records) {
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
  for (const BenchRecord& one : results.records) {
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
  for (const BenchRecord& old : before.records) {
    if (!old.against.empty()) continue;
    const auto now = std::find_if(after.records.begin(), after.records.end(), [&](const BenchRecord& one) {
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
