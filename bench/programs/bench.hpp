// What every program is written with: who takes part, how a measurement is run and checked. The
// library that is measured is a template parameter, so that its calls are compiled straight into
// the loops; README.md tells what it must have.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "harness/cores.hpp"
#include "harness/crowd.hpp"
#include "harness/session.hpp"
#include "programs/programs.hpp"

namespace heddle::bench::programs {

using harness::CrowdWork;
using harness::Figure;
using harness::Run;

inline constexpr std::uint32_t kAny = ~std::uint32_t{0};  // as the source of a receive

// The memory that others put into and get from: words to wait for, then data.
inline constexpr std::uint64_t kWordBytes =
    256;  // from one word to the next: no two in lines that are fetched together
inline constexpr std::uint64_t kWords = 1024;
inline constexpr std::uint64_t kDataAt = kWords * kWordBytes;
inline constexpr std::uint64_t kDataBytes = std::uint64_t{8} << 20;
inline constexpr std::uint64_t kRegionBytes = kDataAt + kDataBytes;
inline constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 20;  // of one message

inline constexpr std::uint64_t word_at(std::uint64_t i) {
  return i * kWordBytes;
}

// Ordinary memory, as programs have their large buffers in. It begins with a page, or as far behind
// one as malloc does: where that puts it by chance decides nothing.
class Buffer {
 public:
  Buffer(std::uint64_t bytes, const harness::Options& options)
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

// What a payload is filled with: another in each process, thread and run, never 0.
inline std::byte pattern(std::uint32_t rank, std::uint32_t thread, std::uint64_t run) {
  return static_cast<std::byte>(1 + (rank * 31 + thread * 7 + run * 83) % 251);
}
inline void fill(std::byte* data, std::uint64_t bytes, std::byte with) {
  std::fill_n(data, bytes, with);
}
inline bool is_filled(const std::byte* data, std::uint64_t bytes, std::byte with) {
  return std::all_of(data, data + bytes, [with](std::byte one) { return one == with; });
}

class Bench {
 public:
  // `session` is null in ranks from 2 on.
  Bench(harness::Session* session, harness::Crowd& crowd, const harness::Options& options)
      : session_(session), crowd_(crowd), options_(options), cores_(harness::Cores::parse(options.cores)) {}

  [[nodiscard]] std::uint32_t rank() const { return crowd_.rank(); }
  [[nodiscard]] std::uint32_t size() const { return crowd_.size(); }
  [[nodiscard]] std::uint32_t peer() const { return crowd_.rank() ^ 1U; }
  [[nodiscard]] const harness::Options& options() const { return options_; }
  [[nodiscard]] harness::Session* session() const { return session_; }

  // Is the program asked for, and one of so many processes?
  [[nodiscard]] bool wants(const char* program) const {
    if (!options_.ops.empty() && !contains(options_.ops, program)) return false;
    return std::any_of(std::begin(kGroups), std::end(kGroups), [&](Group group) {
      return processes_of(group) == size() && contains(programs_of(group), program);
    });
  }
  [[nodiscard]] std::vector<std::uint64_t> sizes(std::vector<std::uint64_t> standard) const {
    auto out = harness::sizes_or(options_, std::move(standard));
    if (options_.quick && out.size() > 2) out.erase(out.begin() + 1, out.end() - 1);
    std::erase_if(out, [](std::uint64_t bytes) { return bytes > kMostBytes; });
    return out;
  }
  [[nodiscard]] std::vector<std::uint32_t> threads(std::vector<std::uint32_t> standard) const {
    auto out = harness::threads_or(options_, std::move(standard));
    if (options_.quick && out.size() > 1) out.erase(out.begin(), out.end() - 1);
    std::erase_if(out, [](std::uint32_t count) { return count > kMostThreads; });
    return out;
  }

  template <class Library>
  [[nodiscard]] Figure figure(const Library& library, const std::string& op, const char* metric, std::uint64_t bytes,
                              double per_iteration, std::uint32_t threads = 1) const {
    Figure out;
    out.key.bench = bench_name(options_.busy);
    out.key.op = op;
    out.key.transport = library.transport();
    out.key.sharing = library.sharing();
    out.key.metric = metric;
    if (options_.memory == "malloc") out.key.memory = options_.memory;
    out.key.processes = size();
    out.key.threads = threads;
    out.key.workers = library.workers(threads);
    out.key.size_bytes = bytes;
    out.per_iteration = per_iteration;
    return out;
  }

  // What a program of windows measures, by iterations of so many windows: with --switches also how
  // often threads of all processes gave their cores away for one.
  [[nodiscard]] std::vector<Figure> by_windows(Figure what, std::uint64_t windows) const {
    std::vector<Figure> out = {what};
    for (const char* metric : {"voluntary", "involuntary"}) {
      if (!options_.switches) break;
      what.key.metric = metric;
      what.per_iteration = static_cast<double>(windows);
      out.push_back(what);
    }
    return out;
  }

  // prepare(run): before each run, with its number; work(lane, n): n iterations by each of
  // `threads` threads; right(run): afterwards. The time is from the first beginning to the last
  // end; then all meet by the library's own barrier, which makes progress for those that are still
  // at work.
  template <class Library, class Prepare, class Work, class Right>
  void measure(Library& library, const Figure& what, std::uint32_t threads, Prepare&& prepare, Work&& work,
               Right&& right) {
    measure(library, std::span(&what, 1), threads, prepare, work, right);
  }
  // The same time as several figures.
  template <class Library, class Prepare, class Work, class Right>
  void measure(Library& library, std::span<const Figure> what, std::uint32_t threads, Prepare&& prepare, Work&& work,
               Right&& right) {
    CrowdWork parts;
    parts.prepare = [&] { prepare(++runs_); };
    parts.run = [&](std::uint64_t n) { return run(library, threads, n, work); };
    parts.right = [&] { return right(runs_); };
    crowd_.measure(session_, what, parts);
  }
  template <class Library, class Work>
  harness::Interval run(Library& library, std::uint32_t threads, std::uint64_t n, Work&& work) {
    // More processes than cores are left to the scheduler, as launchers leave them.
    const auto pin = [&](std::uint32_t thread) {
      size() > 2 ? cores_.unpin() : cores_.pin_sharing(rank() % 2, thread);
    };
    const auto time = harness::run_threads_between(threads, pin, [&](std::uint32_t thread) { work(thread, n); });
    library.meet();
    return time;
  }

 private:
  harness::Session* session_;
  harness::Crowd& crowd_;
  const harness::Options& options_;
  harness::Cores cores_;
  std::uint64_t runs_ = 0;
};

}  // namespace heddle::bench::programs
