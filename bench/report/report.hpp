// `heddle report`: benchmark results as one HTML page that needs nothing else.
#pragma once

#include <string>
#include <vector>

#include "harness/results.hpp"

namespace heddle::bench::report {

// The command. 0, 1 (a file cannot be read or written), 2 (arguments).
int run(int argc, char** argv);

// Reads the results of all files and writes the page. False: *error says which file, which line and
// what.
bool write_report(const std::vector<std::string>& files, const std::string& out, std::string* error);

struct NamedResults {
  std::string name;  // the file's
  harness::Results results;
};
// The contents of the page, as JSON that can stand in a script element: it contains no "<". All
// sentences are made here; the page's script draws them.
std::string page_data(const std::vector<NamedResults>& runs);
// The page itself.
std::string page(const std::vector<NamedResults>& runs);

// The command that measures these figures again. They are of one bench and of one run, whose
// command was `given`.
std::string command_for(const std::vector<const harness::Record*>& figures, const std::string& given);

}  // namespace heddle::bench::report
