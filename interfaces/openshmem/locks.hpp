// Ticket locks. Tickets are drawn and served at one PE, the lock's home, which its address
// determines.
//
// The long is two words: `next`, the next ticket, and `served`, the holder's ticket. Both only
// grow, served ≤ next, and the lock is free when they are equal. A fetch-add on `next` draws a
// ticket; tickets are served in order. Only the holder changes `served`. test_lock reads served = s
// and then swaps `next` from s to s + 1. If `served` had changed in between, a ticket had been
// drawn, and `next` would no longer be s.
//
// A ticket does not name a PE: threads of one PE queue like PEs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "openshmem/state.hpp"

namespace heddle::shmem {

void set_lock(Call call, long* lock);
int test_lock(Call call, long* lock);
void clear_lock(Call call, long* lock);
// heddle_list_held: those of this PE.
std::size_t list_held_locks(std::uint64_t* keys, std::size_t most);

}  // namespace heddle::shmem
