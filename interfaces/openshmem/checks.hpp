// Checks of HEDDLE_CHECK (off, on, full), beyond those that locating the memory includes.
//
//   off    checks that cost nothing: PE, address, context, arguments of rare calls
//   on     also, in collectives: whether dest and source overlap, and whether they lie in freed
//          memory
//   full   the same in every operation, and whether the thread may use the context
//
// Under full, no segment is direct and every operation goes through the engine, so the direct path
// has no code for these checks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "openshmem/groups.hpp"
#include "openshmem/state.hpp"

namespace heddle::shmem {

// Ends the job if HEDDLE_CHECK is none of the three.
Check wanted_checks(Call call);

inline bool checks_collectives() {
  return g_state.check != Check::off;
}
inline bool checks_everything() {
  return g_state.check == Check::full;
}

struct AddressRange {
  const void* address;
  std::size_t bytes;
};
// Ends the job if the two have a byte in common.
void check_apart(Call call, const AddressRange& dest, const AddressRange& source);
// Ends the job if the range, which is symmetric, lies in the heap but not within one block. The
// library's reserved memory counts as one block.
void check_live(Call call, const char* argument, const void* address, std::size_t bytes);

// Identifies the calling thread.
const void* this_thread();
// Ends the job if the context is private (SHMEM_CTX_PRIVATE) to another thread.
void check_thread(Call call, const ShmemContext& context);

// Checks that the PEs of a collective call make the same call (HEDDLE_CHECK): each tells all the
// others its call and its values. Without the check, a mismatch is a hang or a wrong result.

// An argument that must be the same on all members.
struct AgreedArgument {
  const char* name;
  std::int64_t value;
};
inline AgreedArgument given(const char* name, std::size_t value) {
  return {name, static_cast<std::int64_t>(value)};
}
inline constexpr std::size_t kMostGiven = 3;

// Names shared by routines that do the same, so that PEs may mix these routines in one collective.
inline constexpr const char* kSyncAll = "shmem_sync_all";
inline constexpr const char* kBarrierAll = "shmem_barrier_all";

// Waits for all members of the team, as sync() does. Ends the job unless all members make the call
// `what` with the same values (at most kMostGiven). `call` is the function that the program called;
// routines that may be mixed have the same `what`.
void meet_alike(Call call, Group& group, const char* what, std::initializer_list<AgreedArgument> values);

// The same, before a collective and only under HEDDLE_CHECK=full. An active set has no words for
// this check, unless it has all PEs.
inline void check_alike(Call call, Group& group, const char* what, std::initializer_list<AgreedArgument> values) {
  if (checks_everything() && group.slot != nullptr) [[unlikely]] {
    meet_alike(call, group, what, values);
  }
}

}  // namespace heddle::shmem
