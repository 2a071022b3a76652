// A look at a number that its one writer writes without an atomic, for a hint that orders nothing.
#pragma once

#include <cstdint>

namespace heddle::base {

// Aligned words are read and written whole on all processors of this library. The writer's path, a
// direct put, would need two instructions more for an atomic; so ThreadSanitizer is told nothing.
[[gnu::noinline, gnu::no_sanitize_thread]] inline std::uint64_t peek(const std::uint64_t& number) {
  return *static_cast<const volatile std::uint64_t*>(&number);
}

}  // namespace heddle::base
