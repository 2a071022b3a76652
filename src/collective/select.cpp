#include "collective/select.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include "base/config.hpp"

namespace heddle::collective {

namespace {

constexpr std::size_t kColumns = 6;

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line.substr(0, line.find('#')));
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

bool read_operation(const std::string& word, Operation* operation) {
  for (std::size_t i = 0; i < static_cast<std::size_t>(Operation::kCount); ++i) {
    *operation = static_cast<Operation>(i);
    if (word == name_of(*operation)) return true;
  }
  return false;
}

bool read_ranks(const std::string& word, Rank* ranks) {
  *ranks = SelectionTable::kAnyRanks;
  if (word == "*") return true;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), *ranks);
  return error == std::errc() && end == word.data() + word.size() && *ranks > 0;
}

bool read_bytes(const std::string& word, const char* none, std::uint64_t absent, std::uint64_t* bytes) {
  *bytes = absent;
  if (word == none) return true;
  const auto given = base::parse_bytes(word);
  if (given) *bytes = *given;
  return given.has_value();
}

// The fault in the words; empty: none, and `row` is set.
std::string read_row(const std::vector<std::string>& words, SelectionTable::Row* row) {
  if (words.size() != kColumns)
    return std::to_string(words.size()) + " words, not the six: operation buffers ranks bytes algorithm segment";
  if (!read_operation(words[0], &row->operation)) return "\"" + words[0] + "\" is no operation";
  row->kept = words[1] == "kept";
  if (!row->kept && words[1] != "callers") return "buffers \"" + words[1] + "\" are neither kept nor callers";
  if (!read_ranks(words[2], &row->ranks)) return "ranks \"" + words[2] + "\" are no number above 0 and not *";
  if (!read_bytes(words[3], "*", SelectionTable::kAnyBytes, &row->bytes))
    return "bytes \"" + words[3] + "\" are no size such as 64K and not *";
  row->algorithm = find_algorithm(words[4]);
  if (row->algorithm == nullptr || row->algorithm->operation != row->operation)
    return "\"" + words[4] + "\" is no algorithm for " + words[0] + "; `heddle info --schedule` lists them";
  if (!read_bytes(words[5], "-", 0, &row->segment_bytes) || row->segment_bytes % 64 != 0)
    return "segment \"" + words[5] + "\" is no multiple of 64 bytes and not -";
  return "";
}

}  // namespace

base::Result<SelectionTable> SelectionTable::read(const std::string& path) {
  if (path.empty()) return SelectionTable();
  std::error_code ignored;
  std::ifstream file;
  if (!std::filesystem::is_directory(path, ignored)) file.open(path);
  std::string text;
  for (std::string line; std::getline(file, line);) text += line + '\n';
  if (!file.is_open() || file.bad())
    return base::fail(HEDDLE_ERR_CONFIG, "HEDDLE_COLLECTIVE_TABLE: %s cannot be read", path.c_str());
  return parse(text, path);
}

base::Result<SelectionTable> SelectionTable::parse(const std::string& text, const std::string& name) {
  SelectionTable table;
  std::istringstream lines(text);
  std::size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const std::vector<std::string> words = words_of(line);
    if (words.empty()) continue;
    Row row;
    if (const std::string wrong = read_row(words, &row); !wrong.empty())
      return base::fail(HEDDLE_ERR_CONFIG, "HEDDLE_COLLECTIVE_TABLE: %s:%zu: %s", name.c_str(), number, wrong.c_str());
    table.rows_.push_back(row);
  }
  return table;
}

std::string SelectionTable::line(const Row& row) {
  const auto number = [](std::uint64_t value, std::uint64_t any, const char* text) {
    return value == any ? std::string(text) : std::to_string(value);
  };
  std::ostringstream line;
  line << name_of(row.operation) << (row.kept ? " kept " : " callers ") << number(row.ranks, kAnyRanks, "*") << ' '
       << number(row.bytes, kAnyBytes, "*") << ' ' << row.algorithm->name << ' ' << number(row.segment_bytes, 0, "-");
  return line.str();
}

