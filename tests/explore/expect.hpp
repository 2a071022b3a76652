// The expectations of the explorations, and their output.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "base/test_support.hpp"
#include "explorer.hpp"

namespace heddle::explore {

inline constexpr Options kOrdered{};                   // weak memory, races found
inline constexpr Options kByData{.races = false};      // weak memory, plain data delayed
inline constexpr Options kInterleaved{.weak = false};  // sequentially consistent

// With AddressSanitizer a schedule takes five times as long, and its accesses to memory are
// checked: the first schedules of a large case suffice for that. Builds without it run all
// schedules, and prove the order.
inline constexpr std::uint64_t kMostWithAddressSanitizer = 20'000;

template <class M>
void expect_holds(const char* what, Options options) {
  const std::uint64_t all = options.most_schedules;
  if (base::kAddressSanitizer) options.most_schedules = std::min(all, kMostWithAddressSanitizer);
  const Outcome outcome = explore<M>(options);
  const bool cut_short = options.most_schedules < all && outcome.schedules >= options.most_schedules;
  std::printf("%s: holds in %s%llu schedules\n", what, cut_short ? "the first " : "",
              static_cast<unsigned long long>(outcome.schedules));
  std::fflush(stdout);
  EXPECT_EQ(outcome.failure, "") << what << "\n" << outcome.schedule;
  EXPECT_TRUE(outcome.complete || cut_short) << what << ": not all schedules were seen";
}

// The planted bug is found, with the expected failure.
template <class M>
void expect_finds(const char* what, const Options& options, const char* failure) {
  const Outcome outcome = explore<M>(options);
  std::printf("%s: found in schedule %llu: %s\n", what, static_cast<unsigned long long>(outcome.schedules),
              outcome.failure.c_str());
  std::fflush(stdout);
  EXPECT_NE(outcome.failure.find(failure), std::string::npos)
      << what << ": \"" << failure << "\" expected, \"" << outcome.failure << "\" found\n"
      << outcome.schedule;
  EXPECT_NE(outcome.schedule, "");
}

}  // namespace heddle::explore
