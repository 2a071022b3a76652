// A small seeded generator (xorshift64*, Vigna 2016) for back-off, fault injection and tests. Not
// for secrets.
#pragma once

#include <cstdint>

namespace heddle::base {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ULL + 0x2545F4914F6CDD1DULL) {
    if (state_ == 0) state_ = 1;
  }
  std::uint64_t next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545F4914F6CDD1DULL;
  }
  // Uniform in [0, bound), bound > 0.
  std::uint64_t below(std::uint64_t bound) {
    __extension__ typedef unsigned __int128 Wide;  // not ISO C++, but both compilers have it
    return static_cast<std::uint64_t>((static_cast<Wide>(next()) * bound) >> 64);
  }

 private:
  std::uint64_t state_;
};

}  // namespace heddle::base
