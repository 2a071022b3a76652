// How the barrier gates of a team's members are connected (transport/gates.hpp), as a pure
// function: recursive doubling.
//
// m is the largest power of two that is not above the number of ranks. Each rank from m on gives
// its value to the rank m below, and gets the result from that rank. The others use recursive
// doubling: in stage j = 1 … log2(m) rank r combines its value with that of rank r ^ 2^(j-1). So
// two ranks have at most one connection in each direction.
//
// Gate 0 of a rank is its start gate. It begins stage 1, and does the last combination itself, as
// in Tofu's libraries. It does not do the last combination if the result also goes to a rank from m
// on, or with two ranks, where it would have to send to itself.
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
  Rank to_rank = kNone;  // this gate sends to to_gate of that rank
  std::uint32_t to_gate = kNone;
};

// The gates of a rank among `ranks` (at least 2), by number.
std::vector<Gate> gates_of(Rank rank, Rank ranks);

}  // namespace heddle::collective