const SelectionTable::Row* SelectionTable::find(const AlgorithmRequest& request, std::uint64_t bytes, bool kept,
                                                bool mapped) const {
  const auto fits = [&](const Row& row) {
    return row.operation == request.operation && row.kept == kept && request.ranks <= row.ranks && bytes <= row.bytes &&
           (mapped || !row.algorithm->gets) && row.algorithm->rejects(request) == nullptr;
  };
  const auto found = std::ranges::find_if(rows_, fits);
  return found == rows_.end() ? nullptr : &*found;
}

namespace {

constexpr std::uint64_t kKi = 1024;
// From this size on every rank puts only once, along a chain or a ring, whatever the number of
// ranks.
constexpr std::uint64_t kStreamBytes = 256 * kKi;
constexpr std::uint64_t kDoublingBytes = 16 * kKi;

// True: few ranks and few bytes, so that one rank can serve the others one by one.
constexpr std::uint64_t kFlatBytes = 2 * kKi;
bool flat(const AlgorithmRequest& request) {
  return request.ranks > 2 && request.ranks <= 8 && request.bytes <= kFlatBytes;
}

// True: many ranks and few bytes, so that blocks had better go by way of other ranks: each rank
// meets few others, and puts few, longer blocks.
bool relayed(const AlgorithmRequest& request, std::uint64_t most_bytes) {
  constexpr Rank kDirectRanks = 32;
  return request.ranks > kDirectRanks && request.bytes <= most_bytes;
}
constexpr std::uint64_t kGridBytes = 512;  // each block is copied once more
constexpr std::uint64_t kBruckBytes = 4 * kKi;

const char* usual(const AlgorithmRequest& request, bool reachable, bool mapped) {
  const std::uint64_t bytes = request.bytes;
  switch (request.operation) {
    case Operation::barrier:
      // An additional cache line is cheaper than an additional step; an additional message is not.
      if (mapped && request.ranks > 2) return "barrier.wide";
      return flat(request) ? "barrier.flat" : "barrier.dissemination";
    case Operation::broadcast:
      if (flat(request)) return "broadcast.flat";
      if (mapped && bytes > kKeptBytes && request.ranks <= kFewRanks)
        return reachable ? "broadcast.pull" : request.ranks > 2 ? "broadcast.kept_pull" : "broadcast.kept";
      if (bytes <= kKeptBytes || !reachable) return "broadcast.kept";
      return bytes >= kStreamBytes && request.ranks > 2 ? "broadcast.chain" : "broadcast.binomial";
    case Operation::reduce:
      return "reduce.binomial";
    case Operation::allreduce:
      if (flat(request)) return "allreduce.flat";
      // two meetings of all, instead of log2 n or 2 (n - 1) one after the other
      if (mapped && !reachable && request.ranks > 2 && request.ranks <= kFewRanks && bytes > kFlatBytes)
        return "allreduce.kept";
      return bytes <= kDoublingBytes ? "allreduce.doubling" : reachable ? "allreduce.ring" : "allreduce.kept_ring";
    case Operation::gather:
      return "gather.linear";
    case Operation::allgather:
      if (relayed(request, kBruckBytes)) return "allgather.bruck";
      return bytes <= kKeptBytes || !reachable ? "allgather.kept" : "allgather.ring";
    case Operation::scatter:
      return "scatter.linear";
    case Operation::alltoall:
      if (relayed(request, kGridBytes)) return "alltoall.grid";
      return bytes <= kKeptBytes || !reachable ? "alltoall.kept" : "alltoall.pairwise";
    case Operation::reduce_scatter:
      return mapped && request.ranks <= kFewRanks ? "reduce_scatter.kept" : "reduce_scatter.ring";
    case Operation::allgatherv:
      return "allgatherv.direct";
    case Operation::alltoallv:
      return "alltoallv.direct";
    case Operation::gatherv:
      return "gatherv.direct";
    case Operation::scatterv:
      return "scatterv.direct";
    case Operation::neighbor_alltoallv:
      return "neighbor_alltoallv.direct";
    case Operation::scan:
    case Operation::kCount:
      break;
  }
  return "scan.doubling";
}

}  // namespace

