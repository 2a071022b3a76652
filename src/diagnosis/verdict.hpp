// Finds the ranks to blame when nothing in a job moves: the ranks' snapshots become a graph of
// ranks that wait for each other, and the graph becomes one sentence. A pure function: no clock, no
// system calls.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tap/snapshot.hpp"

namespace heddle::diagnosis {

// What is known of a rank from outside.
enum class Presence : std::uint8_t {
  here,     // joined, its process runs
  outside,  // its process runs and has not joined
  left,     // has left the job in good order
  dead,     // its process has ended, or its connection
  stopped   // its process is stopped (SIGSTOP, a debugger)
};

struct RankView {
  Presence presence = Presence::here;
  std::int64_t pid = 0;                   // 0: not known
  std::optional<tap::Snapshot> snapshot;  // none: it has not answered
  // For how long no thread of the program has called the library.
  std::uint64_t silent_ns = 0;
  std::uint64_t still_ns = 0;  // for how long nothing of it has moved
};

struct Verdict {
  // "rank 1 waits for tag 7 from rank 0, which has sent tag 8": one line, no full stop.
  std::string sentence;
  // The ranks that it blames, in rising order; empty: no rank can be named.
  std::vector<std::uint32_t> culprits;
};

// The views of all ranks, by rank. `rank_word`: "rank", or "PE".
[[nodiscard]] Verdict judge(std::vector<RankView> ranks, const char* rank_word = "rank");

}  // namespace heddle::diagnosis
