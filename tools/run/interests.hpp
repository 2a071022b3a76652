// Descriptors that stay the same for a long time, and the events to wait for on each. They use
// epoll(7), which is told only of changes. So the cost of a round depends on what has happened, not
// on the number of descriptors.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "base/fd.hpp"

namespace heddle::tools::run {

class Interests {
 public:
  // For descriptors 0 to `count` - 1, in numbers of the caller's.
  base::Status open(std::size_t count);

  // Becomes readable when some descriptor is ready. Another one after some calls of ready().
  [[nodiscard]] int fd() const { return epoll_.get(); }

  // From now on `number` is this descriptor, and these events of poll(2) are waited for; none: also
  // not its end. -1: the descriptor has been closed; others may have copies of it (children between
  // fork and exec). To be told before ready() is called. A number always means the same descriptor,
  // but for -1 before and after.
  base::Status set(std::uint32_t number, int fd, short events);

  // The numbers of some that are ready, each once; empty: none is. Never waits. The result is valid
  // until the next call. A descriptor may have been closed since it became ready.
  [[nodiscard]] std::span<const std::uint32_t> ready();

 private:
  struct Entry {
    int fd = -1;  // -1: the kernel knows nothing of it
    short events = 0;
  };
  static base::Status tell(const base::Fd& epoll, int change, std::uint32_t number, const Entry& entry);
  bool begin_anew();

  base::Fd epoll_;
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> ready_;
};

}  // namespace heddle::tools::run
