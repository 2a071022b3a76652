#include "driver/table.hpp"

#include <gtest/gtest.h>

namespace heddle::bench::driver {
namespace {

using harness::Record;

Record record(const char* bench, const char* metric, std::uint64_t repeats) {
  Record out;
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

std::string with_ratio(const Record& plain) {
  Record ratio = plain;
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

}  // namespace
}  // namespace heddle::bench::driver
