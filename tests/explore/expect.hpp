// What the explorations expect, and what they tell.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>

#include "explorer.hpp"

namespace heddle::explore {

inline constexpr Options kOrdered{};                   // weak memory, races found
inline constexpr Options kByData{.races = false};      // weak memory, plain data delayed
inline constexpr Options kInterleaved{.weak = false};  // sequentially consistent

template <class M>
void expect_holds(const char* what, const Options& options) {
  const Outcome outcome = explore<M>(options);
  std::printf("%s: holds in %llu schedules\n", what, static_cast<unsigned long long>(outcome.schedules));
  std::fflush(stdout);
  EXPECT_EQ(outcome.failure, "") << what << "\n" << outcome.schedule;
  EXPECT_TRUE(outcome.complete) << what << ": not all schedules were seen";
}

// The planted bug shows, and as what it is meant to show.
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
