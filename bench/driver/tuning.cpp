#include "driver/tuning.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string_view>

#include "driver/participants.hpp"
#include "harness/channel.hpp"
#include "harness/cores.hpp"
#include "harness/record.hpp"
#include "harness/statistics.hpp"

namespace heddle::bench::driver {

using collective::Algorithm;
using collective::Operation;
using collective::SelectionTable;
using Rows = std::vector<SelectionTable::Row>;

namespace {

constexpr std::uint64_t kTuneSilenceNs = 120'000'000'000;

template <class Number>
Number between(Number below, Number above) {
  return static_cast<Number>(std::sqrt(static_cast<double>(below) * static_cast<double>(above)));
}

const Algorithm* fastest_of(const std::map<const Algorithm*, std::vector<double>>& times, const Algorithm* before) {
  constexpr double kNoise = 0.97;
  const Algorithm* best = nullptr;
  double best_ns = 0;
  for (const auto& [algorithm, all] : times) {
    const double ns = harness::median_of(all);
    if (best == nullptr || ns < best_ns) {
      best = algorithm;
      best_ns = ns;
    }
  }
  const auto known = times.find(before);
  return known != times.end() && best_ns > kNoise * harness::median_of(known->second) ? before : best;
}

Rows rows_of(const Measured& measured, collective::Rank ranks) {
  Rows rows;
  const Algorithm* before = nullptr;
  std::uint64_t last = 0;
  for (const auto& [bytes, times] : measured.times_ns) {
    if (times.empty()) continue;
    const Algorithm* best = fastest_of(times, before);
    if (best != before && !rows.empty()) rows.back().bytes = between(last, bytes);
    if (best != before) rows.push_back({measured.operation, measured.kept, ranks, SelectionTable::kAnyBytes, best, 0});
    before = best;
    last = bytes;
  }
  return rows;
}

class Tuning {
 public:
  Tuning(const harness::Options& options, harness::Channel& channel) : options_(options), channel_(channel) {
    std::sort(options_.ranks.begin(), options_.ranks.end());
    options_.channel = channel.path();
    options_.overlap = false;
  }

  // False: a job failed.
  bool run() {
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
        for (const Algorithm& algorithm : collective::algorithms())
          if (name == collective::name_of(algorithm.operation) && !run_job(name, algorithm, &measured)) return false;
    }
    for (const SelectionTable::Row& row : fastest(all)) {
      std::cerr << SelectionTable::line(row) << '\n';
      rows_.push_back(row);
    }
    return true;
  }

  bool run_job(const std::string& name, const Algorithm& algorithm, Measured* measured) {
    measured->operation = algorithm.operation;
    const collective::Request request{algorithm.operation, 0, measured->ranks, 0, 64, 8, 0, {0, 0, 0}};
    if (algorithm.refuses(request) != nullptr) return true;
    harness::Options one = options_;
    one.names = {name};
    one.forms = {measured->kept ? "blocking" : "persistent"};
    const std::string own = own_path();
    const char* binding = measured->ranks <= harness::Cores::allowed().count() ? "core" : "none";
    Program program{"tune",
                    {own, "run", "-n", std::to_string(measured->ranks), "--bind", binding, own, "bench"},
                    {std::string("HEDDLE_COLLECTIVE_ALGORITHMS=") + algorithm.name, "HEDDLE_COLLECTIVE_TABLE="}};
    const std::vector<std::string> words = harness::participant_arguments(one, 1);
    program.arguments.insert(program.arguments.end(), words.begin(), words.end());
    channel_.reset();
    const auto read = [&](const std::string& line) {
      std::string error;
      const auto sample = harness::sample_from(line, &error);
      if (!sample || sample->key.op != one.forms.front()) return;
      // else it cannot be done that way here
      const bool done = measured->kept || std::string(algorithm.name).ends_with("." + sample->key.sharing);
      if (done) measured->times_ns[sample->key.size_bytes][&algorithm].push_back(sample->value);
    };
    return driver::run(program, kTuneSilenceNs, read) == 0;
  }

  harness::Options options_;
  harness::Channel& channel_;
  Rows rows_;
};

bool write(const harness::Options& options, const Rows& rows) {
  std::ofstream file(options.output);
  file << "# Collectives: which algorithm is fastest where, as `heddle bench tune` has measured with";
  for (const std::uint32_t ranks : options.ranks) file << ' ' << ranks;
  file << " ranks on one machine.\n# Use it with HEDDLE_COLLECTIVE_TABLE=FILE.\n";
  file << "# operation buffers ranks(up to) bytes(up to) algorithm segment\n";
  for (const SelectionTable::Row& row : rows) file << SelectionTable::line(row) << '\n';
  file.close();
  return !file.fail();
}

}  // namespace

Rows fastest(const std::vector<Measured>& measured) {
  Rows all;
  for (std::size_t i = 0; i < measured.size(); ++i) {
    const bool last = i + 1 == measured.size();
    const collective::Rank ranks = last ? SelectionTable::kAnyRanks : between(measured[i].ranks, measured[i + 1].ranks);
    const Rows rows = rows_of(measured[i], ranks);
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

int run_tuning(const harness::Options& options) {
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
