// The comparisons of measurements from papers: with figures of the paper, and with other figures of
// the same run.
#pragma once

#include <vector>

#include "harness/record.hpp"

namespace heddle::bench::harness {

// fairness: messages of a run that fall to each thread, 1050 / 8
inline constexpr double kFairnessEven = 131.25;

// Appends `ours` again, once for each comparison that its paper makes.
//   overhead (LLCL)  posting in cycles / theirs; the rate / the best over all numbers of threads;
//                    latency / that of a worker for each thread, and what it adds to that in P
//   fairness (UCCS)  the standard deviation between threads / an even share
//   duplex (UCCS)    threads / as many processes
//   convolution (PIOMan)  a progress policy / none
//   overlap (PIOMan, also of peers)  who computes: the whole / the longer of computing and
//                                    communicating alone, / their sum
// Of no paper:
//   network_*   offload / posting by the threads themselves, to one worker and to workers of their
//               own
//   mixed_job   two transports / shm alone
//   OpenSHMEM over Heddle   the default context / a context for each thread
void add_paper_ratios(const Record& ours, const std::vector<Record>& records, std::vector<Record>* out);

}  // namespace heddle::bench::harness
