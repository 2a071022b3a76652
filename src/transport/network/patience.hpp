// For how long something was tried in vain. Only time during which it was tried counts: a process
// that is stopped, often with its whole job, has tried nothing, and when it goes on its peers have
// had no time to answer.
#pragma once

#include <algorithm>
#include <cstdint>

namespace heddle::transport::network {

// For one thread at a time.
class Patience {
 public:
  // It has gone well, or something new is tried.
  void renew() { tried_at_ns_ = 0; }
  // It was tried in vain once more. True: it was tried in vain for `most_ns`; a pause between two
  // tries counts for at most a third of that.
  [[nodiscard]] bool over(std::uint64_t now_ns, std::uint64_t most_ns) {
    spent_ns_ = tried_at_ns_ == 0 ? 0 : spent_ns_ + std::min(now_ns - tried_at_ns_, most_ns / 3);
    tried_at_ns_ = now_ns;
    return spent_ns_ >= most_ns;
  }

 private:
  std::uint64_t tried_at_ns_ = 0;  // 0: not yet
  std::uint64_t spent_ns_ = 0;
};

}  // namespace heddle::transport::network
