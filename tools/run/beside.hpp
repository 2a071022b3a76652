// The places of libraries that `heddle run` hands to the ranks.
#pragma once

#include <string>

namespace heddle::tools::run {

// The folder that has `file`: in the build, `in_build` as seen from the program's folder;
// installed, `installed` in the folder of libraries. Empty: not found.
std::string beside_program(const std::string& in_build, const std::string& installed, const std::string& file);

}  // namespace heddle::tools::run
