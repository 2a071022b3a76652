// Measures collective operations of any library that has the functions of `Library` below, by as
// many processes as there are.
//
// All processes are on one machine and read one clock, so a run lasts from when the last member has
// begun it to when the last one has ended it; before each run there is a barrier. With computation:
// the same, each member computing between start and wait.
#pragma once

#include <algorithm>
#include <array>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/channel.hpp"
#include "harness/collective_options.hpp"
#include "harness/computation.hpp"
#include "harness/statistics.hpp"

namespace heddle::bench::harness {

/* struct Library {
 *   const char* name();  std::uint32_t rank();  std::uint32_t size();
 *   void barrier();
 *   void exchange(const void* mine, std::size_t bytes, void* all);   // in the order of ranks
 *   bool make(const std::string& operation, const std::string& form, std::size_t doubles);   //
 *       false: it has none
 *   double* send();  double* receive();                              // of what was made
 *   void start();  void wait();                                      // blocking: start does
 *       nothing
 *   std::string algorithm();
 *   void drop();
 * }; */

// Blocks of each member's send and receive. A member that needs fewer, as one that is not the root,
// uses fewer.
inline std::uint32_t send_blocks(std::string_view operation, std::uint32_t ranks) {
  const bool spreads = operation.starts_with("scatter") || operation.starts_with("alltoall");
  if (operation == "neighbor_alltoallv") return 2;
  return spreads || operation == "reduce_scatter" ? ranks : 1;
}
inline std::uint32_t receive_blocks(std::string_view operation, std::uint32_t ranks) {
  const bool collects = operation.starts_with("gather") || operation.starts_with("allgather");
  if (operation == "neighbor_alltoallv") return 2;
  return collects || operation.starts_with("alltoall") ? ranks : 1;
}
inline bool only_root_receives(std::string_view operation) {
  return operation == "reduce" || operation.starts_with("gather");
}

// What member `rank` gives in place `i`.
inline double collective_given(std::uint32_t rank, std::size_t i) {
  return static_cast<double>(rank + 1 + i % 5);
}
// What member `rank` of `ranks` has in place `i` of receive in the end; blocks of `doubles`. The
// root is 0.
inline double collective_expected(std::string_view operation, std::uint32_t rank, std::uint32_t ranks,
                                  std::size_t doubles, std::size_t i) {
  const std::size_t block = i / doubles;
  const std::size_t at = i % doubles;
  if (operation == "broadcast") return collective_given(0, i);
  if (operation.starts_with("scatter")) return collective_given(0, rank * doubles + i);
  if (operation.starts_with("gather") || operation.starts_with("allgather"))
    return collective_given(static_cast<std::uint32_t>(block), at);
  if (operation.starts_with("alltoall"))
    return collective_given(static_cast<std::uint32_t>(block), rank * doubles + at);
  // From the one before its first block, which goes to the next; from the next its second.
  if (operation == "neighbor_alltoallv") return collective_given((rank + (block == 0 ? ranks - 1 : 1)) % ranks, i);
  const std::size_t place = operation == "reduce_scatter" ? rank * doubles + i : i;
  const std::uint32_t givers = operation == "scan" ? rank + 1 : ranks;
  double sum = 0;
  for (std::uint32_t other = 0; other < givers; ++other) sum += collective_given(other, place);
  return sum;
}

struct CollectiveResult {
  double init_ns = 0;
  double start_ns = 0;  // of the member that is worst off, as wait_ns
  double wait_ns = 0;
  Summary total_ns;
  double overlapped_ns = 0;
  bool right = true;
};

template <class Library>
class CollectiveTimes {
 public:
  CollectiveTimes(Library& library, const CollectiveOptions& options) : library_(library), options_(options) {}

  // All that is asked, a line each. False: a result was wrong.
  bool run() {
    computation_.run(kWarmNs);
    if (library_.rank() == 0) {
      std::puts(
          "library,operation,form,algorithm,ranks,bytes,init_ns,start_ns,wait_ns,total_ns,low_ns,high_ns,gb_per_s,"
          "overlapped_ns,right");
    }
    bool right = true;
    for (const std::string& name : options_.names) {
      for (const std::uint64_t bytes : options_.sizes) {
        if (name == "barrier" && bytes != options_.sizes[0]) continue;
        for (const std::string& form : options_.forms) right = measure(name, form, bytes) && right;
      }
    }
    return right;
  }

 private:
  // Of one run by one member.
  using Stamps = std::array<std::uint64_t, 3>;
  static constexpr std::uint64_t kMostRuns = 2000;
  // Before the first: until the system has given processes that it started on one core a core each.
  static constexpr std::uint64_t kWarmNs = 100'000'000;

