// One file from those of the ranks.
#pragma once

#include <string>
#include <vector>

#include "base/error.hpp"

namespace heddle::observe::trace {

enum class Parts : bool { keep, remove };

// Writes PATH from PATH.rank…, and says so on standard error, as `who`. ARGUMENT: there is nothing
// to be read, or PATH cannot be written; the files of the ranks are left then.
base::Status merge(const std::string& path, Parts parts, const char* who);
// Tells of files with such names that are not of this job. They stay.
void tell_others(const std::vector<std::string>& others, const char* who);
// The names of PATH.rank… that are there, as a list for people; empty: there are none.
[[nodiscard]] std::string left(const std::string& path);

}  // namespace heddle::observe::trace
