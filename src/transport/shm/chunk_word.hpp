// The word by which two processes hand a piece of shared memory to each other: {generation, state}.
#pragma once

#include <cstdint>

namespace heddle::transport::shm {

enum class ChunkState : std::uint64_t { free = 0, requested = 1, taken = 2, done = 3, failed = 4 };

constexpr std::uint64_t chunk_word(std::uint64_t generation, ChunkState state) {
  return generation << 3 | static_cast<std::uint64_t>(state);
}
constexpr ChunkState state_of(std::uint64_t word) {
  return static_cast<ChunkState>(word & 7U);
}
constexpr std::uint64_t generation_of(std::uint64_t word) {
  return word >> 3;
}

}  // namespace heddle::transport::shm
