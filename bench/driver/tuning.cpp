#include "driver/tuning.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <optional>

#include "driver/spawn.hpp"
#include "harness/collective_options.hpp"
#include "harness/cores.hpp"
#include "harness/option_values.hpp"
#include "harness/statistics.hpp"

namespace heddle::bench::driver {

using collective::Algorithm;
using collective::Operation;
using collective::SelectionTable;
using Rows = std::vector<SelectionTable::Row>;

namespace {

constexpr std::uint64_t kSilenceNs = 120'000'000'000;

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

// What is asked: as other measurements of collectives, and where the table goes.
struct Asked {
  harness::CollectiveOptions options;
  std::string output = "heddle-collectives.txt";
};

std::optional<Asked> parse(int argc, char** argv, std::string* error) {
  Asked asked;
  std::vector<char*> rest = {argv[0]};
  bool named = false;
  for (int i = 2; i < argc; ++i) {
    const char* value = nullptr;
    const std::string_view word = harness::split_value(argv[i], &value);
    named = named || harness::is_collective_name(word);
    for (const char* fixed : {"--form", "--algorithm", "--memory"}) {
      if (word != fixed) continue;
      *error = std::string(word) + " is not for tune, which tries all of them";
      return std::nullopt;
    }
    if (word != "--output") {
      rest.push_back(argv[i]);
      continue;
    }
    if (value == nullptr && ++i < argc) value = argv[i];
    if (value == nullptr || *value == '\0') {
      *error = "--output needs a file";
      return std::nullopt;
    }
    asked.output = value;
  }
  std::vector<std::string> names = harness::kCollectiveNames;
  if (!named)
    for (std::string& name : names) rest.push_back(name.data());
  auto options = harness::parse_collective_options(static_cast<int>(rest.size()), rest.data(), error);
  if (!options) return std::nullopt;
  asked.options = *options;
  std::sort(asked.options.ranks.begin(), asked.options.ranks.end());
  return asked;
}

class Tuning {
 public:
  explicit Tuning(const Asked& asked) : asked_(asked) {}

  // False: a job failed.
  bool run() {
    for (const std::string& name : asked_.options.names)
      for (const bool kept : {false, true})
        if (!measure(name, kept)) return false;
    return true;
  }
  [[nodiscard]] const Rows& rows() const { return rows_; }

 private:
  bool measure(const std::string& name, bool kept) {
    std::vector<Measured> all;
    for (const std::uint32_t ranks : asked_.options.ranks) {
      std::cerr << "# " << name << (kept ? ", blocking, " : ", persistent, ") << ranks << " ranks\n";
      Measured& measured = all.emplace_back();
      measured.kept = kept;
      measured.ranks = ranks;
      for (std::uint32_t round = 0; round < asked_.options.repeat; ++round)
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
    const std::string own = own_path();
    const char* binding = measured->ranks <= harness::Cores::allowed().count() ? "core" : "none";
    std::string sizes;
    for (const std::uint64_t size : asked_.options.sizes) sizes += (sizes.empty() ? "" : ",") + std::to_string(size);
    const std::string milliseconds = std::to_string(asked_.options.target_ns / 1'000'000);
    const Program program{"tune",
                          {own, "run", "-n", std::to_string(measured->ranks), "--bind", binding, own, "bench", name,
                           "--form", measured->kept ? "blocking" : "persistent", "--size", sizes, "--repeat", "1",
                           "--time", milliseconds, "--overlap", "no"},
                          {std::string("HEDDLE_COLLECTIVE_ALGORITHMS=") + algorithm.name, "HEDDLE_COLLECTIVE_TABLE="}};
    return driver::run(program, kSilenceNs, [&](const std::string& line) { read_line(line, algorithm, measured); }) ==
           0;
  }

  // As CollectiveTimes prints them.
  static void read_line(const std::string& line, const Algorithm& algorithm, Measured* measured) {
    constexpr std::size_t kAlgorithm = 3;
    constexpr std::size_t kBytes = 5;
    constexpr std::size_t kTotal = 9;
    const std::vector<std::string> columns = harness::split(line);
    const char* form = measured->kept ? "blocking" : "persistent";
    if (columns.size() <= kTotal || columns[0] != "heddle" || columns[2] != form) return;
    // it cannot be done that way here
    if (columns[kAlgorithm] != "-" && columns[kAlgorithm] != algorithm.name) return;
    measured->times_ns[std::stoull(columns[kBytes])][&algorithm].push_back(std::stod(columns[kTotal]));
  }

  const Asked& asked_;
  Rows rows_;
};

bool write(const std::string& path, const Asked& asked, const Rows& rows) {
  std::ofstream file(path);
  file << "# Collectives: which algorithm is fastest where, as `heddle bench tune` has measured with";
  for (const std::uint32_t ranks : asked.options.ranks) file << ' ' << ranks;
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

int run_tuning(int argc, char** argv) {
  if (std::getenv("HEDDLE_LOCAL_RANK") != nullptr) {
    std::cerr << "heddle bench tune starts its own jobs: call it outside of one\n";
    return 2;
  }
  std::string error;
  const auto asked = parse(argc, argv, &error);
  if (!asked) {
    std::cerr << "heddle bench tune: " << error << '\n' << harness::kHelpHint;
    return 2;
  }
  if (!std::ofstream(asked->output, std::ios::app)) {
    std::cerr << "heddle bench tune: --output " << asked->output << " cannot be written\n";
    return 1;
  }
  Tuning tuning(*asked);
  if (!tuning.run()) {
    std::cerr << "heddle bench tune: a job failed; no table was written\n";
    return 1;
  }
  if (!write(asked->output, *asked, tuning.rows())) {
    std::cerr << "heddle bench tune: " << asked->output << " cannot be written\n";
    return 1;
  }
  std::cout << tuning.rows().size() << " rows in " << asked->output << "; use it with HEDDLE_COLLECTIVE_TABLE\n";
  return 0;
}

}  // namespace heddle::bench::driver
