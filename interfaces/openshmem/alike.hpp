// Whether PEs that do something together do the same (HEDDLE_CHECK): each tells all the others
// which call it makes and with which values. A mismatch would else be a hang, or values that nobody
// has sent.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "openshmem/checks.hpp"
#include "openshmem/groups.hpp"
#include "openshmem/state.hpp"

namespace heddle::shmem {

// An argument that all members must give alike.
struct Given {
  const char* name;
  std::int64_t value;
};
inline Given given(const char* name, std::size_t value) {
  return {name, static_cast<std::int64_t>(value)};
}
inline constexpr std::size_t kMostGiven = 3;

// Names of what several routines do alike, so that they may meet each other.
inline constexpr const char* kSyncAll = "shmem_sync_all";
inline constexpr const char* kBarrierAll = "shmem_barrier_all";

// Waits for all members of the team, as sync() does, and ends the job unless all make the call
// `what` with the same values, at most kMostGiven. `call` is what the program called; `what` is the
// same name for calls that may meet each other.
void meet_alike(Call call, Group& group, const char* what, std::initializer_list<Given> values);

// The same, before a collective and under HEDDLE_CHECK=full alone. An active set has no words for
// it, unless it is of all PEs.
inline void check_alike(Call call, Group& group, const char* what, std::initializer_list<Given> values) {
  if (checks_everything() && group.slot != nullptr) [[unlikely]] {
    meet_alike(call, group, what, values);
  }
}

}  // namespace heddle::shmem
