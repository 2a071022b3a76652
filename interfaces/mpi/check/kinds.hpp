// With checks, the kind of a message's elements travels in bits of its tag that nothing else uses.
// Kinds are told apart by representation only: an int is an unsigned int or a C bool of the same
// size is not reported. Bytes, packed data, pairs and types of several kinds fit all.
#pragma once

#include "mpi/check/check.hpp"
#include "mpi/communicators/comm.hpp"
#include "mpi/types/type.hpp"

namespace heddle::mpi {

inline constexpr int kKindShift = kTagBits;
inline constexpr std::uint64_t kKindMask = std::uint64_t{0xff} << kKindShift;
static_assert(kKindShift + 8 <= kNumberShift);

// 0: it fits all.
[[nodiscard]] std::uint8_t kind_of(const Type& type);
[[nodiscard]] inline bool kinds_fit(std::uint8_t one, std::uint8_t other) {
  return one == 0 || other == 0 || one == other;
}
[[nodiscard]] const char* name_of_kind(std::uint8_t kind);

// What a send adds to its wire tag; 0 without checks.
[[nodiscard]] inline std::uint64_t kind_on_wire(const Type& type) {
  return g_checks ? std::uint64_t{kind_of(type)} << kKindShift : 0;
}
// The bits of the tag that a receive of the long path compares.
[[nodiscard]] inline heddle_wanted of_any_kind(heddle_wanted wanted) {
  if (g_checks) wanted.mask &= ~kKindMask;
  return wanted;
}
// With checks: compares the kinds for a message that was received. MPI_SUCCESS or an error's class.
int check_kind(const Comm& comm, const heddle_receive& receive, const Type& type);

}  // namespace heddle::mpi
