#include "driver/tuning.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>

#include "base/commands.hpp"
#include "driver/participants.hpp"
#include "harness/channel.hpp"
#include "harness/cores.hpp"
#include "harness/record.hpp"
#include "harness/statistics.hpp"

namespace heddle::bench::driver {

using Rows = std::vector<TableRow>;

namespace {

constexpr std::uint64_t kTuneSilenceNs = 120'000'000'000;

template <class Number>
Number between(Number below, Number above) {
  return static_cast<Number>(std::sqrt(static_cast<double>(below) * static_cast<double>(above)));
}

// `before`: the algorithm of the previous size; "": there is none.
std::string fastest_of(const std::map<std::string, std::vector<double>>& times, const std::string& before) {
  constexpr double kNoise = 0.97;
  std::string best;
  double best_ns = 0;
  for (const auto& [algorithm, all] : times) {
    const double ns = harness::median_of(all);
    if (best.empty() || ns < best_ns) {
      best = algorithm;
      best_ns = ns;
    }
  }
  const auto known = times.find(before);
  return known != times.end() && best_ns > kNoise * harness::median_of(known->second) ? before : best;
}

Rows rows_of(const Measured& measured, std::uint32_t ranks) {
  Rows rows;
  std::string before;
  std::uint64_t last = 0;
  for (const auto& [bytes, times] : measured.times_ns) {
    if (times.empty()) continue;
    const std::string best = fastest_of(times, before);
    if (best != before && !rows.empty()) rows.back().bytes = between(last, bytes);
    if (best != before) rows.push_back({measured.operation, measured.kept, ranks, TableRow::kAnyBytes, best});
    before = best;
    last = bytes;
  }
  return rows;
}

// Asks `heddle info --schedule`, which knows the algorithms: its exit status, and the first word of
// each line. What it says of wrong arguments is not shown.
int ask_schedules(const std::vector<std::string>& arguments, std::vector<std::string>* words) {
  Program program{"info", {"sh", "-c", "exec \"$0\" info --schedule \"$@\" 2>/dev/null", own_path()}, {}};
  program.arguments.insert(program.arguments.end(), arguments.begin(), arguments.end());
  return driver::run(program, kTuneSilenceNs,
                     [&](const std::string& line) { words->push_back(line.substr(0, line.find(' '))); });
}

class Tuning {
 public:
  Tuning(const harness::BenchOptions& options, harness::Channel& channel) : options_(options), channel_(channel) {
    std::sort(options_.ranks.begin(), options_.ranks.end());
    options_.channel = channel.path();
    options_.overlap = false;
  }

  // False: a job failed.
  bool run() {
    if (ask_schedules({"list"}, &algorithms_) != 0 || algorithms_.empty()) {
      std::cerr << "heddle bench tune: heddle info --schedule list names no algorithms\n";
      return false;
    }
    for (const std::string& name : options_.names)
      for (const bool kept : {false, true})
        if (!measure(name, kept)) return false;
    return true;
  }
  [[nodiscard]] const Rows& rows() const { return rows_; }

 private:
  bool measure(const std::string& name, bool kept) {
    std::vector<Measured> all;
    for (const std::uint32_t ranks : options_.ranks) {
      std::cerr << "# " << name << (kept ? ", blocking, " : ", persistent, ") << ranks << " ranks\n";
      Measured& measured = all.emplace_back();
      measured.kept = kept;
      measured.ranks = ranks;
      for (std::uint32_t round = 0; round < options_.repeat; ++round)
        for (const std::string& algorithm : algorithms_)
          if (algorithm.starts_with(name + ".") && !run_job(name, algorithm, &measured)) return false;
    }
    for (const TableRow& row : fastest(all)) {
      std::cerr << line(row) << '\n';
      rows_.push_back(row);
    }
    return true;
  }

