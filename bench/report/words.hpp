// What the names of measurements mean, for who reads a report and not the sources.
#pragma once

#include <string>
#include <vector>

#include "harness/record.hpp"

namespace heddle::bench::report {

// A list of the names that occur in the records, as HTML; empty if none is known.
std::string words(const std::vector<harness::Record>& records);

}  // namespace heddle::bench::report
