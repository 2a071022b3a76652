#include "driver/driver.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "driver/participants.hpp"
#include "harness/channel.hpp"
#include "harness/cores.hpp"
#include "harness/record.hpp"
#include "harness/session.hpp"
#include "measure/programs.hpp"
#include "report/report.hpp"

namespace heddle::bench::driver {

namespace {

using harness::BenchOptions;
using harness::Sample;

constexpr std::uint64_t kSilenceNs = 60'000'000'000;
// with peers, or two settings to compare: each takes part so many times, in turns
constexpr std::uint32_t kTurns = 3;

// Shows the progress on one line of the terminal, or nothing if there is no terminal.
class Progress {
 public:
  Progress() : shown_(isatty(2) == 1) {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void show(const std::string& name, std::uint32_t turn, std::uint32_t turns, const Sample& sample) {
    if (!shown_) return;
    std::fprintf(stderr, "\r\033[K[%u/%u] %s: %s %s %s, %u thread%s: %.4g %s", turn + 1, turns, name.c_str(),
                 sample.key.bench.c_str(), sample.key.op.c_str(), size_text(sample.key.size_bytes).c_str(),
                 sample.key.threads, sample.key.threads == 1 ? "" : "s", sample.value, sample.key.unit.c_str());
    std::fflush(stderr);
  }
  void clear() {
    if (shown_) std::fputs("\r\033[K", stderr);
  }

 private:
  bool shown_;
};

// The samples that all participants have reported in all turns.
struct Told {
  std::vector<Sample> samples;
  std::set<std::string> left_out;
};

// One turn of one participant. False: it failed.
bool take_turn(const Program& program, std::uint32_t turn, std::uint32_t turns, Progress* progress, Told* told) {
  bool understood = true;
  const int status = run(program, kSilenceNs, [&](const std::string& line) {
    if (line.starts_with(harness::kLeftOut)) told->left_out.insert(line.substr(harness::kLeftOut.size()));
    if (line.empty() || line[0] != '{') return;  // a launcher's own talk
    std::string error;
    const auto sample = harness::sample_from(line, &error);
    if (!sample) {
      std::fprintf(stderr, "heddle bench: %s printed a line that is no sample: %s\n", program.name.c_str(),
                   error.c_str());
      understood = false;
      return;
    }
    progress->show(program.name, turn, turns, *sample);
    told->samples.push_back(*sample);
  });
  if (status != 0) {
    progress->clear();
    std::fprintf(stderr, "heddle bench: %s ended with status %d\n", program.name.c_str(), status);
  }
  return status == 0 && understood;
}

void say_machine(const harness::Cores& cores, const harness::Origin& origin, const BenchOptions& options) {
  std::fprintf(stderr, "heddle bench: cores %s, %s%u repeats of %.0f ms%s\n", cores.text().c_str(),
               options.limit_ns != 0 ? "up to " : "", options.repeat, static_cast<double>(options.target_ns) / 1e6,
               options.quick ? " (quick: not for figures)" : "");
  if (was_loaded(origin)) {
    std::fprintf(
        stderr, "heddle bench: other programs are at work (load %.1f): figures will be worse than on a quiet machine\n",
        origin.load);
  }
  if (cores.count() < 2) {
    std::fputs("heddle bench: only one core may be used: the processes share it and the figures mean little\n", stderr);
  }
}

// With a time limit every figure gets one repeat a turn, so that all sections have the same share
// of the time however far the session comes.
std::uint32_t turns_of(const BenchOptions& options) {
  if (options.limit_ns != 0) return options.repeat;
  const bool beside = options.peers || (!options.names.empty() && harness::wants_bench(options, "mixed_job"));
  return beside ? std::min(kTurns, options.repeat) : 1;
}

// Whether there is time for one turn more, which is taken to last as long as the one before.
class Turns {
 public:
  explicit Turns(std::uint64_t limit_ns) : limit_ns_(limit_ns) {}
  bool another() {
    const std::uint64_t now = harness::now_ns();
    const std::uint64_t last = now - turn_began_;
    turn_began_ = now;
    return limit_ns_ == 0 || now - began_ + last <= limit_ns_;
  }

