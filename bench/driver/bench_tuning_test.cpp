// The rows that a tuning run writes for the times that it has measured.
#include <gtest/gtest.h>

#include "driver/tuning.hpp"

namespace heddle::bench::driver::bench_tuning_test {
namespace {

Measured measured(std::uint32_t ranks, const std::map<std::uint64_t, std::array<double, 2>>& times) {
  Measured made{"broadcast", true, ranks, {}};
  for (const auto& [bytes, ns] : times) {
    made.times_ns[bytes]["broadcast.kept"] = {ns[0]};
    made.times_ns[bytes]["broadcast.chain"] = {ns[1]};
  }
  return made;
}

std::vector<std::string> lines(const std::vector<Measured>& all) {
  std::vector<std::string> texts;
  for (const TableRow& row : fastest(all)) texts.push_back(line(row));
  return texts;
}

TEST(Tuning, WritesARowWhereAnotherIsFaster) {
  EXPECT_EQ(
      lines({measured(2, {{8, {1, 2}}, {64, {1, 3}}, {1024, {9, 3}}, {4096, {30, 9}}})}),
      (std::vector<std::string>{"broadcast kept * 256 broadcast.kept -", "broadcast kept * * broadcast.chain -"}));
}

TEST(Tuning, DoesNotChangeForNoise) {
  EXPECT_EQ(lines({measured(2, {{8, {100, 200}}, {64, {100, 98}}, {1024, {100, 150}}})}),
            (std::vector<std::string>{"broadcast kept * * broadcast.kept -"}));
}

TEST(Tuning, DividesRanksBetweenThoseMeasured) {
  EXPECT_EQ(lines({measured(2, {{8, {1, 2}}}), measured(8, {{8, {2, 1}}})}),
            (std::vector<std::string>{"broadcast kept 4 * broadcast.kept -", "broadcast kept * * broadcast.chain -"}));
}

TEST(Tuning, TakesTheMedianOfSeveralJobs) {
  Measured once = measured(2, {{8, {5, 6}}});
  once.times_ns[8]["broadcast.kept"] = {5, 5, 900};
  EXPECT_EQ(lines({once}), (std::vector<std::string>{"broadcast kept * * broadcast.kept -"}));
}

TEST(Tuning, HasNothingToSayOfWhatWasNotMeasured) {
  EXPECT_TRUE(fastest({Measured{"broadcast", true, 2, {}}}).empty());
}

}  // namespace
}  // namespace heddle::bench::driver::bench_tuning_test
