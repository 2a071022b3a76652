#include "base/nearest.hpp"

#include <algorithm>
#include <cctype>

#include "base/config.hpp"

namespace heddle::base {
namespace {

// longer words are no misspelt names, and are not worth the time
constexpr std::size_t kLongest = 64;

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return out;
}

// Letters inserted, left out, changed, or swapped with their neighbours.
std::size_t distance(const std::string& from, const std::string& to) {
  std::vector<std::vector<std::size_t>> steps(from.size() + 1, std::vector<std::size_t>(to.size() + 1));
  for (std::size_t i = 0; i <= from.size(); ++i) {
    for (std::size_t j = 0; j <= to.size(); ++j) {
      if (i == 0 || j == 0) {
        steps[i][j] = i + j;
        continue;
      }
      const std::size_t changed = from[i - 1] == to[j - 1] ? 0 : 1;
      std::size_t least = std::min({steps[i - 1][j] + 1, steps[i][j - 1] + 1, steps[i - 1][j - 1] + changed});
      if (i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1]) {
        least = std::min(least, steps[i - 2][j - 2] + 1);
      }
      steps[i][j] = least;
    }
  }
  return steps[from.size()][to.size()];
}

// The common beginning of all names ("--", "HEDDLE_") does not tell which of them was meant.
std::size_t common_beginning(std::string_view word, const std::vector<std::string_view>& names) {
  std::size_t common = 0;
  const auto agrees = [&](std::string_view name) { return name.size() > common && name[common] == word[common]; };
  while (common < word.size() && std::all_of(names.begin(), names.end(), agrees)) ++common;
  return common;
}

}  // namespace

std::string_view nearest(std::string_view word, const std::vector<std::string_view>& names) {
  if (word.size() > kLongest) return "";
  const std::size_t common = common_beginning(word, names);
  const std::string wanted = lower(word.substr(common));
  std::string_view best;
  std::string_view begun;
  std::size_t beginners = 0;
  std::size_t least = kLongest;
  for (const std::string_view name : names) {
    const std::string known = lower(name.substr(std::min(common, name.size())));
    if (wanted.size() >= 2 && known.starts_with(wanted)) {
      begun = name;
      ++beginners;
    }
    const std::size_t most = std::max(wanted.size(), known.size()) / 3;
    const std::size_t steps = distance(wanted, known);
    if (steps <= most && steps < least) {
      least = steps;
      best = name;
    }
  }
  return best.empty() && beginners == 1 ? begun : best;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& names) {
  const std::string_view name = nearest(word, names);
  return name.empty() ? "" : "; did you mean " + std::string(name) + "?";
}

std::vector<std::string_view> options_in(std::string_view help) {
  std::vector<std::string_view> options;
  for (std::size_t at = help.find("--"); at != std::string_view::npos; at = help.find("--", at)) {
    const std::size_t end = std::min(help.find_first_not_of("abcdefghijklmnopqrstuvwxyz-", at), help.size());
    if (end > at + 2) options.push_back(help.substr(at, end - at));
    at = end;
  }
  return options;
}

std::string_view nearest_variable(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Variable& variable : variables()) names.emplace_back(variable.name);
  return nearest(name, names);
}

}  // namespace heddle::base
