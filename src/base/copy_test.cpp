#include "base/copy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace heddle::base::copy_test {
namespace {

constexpr std::size_t kMargin = 256;

// Whether a copy of `bytes` between places that lie so in their lines is right, and writes nothing
// else.
template <class Copy>
bool copies(std::size_t to_offset, std::size_t from_offset, std::size_t bytes, Copy&& copy) {
  std::vector<std::uint8_t> from(bytes + 2 * kMargin);
  std::vector<std::uint8_t> to(bytes + 2 * kMargin, 0xee);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::uint8_t>(i * 31 + (i >> 8) * 7);
  std::vector<std::uint8_t> expected = to;
  for (std::size_t i = 0; i < bytes; ++i) expected[to_offset + i] = from[from_offset + i];
  copy(to.data() + to_offset, from.data() + from_offset, bytes);
  return to == expected;
}
bool copies(std::size_t to_offset, std::size_t from_offset, std::size_t bytes) {
  return copies(to_offset, from_offset, bytes, copy_data);
}

TEST(Copy, EveryLengthUpToSomeBlocks) {
  for (std::size_t bytes = 1; bytes <= 1600; ++bytes) ASSERT_TRUE(copies(64, 64, bytes)) << bytes;
}

TEST(Copy, WhereverTheTwoLie) {
  for (const std::size_t bytes : {1024U, 1025U, 1087U, 2048U, 4095U, 4096U, 10'001U}) {
    for (std::size_t to = 0; to < 70; ++to) {
      for (const std::size_t from : {0U, 1U, 8U, 15U, 16U, 40U, 63U}) {
        ASSERT_TRUE(copies(to, from, bytes)) << bytes << " bytes from " << from << " to " << to;
      }
    }
  }
}

TEST(Copy, LongOnes) {
  for (const std::size_t bytes : {65'536U, 262'147U, (1U << 20) - 1, 1U << 20, (1U << 20) + 1, 3'000'000U}) {
    ASSERT_TRUE(copies(16, 0, bytes)) << bytes;
    ASSERT_TRUE(copies(5, 40, bytes)) << bytes;
  }
}

TEST(Copy, WhatOverlaps) {
  for (const std::size_t bytes : {100U, 1023U, 1024U, 5000U, 100'000U, 3'000'000U}) {
    for (const std::size_t by : {1U, 16U, 64U, 500U}) {
      std::vector<std::uint8_t> data(bytes + by);
      for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::uint8_t>(i * 31 + (i >> 8) * 7);
      const std::vector<std::uint8_t> before = data;
      copy_data(data.data() + by, data.data(), bytes);
      ASSERT_TRUE(std::equal(before.begin(), before.begin() + static_cast<std::ptrdiff_t>(bytes),
                             data.begin() + static_cast<std::ptrdiff_t>(by)));
      data = before;
      copy_data(data.data(), data.data() + by, bytes);
      ASSERT_TRUE(std::equal(before.begin() + static_cast<std::ptrdiff_t>(by), before.end(), data.begin()));
    }
  }
}

#if defined(__x86_64__)
// Also the one that this machine does not take.
TEST(Copy, EachOfThem) {
  const auto by_string = [](void* to, const void* from, std::size_t bytes) {
    copy_by_string(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
  };
  const auto by_16 = [](void* to, const void* from, std::size_t bytes) {
    copy_by_16(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
  };
  const auto by_32 = [](void* to, const void* from, std::size_t bytes) {
    copy_by_32(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
  };
  const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;
  for (std::size_t bytes = kLeastLong; bytes <= kLeastLong + 300; ++bytes) {
    for (const std::size_t to : {0U, 1U, 31U, 63U}) {
      ASSERT_TRUE(copies(to, 16, bytes, by_16)) << bytes << " bytes to " << to;
      ASSERT_TRUE(copies(to, 16, bytes, by_string)) << bytes << " bytes to " << to;
      ASSERT_TRUE(!has_avx2 || copies(to, 16, bytes, by_32)) << bytes << " bytes to " << to;
    }
  }
}
#endif

TEST(Copy, NothingFromNowhere) {
  copy_data(nullptr, nullptr, 0);
  copy_bytes(nullptr, nullptr, 0);
}

}  // namespace
}  // namespace heddle::base::copy_test
