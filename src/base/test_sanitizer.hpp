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

// How many of many similar cases a test covers. Builds with a sanitizer cover `few`: they take two
// to ten times as long, and look for errors that one case shows as well as the next. Builds without
// a sanitizer cover all cases, and so do builds with one if TEST_IN_FULL=1 is set, as in
// .ci/nightly.
template <class Cases>
Cases few_if_sanitized(Cases few, Cases all) {
  static const bool in_full = (!kThreadSanitizer && !kAddressSanitizer) || std::getenv("TEST_IN_FULL") != nullptr;
  return in_full ? all : few;
}

}  // namespace heddle::base
