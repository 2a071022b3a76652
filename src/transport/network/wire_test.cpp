#include "transport/network/wire.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <vector>

namespace heddle::transport::network::wire_test {
namespace {

// Values of the counters, also such that wrap within the window.
constexpr std::uint32_t kStarts[] = {0, 1000, 0x7ffffff0U, 0xffffff00U, 0xfffffff8U};

std::vector<std::byte> part_of(std::uint32_t says, std::size_t room) {
  std::vector<std::byte> bytes(sizeof(Part) + room);
  const Part part{says, 7};
  std::memcpy(bytes.data(), &part, std::min(sizeof part, bytes.size()));
  return bytes;
}

TEST(NetworkPart, IsReadWhereItIsWhole) {
  Part part;
  for (const std::uint32_t bytes : {0U, 1U, 8U, 9U, kMostPart}) {
    const std::vector<std::byte> whole = part_of(bytes, part_bytes(bytes) - sizeof(Part));
    ASSERT_EQ(whole.size() % 8, 0U);
    EXPECT_TRUE(read_part(whole.data(), static_cast<std::uint32_t>(whole.size()), &part)) << bytes;
    EXPECT_EQ(part.bytes, bytes);
    EXPECT_EQ(part.immediate, 7U);
    for (std::uint32_t cut = 0; cut < whole.size(); ++cut) {
      const std::vector<std::byte> rest(whole.begin(), whole.begin() + cut);
      EXPECT_FALSE(read_part(rest.data(), cut, &part)) << bytes << " cut to " << cut;
    }
  }
  for (const std::uint32_t bytes : {kMostPart + 1, kMostPart + 8, 0x7fffffffU, 0xfffffff8U, 0xffffffffU}) {
    const std::vector<std::byte> wrong = part_of(bytes, 4096);
    EXPECT_FALSE(read_part(wrong.data(), static_cast<std::uint32_t>(wrong.size()), &part)) << bytes;
  }
}

TEST(NetworkNews, WhatIsConsumedUpToWhatWasSentIsNews) {
  for (const std::uint32_t acked : kStarts) {
    for (const std::uint32_t consumed : {0U, 8U, 4096U}) {
      EXPECT_EQ(news_of(acked + consumed, acked, acked + 4096), News::fresh) << acked << " + " << consumed;
    }
  }
}

TEST(NetworkNews, AHeadThatWasOvertakenIsNoFault) {
  for (const std::uint32_t acked : kStarts) {
    for (const std::uint32_t before : {1U, 8U, 4096U, 1U << 20, (1U << 31) - 1}) {
      EXPECT_EQ(news_of(acked - before, acked, acked + 4096), News::stale) << acked << " - " << before;
      EXPECT_EQ(news_of(acked - before, acked, acked), News::stale) << acked << " - " << before;
    }
  }
}

TEST(NetworkNews, WhatWasNotSentCannotBeConsumed) {
  for (const std::uint32_t acked : kStarts) {
    for (const std::uint32_t beyond : {1U, 8U, 4096U, 1U << 30}) {
      EXPECT_EQ(news_of(acked + 4096 + beyond, acked, acked + 4096), News::impossible) << acked << " + " << beyond;
    }
    EXPECT_EQ(news_of(acked + 1, acked, acked), News::impossible) << acked;
  }
}

TEST(NetworkNews, WhatHasArrivedOnlyGrows) {
  for (const std::uint32_t known : kStarts) {
    EXPECT_EQ(later_of(known, known), known);
    for (const std::uint32_t more : {1U, 8U, 4096U, 1U << 30}) {
      EXPECT_EQ(later_of(known, known + more), known + more) << known << " + " << more;
      EXPECT_EQ(later_of(known, known - more), known) << known << " - " << more;
    }
  }
}

// Against the sum over the messages.
TEST(NetworkNews, OfMessagesOfOneLengthThoseAreLeftThatEndBehindWhatHasArrived) {
  constexpr std::uint32_t kCost = 24;
  for (const std::uint32_t start : kStarts) {
    for (const std::uint32_t count : {1U, 2U, 7U}) {
      for (std::uint32_t arrived = 0; arrived <= (count + 2) * kCost; ++arrived) {
        std::uint32_t left = 0;
        for (std::uint32_t i = 1; i <= count; ++i) left += i * kCost > arrived ? 1 : 0;
        EXPECT_EQ(unarrived_of(count, kCost, start + kCost, start + arrived), left) << start << " + " << arrived;
      }
      EXPECT_EQ(unarrived_of(count, kCost, start + kCost, start - 4096), count) << start;
    }
  }
}

}  // namespace
}  // namespace heddle::transport::network::wire_test
