// What is looked at beyond what finding the memory shows by itself (HEDDLE_CHECK): off, on, full.
//
//   off    what costs nothing: PE, address, context, arguments of rare calls
//   on     and, in collectives, whether dest and source overlap, and whether they lie in memory
//          that was freed
//   full   and that in every operation, and whether the thread may use the context
//
// Under full every operation takes the way by the engine (no segment is direct), so the direct way
// does not know of it.
#pragma once

#include <cstddef>

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

struct Range {
  const void* address;
  std::size_t bytes;
};
// Ends the job if the two have a byte in common.
void check_apart(Call call, const Range& dest, const Range& source);
// Ends the job if the range, which is symmetric, lies in the heap but not in one block of it. The
// library's own words count as one.
void check_live(Call call, const char* argument, const void* address, std::size_t bytes);

// Tells threads apart.
const void* this_thread();
// Ends the job if the context is another thread's private one.
void check_thread(Call call, const Context& context);

}  // namespace heddle::shmem
