// The programs that may start the ranks of a job, for people who ask (`heddle info`): the
// bootstraps of table.cpp that have a launcher.
#pragma once

#include <string>
#include <vector>

namespace heddle::bootstrap {

struct Launcher {
  const char* name;     // of the bootstrap, as in HEDDLE_BOOTSTRAP
  const char* help;     // which commands start such jobs
  std::string library;  // what is loaded for it, and its version; empty: nothing is
  std::string problem;  // why jobs cannot be joined so here; empty: they can
};

// Loads the libraries that joining would load; asks no launcher.
std::vector<Launcher> launchers();

}  // namespace heddle::bootstrap
