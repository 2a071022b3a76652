// This process's membership in the job: the engine's context, the workers, and the state that every
// call checks first. There is one, since MPI has no handle for it. Init and finalize write it, and
// no other call may overlap them.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include <heddle/heddle.h>
#include "mpi/core/errors.hpp"

namespace heddle::mpi {

// A worker of this process, and what the library keeps beside it.
struct Lane;

struct MpiJob {
  enum class Phase : int { before, running, finalized };
  // The state of MPI_Init and MPI_Finalize. Sessions may keep the job joined before and after.
  std::atomic<Phase> phase{Phase::before};
  bool joined = false;
  heddle_context context{};
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  int thread_level = MPI_THREAD_SINGLE;
  bool no_any_tag = false;              // HEDDLE_MPI_NO_ANY_TAG; see Comm::by_tag
  std::thread::id main_thread;          // that called MPI_Init, or the first MPI_Session_init
  std::vector<Lane*> lanes;             // one, or several with MPI_THREAD_MULTIPLE
  std::vector<std::uint32_t> lanes_of;  // [rank]: how many that rank has
  std::vector<bool> no_any_tag_of;      // [rank]
  std::vector<std::uint32_t> nodes;     // [rank]: number of its node
  heddle_team world{};                  // all ranks
};
extern MpiJob g_job;

// MPI_SUCCESS, or why no call that needs the job is allowed now.
int check_running();
// Joins the job, if this process has not. `level`: the thread level that is asked for.
int join_job(int level);
// Counts users of the job: the world model and sessions. The last one to go leaves it.
void retain_job();
int release_job();

// Calls by name in the picture of a traced job (`heddle run --trace`): the wrappers that note them
// are in a library that the launcher loads into the process before all others (observe/calls).

// Tells the wrappers, if there are any, that the job is joined; with a context of 0, that it is
// about to be left.
void tell_calls(heddle_context context);

}  // namespace heddle::mpi
