// The participants of a session: Heddle and the limit always, and the peers whose programs were
// built.
#pragma once

#include <string>
#include <vector>

#include "driver/spawn.hpp"
#include "harness/options.hpp"

namespace heddle::bench::driver {

struct Participants {
  std::vector<Program> programs;
  // a line for each peer that cannot take part: why, and what to install
  std::vector<std::string> missing;
};

// `repeat`: repeats per figure in one turn.
Participants participants(const harness::Options& options, std::uint32_t repeat);

}  // namespace heddle::bench::driver
