// The summary of a session, in sentences: the answer in one line, where Heddle is ahead and where
// not, how far the figures may be trusted, and what has changed since an earlier session.
#pragma once

#include <string>
#include <vector>

#include "harness/results.hpp"
#include "report/words.hpp"

namespace heddle::bench::report {

// "rate put of 8 bytes, 2 threads": a figure by its name.
std::string name_of(const harness::Record& record);

// Whether a participant is neither Heddle nor the machine.
bool is_peer(const harness::Record& record);

// First the answer: "On this machine: 3.1 × UCX with 2 threads, 1.15 × the limit." Then the figures
// it is made of. The choice of figures is fixed: the best ones are not picked.
std::vector<std::string> answer(const std::vector<harness::Record>& records);

// First how many figures are ahead, behind and level, each beside the best peer that did the same;
// then each that is behind.
std::vector<std::string> verdict(const std::vector<harness::Record>& records);

// How far the figures of a session may be trusted. A sentence that begins with "!" is a warning.
std::vector<std::string> trust(const harness::Results& results);

struct Compared {
  const harness::Record* before;
  const harness::Record* after;
  Change change;
};
struct Comparison {
  std::vector<std::string> summary;  // as of trust()
  std::vector<Compared> figures;     // beyond the noise first, then Heddle's first, then by size
};
// The figures that both sessions have. Both must outlive the result.
Comparison compare(const harness::Results& before, const harness::Results& after);

}  // namespace heddle::bench::report