 private:
  std::uint64_t limit_ns_;
  std::uint64_t began_ = harness::now_ns();
  std::uint64_t turn_began_ = began_;
};

// Checks the file before anything is measured. An older file does not change until there are
// results. If there was none, none is left behind.
bool can_write(const std::string& path) {
  if (path.empty() || path == "-") return true;
  std::error_code error;
  const bool existed = std::filesystem::exists(path, error);
  if (!std::ofstream(path, std::ios::app)) {
    std::fprintf(stderr, "heddle bench: cannot write %s\n", path.c_str());
    return false;
  }
  if (!existed) std::filesystem::remove(path, error);
  return true;
}

}  // namespace

int run_session(const BenchOptions& given) {
  BenchOptions options = given;
  if (!can_write(options.json)) return 1;
  const harness::Cores cores = harness::Cores::allowed();
  options.cores = cores.text();
  auto channel = harness::Channel::create(options.retry_ns);
  if (!channel) {
    std::perror("heddle bench: cannot make shared memory");
    return 1;
  }
  options.channel = channel->path();
  const std::uint32_t turns = turns_of(options);
  const Busy busy(*channel, cores, options.busy);
  const Participants all = participants(options, (options.repeat + turns - 1) / turns);
  const harness::Origin origin = harness::origin_of(options.command, cores.count());
  say_machine(cores, origin, options);
  for (const std::string& line : all.missing) std::fprintf(stderr, "heddle bench: without %s\n", line.c_str());

  Told told;
  bool good = true;
  {
    Progress progress;
    Turns time(options.limit_ns);
    for (std::uint32_t turn = 0; turn < turns && time.another(); ++turn) {
      for (const Program& program : all.programs) {
        channel->reset();
        good = take_turn(program, turn, turns, &progress, &told) && good;
      }
    }
  }
  for (const std::string& line : told.left_out) std::fprintf(stderr, "heddle bench: without %s\n", line.c_str());
  const int status = finish(options, origin, told.samples);
  return good ? status : 1;
}

// Writes the file that options.json names. False: it could not be written, which has been reported.
static bool write_results(const BenchOptions& options, const harness::Results& results) {
  if (options.json == "-") {
    std::fputs(to_json(results).c_str(), stdout);
    if (std::fflush(stdout) == 0) return true;
    std::perror("heddle bench: cannot write to standard output");
    return false;
  }
  std::ofstream file(options.json);
  file << to_json(results);
  file.close();
  if (!file) std::fprintf(stderr, "heddle bench: cannot write %s\n", options.json.c_str());
  return static_cast<bool>(file);
}

int finish(const BenchOptions& options, const harness::Origin& origin, const std::vector<Sample>& samples) {
  const auto of_programs = [](const Sample& sample) { return measure::is_program(sample.key.bench); };
  std::vector<Sample> usual;
  std::vector<Sample> other;
  std::partition_copy(samples.begin(), samples.end(), std::back_inserter(other), std::back_inserter(usual),
                      of_programs);
  std::vector<harness::BenchRecord> records = harness::aggregate(usual);
  const std::vector<harness::BenchRecord> programs = harness::aggregate_apart(other);
  records.insert(records.end(), programs.begin(), programs.end());
  records = harness::with_ratios(records);
  // the results are alone on standard output
  std::FILE* to = options.json == "-" ? stderr : stdout;
  std::fputs(table(records, isatty(fileno(to)) == 1, options.spread).c_str(), to);
  std::fflush(to);
  if (!options.json.empty() && !write_results(options, harness::Results{origin, records})) return 1;
  if (records.empty()) {
    std::fputs("heddle bench: nothing was measured; do --op and --size leave anything over?\n", stderr);
    return 1;
  }
  const bool right = std::all_of(records.begin(), records.end(), [](const auto& record) { return record.verified; });
  if (!right) std::fputs("heddle bench: a result was wrong; see the table\n", stderr);
  return right ? 0 : 1;
}

int run_demo(BenchOptions options) {
  options.sizes = {};
  options.repeat = std::min<std::uint32_t>(options.repeat, 7);
  options.target_ns = 5'000'000;
  options.retry_ns = 3'000'000'000;
  options.limit_ns = 50'000'000'000;
  options.json = "heddle-results.json";
  const int status = run_session(options);
  std::string error;
  if (!report::write_report({options.json}, "heddle-report.html", &error)) {
    std::fprintf(stderr, "heddle bench: %s\n", error.c_str());
    return 1;
  }
  char* path = realpath("heddle-report.html", nullptr);
  std::printf("\nReport: %s\n", path != nullptr ? path : "heddle-report.html");
  std::free(path);
  return status;
}

namespace {

using harness::BenchRecord;

// below, a figure is shown without interval and without ratio
constexpr std::uint64_t kLeastRepeats = 3;
constexpr std::size_t kOpWidth = 34;  // of "persistent_overlapped, 8 processes"
constexpr const char* kLegend =
    "\nP: half the round trip of a word between two cache lines, one written by each core, around each repeat. (far), "
    "(close): all repeats while P was far above or below the usual; (changed): P changed meanwhile. "
    "On a terminal a ratio is coloured where the 95 % intervals are apart.\n";

std::string figure_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value >= 1000 ? "%.0f" : value >= 100 ? "%.1f" : "%.2f", value);
  return text;
}

std::string padded(std::string text, std::size_t width) {
  // Width counts characters, not bytes; the only longer ones here are × and –.
  const auto continuation = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; };
  const auto shown = text.size() - static_cast<std::size_t>(std::count_if(text.begin(), text.end(), continuation));
  if (shown < width) text.append(width - shown, ' ');
  return text;
}

