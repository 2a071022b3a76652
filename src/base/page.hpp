// Pages: how large they may be, for alignments that the compiler has to know. How large they are,
// sysconf says.
#pragma once

#include <cstddef>

namespace heddle::base {

// 64 KiB on many an aarch64, Fugaku's among them. Elsewhere not more than there is: valgrind does
// not read the symbols of libraries that are aligned to more than a page.
#if defined(__aarch64__)
inline constexpr std::size_t kLargestPage = 65536;
#else
inline constexpr std::size_t kLargestPage = 4096;
#endif

}  // namespace heddle::base
