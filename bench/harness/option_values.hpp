// Values of options on a command line, for those who read options.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::bench::harness {

// The line that follows what was wrong with the words of a command.
inline constexpr const char* kHelpHint = "`heddle bench --help` lists what can be measured, and the options\n";

// At commas.
inline std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    parts.emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return parts;
}

// "--size=8": the option, and its value in *value; else the word, and *value stays.
inline std::string_view split_value(std::string_view word, const char** value) {
  const std::size_t equals = word.find('=');
  if (!word.starts_with("--") || equals == std::string_view::npos) return word;
  *value = word.data() + equals + 1;  // words of a command line end with a null
  return word.substr(0, equals);
}

// False: not a number from low to high.
inline bool parse_number(std::string_view text, std::uint32_t low, std::uint32_t high, std::uint32_t* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc{} && end == text.data() + text.size() && *out >= low && *out <= high;
}

}  // namespace heddle::bench::harness
