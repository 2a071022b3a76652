// Heddle as a participant, and the measurements of Heddle alone.
#pragma once

#include "libraries/heddle.hpp"
#include "measure/bench.hpp"

namespace heddle::bench::work {

using libraries::Heddle;
using libraries::job_context;
using libraries::Memory;
using libraries::must;
using measure::Bench;

// Joins the job this process was started in, measures, leaves. Inside a driver's session
// (options.channel) samples go to stdout as lines; otherwise rank 0 prints the table itself. The
// exit status.
int take_part(const harness::BenchOptions& options);

// All ranks call all of them in the same order.
void run_reaction(Bench& bench, Heddle& library);
void run_compute(Bench& bench);
void run_fairness(Bench& bench, Heddle& library);
// Beside `overhead`, where HEDDLE_LIBRARIES names the libibverbs of the tests.
void run_doorbells(Bench& bench, heddle_sharing sharing);
void run_convolution(Bench& bench, Heddle& library);
void run_oversubscription(Bench& bench, Heddle& library, Memory& memory);

}  // namespace heddle::bench::work
