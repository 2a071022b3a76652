#include "collective/selection_table.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>

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

const SelectionTable::Row* SelectionTable::find(const Request& request, std::uint64_t bytes, bool kept,
                                                bool mapped) const {
  const auto fits = [&](const Row& row) {
    return row.operation == request.operation && row.kept == kept && request.ranks <= row.ranks && bytes <= row.bytes &&
           (mapped || !row.algorithm->gets) && row.algorithm->refuses(request) == nullptr;
  };
  const auto found = std::ranges::find_if(rows_, fits);
  return found == rows_.end() ? nullptr : &*found;
}

}  // namespace heddle::collective
