// Page sizes: the largest possible one, for alignments that the compiler has to know. sysconf gives
// the actual size.
#pragma once

#include <cstddef>

namespace heddle::base {

// 64 KiB on many aarch64 machines, Fugaku among them. Elsewhere not more than the actual page:
// valgrind does not read the symbols of libraries that are aligned to more than a page.
#if defined(__aarch64__)
inline constexpr std::size_t kLargestPage = 65536;
#else
inline constexpr std::size_t kLargestPage = 4096;
#endif

}  // namespace heddle::base
