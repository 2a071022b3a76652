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
// Ends the job if the range, which is symmetric, lies in the heap but not within one block. The
// library's reserved memory counts as one block.
void check_live(Call call, const char* argument, const void* address, std::size_t bytes);

// Identifies the calling thread.
const void* this_thread();
// Ends the job if the context is private (SHMEM_CTX_PRIVATE) to another thread.
void check_thread(Call call, const Context& context);

}  // namespace heddle::shmem
