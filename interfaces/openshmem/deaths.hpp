// What the death of a PE means to PEs that wait for a word in memory, where no operation ends with
// an error. OpenSHMEM's functions return no errors either. So the job ends, with a message that
// names the dead PE and what was waited for. A wait for one PE (in a collective, or for a lock that
// it holds) is in vain once that PE has died. A word may be written by any PE, so nobody knows
// whether the wait is in vain. But a death ends the job, so by default the death of any PE ends
// such a wait too. SHMEM_DEATHS=ignore lets it go on.
//
// The engine reports deaths under any launcher.
#pragma once

#include "openshmem/state.hpp"

namespace heddle::shmem {

// Reads SHMEM_DEATHS; ends the job if it is none of its values.
void read_deaths(Call call);

// Whether a PE is known to have died. Each call looks at some of the PEs, other ones than the last
// call.
bool sees_death();
bool has_died(int pe);
// For a test that fails, and may be one of many in a loop: true if a PE had died a while ago.
bool sees_death_in_tests();

// An operation has ended with PEER_FAILED. Ends the job. `pe`: the PE that it was for; -1: not
// known. A network reports a death before the launcher does, so the launcher's report is awaited
// for a moment.
[[noreturn, gnu::cold]] void fail_by_death(Call call, int pe);

// To be called once a death is seen, and what that PE did before has arrived. Ends the job if the
// wait is in vain. `tell` says what the wait is for, as for heddle_wait_note. `dead`: a dead PE
// without which the wait cannot end; -1: none, or not known.
[[gnu::cold]] void end_if_in_vain(Call call, heddle_tell_wait tell, void* arg, int dead);

}  // namespace heddle::shmem
