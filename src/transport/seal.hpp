// A checksum that depends on the job's secret. It tells bytes that ranks of this job have written
// from accidental ones, or those of another job. It is no protection against an attacker who
// computes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "bootstrap/bootstrap.hpp"

namespace heddle::transport {

// `count`: a multiple of 8. Every bit of the bytes matters.
inline std::uint64_t seal_of_words(const void* bytes, std::size_t count, const bootstrap::JobSecret& secret) {
  std::uint64_t keys[2];
  static_assert(sizeof keys == sizeof secret);
  std::memcpy(keys, secret.data(), sizeof keys);
  std::uint64_t sum = keys[0];
  for (std::size_t at = 0; at + 8 <= count; at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, static_cast<const std::byte*>(bytes) + at, sizeof word);
    sum = (sum ^ word) * 0xBF58476D1CE4E5B9ULL;
    sum ^= sum >> 29;
  }
  sum = (sum ^ keys[1]) * 0x94D049BB133111EBULL;
  return sum ^ sum >> 31;
}

}  // namespace heddle::transport
