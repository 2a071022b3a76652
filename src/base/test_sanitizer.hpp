// For tests: is this a build with AddressSanitizer? A test that runs for most of a minute because
// it repeats itself, or covers many similar cases, may do less there; builds without it run
// everything.
#pragma once

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

}  // namespace heddle::base
