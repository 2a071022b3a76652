// What ranks get from beside the program: the places of libraries that `heddle run` hands to them,
// and the emulated Tofu machine.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/fd.hpp"

namespace heddle::tools::run {

// The folder that has `file`: in the build, `in_build` as seen from the program's folder;
// installed, `installed` in the folder of libraries. Empty: not found.
std::string beside_program(const std::string& in_build, const std::string& installed, const std::string& file);

// `heddle run --utofu`: runs the job on an emulated Tofu machine (tofu/emulator).

struct UtofuMachine {
  std::string shape;  // in the format of UTOFU_EMU_SHAPE; empty: no emulator
  std::uint32_t per_node = 1;
};

// SHAPE[:PPN]: nodes along up to six axes, such as 2x3x1. Without PPN, as many processes on a node
// as the ranks need.
base::Result<UtofuMachine> read_utofu(std::string_view text, std::uint32_t ranks);

// The memory that the processes share; it is freed when the last of them ends.
base::Result<base::Fd> make_utofu_world();

// The variables for all processes. The library's folder comes after those already in
// LD_LIBRARY_PATH.
std::vector<std::pair<std::string, std::string>> utofu_environment(const UtofuMachine& machine, std::uint32_t ranks,
                                                                   int world);

}  // namespace heddle::tools::run
