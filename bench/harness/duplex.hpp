// Both directions at once, for Heddle and its peers: how much room it takes, and how what arrives
// is checked.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "harness/options.hpp"

namespace heddle::bench::harness {

inline const std::vector<std::uint64_t> kDuplexSizes = {8, 4096, 65536, 1U << 20};
inline const std::vector<std::uint32_t> kDuplexThreads = {1, 2, 4, 8};

// Each thread of a process has its own stretch of this many bytes, to send from as well as to
// receive in.
inline std::uint64_t duplex_stretch(const Options& options) {
  const auto sizes = sizes_or(options, kDuplexSizes);
  return *std::max_element(sizes.begin(), sizes.end());
}
inline std::uint32_t duplex_most_threads(const Options& options) {
  const auto threads = threads_or(options, kDuplexThreads);
  return *std::max_element(threads.begin(), threads.end());
}

// What thread `thread` of process `rank` fills its stretch with: never 0, another in each of a
// pair.
inline unsigned char duplex_pattern(std::uint32_t rank, std::uint32_t thread) {
  return static_cast<unsigned char>(1 + (rank * 64 + thread) % 251);
}
inline void duplex_fill(std::byte* stretch, std::uint64_t size, unsigned char pattern) {
  std::memset(stretch, pattern, size);
}
inline bool duplex_is(const std::byte* stretch, std::uint64_t size, unsigned char pattern) {
  return std::all_of(stretch, stretch + size, [&](std::byte one) { return one == std::byte{pattern}; });
}

}  // namespace heddle::bench::harness
