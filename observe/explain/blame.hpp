// Who is to blame for a wait: which rank caused which part of it; and the report of that.
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

struct Blame : TimeSpan {
  Why why = Why::unknown;
  std::size_t rank = kNoRank;                 // whose delay: an index; kNoRank: nobody knows
  std::size_t thread = 0;                     // the thread of that rank that caused it
  std::uint8_t worker = tap::kNoTraceWorker;  // no_progress: the worker at which nobody looked
};

// For each wait, in the order of Story::waits: its parts in order. Together they are the whole
// wait.
std::vector<std::vector<Blame>> blame_all(const Story& story);

// The report of a story: the time that ranks lost, by cause, largest first.

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
