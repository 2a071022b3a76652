#include "harness/record.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace heddle::bench::harness::bench_record_test {
namespace {

Sample sample(const std::string& transport, const std::string& op, double value, Distance distance = Distance::near) {
  Sample out;
  out.key.bench = "rate";
  out.key.op = op;
  out.key.transport = transport;
  out.key.sharing = "own";
  out.key.metric = "rate";
  out.key.unit = "Mop/s";
  out.value = value;
  out.p_ns = distance == Distance::near ? 54 : 250;
  out.distance = distance;
  return out;
}

const BenchRecord* find(const std::vector<BenchRecord>& records, const std::string& transport,
                        const std::string& against) {
  for (const BenchRecord& record : records) {
    if (record.key.transport == transport && record.against == against) return &record;
  }
  return nullptr;
}

TEST(BenchRecord, SampleSurvivesItsJson) {
  Sample before = sample("ucx", "a \"quoted\" \\ op\nwith\tcontrol, ü", 1.5, Distance::changed);
  before.verified = false;
  before.key.size_bytes = std::uint64_t{1} << 60;
  std::string error;
  EXPECT_EQ(to_json(before).find('\n'), std::string::npos) << "one line";
  const auto after = sample_from(to_json(before), &error);
  ASSERT_TRUE(after) << error;
  EXPECT_EQ(after->key, before.key);
  EXPECT_EQ(after->value, 1.5);
  EXPECT_EQ(after->distance, Distance::changed);
  EXPECT_FALSE(after->verified);
}

TEST(BenchRecord, BytesThatAreNoUtf8AreWrittenAsUtf8AndRejectedWhenRead) {
  std::string error;
  const auto after = sample_from(to_json(sample("ucx", "caf\xe9", 1)), &error);
  ASSERT_TRUE(after) << error;
  EXPECT_EQ(after->key.op, "caf\uFFFD");
  EXPECT_FALSE(sample_from("{\"bench\":\"caf\xe9\"}", &error));
  EXPECT_NE(error.find("line 1: "), std::string::npos) << error;
}

TEST(Results, SurviveTheirJson) {
  const auto records = with_ratios(aggregate({sample("shm", "put", 200), sample("ucx", "put", 100)}));
  const Results before{{"2026-11-22 10:00 +0100", "a \"machine\"", "1.2.3", "heddle bench put", 2, 0.25}, records};
  std::string error;
  const auto after = results_from(to_json(before), &error);
  ASSERT_TRUE(after) << error;
  EXPECT_EQ(after->origin.date, before.origin.date);
  EXPECT_EQ(after->origin.machine, before.origin.machine);
  EXPECT_EQ(after->origin.version, before.origin.version);
  EXPECT_EQ(after->origin.command, before.origin.command);
  EXPECT_EQ(after->origin.cores, 2);
  EXPECT_EQ(after->origin.load, 0.25);
  ASSERT_EQ(after->records.size(), records.size());
  for (std::size_t i = 0; i < records.size(); ++i) {
    EXPECT_EQ(after->records[i].key, records[i].key);
    EXPECT_EQ(after->records[i].against, records[i].against);
    EXPECT_DOUBLE_EQ(after->records[i].ratio, records[i].ratio);
  }
}

// Format 1, of earlier releases.
const char* const kOld =
    R"({"heddle_bench":1,"date":"d","machine":"m","cores":2,"load":0.5,"version":"0.2.0","command":"c",
"records":[
{"bench":"rate","op":"put","transport":"shm","sharing":"own","memory":"allocated","processes":2,"threads":1,"workers":1,
"size_bytes":8,"metric":"rate","unit":"Mop/s","median":200,"low95":190,"high95":210.5,"repeats":9,"p_ns":54,
"distance":"near","verified":true,"against":"ucx","ratio":2}
]}
)";

