#include "bootstrap/pmi/line.hpp"

#include <algorithm>
#include <charconv>
#include <system_error>

namespace heddle::bootstrap::pmi {
namespace {

constexpr std::string_view kCommand = "cmd";

template <class T>
bool parse_number(std::string_view text, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc{} && end == text.data() + text.size();
}

// Splits off the text before the next `mark`; false: there is none.
bool cut(std::string_view* rest, char mark, std::string_view* field) {
  const std::size_t at = rest->find(mark);
  if (at == std::string_view::npos) return false;
  *field = rest->substr(0, at);
  rest->remove_prefix(at + 1);
  return true;
}

}  // namespace

std::optional<Line> Line::parse(std::string_view text) {
  const auto printable = [](char c) { return c >= ' ' && c <= '~'; };
  if (text.size() > kMaxLine || !std::all_of(text.begin(), text.end(), printable)) return std::nullopt;
  Line line;
  while (!text.empty()) {
    const std::size_t blank = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, blank);
    text.remove_prefix(std::min(blank + 1, text.size()));
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos) continue;
    line.fields_.emplace_back(word.substr(0, equals), word.substr(equals + 1));
  }
  if (line.fields_.empty() || line.fields_.front().first != kCommand) return std::nullopt;
  return line;
}

std::optional<std::string_view> Line::field(std::string_view name) const {
  for (const auto& [key, value] : fields_) {
    if (key == name) return value;
  }
  return std::nullopt;
}

std::optional<long> Line::number(std::string_view name) const {
  const auto text = field(name);
  long value = 0;
  if (!text || !parse_number(*text, &value)) return std::nullopt;
  return value;
}

bool maps_to_one_node(std::string_view mapping) {
  constexpr std::string_view kStart = "(vector,";
  if (mapping.substr(0, kStart.size()) != kStart) return false;
  mapping.remove_prefix(kStart.size());
  bool any = false;
  while (!mapping.empty() && mapping.front() == '(') {
    mapping.remove_prefix(1);
    std::string_view first;
    std::string_view nodes;
    std::string_view ranks;
    long node = -1;
    long count = 0;
    if (!cut(&mapping, ',', &first) || !cut(&mapping, ',', &nodes) || !cut(&mapping, ')', &ranks)) return false;
    if (!parse_number(first, &node) || !parse_number(nodes, &count) || node != 0 || count != 1) return false;
    any = true;
    if (!mapping.empty() && mapping.front() == ',') mapping.remove_prefix(1);
  }
  return any && mapping == ")";
}

}  // namespace heddle::bootstrap::pmi
