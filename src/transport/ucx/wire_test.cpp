#include "transport/ucx/wire.hpp"

#include <gtest/gtest.h>

#include <initializer_list>

namespace heddle::transport::ucx {
namespace {

// Wherever the counters stand, also where they wrap within the window.
constexpr std::uint32_t kStarts[] = {0, 1000, 0x7ffffff0U, 0xffffff00U, 0xfffffff8U};

TEST(UcxNews, WhatIsConsumedUpToWhatWasSentIsNews) {
  for (const std::uint32_t acked : kStarts) {
    for (const std::uint32_t consumed : {0U, 8U, 4096U}) {
      EXPECT_EQ(news_of(acked + consumed, acked, acked + 4096), News::fresh) << acked << " + " << consumed;
    }
  }
}

TEST(UcxNews, AHeadThatWasOvertakenIsNoFault) {
  for (const std::uint32_t acked : kStarts) {
    for (const std::uint32_t before : {1U, 8U, 4096U, 1U << 20, (1U << 31) - 1}) {
      EXPECT_EQ(news_of(acked - before, acked, acked + 4096), News::stale) << acked << " - " << before;
      EXPECT_EQ(news_of(acked - before, acked, acked), News::stale) << acked << " - " << before;
    }
  }
}

TEST(UcxNews, WhatWasNotSentCannotBeConsumed) {
  for (const std::uint32_t acked : kStarts) {
    for (const std::uint32_t beyond : {1U, 8U, 4096U, 1U << 30}) {
      EXPECT_EQ(news_of(acked + 4096 + beyond, acked, acked + 4096), News::impossible) << acked << " + " << beyond;
    }
    EXPECT_EQ(news_of(acked + 1, acked, acked), News::impossible) << acked;
  }
}

TEST(UcxNews, WhatHasArrivedOnlyGrows) {
  for (const std::uint32_t known : kStarts) {
    EXPECT_EQ(later_of(known, known), known);
    for (const std::uint32_t more : {1U, 8U, 4096U, 1U << 30}) {
      EXPECT_EQ(later_of(known, known + more), known + more) << known << " + " << more;
      EXPECT_EQ(later_of(known, known - more), known) << known << " - " << more;
    }
  }
}

}  // namespace
}  // namespace heddle::transport::ucx
