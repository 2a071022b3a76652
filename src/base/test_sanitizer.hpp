// For tests: is this a build with AddressSanitizer? A test that runs for most of a minute because
// it repeats itself, or covers many similar cases, may do less there; builds without it run
// everything.
#pragma once

#include <cstdlib>

#include "base/fence.hpp"

namespace heddle::base {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAddressSanitizer = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif
#else
inline constexpr bool kAddressSanitizer = false;
#endif

// How many of many similar cases a test covers: `few` with a sanitizer, whose builds take two to
// ten times as long and look for what one case shows as well as the next. Builds without have all
// of them; with one TEST_IN_FULL=1 has, which .ci/nightly sets.
template <class Cases>
Cases few_if_sanitized(Cases few, Cases all) {
  static const bool in_full = (!kThreadSanitizer && !kAddressSanitizer) || std::getenv("TEST_IN_FULL") != nullptr;
  return in_full ? all : few;
}

}  // namespace heddle::base
