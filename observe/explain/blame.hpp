// Why a wait lasted as long as it did: which rank is to blame for which part of it.
//
// The method is that of wait-state analysis (Böhme, Geimer, Wolf, Arnold, "Identifying the Root
// Causes of Wait States in Large-Scale Parallel Applications", ICPP 2010): a wait is for an event
// at another rank. Until that event, that rank causes the delay. While that rank was waiting
// itself, the rank that it waited for causes the delay.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "observe/explain/story.hpp"

namespace heddle::observe::explain {

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
  never,            // had not done the awaited thing when the trace ended
  under_way,        // nobody's delay: data was moving
  unknown
};
inline constexpr std::size_t kWhys = static_cast<std::size_t>(Why::unknown) + 1;

inline constexpr std::size_t kNoRank = ~std::size_t{0};

struct Blame : Span {
  Why why = Why::unknown;
  std::size_t rank = kNoRank;                 // whose delay: an index; kNoRank: nobody knows
  std::size_t thread = 0;                     // the thread of that rank that caused it
  std::uint8_t worker = tap::kNoTraceWorker;  // no_progress: the worker at which nobody looked
};

// For each wait, in the order of Story::waits: its parts in order. Together they are the whole
// wait.
std::vector<std::vector<Blame>> blame_all(const Story& story);

}  // namespace heddle::observe::explain
