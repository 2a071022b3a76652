// What the ranks of a job have in common: settings that must be equal, and the seal on the data
// that they write for each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/config.hpp"
#include "base/error.hpp"
#include "bootstrap/bootstrap.hpp"

namespace heddle::transport {

// Settings of the layers above by which both ends of a message count credit: if they differed, one
// end would wait for credit that the other never gives. They travel in each transport's card, and
// ranks whose settings differ do not connect.
struct Agreed {
  std::uint64_t tag_credit_bytes = 0;  // HEDDLE_TAG_CREDIT_BYTES
  std::uint64_t am_user_bytes = 0;     // HEDDLE_AM_USER_BYTES
};

inline Agreed agreed_of(const base::Config& config) {
  return {config.number(base::Var::tag_credit_bytes), config.number(base::Var::am_user_bytes)};
}

[[gnu::cold]] inline base::Status disagree(const char* what, std::uint32_t rank, std::uint64_t theirs,
                                           std::uint64_t mine) {
  return base::fail(HEDDLE_ERR_VERSION, "%s of rank %u is %llu, of this rank %llu; give all ranks the same value", what,
                    rank, static_cast<unsigned long long>(theirs), static_cast<unsigned long long>(mine));
}

// VERSION, with a message that names both values, if they differ.
inline base::Status check_agreed(const Agreed& theirs, const Agreed& mine, std::uint32_t rank) {
  if (theirs.tag_credit_bytes != mine.tag_credit_bytes) {
    return disagree("HEDDLE_TAG_CREDIT_BYTES", rank, theirs.tag_credit_bytes, mine.tag_credit_bytes);
  }
  if (theirs.am_user_bytes != mine.am_user_bytes) {
    return disagree("HEDDLE_AM_USER_BYTES", rank, theirs.am_user_bytes, mine.am_user_bytes);
  }
  return HEDDLE_DONE;
}

// A checksum that depends on the job's secret. It tells bytes that ranks of this job have written
// from accidental ones, or those of another job. It is no protection against an attacker who
// computes.

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
