// The programs on Heddle, inside a job that has been joined.
#pragma once

#include "harness/channel.hpp"
#include "harness/options.hpp"
#include "harness/session.hpp"
#include "heddle/heddle.h"

namespace heddle::bench::programs {

// Collective, of 2 or kManyProcesses ranks. `session` is null in ranks from 2 on.
void run_heddle(heddle_context context, harness::Session* session, const harness::Options& options,
                harness::Channel& channel);

}  // namespace heddle::bench::programs
