// Checks that the PEs of a collective call make the same call (HEDDLE_CHECK): each tells all the
// others its call and its values. Without the check, a mismatch is a hang or a wrong result.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "openshmem/checks.hpp"
#include "openshmem/groups.hpp"
#include "openshmem/state.hpp"

namespace heddle::shmem {

// An argument that must be the same on all members.
struct Given {
  const char* name;
  std::int64_t value;
};
inline Given given(const char* name, std::size_t value) {
  return {name, static_cast<std::int64_t>(value)};
}
inline constexpr std::size_t kMostGiven = 3;

// Names shared by routines that do the same, so that PEs may mix these routines in one collective.
inline constexpr const char* kSyncAll = "shmem_sync_all";
inline constexpr const char* kBarrierAll = "shmem_barrier_all";

// Waits for all members of the team, as sync() does. Ends the job unless all members make the call
// `what` with the same values (at most kMostGiven). `call` is the function that the program called;
// routines that may be mixed have the same `what`.
void meet_alike(Call call, Group& group, const char* what, std::initializer_list<Given> values);

// The same, before a collective and only under HEDDLE_CHECK=full. An active set has no words for
// this check, unless it has all PEs.
inline void check_alike(Call call, Group& group, const char* what, std::initializer_list<Given> values) {
  if (checks_everything() && group.slot != nullptr) [[unlikely]] {
    meet_alike(call, group, what, values);
  }
}

}  // namespace heddle::shmem
