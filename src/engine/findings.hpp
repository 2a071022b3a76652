// The operations that a worker has under way, for a report: in words, and as values for the verdict
// on why a job does not move (diagnosis/). Filled by the thread inside the worker. May throw
// std::bad_alloc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/job.hpp"
#include "tap/snapshot.hpp"

namespace heddle::engine {

class Findings {
 public:
  explicit Findings(const Job& job) : job_(job) {}

  // A line of the report.
  [[gnu::cold, gnu::format(printf, 2, 3)]] void say(const char* format, ...);
  // The first kMostListed of each kind are kept.
  void under_way(tap::Awaited&& awaited);
  // A message that has arrived and that no receive has matched. It is counted with those of the
  // same sender and tag.
  void kept(std::uint32_t rank, std::uint32_t worker, std::uint64_t tag);

  [[nodiscard]] const Job& job() const { return job_; }
  [[nodiscard]] std::string tag_text(std::uint64_t tag, std::uint64_t mask = ~std::uint64_t{0}) const {
    return job_.tag_text(tag, mask);
  }

  tap::WorkerState state;
  std::vector<std::string> lines;

 private:
  const Job& job_;
};

}  // namespace heddle::engine