TEST(Results, OfEarlierReleasesAreRead) {
  std::string error;
  const auto old = results_from(kOld, &error);
  ASSERT_TRUE(old) << error;
  EXPECT_EQ(old->origin.load, 0.5);
  ASSERT_EQ(old->records.size(), 1U);
  EXPECT_EQ(old->records[0].high95, 210.5);
  EXPECT_EQ(old->records[0].ratio, 2);
}

TEST(Results, WhatIsNoResultIsRejectedWithItsLine) {
  const std::string good = to_json(Results{{"d", "m", "v", "c", 2, 0}, aggregate({sample("shm", "put", 200)})});
  std::string error;
  EXPECT_TRUE(results_from(good + "\n \n", &error)) << error;
  const auto rejected = [&](std::string text, const std::string& from, const std::string& to, const char* words) {
    if (!from.empty()) text.replace(text.find(from), from.size(), to);
    error.clear();
    EXPECT_FALSE(results_from(text, &error)) << text;
    EXPECT_NE(error.find(words), std::string::npos) << error;
    EXPECT_LT(error.size(), 300U);
  };
  rejected("", "", "", "line 1: ");
  rejected("[]", "", "", "line 1: an object is expected");
  rejected("<html>\n", "", "", "line 1: ");
  rejected("\xff\xfe\n", "", "", "line 1: ");
  rejected(good, "\"date\"", "\"data\"", "line 1: the member \"date\" is missing");
  rejected(good, "\"heddle_bench\":2", "\"heddle_bench\":7", "format 7; this heddle reads formats 1 and 2");
  rejected(good, "\"threads\":1", "\"threads\":\"two\"", "line 2: the member \"threads\" is not a whole number");
  rejected(good, "\"threads\":1", "\"threads\":-1", "line 2: the member \"threads\"");
  rejected(good, "\"threads\":1", "\"threads\":4294967296", "not too large");
  rejected(good, "\"threads\":1", "\"threads\":1e30", "not too large");
  rejected(good, "\"median\":200", "\"median\":1e999", "line 2: number overflow");
  rejected(good, "\"median\":200", "\"median\":null", "line 2: the member \"median\" is not a number");
  rejected(good + good, "", "", "line 3: another run begins here");
  rejected(good + "{\"bench\":\"ra", "", "", "line 3: ");
  rejected(good + "[]\n", "", "", "line 3: an object is expected");
  rejected(good + std::string(1 << 20, '['), "", "", "line 3: ");
  rejected(good + "\"" + std::string(1 << 20, 'x'), "", "", "line 3: ");
  rejected(kOld, "\"records\"", "\"rows\"", "without its records");
  rejected(kOld, "\"repeats\":9", "\"repeats\":true", "record 1: the member \"repeats\"");
  rejected(kOld, "true", "tru", "line 5: ");
}

TEST(Results, HalfTheCoresAtWorkIsALoad) {
  EXPECT_FALSE(was_loaded({"d", "m", "v", "c", 2, 0.9}));
  EXPECT_TRUE(was_loaded({"d", "m", "v", "c", 2, 1.1}));
}

TEST(BenchRecord, DisturbedRepeatsAreLeftOutWhereOthersAreNear) {
  const auto records = aggregate({sample("shm", "put", 10), sample("shm", "put", 999, Distance::far),
                                  sample("shm", "put", 20), sample("shm", "put", 12)});
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].median, 12);
  EXPECT_EQ(records[0].repeats, 3U);
  EXPECT_EQ(records[0].p_ns, 54);
  EXPECT_EQ(records[0].distance, "near");
}

TEST(BenchRecord, FiguresThatWereNeverNearSaySo) {
  const auto far = aggregate({sample("shm", "put", 10, Distance::far), sample("shm", "put", 20, Distance::far)});
  EXPECT_EQ(far[0].distance, "far");
  EXPECT_EQ(far[0].repeats, 2U);
  const auto mixed = aggregate({sample("shm", "put", 10, Distance::far), sample("shm", "put", 20, Distance::changed)});
  EXPECT_EQ(mixed[0].distance, "changed");
}

