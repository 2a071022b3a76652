// How the barrier gates of a team's members are connected (transport/gates.hpp), as a pure
// function: recursive doubling.
//
// m is the largest power of two that is not above the number of ranks. Ranks from m on give what
// they have to the rank m below, and get the result from it; the others double: in stage j = 1 …
// log2(m) rank r combines what it has with what rank r ^ 2^(j-1) has. So each two ranks have at
// most one connection in each direction.
//
// Gate 0 of a rank is its start gate. It begins stage 1, and does the last combination itself, as
// Tofu's libraries do; but not where the result goes to a rank above m too, nor with two ranks,
// where it would have to send to itself.
#pragma once

#include <vector>

#include "collective/schedule.hpp"

namespace heddle::collective {

struct Gate {
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::uint32_t from_local = kNone;  // gates of the same rank
  std::uint32_t to_local = kNone;
  Rank from_rank = kNone;  // from_gate of that rank sends to it
  std::uint32_t from_gate = kNone;
  Rank to_rank = kNone;  // it sends to to_gate of that rank
  std::uint32_t to_gate = kNone;
};

// Of a rank among `ranks`, 2 at least; by their numbers.
std::vector<Gate> gates_of(Rank rank, Rank ranks);

}  // namespace heddle::collective
