// The lock of a target: one word that says who has it.
//
//   bit 63        a rank holds it exclusively
//   bits 32-62    ranks that wait to hold it exclusively
//   bits 0-31     ranks that share it; if one has it exclusively, which one
//
// A lock that a dead rank holds stays held, because the memory that it protects may be half
// written. Ranks that want the lock then get an error that tells of the death. Each sharer is also
// counted beside the word, in the counter of its group of ranks. It is counted there from before
// the word counts it until after, so that no sharer is missed. With more ranks than groups, a dead
// rank may be suspected in place of a living one of its group; this is an error only after a death.
//
// Ranks that want to share the lock let ranks that wait for it exclusively go first, but only for a
// while. So neither kind starves.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mpi/rma/win.hpp"

namespace heddle::mpi {

// One attempt, or one change that always succeeds.
enum class LockStep : std::uint8_t {
  take_exclusive,
  announce,        // waits for it exclusively from now on
  take_announced,  // exclusively, and no longer waits
  take_shared,
  barge_shared,  // does not let anybody go first
  release_exclusive,
  release_shared,
  retract,  // waits no longer
};
enum class LockOutcome : std::uint8_t {
  not_now,
  done,
  dead,  // not now, and never: its holder has died
};
// `rank`: the rank in the window for which the step is made.
bool lock_step(Control& control, LockStep step, int rank);
// The same. If the step is not done, the result tells why.
LockOutcome try_lock_step(const Win& win, Control& control, LockStep step, int rank);

// Waits until this rank has the target's lock. Error: the target or the lock's holder has died.
int acquire_lock(Win& win, int rank, bool exclusive);
// The lock is free soon: the target need not have heard of it when this returns.
int release_lock(Win& win, int rank, bool exclusive);
// Shares the locks of all targets. After an error this rank has none of them.
int acquire_all(Win& win);
int release_all(Win& win);

// heddle_list_held: the locks of windows that this rank holds. A window is included between these
// two calls.
void tell_locks(Win& win);
void tell_locks_no_more(Win& win);
std::size_t list_held_locks(std::uint64_t* keys, std::size_t most);

}  // namespace heddle::mpi
