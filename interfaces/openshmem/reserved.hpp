// The reserved beginning of the symmetric heap: the slots of the teams. It lies at the same offset
// on every PE and is zero at the start.
//
// On each PE a slot belongs to at most one team at a time, and to the same team on all of the
// team's members. Teams without a common member may have the same slot. A free slot is clean: its
// owner has waited for every word that others wrote for a team, so no write to it is in flight, and
// no member reads its boards, since the members synchronise when a team is destroyed; then the
// owner clears the words. Hence a new team needs no synchronisation beyond the agreement about its
// slot.
#pragma once

#include <cstddef>
#include <cstdint>

#include "openshmem/state.hpp"

namespace heddle::shmem {

// Radix of the dissemination: in a round, a PE signals kRadix - 1 others, so up to kRadix PEs need
// one round. With more PEs than cores a round costs a turn of the scheduler, but one more line
// costs almost nothing.
inline constexpr int kRadix = 8;
inline constexpr int kRounds = 7;  // 8^7 PEs

struct TeamSlot {
  // What another PE writes: a number that only grows, and a few bytes of data.
  struct alignas(64) Line {
    std::uint64_t number;
    std::byte payload[56];
  };
  static constexpr std::size_t kBoardBytes = 4096;

  Line sync[kRounds][kRadix - 1];  // by round and distance
  // by parity of the exchange and by the member that writes; teams of at most kRadix
  Line exchange[2][kRadix];
  Line broadcast[kRadix];  // by the root that writes; teams of at most kRadix
  // members add 1 when they have fetched this member's data in show()
  Line fetched;
  std::byte board[2][kBoardBytes];  // by parity; written by the owner, read by the others
};

inline constexpr std::size_t kTeams = 256;

struct Reserved {
  TeamSlot slots[kTeams];
};
inline constexpr std::size_t kReservedBytes = (sizeof(Reserved) + 0xffffU) & ~std::size_t{0xffff};

// This PE's reserved memory.
inline Reserved& reserved() {
  return *static_cast<Reserved*>(g_state.reserved);
}

}  // namespace heddle::shmem
