// Alignment that keeps two objects on separate cache lines.
#pragma once

#include <cstddef>

namespace heddle::base {

// 64 bytes on x86 (and most others), 256 on A64FX, the processor of Fugaku; generic aarch64 builds
// take the larger one.
#if defined(__aarch64__)
inline constexpr std::size_t kCacheLine = 256;
#else
inline constexpr std::size_t kCacheLine = 64;
#endif

}  // namespace heddle::base
