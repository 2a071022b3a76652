// For messages about an unknown name: which known name was probably meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace heddle::base {

// The name that `word` is a misspelling of: the one that needs the fewest letters inserted, left
// out, changed or swapped with their neighbours, at most one letter in three; otherwise the only
// name that begins with `word`. Case does not count. Empty: no name is near.
std::string_view nearest(std::string_view word, const std::vector<std::string_view>& names);

// "; did you mean NAME?", or nothing.
std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& names);

// The options (--word) that a help text names, as candidates for did_you_mean().
std::vector<std::string_view> options_in(std::string_view help);

// For a `name` that is no setting: the setting that it is a misspelling of; empty: none is near.
std::string_view nearest_variable(std::string_view name);

}  // namespace heddle::base