std::string right(const std::string& text, std::size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

std::string ratio_text(const BenchRecord& record, const std::vector<BenchRecord>& records, bool colour) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f× ", record.ratio);
  const std::string plain = text + record.against;
  // Being slower than a physical limit is no defeat.
  const BenchRecord* peer = colour ? harness::peer_of(record, records) : nullptr;
  if (peer == nullptr) return plain;
  const harness::Standing stands = harness::standing(record, *peer);
  if (stands == harness::Standing::level) return plain;
  return (stands == harness::Standing::ahead ? "\033[32m" : "\033[31m") + plain + "\033[0m";
}

// What the repeats tell about the median. Too few repeats tell nothing.
std::string interval_text(const BenchRecord& record, bool spread) {
  if (record.repeats >= kLeastRepeats) {
    return "[" + figure_text(spread ? record.best : record.low95) + "–" +
           figure_text(spread ? record.slow99 : record.high95) + "]";
  }
  return "[" + std::to_string(record.repeats) + (record.repeats == 1 ? " repeat]" : " repeats]");
}

std::string row(const BenchRecord& record, const std::string& ratios, bool spread) {
  const harness::RecordKey& key = record.key;
  std::string op = key.op;
  // Each is measured in several ways.
  if (key.bench == "atomics" || key.bench == "overhead") op += " " + key.metric;
  if (key.memory == "registered" || key.memory == "adopted" || key.memory == "malloc") op += " (" + key.memory + ")";
  if (key.processes > 2) op += ", " + std::to_string(key.processes) + " processes";
  std::string line = "  " + padded(op, kOpWidth) +
                     padded(key.transport + (key.sharing == "exclusive" || key.sharing == "own" ||
                                                     key.sharing == "none" || key.sharing == "multiple"
                                                 ? ""
                                                 : " " + key.sharing),
                            18) +
                     right(size_text(key.size_bytes), 8) + right(std::to_string(key.threads), 4) + "   " +
                     right(figure_text(record.median), 9) + " " + padded(key.unit, 10) +
                     padded(interval_text(record, spread), 20) + right(figure_text(record.p_ns), 7) + "  ";
  if (record.distance != "near") line += "(" + record.distance + ") ";
  if (!record.verified) line += "WRONG RESULT ";
  line += ratios;
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line + "\n";
}

}  // namespace

std::string size_text(std::uint64_t bytes) {
  if (bytes >= (1U << 20) && bytes % (1U << 20) == 0) return std::to_string(bytes >> 20) + " MiB";
  if (bytes >= 1024 && bytes % 1024 == 0) return std::to_string(bytes >> 10) + " KiB";
  return std::to_string(bytes);
}

std::string table(const std::vector<BenchRecord>& records, bool colour, bool spread) {
  std::string out;
  std::vector<std::string> benches;
  for (const BenchRecord& record : records) {
    if (std::find(benches.begin(), benches.end(), record.key.bench) == benches.end()) {
      benches.push_back(record.key.bench);
    }
  }
  for (const std::string& bench : benches) {
    out += "\n" + padded(bench, kOpWidth + 2) + padded("on", 18) + right("bytes", 8) + right("thr", 4) + "   " +
           right("median", 9) + " " + padded("", 10) + padded(spread ? "[best–99 %]" : "[95 %]", 20) +
           right("P ns", 7) + "  ratios\n";
    for (const BenchRecord& record : records) {
      if (record.key.bench != bench || !record.against.empty()) continue;
      std::string ratios;
      for (const BenchRecord& other : records) {
        const bool its = other.key == record.key && other.distance == record.distance && !other.against.empty();
        if (its && record.repeats >= kLeastRepeats) ratios += ratio_text(other, records, colour) + "  ";
      }
      out += row(record, ratios, spread);
    }
  }
  if (!out.empty()) out += kLegend;
  return out;
}

}  // namespace heddle::bench::driver
