// The text of the counters as OpenMetrics. tests/system/live_test.py checks the format as a whole.
#include "tap/counters.hpp"

#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <vector>

namespace heddle::tap::openmetrics_test {
namespace {

std::vector<RankCounters> two_ranks() {
  std::vector<RankCounters> ranks(2);
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    ranks[rank].rank = rank;
    ranks[rank].pid = 100 + rank;
    ranks[rank].transport = "shm";
    ranks[rank].longest_wait_ns = 1'500'000'000;
    ranks[rank].workers.emplace_back().mode = "auto";
    ranks[rank].workers[0].stats.puts = 12 + rank;
  }
  return ranks;
}

TEST(OpenMetrics, EachSampleHasItsLabels) {
  const std::string text = openmetrics(two_ranks());
  for (const char* line :
       {"heddle_operations_total{rank=\"0\",transport=\"shm\",worker=\"0\",kind=\"put\"} 12\n",
        "heddle_operations_total{rank=\"1\",transport=\"shm\",worker=\"0\",kind=\"put\"} 13\n",
        "heddle_longest_wait_seconds{rank=\"1\",transport=\"shm\"} 1.500000000\n",
        "heddle_rank_info{rank=\"1\",transport=\"shm\",pid=\"101\"} 1\n",
        "heddle_worker_info{rank=\"0\",transport=\"shm\",worker=\"0\",mode=\"auto\",internal=\"0\"} 1\n",
        "# TYPE heddle_data_bytes counter\n# UNIT heddle_data_bytes bytes\n# HELP heddle_data_bytes "}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
}

TEST(OpenMetrics, FamiliesAreWholeAndFollowEachOther) {
  std::istringstream text(openmetrics(two_ranks()));
  std::set<std::string> seen;
  std::string family;
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("# TYPE ")) {
      family = line.substr(7, line.find(' ', 7) - 7);
      EXPECT_TRUE(seen.insert(family).second) << family;
    } else if (!line.starts_with('#')) {
      EXPECT_TRUE(line.starts_with(family)) << line;
    }
  }
  EXPECT_GT(seen.size(), 15U);
}

TEST(OpenMetrics, EndsWithItsMark) {
  EXPECT_TRUE(openmetrics({}).ends_with("\n# EOF\n"));
  EXPECT_TRUE(openmetrics(two_ranks()).ends_with("\n# EOF\n"));
}

}  // namespace
}  // namespace heddle::tap::openmetrics_test