  bool measure(const std::string& name, const std::string& form, std::uint64_t bytes) {
    const std::size_t doubles = name == "barrier" ? 0 : bytes / sizeof(double);
    library_.barrier();
    const std::uint64_t begin = now_ns();
    if (!library_.make(name, form, doubles)) return true;
    CollectiveResult result;
    result.init_ns = worst(static_cast<double>(now_ns() - begin));
    fill(name, doubles);
    const std::uint64_t runs = runs_for_target(result);
    result.right = is_right(name, doubles);
    std::vector<double> totals;
    for (std::uint32_t i = 0; i < options_.repeat; ++i) totals.push_back(repeat(runs, 0, &result));
    result.total_ns = summarize(totals);
    const auto compute_ns = static_cast<std::uint64_t>(result.total_ns.median);
    totals.clear();
    CollectiveResult unused;
    for (std::uint32_t i = 0; i < options_.repeat && options_.overlap; ++i)
      totals.push_back(repeat(runs, compute_ns, &unused));
    if (options_.overlap) result.overlapped_ns = median_of(totals);
    result.right = result.right && is_right(name, doubles);
    result.right = worst(result.right ? 0 : 1) == 0;
    print(name, form, doubles * sizeof(double), result);
    library_.drop();
    return result.right;
  }

  void fill(const std::string& name, std::size_t doubles) {
    const std::size_t all = doubles * send_blocks(name, library_.size());
    if (name == "broadcast") {
      std::fill_n(library_.receive(), doubles, -1);
      for (std::size_t i = 0; i < doubles && library_.rank() == 0; ++i) library_.receive()[i] = collective_given(0, i);
    } else {
      for (std::size_t i = 0; i < all; ++i) library_.send()[i] = collective_given(library_.rank(), i);
    }
  }
  bool is_right(const std::string& name, std::size_t doubles) {
    if (only_root_receives(name) && library_.rank() != 0) return true;
    const std::size_t all = doubles * receive_blocks(name, library_.size());
    for (std::size_t i = 0; i < all; ++i) {
      if (library_.receive()[i] != collective_expected(name, library_.rank(), library_.size(), doubles, i))
        return false;
    }
    return true;
  }

  std::uint64_t runs_for_target(CollectiveResult& result) {
    const double one = std::max(100.0, repeat(5, 0, &result));
    // The barrier before each run costs about as much as a small run.
    const double fit = static_cast<double>(options_.target_ns) / (one + 5000);
    return std::clamp(static_cast<std::uint64_t>(fit), std::uint64_t{5}, kMostRuns);
  }

  // The median of the times of `runs` runs.
  double repeat(std::uint64_t runs, std::uint64_t compute_ns, CollectiveResult* result) {
    std::vector<Stamps> mine(runs);
    for (Stamps& stamps : mine) {
      library_.barrier();
      stamps[0] = now_ns();
      library_.start();
      stamps[1] = now_ns();
      if (compute_ns != 0) computation_.run(compute_ns);
      library_.wait();
      stamps[2] = now_ns();
    }
    const std::uint32_t ranks = library_.size();
    std::vector<Stamps> all(runs * ranks);
    library_.exchange(mine.data(), runs * sizeof(Stamps), all.data());
    std::vector<double> totals(runs);
    for (std::size_t i = 0; i < runs; ++i) {
      Stamps last{};
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        for (std::size_t k = 0; k < last.size(); ++k) last[k] = std::max(last[k], all[rank * runs + i][k]);
      }
      totals[i] = static_cast<double>(last[2] - last[0]);
    }
    result->start_ns = worst_median(all, runs, 1);
    result->wait_ns = worst_median(all, runs, 2);
    return median_of(totals);
  }
  static double worst_median(const std::vector<Stamps>& all, std::uint64_t runs, std::size_t which) {
    double most = 0;
    for (std::size_t begin = 0; begin < all.size(); begin += runs) {
      std::vector<double> times(runs);
      for (std::size_t i = 0; i < runs; ++i) {
        times[i] = static_cast<double>(all[begin + i][which] - all[begin + i][which - 1]);
      }
      most = std::max(most, median_of(times));
    }
    return most;
  }

  double worst(double mine) {
    std::vector<double> all(library_.size());
    library_.exchange(&mine, sizeof mine, all.data());
    return *std::max_element(all.begin(), all.end());
  }

  void print(const std::string& name, const std::string& form, std::uint64_t bytes, const CollectiveResult& result) {
    if (library_.rank() != 0) return;
    std::printf("%s,%s,%s,%s,%u,%llu,%.0f,%.0f,%.0f,%.0f,%.0f,%.0f,%.3f,%.0f,%s\n", library_.name(), name.c_str(),
                form.c_str(), library_.algorithm().c_str(), library_.size(), static_cast<unsigned long long>(bytes),
                result.init_ns, result.start_ns, result.wait_ns, result.total_ns.median, result.total_ns.low95,
                result.total_ns.high95, static_cast<double>(bytes) / std::max(1.0, result.total_ns.median),
                result.overlapped_ns, result.right ? "yes" : "NO");
    std::fflush(stdout);
  }

  Library& library_;
  const CollectiveOptions& options_;
  Computation computation_;
};

}  // namespace heddle::bench::harness
