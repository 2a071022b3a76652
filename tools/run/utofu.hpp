// `heddle run --utofu`: the job's processes as those of an emulated Tofu machine (emulator/utofu).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/fd.hpp"

namespace heddle::tools::run {

struct UtofuMachine {
  std::string shape;  // as UTOFU_EMU_SHAPE takes it; empty: no emulator
  std::uint32_t per_node = 1;
};

// SHAPE[:PPN], nodes along up to six axes, 2x3x1; without PPN as many processes on a node as the
// ranks need.
base::Result<UtofuMachine> read_utofu(std::string_view text, std::uint32_t ranks);

// The memory that the processes share; it goes with the last of them.
base::Result<base::Fd> make_utofu_world();

// The variables that all processes get. The library's folder is behind those that LD_LIBRARY_PATH
// names already.
std::vector<std::pair<std::string, std::string>> utofu_environment(const UtofuMachine& machine, std::uint32_t ranks,
                                                                   int world);

}  // namespace heddle::tools::run