base::Result<Selection> Selection::read(const std::string& names, std::uint64_t segment_bytes, SelectionTable table) {
  Selection selection;
  selection.table_ = std::move(table);
  selection.segment_bytes_ = segment_bytes;
  std::string_view left = names;
  while (!left.empty()) {
    const std::string name(left.substr(0, left.find(',')));
    left.remove_prefix(std::min(left.size(), name.size() + 1));
    const Algorithm* algorithm = find_algorithm(name);
    if (algorithm == nullptr) {
      return base::fail(HEDDLE_ERR_CONFIG,
                        "HEDDLE_COLLECTIVE_ALGORITHMS: \"%s\" is no algorithm; `heddle info --schedule` lists them",
                        name.c_str());
    }
    selection.forced_[static_cast<std::size_t>(algorithm->operation)] = algorithm;
  }
  return selection;
}

base::Result<Selection::Choice> Selection::choose(const Call& call, const AlgorithmRequest& request, bool reachable,
                                                  bool mapped) const {
  const Algorithm* forced = forced_[static_cast<std::size_t>(call.operation)];
  if (forced != nullptr && (forced->rejects(request) != nullptr || (!mapped && forced->gets))) forced = nullptr;
  const SelectionTable::Row* row =
      call.algorithm == nullptr && forced == nullptr
          ? table_.find(request, call.whole != 0 ? call.whole : request.bytes, !reachable, mapped)
          : nullptr;
  if (row != nullptr && call.apart && !row->algorithm->apart) row = nullptr;
  Choice choice{nullptr, call.segment_bytes, call.algorithm != nullptr || forced != nullptr};
  if (choice.segment_bytes == 0 && row != nullptr) choice.segment_bytes = row->segment_bytes;
  if (choice.segment_bytes == 0) choice.segment_bytes = segment_bytes_;
  // Bounds the number of segments: a schedule has commands for each.
  constexpr std::uint64_t kMostSegments = 4096;
  choice.segment_bytes = std::max(choice.segment_bytes, (call.bytes / kMostSegments + 63) / 64 * 64);
  if (call.algorithm != nullptr) {
    choice.algorithm = find_algorithm(call.algorithm);
    if (choice.algorithm == nullptr || choice.algorithm->operation != call.operation) {
      return base::fail(HEDDLE_ERR_ARGUMENT,
                        "\"%s\" is no algorithm for %s; `heddle info --schedule` lists those there are", call.algorithm,
                        name_of(call.operation));
    }
    if (const char* why = choice.algorithm->rejects(request); why != nullptr)
      return base::fail(HEDDLE_ERR_ARGUMENT, "algorithm %s cannot do this: %s", call.algorithm, why);
    if (choice.algorithm->gets && !mapped) {
      return base::fail(HEDDLE_ERR_ARGUMENT, "algorithm %s is for ranks that map each other's memory; these do not",
                        call.algorithm);
    }
    return choice;
  }
  if (forced != nullptr)
    choice.algorithm = forced;
  else
    choice.algorithm = row != nullptr ? row->algorithm : find_algorithm(usual(request, reachable, mapped));
  return choice;
}

bool Selection::may_cut(const AlgorithmRequest& request) const {
  const Algorithm* named = forced_[static_cast<std::size_t>(request.operation)];
  if (named == nullptr)
    if (const auto* row = table_.find(request, request.bytes, true, true); row != nullptr) named = row->algorithm;
  return named == nullptr || named->apart;
}

}  // namespace heddle::collective
