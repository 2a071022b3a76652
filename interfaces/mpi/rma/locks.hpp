// The lock of a target: one word that says who has it.
//
//   bit 63        a rank holds it exclusively
//   bits 32-62    ranks that wait to hold it exclusively
//   bits 0-31     ranks that share it; if one has it exclusively, which one
//
// What a rank that has died held stays held: what the lock protects may be half written. Those who
// want the lock then learn of the death in place of having it. Who shares it is counted beside the
// word by groups of ranks, before the word counts it and until after, so that no sharer is missed;
// with more ranks than groups, one may be suspected in vain, which is an error after a death only.
//
// Those who want to share it let those who wait for it alone go first, for a while: neither kind
// starves.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mpi/rma/win.hpp"

namespace heddle::mpi {

// One attempt, or one change that always succeeds.
enum class LockStep : std::uint8_t {
  take_exclusive,
  announce,        // waits for it alone from now on
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
  dead,  // not now, and never: who has it has died
};
// `rank`: of the window, for which the step is.
bool lock_step(Control& control, LockStep step, int rank);
// The same, and, if it is not done, why.
LockOutcome try_lock_step(const Win& win, Control& control, LockStep step, int rank);

// Waits until this rank has the target's lock. Error: the target has died, or who has the lock.
int acquire_lock(Win& win, int rank, bool exclusive);
// The lock is free soon: the target need not have heard of it when this returns.
int release_lock(Win& win, int rank, bool exclusive);
// Shares the locks of all targets. An error: it has none of them.
int acquire_all(Win& win);
int release_all(Win& win);

// heddle_list_held: the locks that this rank holds of windows between the two calls.
void tell_locks(Win& win);
void tell_locks_no_more(Win& win);
std::size_t list_held_locks(std::uint64_t* keys, std::size_t most);

}  // namespace heddle::mpi
