// The beginning of the symmetric heap, which the library keeps for itself. It lies at the same offset on every PE and is zero
// at the start.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shmem/state.hpp"

namespace heddle::shmem {

inline constexpr std::size_t kReservedBytes = std::size_t{1} << 16U;

struct Reserved {
  // The dissemination barrier of all PEs: round r of barrier number e is e in arrived[r], a line of its own.
  struct alignas(64) Arrival {
    std::uint64_t number;
  };
  static constexpr std::size_t kRounds = 32;
  Arrival arrived[kRounds];
};
static_assert(sizeof(Reserved) <= kReservedBytes);

// This PE's.
inline Reserved& reserved() {
  return *static_cast<Reserved*>(g_state.reserved);
}

}  // namespace heddle::shmem
