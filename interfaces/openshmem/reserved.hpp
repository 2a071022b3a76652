// The beginning of the symmetric heap, which the library keeps for itself: the slots of the teams.
// It lies at the same offset on every PE and is zero at the start.
//
// A slot belongs to one team at a time on each PE, and to the same team on all of the team's
// members; different teams without a common member may have the same slot. A slot that is free is
// clean: every word in it that others wrote for a team was waited for by its owner, so nothing is
// on its way to it, and nobody reads its boards, since a team ends with a sync; then the owner
// clears the words. Hence a new team needs no synchronisation beyond the agreement about its slot.
#pragma once

#include <cstddef>
#include <cstdint>

#include "openshmem/state.hpp"

namespace heddle::shmem {

// Dissemination with this radix: who synchronises tells kRadix - 1 others a round, so that up to
// kRadix PEs need one round. With more PEs than cores a round costs a turn of the scheduler, and a
// line more costs next to nothing.
inline constexpr int kRadix = 8;
inline constexpr int kRounds = 7;  // 8^7 PEs

struct TeamSlot {
  // What one other PE tells: a number that only grows, and a few bytes that came with it.
  struct alignas(64) Line {
    std::uint64_t number;
    std::byte payload[56];
  };
  static constexpr std::size_t kBoardBytes = 4096;

  Line sync[kRounds][kRadix - 1];  // by round and distance
  // by parity of the exchange and the member who writes; teams of at most kRadix
  Line exchange[2][kRadix];
  Line broadcast[kRadix];  // by the root who writes; likewise
  // counted up by the others when they have fetched what this member showed
  Line fetched;
  std::byte board[2][kBoardBytes];  // by parity: written by the owner, read by the others
};

inline constexpr std::size_t kTeams = 256;

struct Reserved {
  TeamSlot slots[kTeams];
};
inline constexpr std::size_t kReservedBytes = (sizeof(Reserved) + 0xffffU) & ~std::size_t{0xffff};

// This PE's.
inline Reserved& reserved() {
  return *static_cast<Reserved*>(g_state.reserved);
}

}  // namespace heddle::shmem
