#include "harness/collective_options.hpp"

#include <algorithm>

#include "base/config.hpp"
#include "base/nearest.hpp"
#include "harness/option_values.hpp"

namespace heddle::bench::harness {

const char* const kCollectiveUsage = R"(
Collective operations:

  barrier, broadcast, reduce, allreduce, reduce_scatter, scan, gather, gatherv, allgather, allgatherv, scatter, scatterv,
  alltoall, alltoallv, neighbor_alltoallv
                           times as CSV: what init and start take, wait, and all, from when the last member has begun
                           to when the last one has ended; and all of it with a computation of that length between
                           start and wait. With barrier and two ranks also barriers one after another beside a cache
                           line that goes to and fro. Blocks are all equal, those in lists (…v) too; neighbours are a
                           ring, a block to each side
  tune                     every algorithm of the operations, and a table of the fastest for HEDDLE_COLLECTIVE_TABLE

Options of collectives:

  --ranks 2,4              processes; one job of each (inside a job: all that there are)
  --size 8,4K,1M           bytes of a block (default: 8, 64, then 1K to --max by powers of 4)
  --max 128M               (default 16M)
  --form FORM,…            persistent, nonblocking, blocking (default: all)
  --algorithm NAME         of persistent ones, such as broadcast.binomial (heddle info --schedule list)
  --memory KIND            allocated (default) or own
  --repeat R               repeats (default 5)
  --time MS                time of one repeat in milliseconds (default 20)
  --overlap yes|no         measure with a computation too (default yes)

Options of tune:

  --ranks 2,4              processes; one job of each
  --size 8,4K,1M           bytes of a block (default and --max as above)
  --repeat R, --time MS    as above
  --output FILE            the table (default heddle-collectives.txt)
)";

namespace {

constexpr std::uint64_t kMaxSize = std::uint64_t{1} << 28;

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool size_of(std::string_view text, std::uint64_t* out) {
  const auto bytes = base::parse_bytes(text);
  if (!bytes || *bytes == 0 || *bytes % 8 != 0 || *bytes > kMaxSize) return false;
  *out = *bytes;
  return true;
}

// What is wrong with a word that is neither an operation nor an option with a value of its own.
std::string refusal(std::string_view word, const char* value) {
  const std::vector<std::string_view> options = base::options_in(kCollectiveUsage);
  if (std::find(options.begin(), options.end(), word) == options.end()) {
    if (word.starts_with("-")) return "unknown option " + std::string(word) + base::did_you_mean(word, options);
    return std::string(word) + " is not a collective operation" +
           base::did_you_mean(word, {kCollectiveNames.begin(), kCollectiveNames.end()});
  }
  if (value == nullptr) return std::string(word) + " needs a value";
  return std::string(word) + " " + value + " is not understood";
}

// False: the value is none of this option.
bool set_option(std::string_view name, const char* given, std::uint64_t* max, CollectiveOptions* to) {
  const std::string_view value = given == nullptr ? "" : given;
  const std::vector<std::string> list = split(value);
  if (list.empty()) return false;
  if (name == "--form") {
    to->forms = list;
    return std::all_of(list.begin(), list.end(), [](const auto& item) { return contains(kCollectiveForms, item); });
  }
  if (name == "--ranks") {
    to->ranks.resize(list.size());
    for (std::size_t i = 0; i < list.size(); ++i)
      if (!parse_number(list[i], 1, 64, &to->ranks[i])) return false;
    return true;
  }
  if (name == "--size") {
    to->sizes.resize(list.size());
    for (std::size_t i = 0; i < list.size(); ++i)
      if (!size_of(list[i], &to->sizes[i])) return false;
    return true;
  }
  if (name == "--max") return size_of(value, max);
  if (name == "--repeat") return parse_number(value, 1, 1000, &to->repeat);
  if (name == "--algorithm") {
    to->algorithm = value;
    return true;
  }
  if (name == "--memory") {
    to->memory = value;
    return value == "allocated" || value == "own";
  }
  if (name == "--overlap") {
    to->overlap = value == "yes";
    return value == "yes" || value == "no";
  }
  std::uint32_t milliseconds = 0;
  if (name != "--time" || !parse_number(value, 1, 10'000, &milliseconds)) return false;
  to->target_ns = std::uint64_t{milliseconds} * 1'000'000;
  return true;
}

}  // namespace

bool is_collective_name(std::string_view name) {
  return contains(kCollectiveNames, name);
}

std::optional<CollectiveOptions> parse_collective_options(int argc, char** argv, std::string* error) {
  CollectiveOptions options;
  std::uint64_t max = std::uint64_t{1} << 24;
  for (int i = 1; i < argc; ++i) {
    const char* value = nullptr;
    const std::string_view word = split_value(argv[i], &value);
    const bool has_value = value != nullptr;
    if (is_collective_name(word)) {
      options.names.emplace_back(word);
      continue;
    }
    if (!has_value && i + 1 < argc) value = argv[i + 1];
    if (!set_option(word, value, &max, &options)) {
      *error = refusal(word, value);
      return std::nullopt;
    }
    if (!has_value) ++i;
  }
  if (options.names.empty()) {
    *error = "no operation is named";
    return std::nullopt;
  }
  const std::string& algorithm = options.algorithm;
  if (!algorithm.empty() && !contains(options.names, algorithm.substr(0, algorithm.find('.')))) {
    *error = "--algorithm " + algorithm + " is of none of the operations that are named";
    return std::nullopt;
  }
  if (!algorithm.empty() && !contains(options.forms, "persistent")) {
    *error = "--algorithm is for the persistent form; HEDDLE_COLLECTIVE_ALGORITHMS is for all";
    return std::nullopt;
  }
  if (options.sizes.empty()) {
    options.sizes = {8, 64};
    for (std::uint64_t size = 1024; size <= max; size *= 4) options.sizes.push_back(size);
  }
  return options;
}

}  // namespace heddle::bench::harness
