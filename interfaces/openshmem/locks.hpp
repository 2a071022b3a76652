// Ticket locks. Tickets are drawn and served at one PE, the lock's home, which its address
// determines.
//
// The long is two words. `next` is the next ticket. `turn` has the lower half of the ticket that is
// served, and the lock's holder, as a PE's number plus 1; 0: the one whose turn it is has not said
// so yet, or the lock is free. It is free when the halves of both words are equal; so fewer than
// 2^16 threads may wait for a lock. A fetch-add on `next` draws a ticket; tickets are served in
// order. Only the PE whose turn it is changes `turn`: it names itself, and clears the lock.
// test_lock reads both words, next = n, and swaps `next` from n to n + 1 if n is served. If `turn`
// had changed in between, a ticket had been drawn, and `next` would no longer be n.
//
// A waiting PE can name the holder in reports, and finds out whether it has died.
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
