#include "report/words.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <utility>

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
    {"aggregation", "small messages with aggregation and without"},
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
    {"bw", "windows of 64 messages one way, each window answered"},
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

std::string figure_text(const harness::Record& record) {
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

std::string noise_words(const harness::Record& record) {
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

std::string ratio_words(const harness::Record& ours, double ratio, const std::string& against) {
  const bool machine = against == "P" || against == "limit" || against == "P added";
  return times(ratio) + library_name(against) + (ours.key.metric == "latency" && !machine ? "'s time" : "");
}

std::string beside_words(const harness::Record& ours, const harness::Record& peer) {
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

Change change(const harness::Record& before, const harness::Record& after) {
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

}  // namespace heddle::bench::report
