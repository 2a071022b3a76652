// Memory for operations whose slots are too large for the arena: regions that peers reach. Those of
// the last operations are kept, since a new one costs a page fault for each of its pages.
//
// Invariant: a kept region is one that no peer will access any more (Places::give_back()), so the
// next operation may have it as it is: slots are written before they are read.
#pragma once

#include <cstdint>
#include <vector>

#include "queue/locks.hpp"
#include "worker/context.hpp"

namespace heddle::collective {

class Scratch {
 public:
  // Keeps regions of at most `most_kept` bytes together.
  Scratch(engine::Context& context, std::uint64_t most_kept) : context_(context), most_kept_(most_kept) {
    kept_.reserve(kMostRegions);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // A region of at least `bytes`. Any thread.
  base::Result<engine::Region*> take(std::uint64_t bytes);
  // Any thread.
  void give_back(engine::Region* region);

 private:
  static constexpr std::size_t kMostRegions = 64;

  engine::Region* take_kept(std::uint64_t bytes);
  engine::Region* keep(engine::Region* region);
  engine::Region* take_surplus();

  engine::Context& context_;
  const std::uint64_t most_kept_;
  queue::FetchingMutex mutex_;         // guards the two below
  std::vector<engine::Region*> kept_;  // the longest kept first; they end with the context
  std::uint64_t kept_bytes_ = 0;
};

}  // namespace heddle::collective
