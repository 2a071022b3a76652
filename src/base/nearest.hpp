// For messages about a name that is not known: which of those that are known was probably meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace heddle::base {

// The name that `word` is a misspelling of: the one of the fewest letters inserted, left out,
// changed or swapped with their neighbours, at most one of three; or the only one that begins with
// it. Case does not count. Empty: none is near.
std::string_view nearest(std::string_view word, const std::vector<std::string_view>& names);

// "; did you mean NAME?", or nothing.
std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& names);

// The options, --words, that a help text names: those that an unknown one may be a misspelling of.
std::vector<std::string_view> options_in(std::string_view help);

// The setting that the name of none is a misspelling of; empty: none is near.
std::string_view nearest_variable(std::string_view name);

}  // namespace heddle::base