TEST(BenchRecord, SamplesOfAnotherSpeedAreLeftOutAndFiguresOfItLabelled) {
  Sample close = sample("shm", "put", 999);
  close.p_ns = 25;
  Sample other = sample("ucx", "get", 5);
  other.p_ns = 25;
  const auto records =
      aggregate({sample("shm", "put", 10), close, sample("shm", "put", 20), sample("shm", "put", 12), other});
  EXPECT_EQ(records[0].median, 12);
  EXPECT_EQ(records[0].distance, "near");
  EXPECT_EQ(records[1].distance, "close");
  EXPECT_EQ(records[1].median, 5);
}

TEST(BenchRecord, OneWrongRepeatMakesTheRecordWrong) {
  Sample wrong = sample("shm", "put", 10, Distance::far);
  wrong.verified = false;
  EXPECT_FALSE(aggregate({sample("shm", "put", 10), wrong})[0].verified);
}

TEST(BenchRecord, RatiosAreToThePeersThatDidTheSame) {
  Sample shared = sample("ucx", "am", 25);
  shared.key.sharing = "shared";
  Sample two_threads = sample("ucx", "am", 1);
  two_threads.key.threads = 2;
  const auto records = with_ratios(aggregate({sample("shm", "am", 100), sample("ucx", "am", 50), shared, two_threads,
                                              sample("openmpi", "tagged", 10), sample("ucx", "put", 3)}));
  ASSERT_NE(find(records, "shm", "ucx"), nullptr);
  EXPECT_EQ(find(records, "shm", "ucx")->ratio, 2);
  ASSERT_NE(find(records, "shm", "ucx shared"), nullptr);
  EXPECT_EQ(find(records, "shm", "ucx shared")->ratio, 4);
  ASSERT_NE(find(records, "shm", "openmpi tagged"), nullptr);
  EXPECT_EQ(find(records, "shm", "openmpi tagged")->ratio, 10);
  EXPECT_EQ(records.size(), 6U + 3U) << "nothing else is comparable, and peers get no ratios";
}

TEST(BenchRecord, TaggedMessagesStandBesideTaggedMessagesOnly) {
  const auto records =
      with_ratios(aggregate({sample("shm", "tagged", 60), sample("ucx", "am", 20), sample("ucx", "tagged", 30)}));
  ASSERT_NE(find(records, "shm", "ucx tagged"), nullptr);
  EXPECT_EQ(find(records, "shm", "ucx tagged")->ratio, 2);
  EXPECT_EQ(records.size(), 3U + 1U);
}

TEST(BenchRecord, TheSlowSideIsTheSmallOneOfRates) {
  const auto rates = aggregate({sample("shm", "put", 100), sample("shm", "put", 300), sample("shm", "put", 200)});
  EXPECT_EQ(rates[0].best, 300);
  EXPECT_EQ(rates[0].slow99, 100);
  std::vector<Sample> times = {sample("shm", "put", 100), sample("shm", "put", 300)};
  for (Sample& one : times) one.key.metric = "latency";
  EXPECT_EQ(aggregate(times)[0].best, 100);
  EXPECT_EQ(aggregate(times)[0].slow99, 300);
  std::string error;
  const auto back = results_from(to_json(Results{{"d", "m", "v", "c", 2, 0}, rates}), &error);
  ASSERT_TRUE(back) << error;
  EXPECT_EQ(back->records[0].slow99, 100);
}

TEST(BenchRecord, LatencyIsAlsoAMultipleOfP) {
  Sample put = sample("shm", "put", 108);
  put.key.bench = "pingpong";
  put.key.metric = "latency";
  const auto records = with_ratios(aggregate({put}));
  ASSERT_NE(find(records, "shm", "P"), nullptr);
  EXPECT_EQ(find(records, "shm", "P")->ratio, 2);
}

}  // namespace
}  // namespace heddle::bench::harness::bench_record_test
