// Whether the user's program was compiled with a sanitizer, which the installed library was not.
#pragma once

// Symbols of the run-time libraries of AddressSanitizer and ThreadSanitizer; null if the process
// has none.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): the names are given
extern "C" {
[[gnu::weak]] void __asan_init();
[[gnu::weak]] void __tsan_init();
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

namespace heddle::base {

// Such a program replaces functions of the C library: those that copy, map and allocate memory.
inline bool runs_with_sanitizer() {
  return __asan_init != nullptr || __tsan_init != nullptr;
}

}  // namespace heddle::base
