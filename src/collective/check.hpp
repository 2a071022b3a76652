// Proves the schedules of all ranks of one operation correct, without running them on a transport.
//
// Proved for `runs` consecutive runs, for any order and delay of delivery (only puts of one queue
// to one target keep their order), and whatever the callers do with their buffers between two runs:
//  1. form: every queue, counter, rank and range exists; nobody writes the caller's `send`; a queue
//     that names a link puts only by that link, and no two queues of a rank name the same link;
//  2. balance: each counter gets exactly the credits per run that its rank expects, so no credit is
//     left over; commands that share a counter say so;
//  3. no deadlock: every run completes at every rank. Counters only grow, so a command that may run
//     once may always run: if one order of execution completes, all orders do;
//  4. no buffer is touched too early: any two accesses to one byte, one of them a write, are
//     ordered by credits. If a counter has several givers, its credits say little about each of
//     them: a command that waits for n credits has surely seen the first m of one giver only if all
//     others together cannot have given more than n - m before;
//  5. contents: given 4, one order of execution shows the contents for all orders. After each run
//     every byte of every `receive` is what the operation specifies, with each contribution exactly
//     once. Bytes are represented by sums of random 64-bit numbers, one per (run, rank, byte): a
//     wrong schedule passes with probability 2^-64 per byte.
//
// Time and memory grow with the square of the ranks in dense operations: use it up to 64 ranks and
// a few hundred bytes. Schedules do not depend on the length of segments, so short segments prove
// long ones. contents_only leaves out 4, for millions of commands.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collective/schedule.hpp"

namespace heddle::collective {

enum class Proof : std::uint8_t { whole, contents_only };

// Where the callers have their buffers. In place, as heddle/collectives.h allows it, at each rank
// that has both buffers: send is receive (reductions), or the rank's own block of it (gather,
// allgather); or receive is the root's own block of send (scatter). Other operations have no such
// form.
enum class Buffers : std::uint8_t { apart, in_place };

struct CheckResult {
  std::vector<std::string> faults;  // the first few, each with rank, command and bytes
  std::uint64_t commands = 0;       // commands checked, over all runs and ranks
  [[nodiscard]] bool proved() const { return faults.empty(); }
  [[nodiscard]] std::string text() const;
};

// `schedules[i]` is the schedule of rank i, made from `request` with that rank.
CheckResult check(const AlgorithmRequest& request, const std::vector<Schedule>& schedules, Proof proof = Proof::whole,
                  std::uint32_t runs = 3, Buffers buffers = Buffers::apart);

}  // namespace heddle::collective

namespace heddle::collective::checking {

inline constexpr std::size_t kMostFaults = 8;

using EventId = std::uint32_t;

// A command of one run, or the caller's turn before run `run` (then command is null).
struct Event {
  const ScheduleCommand* command = nullptr;
  Rank rank = 0;
  std::uint32_t queue = 0;  // numbered over all ranks; the last one of each rank is the caller's
  std::uint32_t index = 0;  // in its queue, from 1
  std::uint32_t run = 0;
};

// For check*.cpp: the commands of all ranks and runs, in one order in which they can run.
struct CheckedJob {
  const AlgorithmRequest& request;
  const std::vector<Schedule>& schedules;
  std::uint32_t runs;
  CheckResult& verdict;
  std::vector<std::uint32_t> first_queue;  // per rank; one more entry: the number of all queues
  std::vector<Event> events;               // in an order of execution
  struct Bytes {
    std::uint64_t send = 0;
    std::uint64_t receive = 0;
  };
  std::vector<Bytes> buffers;  // of each rank: bytes
  // By rank: where send begins in receive, if the caller has it there; otherwise kNoPart.
  std::vector<std::uint64_t> send_at;

  void fault(std::string text) const {
    if (verdict.faults.size() < kMostFaults) verdict.faults.push_back(std::move(text));
  }
  [[nodiscard]] std::uint32_t users_queue(Rank rank) const { return first_queue[rank + 1] - 1; }
};

std::string describe(const CheckedJob& job, const Event& event);

// Changes the schedules for callers whose buffers are in place: accesses to one buffer become
// accesses to the other, and the copy of a block to its own place is removed. Also sets the bytes
// of each rank's buffers, and where send begins in receive (kNoPart: it is no part of it).
inline constexpr std::uint64_t kNoPart = ~std::uint64_t{0};
void put_in_place(const AlgorithmRequest& request, std::vector<Schedule>* schedules, CheckedJob* job);

bool check_form(const CheckedJob& job);
bool check_balance(const CheckedJob& job);
bool check_givers(const CheckedJob& job);
bool execute(CheckedJob& job);  // fills events; false: the execution does not complete
bool check_contents(const CheckedJob& job);
bool check_order(const CheckedJob& job);

}  // namespace heddle::collective::checking
