// What all measurements share: the stream of GUPS, and the code between timed loops.
//
// Random access (GUPS): the stream of updates, the same for Heddle and for its peers.
//
// Each thread has its own seeded stream. An update xors a 64-bit random number into a word of the
// table, which that number chooses; so applying all updates twice gives the first table again. A
// word that differs then has lost an update to a race.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "harness/session.hpp"
#include "measure/library.hpp"
#include "measure/programs.hpp"

namespace heddle::bench::measure {

// as in the papers: 20 M, 160 MiB
inline constexpr std::uint64_t kGupsDefaultWords = std::uint64_t{20} << 20;
inline constexpr std::uint64_t kGupsQuickWords = std::uint64_t{64} << 10;
// the share of updates that get + xor + put may lose (HPCC's rule)
inline constexpr double kGupsRacyBound = 0.01;

struct GupsUpdate {
  std::uint64_t value;
  std::uint32_t owner;  // rank
  std::uint64_t index;  // of the word in the owner's half
};

class GupsStream {
 public:
  GupsStream(std::uint32_t rank, std::uint32_t thread, std::uint64_t words_per_rank)
      : random_(1 + rank + 2 * std::uint64_t{thread}), words_per_rank_(words_per_rank) {}

  GupsUpdate next() {
    const std::uint64_t value = random_.next();
    __extension__ typedef unsigned __int128 Wide;  // not ISO C++, but of both compilers
    const auto at = static_cast<std::uint64_t>((static_cast<Wide>(value) * (2 * words_per_rank_)) >> 64);
    const bool second = at >= words_per_rank_;
    return {value, second ? 1U : 0U, second ? at - words_per_rank_ : at};
  }

 private:
  base::Random random_;
  std::uint64_t words_per_rank_;
};

inline std::uint64_t gups_words_per_rank(std::uint64_t total, bool quick) {
  return (total != 0 ? total : quick ? kGupsQuickWords : kGupsDefaultWords) / 2;
}

// The table before the updates.
inline void gups_fill(std::uint64_t* table, std::uint64_t words) {
  for (std::uint64_t i = 0; i < words; ++i) table[i] = i;
}
inline std::uint64_t gups_count_wrong(const std::uint64_t* table, std::uint64_t words) {
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < words; ++i) wrong += table[i] != i ? 1 : 0;
  return wrong;
}

// The parts of which every measurement is made: its participants, and how it is run, labelled and
// checked. Nothing here depends on a particular library. A Library's hooks are called only between
// the timed loops.

using harness::Figure;
using harness::Run;

// A figure's name and size, without the participant.
struct Task {
  std::string bench;
  std::string op;
  const char* metric;
  std::uint64_t bytes = 8;
  double per_iteration = 1;
  std::uint32_t threads = 1;
};

// The work of the threads, and the actions before and after it, each called with the run's number.
struct Work {
  std::function<void(std::uint64_t run)> prepare = {};
  std::function<void(std::uint32_t lane, std::uint64_t n)> each;  // n iterations
  std::function<bool(std::uint64_t run)> right = {};
};

// Ordinary memory, as programs have their large buffers in. It begins at a page, or as far behind
// one as malloc's memory does, so that its position does not depend on chance. A copy waits for its
// own stores if its target lies a little behind its source, counted from the beginnings of their
// pages.
class Buffer {
 public:
  Buffer(std::uint64_t bytes, const harness::BenchOptions& options)
      : begin_(options.memory == "malloc" ? kBehindPage : 0),
        memory_(static_cast<std::byte*>(std::aligned_alloc(kPage, rounded(begin_ + bytes)))) {
    if (memory_ == nullptr) std::abort();
    std::fill_n(memory_.get(), rounded(begin_ + bytes), std::byte{0});
  }
  [[nodiscard]] std::byte* data() const { return memory_.get() + begin_; }

 private:
  static constexpr std::uint64_t kPage = 4096;
  static constexpr std::uint64_t kBehindPage = 16;  // glibc's, of what it maps by itself
  static std::uint64_t rounded(std::uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::uint64_t begin_;
  std::unique_ptr<std::byte, Free> memory_;
};

// The fill value of a payload: different in each process, thread and run, and never 0.
inline std::byte pattern(std::uint32_t rank, std::uint32_t thread, std::uint64_t run) {
  return static_cast<std::byte>(1 + (rank * 31 + thread * 7 + run * 83) % 251);
}
inline void fill(std::byte* data, std::uint64_t bytes, std::byte with) {
  std::fill_n(data, bytes, with);
}
inline bool is_filled(const std::byte* data, std::uint64_t bytes, std::byte with) {
  return std::all_of(data, data + bytes, [with](std::byte one) { return one == with; });
}

// Whether the condition is true for each of so many lanes.
template <class Right>
bool of_all(std::uint32_t lanes, Right&& right) {
  bool all = true;
  for (std::uint32_t lane = 0; lane < lanes; ++lane) all = all && right(lane);
  return all;
}

// The resources that these options need: ways into the library for as many threads, and memory.
struct Needs {
  std::uint32_t lanes;
  std::uint64_t region_bytes;
};
Needs needs_of(const harness::BenchSession& session);

// The work of a memory's owner while another process works with the memory.
enum class Owner : std::uint8_t { sleeps, helps };

class Bench {
 public:
  explicit Bench(harness::BenchSession& session)
      : session_(session), options_(session.options()), rank_(session.rank()), size_(session.size()) {}

