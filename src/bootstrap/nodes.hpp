// A node: the ranks of a machine, or of a part of it where HEDDLE_NODE_RANKS says so.
#pragma once

#include <cstdint>
#include <vector>

#include "bootstrap/bootstrap.hpp"

namespace heddle::bootstrap {

// The node that each rank of the job is on: 0, 1, … in the order of their first ranks. `most`: the
// ranks of a machine are divided, in their order, into nodes of so many each; 0: they are one node.
// The same for every rank that gives the same `most`.
std::vector<std::uint32_t> nodes_of(const Bootstrap& bootstrap, std::uint64_t most);

}  // namespace heddle::bootstrap
