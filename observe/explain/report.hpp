// The report of a story: the time that ranks lost, by cause, largest first.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "observe/explain/blame.hpp"
#include "observe/explain/story.hpp"

namespace heddle::observe::explain {

// Time that was lost for one reason.
struct Loss {
  Why why = Why::unknown;
  // to blame: an index into Story::ranks; kNoRank: nobody, or nobody known
  std::size_t rank = kNoRank;
  std::string where;                          // its thread's activity meanwhile: a clause
  std::int64_t ns = 0;                        // of all who waited, together
  std::int64_t longest_ns = 0;                // of one wait, or copy
  std::uint64_t times = 0;                    // waits, or copies
  std::uint64_t bytes = 0;                    // of copies
  std::vector<std::size_t> waiting;           // ranks, in order
  std::string call;                           // in which they waited; empty: none
  std::uint8_t worker = tap::kNoTraceWorker;  // that nobody looked at
};

struct Report {
  std::vector<Loss> losses;  // largest first
  std::int64_t waited_ns = 0;
  std::uint64_t waits = 0;
  std::int64_t traced_ns = 0;  // of all ranks together
  std::uint64_t lost_records = 0;
};

Report sum_up(const Story& story);
// For people. `most`: causes that are told one by one.
std::string text_of(const Report& report, const Story& story, std::size_t most);
// One object on one line.
std::string json_of(const Report& report, const Story& story);

}  // namespace heddle::observe::explain
