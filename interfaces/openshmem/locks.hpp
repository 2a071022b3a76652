// Locks: tickets, drawn and served at one PE, the home that the lock's address says.
//
// The long is two words: the next ticket, and the ticket that is served, which is the holder's.
// Both only grow, served ≤ next, and the lock is free when they are equal. Who draws a ticket by
// fetch-add has a place in the queue that nobody overtakes. Only the holder changes `served`.
// test_lock reads served = s and swaps next from s to s + 1: had somebody been served meanwhile, he
// had drawn a ticket, and next were no longer s.
//
// A ticket knows no PE: threads of one PE queue like PEs.
#pragma once

#include "openshmem/state.hpp"

namespace heddle::shmem {

void set_lock(Call call, long* lock);
int test_lock(Call call, long* lock);
void clear_lock(Call call, long* lock);

}  // namespace heddle::shmem
