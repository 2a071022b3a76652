// For check*.cpp: the commands of all ranks and runs, in one order in which they can be executed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collective/check.hpp"
#include "collective/schedule.hpp"

namespace heddle::collective::checking {

inline constexpr std::size_t kMostFaults = 8;

using EventId = std::uint32_t;

// A command of one run, or the caller's turn before run `run` (command null).
struct Event {
  const Command* command = nullptr;
  Rank rank = 0;
  std::uint32_t queue = 0;  // over all ranks; the last one of each rank is the caller's
  std::uint32_t index = 0;  // in its queue, from 1
  std::uint32_t run = 0;
};

struct Job {
  const Request& request;
  const std::vector<Schedule>& schedules;
  std::uint32_t runs;
  Verdict& verdict;
  std::vector<std::uint32_t> first_queue;  // per rank, and one more: how many there are
  std::vector<Event> events;               // in an order of execution
  struct Bytes {
    std::uint64_t send = 0;
    std::uint64_t receive = 0;
  };
  std::vector<Bytes> buffers;  // of each rank: bytes
  // By rank: where send begins in receive, if callers have it there; kNoPart: they have not.
  std::vector<std::uint64_t> send_at;

  void fault(std::string text) const {
    if (verdict.faults.size() < kMostFaults) verdict.faults.push_back(std::move(text));
  }
  [[nodiscard]] std::uint32_t users_queue(Rank rank) const { return first_queue[rank + 1] - 1; }
};

std::string describe(const Job& job, const Event& event);

// The same schedules for callers whose buffers are in place: what was one of them is the other; a
// copy of a block to where it is has gone. And how many bytes each rank's buffers have then, and
// where send begins in receive (kNoPart: it is no part of it).
inline constexpr std::uint64_t kNoPart = ~std::uint64_t{0};
void put_in_place(const Request& request, std::vector<Schedule>* schedules, Job* job);

bool check_form(const Job& job);
bool check_balance(const Job& job);
bool check_givers(const Job& job);
bool execute(Job& job);  // fills events; false: it does not end
bool check_contents(const Job& job);
bool check_order(const Job& job);

}  // namespace heddle::collective::checking
