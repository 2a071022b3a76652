// Proves the schedules of all ranks of one operation, without running them on anything.
//
// What is shown, for `runs` runs on end, in whatever order and however late the network delivers
// (only puts of one queue to one target keep their order), and whatever the callers do with their
// buffers between two runs:
//  1. form: every queue, counter, rank and range exists; nobody writes the caller's `send`; what a
//     queue puts leaves by the link that it names, and no two queues of a rank name the same;
//  2. balance: each counter gets exactly the credits per run that its rank counts with, so that no
//     credit is left over; and who shares a counter says so;
//  3. no deadlock: every run ends at every rank. Counters only grow, so what may run once may run
//     for ever: one order of execution that ends shows that all do;
//  4. no buffer is touched too early: any two accesses to one byte, one of them a write, are
//     ordered by credits. Credits of a counter with several givers say little about each of them: a
//     command that waits for n credits has seen the first m of one giver only if all others
//     together could not have given more than n - m before;
//  5. contents: with 4, one order of execution shows the contents for all. After each run every
//     byte of every `receive` is what the operation says, each contribution exactly once. Bytes are
//     followed as sums of random 64-bit numbers, one per (run, rank, byte): a wrong schedule passes
//     with probability 2^-64 per byte.
//
// Time and memory grow with the square of the ranks in dense operations: up to 64 ranks and a few
// hundred bytes. Schedules do not depend on the length of segments, so small ones prove large ones.
// contents_only leaves 4 out, for millions of commands.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collective/schedule.hpp"

namespace heddle::collective {

enum class Proof : std::uint8_t { whole, contents_only };

// Where the callers have their buffers. In place, as heddle/collectives.h allows it: send is
// receive (reductions), or the rank's own block of it (gather, allgather), receive the root's own
// block of send (scatter), at each rank that has both. Other operations have no such form.
enum class Buffers : std::uint8_t { apart, in_place };

struct Verdict {
  std::vector<std::string> faults;  // the first few, each with rank, command and bytes
  std::uint64_t commands = 0;       // that were looked at, all runs and ranks together
  [[nodiscard]] bool proved() const { return faults.empty(); }
  [[nodiscard]] std::string text() const;
};

// `schedules[i]` is that of rank i, made from `request` with that rank.
Verdict check(const Request& request, const std::vector<Schedule>& schedules, Proof proof = Proof::whole,
              std::uint32_t runs = 3, Buffers buffers = Buffers::apart);

}  // namespace heddle::collective
