// The meeting point of a participant's processes, independent of the measured library: a page of
// shared memory with a barrier, a place to hand over numbers, and the lines of the ping-pong P.
// There are two processes, or several pairs: ranks 2i and 2i + 1; for collectives any number. The
//process that starts the participants creates the channel and gives its path (/proc/PID/fd/N of a
//memfd: nothing is left behind) to every process. One participant uses it at a time; reset() makes
//it fresh for the next.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/cache_line.hpp"
#include "base/fd.hpp"
#include "base/wait.hpp"

namespace heddle::bench::harness {

// Twice a line, so that the prefetcher of adjacent lines does not tie two of them together.
inline constexpr std::size_t kApart = 2 * base::kCacheLine;

struct alignas(kApart) ChannelLine {
  // partner: the other process's load or store of the same word (P: release/acquire)
  std::atomic<std::uint64_t> word;
};

// The results of one run that all processes collect together. The barriers before and after it
// order all accesses.
struct TogetherMemory {
  alignas(kApart) std::atomic<std::uint32_t> wrong;  // processes that found a wrong result
  std::atomic<std::uint64_t> begin_ns;               // the first
  std::atomic<std::uint64_t> end_ns;                 // the last
  // Context switches of all processes meanwhile: by sleeping; by yields and ended time slices.
  std::atomic<std::uint64_t> voluntary;
  std::atomic<std::uint64_t> involuntary;
};

struct ChannelMemory {
  // Of all processes, in all barriers so far. release, partner: the others' acquire of it; futex
  alignas(kApart) std::atomic<std::uint32_t> arrived;
  // on `arrived`; seq_cst with it on both sides
  alignas(kApart) std::atomic<std::uint32_t> sleeping;
  ChannelLine shared_number;
  ChannelLine ping;
  ChannelLine pong;
  // nanoseconds that may still be spent on repeating disturbed measurements; survives reset()
  ChannelLine retry_budget;
  // 1: the processes of --busy compute, 0: they sleep on it; futex
  alignas(kApart) std::atomic<std::uint32_t> busy;
  TogetherMemory together;
  ChannelLine flags[4];  // for the participants' own use (counts of messages, stop flags)
};

class Channel {
 public:
  // A fresh one. Empty optional: the system call that failed is in errno.
  static std::optional<Channel> create(std::uint64_t retry_budget_ns);
  static std::optional<Channel> open(const std::string& path);

  // How another process of the same user opens it.
  [[nodiscard]] std::string path() const;
  void reset();

  // The rank of this process, and the number of processes. After fork, the child sets it again.
  void set_rank(std::uint32_t rank, std::uint32_t size = 2) {
    rank_ = rank;
    size_ = size;
  }
  [[nodiscard]] std::uint32_t rank() const { return rank_; }
  [[nodiscard]] std::uint32_t size() const { return size_; }

  // Waits for the other processes: spins a little, then sleeps, so that a waiting process leaves
  // its core free.
  void barrier() {
    if (!arrive()) sleep_until_met();
  }
  // The same, but calls `work()` over and over while it waits: progress of the measured library.
  template <class Work>
  void barrier_while(Work&& work) {
    arrive();
    while (!met()) work();
  }
  // Rank 0's number, in all.
  std::uint64_t share(std::uint64_t number);

  // P: half the round trip of a word between two lines, written by rank 0 and rank 1. All call it,
  // and get it; the others sleep. 0 where there is one process alone.
  double ping_pong_ns();
  // Takes the time from the budget; false if it does not have that much.
  bool spend_retry_ns(std::uint64_t ns);

  // Whether the processes of --busy are to compute.
  void let_others_compute(bool compute);
  // One of these processes: does `work()` over and over while it is to, sleeps else. It never ends.
  template <class Work>
  [[noreturn]] void compute_when_told(Work&& work) {
    while (true) {
      sleep_until_told();
      work();
    }
  }

  [[nodiscard]] std::atomic<std::uint64_t>& flag(std::size_t i) { return memory_->flags[i].word; }
  [[nodiscard]] ChannelMemory& memory() { return *memory_; }

 private:
  struct Unmap {
    void operator()(ChannelMemory* memory) const;
  };
  Channel(base::Fd fd, ChannelMemory* memory) : fd_(std::move(fd)), memory_(memory) {}
  static std::optional<Channel> of(base::Fd fd);
  bool arrive();  // true: as the last one
  [[nodiscard]] bool met() const;
  void sleep_until_met();
  void sleep_until_told();

  base::Fd fd_;
  std::unique_ptr<ChannelMemory, Unmap> memory_;
  std::uint32_t rank_ = 0;
  std::uint32_t size_ = 2;
  std::uint32_t expected_ = 0;  // arrivals when the barrier that this process is in is over
};

// Spins on a condition that the other process fulfils within a cache transfer; where both share a
// core, gives it away.
template <class Condition>
inline void spin_until(Condition&& condition) {
  for (std::uint32_t spins = 0; !condition(); ++spins) {
    if (spins > 100'000) base::cpu_relax();
    if (spins > 110'000) {
      sched_yield();
      spins = 0;
    }
  }
}

std::uint64_t now_ns();

}  // namespace heddle::bench::harness
