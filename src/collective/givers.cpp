#include "collective/givers.hpp"

#include <algorithm>

namespace heddle::collective {

std::vector<Rank> givers(const Algorithm& algorithm, const Request& request, std::span<const std::uint32_t> counters) {
  std::vector<Rank> found;
  if (counters.empty() || request.ranks > kMostSearched || lists_blocks(request.operation)) return found;
  const auto gives = [&](const Command& command) {
    return command.action == Action::put && command.target == request.rank && command.credits > 0 &&
           std::ranges::find(counters, command.counter) != counters.end();
  };
  Request other = request;
  for (other.rank = 0; other.rank < request.ranks; ++other.rank) {
    if (other.rank == request.rank) continue;
    if (std::ranges::any_of(algorithm.schedule(other).commands, gives)) found.push_back(other.rank);
  }
  return found;
}

}  // namespace heddle::collective
