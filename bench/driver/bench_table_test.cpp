#include "driver/driver.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace heddle::bench::driver::bench_table_test {
namespace {

using harness::BenchRecord;

BenchRecord record(const char* bench, const char* metric, std::uint64_t repeats) {
  BenchRecord out;
  out.key.bench = bench;
  out.key.op = "fadd";
  out.key.transport = "shm";
  out.key.metric = metric;
  out.key.unit = "ns";
  out.median = 100;
  out.low95 = 90;
  out.high95 = 111;
  out.repeats = repeats;
  out.p_ns = 50;
  out.distance = "near";
  return out;
}

std::string with_ratio(const BenchRecord& plain) {
  BenchRecord ratio = plain;
  ratio.against = "P";
  ratio.ratio = 2;
  return table({plain, ratio}, false);
}

bool has(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

TEST(table, three_repeats_give_an_interval_and_ratios) {
  const std::string text = with_ratio(record("pingpong", "latency", 3));
  EXPECT_TRUE(has(text, "[90.00–111.0]")) << text;
  EXPECT_TRUE(has(text, "2.00× P")) << text;
}

TEST(table, fewer_say_how_many_they_are_and_give_no_ratio) {
  for (const auto& [repeats, shown] : {std::pair{1, "[1 repeat]"}, std::pair{2, "[2 repeats]"}}) {
    const std::string text = with_ratio(record("pingpong", "latency", static_cast<std::uint64_t>(repeats)));
    EXPECT_TRUE(has(text, shown)) << text;
    EXPECT_FALSE(has(text, "90.00")) << text;
    EXPECT_FALSE(has(text, "×")) << text;
  }
}

TEST(table, atomics_are_named_by_what_was_measured_of_them) {
  const std::string text = table({record("atomics", "latency", 3), record("atomics", "rate", 3)}, false);
  EXPECT_TRUE(has(text, "fadd latency")) << text;
  EXPECT_TRUE(has(text, "fadd rate")) << text;
}

TEST(table, what_stands_in_it_is_explained_under_it) {
  const std::string text = table({record("pingpong", "latency", 3)}, false);
  for (const char* word : {"\nP: ", "(far)", "(close)", "(changed)"}) EXPECT_TRUE(has(text, word)) << word;
  EXPECT_EQ(table({}, false), "");
}

// ---- programs ----

void add_samples(std::vector<harness::Sample>* to, const char* transport, harness::Distance distance,
                 const std::vector<double>& values) {
  for (const double value : values) {
    harness::Sample sample;
    sample.key.bench = "programs";
    sample.key.op = "latency";
    sample.key.transport = transport;
    sample.key.sharing = "own";
    sample.key.metric = "latency";
    sample.key.unit = "ns";
    sample.value = value;
    sample.p_ns = distance == harness::Distance::near ? 60 : 270;
    sample.distance = distance;
    to->push_back(sample);
  }
}

TEST(programs, near_and_far_are_two_rows_and_each_meets_its_own_peers) {
  std::vector<harness::Sample> samples;
  add_samples(&samples, "shm", harness::Distance::near, {100, 101, 102});
  add_samples(&samples, "shm", harness::Distance::far, {900, 901, 902});
  add_samples(&samples, "shm", harness::Distance::changed, {5000});
  add_samples(&samples, "ucx", harness::Distance::near, {200, 201, 202});
  add_samples(&samples, "mpich", harness::Distance::near, {150, 151, 152});
  add_samples(&samples, "ucx", harness::Distance::far, {300, 301, 302});
  const auto records = harness::with_ratios(harness::aggregate_apart(samples));
  std::vector<std::pair<std::string, std::string>> beside;
  for (const BenchRecord& one : records) {
    if (!one.against.empty()) beside.emplace_back(one.distance, one.against);
  }
  EXPECT_EQ(beside,
            (std::vector<std::pair<std::string, std::string>>{{"near", "ucx"}, {"near", "mpich"}, {"far", "ucx"}}));
  const std::string text = table(records, true);
  EXPECT_TRUE(has(text, "\033[32m0.67× mpich")) << text;
  EXPECT_TRUE(has(text, "(far) \033[31m2.99× ucx")) << text;
}

TEST(programs, nobody_is_ahead_whose_interval_overlaps_or_who_has_few_repeats) {
  for (const std::vector<double>& others : {std::vector<double>{101, 150, 151}, std::vector<double>{500, 501}}) {
    std::vector<harness::Sample> samples;
    add_samples(&samples, "shm", harness::Distance::near, {100, 101, 102});
    add_samples(&samples, "ucx", harness::Distance::near, others);
    const std::string text = table(harness::with_ratios(harness::aggregate_apart(samples)), true);
    EXPECT_TRUE(has(text, "× ucx")) << text;
    EXPECT_FALSE(has(text, "\033")) << text;
  }
}

TEST(programs, a_wrong_result_is_said_of_the_row_whatever_sample_it_was_in) {
  std::vector<harness::Sample> samples;
  add_samples(&samples, "shm", harness::Distance::near, {100, 101, 102});
  add_samples(&samples, "shm", harness::Distance::changed, {100});
  samples.back().verified = false;
  const auto records = harness::aggregate_apart(samples);
  ASSERT_EQ(records.size(), 1U);
  EXPECT_TRUE(has(table(records, false), "WRONG RESULT"));
}

}  // namespace
}  // namespace heddle::bench::driver::bench_table_test
