// What an awaited thing means: what has to happen, which rank owes it, which members of a
// collective call have not come. The verdict on a hang and the account of a trace's waits
// (observe/explain) both ask here, so that they blame the same rank for the same thing. Pure
// functions of plain values.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tap/snapshot.hpp"

namespace heddle::diagnosis {

// What the debtor has to do.
enum class Duty : std::uint8_t {
  unknown,
  look,            // to make progress on its worker
  send,            // a message
  receive,         // a message that waits for its receive
  take,            // the messages before, so that the next has room
  run_tasks,       // the same of class USER
  come,            // to a collective call
  write,           // a word of the waiting rank's memory
  release,         // a lock
  do_part,         // of a partitioned message
  leave_to_others  // its other threads have what this one waits for
};
[[nodiscard]] Duty duty_of(tap::Cause cause);

// The debtor's program has to receive messages.
[[nodiscard]] bool is_by_receiving(Duty duty);
// A look at the worker that the thing names is all that it takes, or a part of it.
[[nodiscard]] bool is_by_looking(Duty duty);
// The debtor keeps something from the waiting rank for as long as the wait lasts, or does not come
// to where it waits: it is known who that is, whether anything happens later or not.
[[nodiscard]] bool is_standing(Duty duty);

struct Debtor {
  std::uint32_t rank = tap::kNobody;  // kNobody: any rank may have to do it
  bool itself = false;                // the waiting rank: it waits for no other one
  bool named = false;                 // the thing names it; else nobody else is left to do it
};
// Who has to do it, in a job of so many ranks. `able`: the ranks that may still act, where that is
// known.
[[nodiscard]] Debtor debtor_of(const tap::Awaited& thing, std::uint32_t waiter, std::uint32_t ranks,
                               std::span<const std::uint32_t> able);

// By rank: the latest call of one team at which it was seen, or to which it is on its way.
using LatestCalls = std::map<std::uint32_t, std::uint64_t>;
// The rank is at a later call of that team, so it has made this one.
[[nodiscard]] bool has_passed(const LatestCalls& latest, std::uint32_t rank, std::uint64_t number);

struct Absentees {
  std::vector<std::uint32_t> ranks;  // in rising order
  bool whole = true;                 // all members are known; else anybody may be missing
};
// The members of a collective call that have neither come nor passed it, in a job of so many ranks.
// `come`: in rising order.
[[nodiscard]] Absentees absentees_of(const tap::Step& step, std::span<const std::uint32_t> come,
                                     const LatestCalls& latest, std::uint32_t ranks);

// "the team of ranks 0-3, 5": these. Empty: it has no list of so many ranks.
[[nodiscard]] std::vector<std::uint32_t> ranks_in(const std::string& name, std::uint32_t size);

// "a lock that rank 2 holds"; "a lock", if nobody knows who does.
[[nodiscard]] std::string lock_of(const std::string& holder);

}  // namespace heddle::diagnosis
