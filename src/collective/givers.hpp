// Finds the ranks that a run waits for when it does not proceed. Slow: for reports, not for loops.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collective/algorithms/algorithms.hpp"
#include "collective/schedule.hpp"

namespace heddle::collective {

// Members of larger teams are not searched.
inline constexpr Rank kMostSearched = 256;

// The ranks other than request.rank that give to these counters of request.rank in a run, each
// once, in their order. Makes the schedules of all ranks. Empty: there are none; the team is too
// large; or ranks list their blocks, and this rank does not know the other lists. May throw
// std::bad_alloc.
std::vector<Rank> givers(const Algorithm& algorithm, const Request& request, std::span<const std::uint32_t> counters);

}  // namespace heddle::collective
