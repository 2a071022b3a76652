// Shared parts of MPI_T's functions. These functions return codes and report nothing to error
// handlers. They work from the first MPI_T_init_thread to the last MPI_T_finalize, whether or not
// the process has joined a job.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "mpi/core/arguments.hpp"

namespace heddle::mpi::tool {

// A control variable: a setting, which was read from the environment and does not change. A text.
struct Control {
  std::string name;
  std::string value;
  std::string description;
};

struct State {
  std::mutex mutex;  // guards what follows, and all of MPI_T's objects
  int users = 0;     // MPI_T_init_thread without MPI_T_finalize
  // Its order is the variables' numbers: later calls of MPI_T_init_thread only add some.
  std::vector<Control> controls;
  int changes = 0;  // of categories: raised when variables were added
};
extern State g_tool;

// Reads the settings that are not among the controls yet. Throws std::bad_alloc.
void read_controls();

// The standard's convention for texts: at most *length - 1 characters and a zero are stored, and
// *length becomes the whole text's length with its zero. A null `out` or a *length of 0: only the
// length. A null `length`: nothing.
void store_text(std::string_view text, char* out, int* length);

// Stores a value; the program may pass null if it does not want it.
template <class T, class V>
inline void store(T* out, V value) {
  if (out != nullptr) *out = value;
}

// Runs inner() with the lock held, between MPI_T_init_thread and MPI_T_finalize. No exception
// leaves it.
template <class Inner>
int locked(Inner&& inner) {
  const std::scoped_lock lock(g_tool.mutex);
  if (g_tool.users == 0) return MPI_T_ERR_NOT_INITIALIZED;
  try {
    return inner();
  } catch (const std::bad_alloc&) {
    return MPI_T_ERR_MEMORY;
  }
}

// Performance variables: the engine's counts of this process's workers, added up.

std::size_t number_of_counts();

// The job's workers are about to close: what they have counted is kept, so that the variables do
// not fall.
void keep_counts();

}  // namespace heddle::mpi::tool
