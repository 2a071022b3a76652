// `heddle bench broadcast` and its like: see harness/collective_times.hpp.
#pragma once

namespace heddle::bench::work {

// argv[0] is "bench". Inside a job it takes part, outside it starts the jobs. The exit status: 0, 1
// (it failed, or a result was wrong), 2 (arguments).
int run_collectives(int argc, char** argv);

}  // namespace heddle::bench::work
