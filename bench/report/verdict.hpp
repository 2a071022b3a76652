// What a session comes to, in sentences: where Heddle is ahead of the peers that were measured
// beside it, and where not.
#pragma once

#include <string>
#include <vector>

#include "harness/record.hpp"

namespace heddle::bench::report {

// Each figure counts once, beside the best peer that did the same. HTML.
std::string verdict(const std::vector<harness::Record>& records);

}  // namespace heddle::bench::report
