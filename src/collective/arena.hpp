// Memory that all ranks can reach, for the counters and slots of collective operations: pieces of
// one region.
//
// A piece whose operation has gone is used again only when all that peers give to its counters has
// come, since what they put comes before it: a rank that is behind may still be at the last run.
// What cannot come any more, since a peer has died, keeps its piece to the end of the context.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "base/cache_line.hpp"
#include "collective/session_queue.hpp"
#include "queue/fetching_mutex.hpp"

namespace heddle::collective {

class Arena {
 public:
  Arena(std::byte* base, std::uint64_t bytes);

  [[nodiscard]] std::byte* base() const { return base_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

  // Where a piece of so many bytes begins, at a line of its own; empty: there is none. Any thread.
  std::optional<std::uint64_t> take(std::uint64_t bytes);
  // At once. Any thread.
  void give_back(std::uint64_t offset);
  // When the counters there have at least these values. `last`: then runs, from a later call of
  // take() or sweep(); may be empty.
  void give_back_after(std::uint64_t offset, std::vector<std::uint64_t> counters, std::function<void()> last);
  // Pieces that have become free.
  void sweep();

 private:
  struct Late {
    std::uint64_t offset;
    std::vector<std::uint64_t> counters;
    std::function<void()> last;
  };
  [[nodiscard]] bool arrived(const Late& late) const;
  void release(std::uint64_t offset);

  std::byte* const base_;
  const std::uint64_t bytes_;
  queue::FetchingMutex mutex_;
  std::map<std::uint64_t, std::uint64_t> free_;   // bytes by offset; neighbours are one
  std::map<std::uint64_t, std::uint64_t> taken_;  // bytes by offset
  std::vector<Late> late_;
};

}  // namespace heddle::collective
