// Memory that all ranks can reach, for the counters and slots of collective operations: pieces of
// one region.
//
// The piece of a closed operation is reused only when all credits that peers owe to its counters
// have arrived, since their puts come before these credits: a rank that is behind may still be in
// the last run. If such credits can no longer arrive, since a peer has died, the piece stays in use
// until the context ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "base/cache_line.hpp"
#include "collective/session_queue.hpp"
#include "queue/locks.hpp"

namespace heddle::collective {

class Arena {
 public:
  Arena(std::byte* base, std::uint64_t bytes);

  [[nodiscard]] std::byte* base() const { return base_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

  // Offset of a new piece of that many bytes, aligned to a cache line; empty: no room. Any thread.
  std::optional<std::uint64_t> take(std::uint64_t bytes);
  // Frees the piece at once. Any thread.
  void give_back(std::uint64_t offset);
  // Frees the piece when its counters have at least these values, and then runs `last`, unless it
  // is empty: in this call, or in a later take() or sweep().
  void give_back_after(std::uint64_t offset, std::vector<std::uint64_t> counters, std::function<void()> last);
  // Frees the pieces whose counters have reached their values.
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
  std::map<std::uint64_t, std::uint64_t> free_;   // bytes by offset; neighbouring pieces are merged
  std::map<std::uint64_t, std::uint64_t> taken_;  // bytes by offset
  std::vector<Late> late_;
};

}  // namespace heddle::collective
