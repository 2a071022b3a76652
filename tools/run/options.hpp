// What `heddle run` is asked to do.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace heddle::tools::run {

struct Options {
  std::uint32_t ranks = 1;
  std::uint32_t threads = 0;  // per process, a hint; 0: none given
  bool bind_cores = false;
  bool tag = false;              // lines of output carry their rank
  std::uint64_t timeout_ns = 0;  // 0: none
  std::uint64_t grace_ns = 5'000'000'000;
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<std::string> command;  // program and arguments
};

// The words after `heddle run`. ARGUMENT with a message for the user if they make no sense. Asked for help, *help
// is the text to print.
base::Result<Options> parse(int argc, char** argv, std::string* help);

}  // namespace heddle::tools::run
