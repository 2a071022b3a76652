// `heddle report`: benchmark records as one HTML page that needs nothing else.
#pragma once

#include <string>
#include <vector>

#include "harness/record.hpp"
#include "harness/results.hpp"

namespace heddle::bench::report {

// The command. 0, 1 (a file cannot be read or written), 2 (arguments).
int run(int argc, char** argv);

// Reads the records of all files and writes the page. False: *error says which file and what.
bool write_report(const std::vector<std::string>& files, const std::string& out, std::string* error);

// The page itself, of records that were measured as `origins` say.
std::string page(const std::vector<harness::Record>& records, const std::vector<harness::Origin>& origins);

}  // namespace heddle::bench::report
