// For check*.cpp: the commands of all ranks and runs, in one order in which they can run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collective/check.hpp"
#include "collective/schedule.hpp"

namespace heddle::collective::checking {

inline constexpr std::size_t kMostFaults = 8;

using EventId = std::uint32_t;

// A command of one run, or the caller's turn before run `run` (then command is null).
struct Event {
  const Command* command = nullptr;
  Rank rank = 0;
  std::uint32_t queue = 0;  // numbered over all ranks; the last one of each rank is the caller's
  std::uint32_t index = 0;  // in its queue, from 1
  std::uint32_t run = 0;
};

struct Job {
  const Request& request;
  const std::vector<Schedule>& schedules;
  std::uint32_t runs;
  Verdict& verdict;
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

std::string describe(const Job& job, const Event& event);

// Changes the schedules for callers whose buffers are in place: accesses to one buffer become
// accesses to the other, and the copy of a block to its own place is removed. Also sets the bytes
// of each rank's buffers, and where send begins in receive (kNoPart: it is no part of it).
inline constexpr std::uint64_t kNoPart = ~std::uint64_t{0};
void put_in_place(const Request& request, std::vector<Schedule>* schedules, Job* job);

bool check_form(const Job& job);
bool check_balance(const Job& job);
bool check_givers(const Job& job);
bool execute(Job& job);  // fills events; false: the execution does not complete
bool check_contents(const Job& job);
bool check_order(const Job& job);

}  // namespace heddle::collective::checking
