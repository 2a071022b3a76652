// Whom a run that does not go on waits for: for reports, not for loops.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collective/algorithms/algorithms.hpp"
#include "collective/schedule.hpp"

namespace heddle::collective {

// Members of larger teams are not looked for.
inline constexpr Rank kMostSearched = 256;

// The ranks other than request.rank that give to these counters of request.rank in a run, each
// once, in their order. It makes the schedules of all of them. Empty: none; the team is too large;
// or ranks list their blocks, and this one does not know the lists of others. May throw
// std::bad_alloc.
std::vector<Rank> givers(const Algorithm& algorithm, const Request& request, std::span<const std::uint32_t> counters);

}  // namespace heddle::collective
