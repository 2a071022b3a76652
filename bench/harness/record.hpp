// Records of measurements, files of them, and comparisons as in papers.
//
// A record has the key of a measurement and the samples of all its repeats. Records travel as JSON
// from the participants (Heddle, its peers, the limit) to the driver, into files and into the
// report.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::bench::harness {

// The measured task. Two participants' figures are comparable if everything except transport,
// sharing and workers is equal.
struct RecordKey {
  std::string bench;  // one of kUsualNames, kOtherNames
  std::string op;     // put, get, am, fadd, …
  // heddle's ("heddle ucx" where a peer has that name), a peer's name, or "limit"
  std::string transport;
  std::string sharing;               // exclusive; of peers: own, shared, none
  std::string memory = "allocated";  // allocated (direct), registered (malloc'd), adopted
  std::string metric;                // latency, rate, bandwidth, cycles
  std::string unit;                  // ns, Mop/s, GB/s, cycles
  std::uint32_t processes = 2;
  std::uint32_t threads = 1;
  std::uint32_t workers = 1;
  std::uint64_t size_bytes = 8;
  auto operator<=>(const RecordKey&) const = default;
};

// How the machine stood around a repeat: P near and steady; far throughout; or moved in the middle.
enum class Distance : std::uint8_t { near, far, changed };
const char* distance_name(Distance distance);

struct Sample {
  RecordKey key;
  double value = 0;
  double p_ns = 0;  // the mean of P before and after
  Distance distance = Distance::near;
  bool verified = true;
};

struct BenchRecord {
  RecordKey key;
  double median = 0;
  double low95 = 0;
  double high95 = 0;
  double best = 0;    // of the repeats
  double slow99 = 0;  // 99 % of them are as fast, or faster
  std::uint64_t repeats = 0;
  double p_ns = 0;
  std::string distance;  // near; close, far or changed if repeating did not help
  bool verified = true;  // results were checked and right (gups: the error bound held)
  std::string against;   // a peer, or "limit"; empty (null in JSON): none
  double ratio = 0;      // this / against, whichever of the two is better
};

// One line of JSON without newline, and back. Empty optional: the line is not well formed, or a
// member is missing or of another type; *error says which.
std::string to_json(const Sample& sample);
std::optional<Sample> sample_from(std::string_view line, std::string* error);

// One record per key, in order of first appearance: over the samples taken while P was near, or
// over all where none was. "Near" means near the session's usual P as well: a machine may also run
// both cores on one physical core for a while (close: P is less than half), and figures of that
// time compare with nothing else.
std::vector<BenchRecord> aggregate(const std::vector<Sample>& samples);

// For programs, samples taken while the cores were near and samples taken while they were far are
// two records, so that neither hides the other. Samples during which the distance changed count
// only if there are no others.
std::vector<BenchRecord> aggregate_apart(const std::vector<Sample>& samples);

// For every Heddle record the same record again for each comparable figure of a peer and of the
// limit, with ratio; for programs, for each figure at the same distance. Latencies of a whole
// transfer are also compared with P itself.
std::vector<BenchRecord> with_ratios(const std::vector<BenchRecord>& records);

// True if the two figures are of the same task. The participant and the number of workers do not
// count.
bool comparable(const RecordKey& ours, const RecordKey& other);

// The peer's record that a record with a ratio is `against`; null: it is no peer's.
const BenchRecord* peer_of(const BenchRecord& ratio, const std::vector<BenchRecord>& records);

// Compares a figure with another one: level if the 95 % intervals overlap, or if one has fewer than
// 3 repeats.
enum class Standing : std::uint8_t { ahead, level, behind };
Standing standing(const BenchRecord& ours, const BenchRecord& other);

// True if a larger value of this metric is the better one.
bool larger_is_better(std::string_view metric);
// True for transports that are Heddle's own.
bool is_heddle(const RecordKey& key);
// The value of `against` in ratios to this peer's figure.
std::string peer_name(const RecordKey& key);

// The result of a session as a file of JSON lines: first where, when and how it was measured, then
// a record in each line.
//
// {"heddle_bench": 2, "date": "…", "machine": "…", "cores": 2, "load": 0.3, "version": "0.1.0",
// "command": "heddle bench …"}
// {"bench": "rate", "op": "put", …}

struct Origin {
  std::string date;     // local time with its distance from UTC
  std::string machine;  // processor and kernel
  std::string version;  // of Heddle
  std::string command;
  double cores = 0;  // that the processes may use
  double load = 0;   // of the machine at the beginning: programs that ran or were ready to
};

struct Results {
  Origin origin;
  std::vector<BenchRecord> records;
};

// Now, on this machine.
Origin origin_of(const std::string& command, std::size_t cores);

// True if other programs took so much of the machine that the figures are worse than they are.
bool was_loaded(const Origin& origin);

std::string to_json(const Results& results);

// Reads the lines, and format 1 of earlier releases, which was one object. Empty optional: *error
// says what is wrong, and in which line (format 1: which record).
std::optional<Results> results_from(std::string_view text, std::string* error);

// The comparisons of measurements from papers: with figures of the paper, and with other figures of
// the same run.

// fairness: messages of a run that fall to each thread, 1050 / 8
inline constexpr double kFairnessEven = 131.25;

// Appends `ours` again, once for each comparison that its paper makes.
//   overhead (LLCL)  posting in cycles / theirs; the rate / the best over all numbers of threads;
//                    latency / that of a worker for each thread, and what it adds to that in P
//   fairness (UCCS)  the standard deviation between threads / an even share
//   duplex (UCCS)    threads / as many processes
//   convolution (PIOMan)  a progress policy / none
//   overlap (PIOMan, also of peers)  who computes: the whole / the longer of computing and
//                                    communicating alone, / their sum
// Of no paper:
//   network_*   offload / posting by the threads themselves, to one worker and to workers of their
//               own
//   mixed_job   two transports / shm alone
//   OpenSHMEM over Heddle   the default context / a context for each thread
void add_paper_ratios(const BenchRecord& ours, const std::vector<BenchRecord>& records, std::vector<BenchRecord>* out);

}  // namespace heddle::bench::harness
