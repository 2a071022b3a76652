// How a traced job stood when its trace ended, judged as a hang is: for the waits that had not
// ended by then.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "diagnosis/owed.hpp"
#include "diagnosis/verdict.hpp"
#include "observe/explain/story.hpp"

namespace heddle::observe::explain {

// Ranks, by number, in rising order.
struct Ending {
  std::vector<std::uint32_t> able;      // had not begun to leave the job
  std::vector<std::uint32_t> culprits;  // the verdict blames them
  std::vector<std::uint32_t> behind;    // waited for these, directly or not
};
Ending ending_of(const Story& story);

// What each rank of the job would have reported at that moment, as far as its trace tells.
std::vector<diagnosis::RankView> views_at_end(const Story& story);

// The collective call that the thing is, where it is one with a number.
tap::Step step_of(const Story& story, const AwaitedThing& awaited);
// By team: the last call there to which each rank, by number, has come.
std::map<std::uint64_t, diagnosis::LatestCalls> latest_calls(const Story& story);

}  // namespace heddle::observe::explain
