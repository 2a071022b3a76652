// Why a wait lasted as long as it did: who is to blame for which part of it.
//
// The method is that of wait-state analysis (Böhme, Geimer, Wolf, Arnold, "Identifying the Root
// Causes of Wait States in Large-Scale Parallel Applications", ICPP 2010): a wait is for an event
// at another rank; until that event, the delay is that rank's, and where that rank was waiting
// itself, the delay of whom it waited for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/explain/story.hpp"

namespace heddle::tools::explain {

enum class Why : std::uint8_t {
  late_sender,      // had not sent yet
  late_receiver,    // had not posted the receive
  late_member,      // had not come to a collective
  no_progress,      // nobody looked at its worker
  no_core,          // its thread was ready to run and had no core
  asleep,           // the thread that waits slept, though nobody was late
  credit,           // had not taken what was sent before
  lock,             // held it
  unexpected_copy,  // messages came before their receives, and were copied
  mapping_copy,     // data was moved by operations, not written to mapped memory
  never,            // had not done what was waited for when the trace ended
  under_way,        // nobody's delay: data was moving
  unknown
};
inline constexpr std::size_t kWhys = static_cast<std::size_t>(Why::unknown) + 1;

inline constexpr std::size_t kNoRank = ~std::size_t{0};

struct Blame : Span {
  Why why = Why::unknown;
  std::size_t rank = kNoRank;                  // whose delay: an index; kNoRank: nobody knows
  std::size_t thread = 0;                      // of that rank, whose moment it was
  std::uint8_t worker = base::kNoTraceWorker;  // no_progress: which nobody looked at
};

// Of each wait, in the order of Story::waits: parts in order, which together are the wait.
std::vector<std::vector<Blame>> blame_all(const Story& story);

}  // namespace heddle::tools::explain
