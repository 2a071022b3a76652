// The table at the end of a run.
#pragma once

#include <string>
#include <vector>

#include "harness/record.hpp"

namespace heddle::bench::driver {

// One line per figure of Heddle and of the limit, with the ratios to everything it was compared
// with; `records` as with_ratios() gives them. `colour`: green where Heddle is ahead of the peer,
// red where it is behind.
std::string table(const std::vector<harness::Record>& records, bool colour);

// "8", "4 KiB", "1 MiB".
std::string size_text(std::uint64_t bytes);

}  // namespace heddle::bench::driver
