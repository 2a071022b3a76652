// Copies: words and short copies without a call, and long copies whose speed does not depend on
// where source and target lie.
#pragma once

#include <cstddef>
#include <cstring>

namespace heddle::base {

#if defined(__x86_64__)
// The copy that copy_data() uses for kLeastLong to kMostLong bytes.
void copy_long(void* to, const void* from, std::size_t bytes);
inline constexpr std::size_t kLeastLong = 1024;
inline constexpr std::size_t kMostLong = std::size_t{1} << 20;
// What copy_long() chooses from, for the test of each: kLeastLong bytes or more, that do not
// overlap. copy_by_32 needs AVX2. copy_by_string is `rep movsb`: it writes whole lines without
// fetching them first, so that it is two to three times as fast as a loop where another core had
// them last.
void copy_by_16(std::byte* to, const std::byte* from, std::size_t bytes);
void copy_by_32(std::byte* to, const std::byte* from, std::size_t bytes);
void copy_by_string(std::byte* to, const std::byte* from, std::size_t bytes);
#endif

// Copies data, which may overlap: a program may put to itself. With no bytes the addresses may be
// null.
//
// Not memcpy, since glibc's, from 2 or 4 KiB to the size of an L2 cache, is one instruction (`rep
// movsb`), which current AMD processors execute 25 times as slowly if the target lies 1 to 63 bytes
// after the source, modulo 4096 (glibc bug 30994, mended in 2.39). That is the case for long pieces
// of memory from malloc, which begin 16 bytes into a page, and pages shared by processes. Then a
// loop copies; else that instruction does.
inline void copy_data(void* to, const void* from, std::size_t bytes) {
#if defined(__x86_64__)
  if (bytes >= kLeastLong && bytes <= kMostLong) return copy_long(to, from, bytes);
#endif
  if (bytes != 0) std::memmove(to, from, bytes);
}

// Copies so that naturally aligned accesses of 1, 2, 4 and 8 bytes are single accesses. With no
// bytes the addresses may be null.
inline void copy_bytes(void* to, const void* from, std::size_t bytes) {
  switch (bytes) {
    case 8:
      std::memcpy(to, from, 8);
      return;
    case 4:
      std::memcpy(to, from, 4);
      return;
    case 2:
      std::memcpy(to, from, 2);
      return;
    case 1:
      std::memcpy(to, from, 1);
      return;
    case 0:
      return;
    default:
      copy_data(to, from, bytes);
      return;
  }
}

// From 16 to 64 bytes, that do not overlap: pieces may have bytes in common.
[[gnu::always_inline]] inline void copy_pieces(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 32) {
    std::memcpy(to + 16, from + 16, 16);
    std::memcpy(to + bytes - 32, from + bytes - 32, 16);
  }
  std::memcpy(to, from, 16);
  std::memcpy(to + bytes - 16, from + bytes - 16, 16);
}

inline constexpr std::size_t kShortBytes = 64;

// At most kShortBytes, that do not overlap. No loop and no call: two pieces may have bytes in
// common. With no bytes the addresses may be null.
[[gnu::always_inline]] inline void copy_short(void* to, const void* from, std::size_t bytes) {
  auto* const out = static_cast<std::byte*>(to);
  const auto* const in = static_cast<const std::byte*>(from);
  const auto ends = [&](std::size_t piece) {
    std::memcpy(out, in, piece);
    std::memcpy(out + bytes - piece, in + bytes - piece, piece);
  };
  if (bytes >= 16) {
    copy_pieces(out, in, bytes);
  } else if (bytes >= 8) {
    ends(8);
  } else if (bytes >= 4) {
    ends(4);
  } else if (bytes >= 2) {
    ends(2);
  } else if (bytes == 1) {
    *out = *in;
  }
}

}  // namespace heddle::base
