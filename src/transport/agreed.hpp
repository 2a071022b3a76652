// Settings of the layers above by which both ends of a message count credit: if they differed, one
// end would wait for credit that the other never gives. They travel in each transport's card, and
// ranks whose settings differ do not connect.
#pragma once

#include <cstdint>

#include "base/config.hpp"
#include "base/error.hpp"

namespace heddle::transport {

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

}  // namespace heddle::transport