  // Sets the participant whose figures are measured from now on.
  template <Library L>
  void use(L& library) {
    identity_ = library.identity();
    meet_ = [&library] { library.meet(); };
    progress_ = [&library](std::uint32_t lane) { return library.progress(lane); };
  }

  // Only ranks 0 and 1 work; the others stand for another node.
  void only_first_pair() { only_first_pair_ = true; }

  [[nodiscard]] std::uint32_t rank() const { return rank_; }
  [[nodiscard]] std::uint32_t size() const { return size_; }
  [[nodiscard]] std::uint32_t peer() const { return rank_ ^ 1U; }
  [[nodiscard]] const harness::BenchOptions& options() const { return options_; }
  [[nodiscard]] harness::BenchSession& session() const { return session_; }
  [[nodiscard]] const Identity& identity() const { return identity_; }
  [[nodiscard]] Owner owner() const { return identity_.owner_helps ? Owner::helps : Owner::sleeps; }

  // Atomics can be measured: no message carries them out at the target, or its helpers do. If not,
  // says so once.
  [[nodiscard]] bool can_measure_atomics();

  [[nodiscard]] bool wants(const char* bench, const char* op = nullptr) const { return session_.wants(bench, op); }
  // Is the program asked for, and one of so many processes?
  [[nodiscard]] bool wants_program(const char* program) const;
  // The sizes that are asked for, or the standard ones, up to `most`. Sizes that are asked for and
  // larger than `most` are reported as left out of `bench`.
  [[nodiscard]] std::vector<std::uint64_t> sizes(const char* bench, std::vector<std::uint64_t> standard,
                                                 std::uint64_t most = kMostBytes) const;
  // Tells the driver that a size is not measured, if it was asked for. `takes`: the sizes that are,
  // such as "at most 4096".
  void leave_out(const char* bench, std::uint64_t bytes, const std::string& takes) const;
  // For programs: one size, or one number of threads, is enough for a quick run.
  [[nodiscard]] std::vector<std::uint64_t> program_sizes(std::vector<std::uint64_t> standard,
                                                         std::uint64_t most = kMostBytes) const;
  [[nodiscard]] std::vector<std::uint32_t> program_threads(std::vector<std::uint32_t> standard) const;
  [[nodiscard]] Task program(const std::string& op, const char* metric, std::uint64_t bytes, double per_iteration,
                             std::uint32_t threads = 1) const {
    return {bench_name(options_.busy), op, metric, bytes, per_iteration, threads};
  }
  [[nodiscard]] Figure figure(const Task& task) const;
  // The figures of a program of windows, by iterations of so many windows. With --switches also the
  // number of context switches of all processes for one window.
  [[nodiscard]] std::vector<Figure> by_windows(const Task& task, std::uint64_t windows) const;

  // All processes work, with so many threads each. The time is from the first beginning to the last
  // end; then all meet by the library's own barrier, which makes progress for those that are still
  // at work.
  void measure(std::span<const Figure> figures, std::uint32_t threads, const Work& work);
  void measure(const Task& task, const Work& work) {
    const Figure one = figure(task);
    measure(std::span(&one, 1), task.threads, work);
  }
  harness::Interval run(std::uint32_t threads, std::uint64_t n, const Work& work);
  // Rank 0 works, all cores are its own unless rank 1 helps; the others sleep.
  void at_origin(std::span<const Figure> figures, std::uint32_t threads, Owner owner,
                 const std::function<Run(std::uint64_t n)>& work);
  void at_origin(const Task& task, Owner owner, const std::function<void(std::uint32_t lane, std::uint64_t n)>& each);
  // Whether it is true in ranks 0 and 1. Collective.
  bool everywhere(bool here);
  // `threads` threads of this process as at_origin places them.
  double together(std::uint32_t threads, Owner owner, const std::function<void(std::uint32_t lane)>& work) const;

 private:
  harness::BenchSession& session_;
  const harness::BenchOptions& options_;
  const std::uint32_t rank_;  // kept here, since timed loops read it
  const std::uint32_t size_;
  Identity identity_;
  std::function<void()> meet_;
  std::function<bool(std::uint32_t)> progress_;
  bool only_first_pair_ = false;
  bool told_atomics_ = false;
  std::uint64_t runs_ = 0;
  std::uint64_t turn_ = 0;  // of flag 3: the run of at_origin that is over
};

}  // namespace heddle::bench::measure
