// Calls by name in the picture of a traced job (`heddle run --trace`): the wrappers that note them
// are in a library that the launcher loads into the process before all others (observe/calls).
#pragma once

#include <heddle/heddle.h>

namespace heddle::mpi {

// Tells the wrappers, if there are any, that the job is joined; with a context of 0, that it is
// about to be left.
void tell_calls(heddle_context context);

}  // namespace heddle::mpi
