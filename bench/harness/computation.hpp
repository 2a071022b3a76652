// A computation of a given length: work, not time, so that who loses its core meanwhile takes
// longer.
#pragma once

#include <cstdint>

namespace heddle::bench::harness {

class Computation {
 public:
  Computation();  // finds how fast this core computes when nothing disturbs it; a millisecond
  // As much as an undisturbed core computes in this time.
  void run(std::uint64_t ns);
  [[nodiscard]] std::uint64_t state() const { return state_; }

 private:
  void steps(std::uint64_t count);
  double steps_per_ns_ = 1;
  std::uint64_t state_ = 1;
};

}  // namespace heddle::bench::harness