  bool run_job(const std::string& name, const std::string& algorithm, Measured* measured) {
    measured->operation = name;
    std::vector<std::string> schedule;
    const int status = ask_schedules({algorithm, "--ranks", std::to_string(measured->ranks), "--rank", "0"}, &schedule);
    if (status == base::kUsageCode) return true;  // not with so many ranks
    if (status != 0) return false;
    harness::BenchOptions one = options_;
    one.names = {name};
    one.forms = {measured->kept ? "blocking" : "persistent"};
    const std::string own = own_path();
    const char* binding = measured->ranks <= harness::Cores::allowed().count() ? "core" : "none";
    Program program{"tune",
                    {own, "run", "-n", std::to_string(measured->ranks), "--bind", binding, own, "bench"},
                    {"HEDDLE_COLLECTIVE_ALGORITHMS=" + algorithm, "HEDDLE_COLLECTIVE_TABLE="}};
    const std::vector<std::string> words = harness::participant_arguments(one, 1);
    program.arguments.insert(program.arguments.end(), words.begin(), words.end());
    channel_.reset();
    const auto read = [&](const std::string& line) {
      std::string error;
      const auto sample = harness::sample_from(line, &error);
      if (!sample || sample->key.op != one.forms.front()) return;
      // else it cannot be done that way here
      const bool done = measured->kept || algorithm.ends_with("." + sample->key.sharing);
      if (done) measured->times_ns[sample->key.size_bytes][algorithm].push_back(sample->value);
    };
    return driver::run(program, kTuneSilenceNs, read) == 0;
  }

  harness::BenchOptions options_;
  harness::Channel& channel_;
  std::vector<std::string> algorithms_;
  Rows rows_;
};

bool write(const harness::BenchOptions& options, const Rows& rows) {
  std::ofstream file(options.output);
  file << "# Collectives: which algorithm is fastest where, as `heddle bench tune` has measured with";
  for (const std::uint32_t ranks : options.ranks) file << ' ' << ranks;
  file << " ranks on one machine.\n# Use it with HEDDLE_COLLECTIVE_TABLE=FILE.\n";
  file << "# operation buffers ranks(up to) bytes(up to) algorithm segment\n";
  for (const TableRow& row : rows) file << line(row) << '\n';
  file.close();
  return !file.fail();
}

}  // namespace

std::string line(const TableRow& row) {
  const auto number = [](std::uint64_t value, std::uint64_t any) { return value == any ? "*" : std::to_string(value); };
  return row.operation + (row.kept ? " kept " : " callers ") + number(row.ranks, TableRow::kAnyRanks) + ' ' +
         number(row.bytes, TableRow::kAnyBytes) + ' ' + row.algorithm + " -";
}

Rows fastest(const std::vector<Measured>& measured) {
  Rows all;
  for (std::size_t i = 0; i < measured.size(); ++i) {
    const bool last = i + 1 == measured.size();
    const std::uint32_t ranks = last ? TableRow::kAnyRanks : between(measured[i].ranks, measured[i + 1].ranks);
    const Rows rows = rows_of(measured[i], ranks);
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

int run_tuning(const harness::BenchOptions& options) {
  if (std::getenv("HEDDLE_LOCAL_RANK") != nullptr) {
    std::cerr << "heddle bench tune starts its own jobs: call it outside of one\n";
    return 2;
  }
  if (!std::ofstream(options.output, std::ios::app)) {
    std::cerr << "heddle bench tune: --output " << options.output << " cannot be written\n";
    return 1;
  }
  auto channel = harness::Channel::create(options.retry_ns);
  if (!channel) {
    std::perror("heddle bench tune: cannot make shared memory");
    return 1;
  }
  Tuning tuning(options, *channel);
  if (!tuning.run()) {
    std::cerr << "heddle bench tune: a job failed; no table was written\n";
    return 1;
  }
  if (!write(options, tuning.rows())) {
    std::cerr << "heddle bench tune: " << options.output << " cannot be written\n";
    return 1;
  }
  std::cout << tuning.rows().size() << " rows in " << options.output << "; use it with HEDDLE_COLLECTIVE_TABLE\n";
  return 0;
}

}  // namespace heddle::bench::driver
