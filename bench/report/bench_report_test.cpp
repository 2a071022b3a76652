#include "report/report.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "driver/driver.hpp"
#include "harness/options.hpp"

namespace heddle::bench::report::bench_report_test {
namespace {

using harness::BenchRecord;
using harness::Standing;

// The interval is a tenth on either side.
BenchRecord record(const std::string& bench, const std::string& op, const std::string& transport,
                   const std::string& metric, std::uint64_t size, double median, std::uint32_t threads = 1) {
  BenchRecord out;
  out.key.bench = bench;
  out.key.op = op;
  out.key.transport = transport;
  out.key.sharing = "exclusive";
  out.key.metric = metric;
  out.key.unit = metric == "latency" ? "ns" : "Mop/s";
  out.key.size_bytes = size;
  out.key.threads = threads;
  out.median = median;
  out.low95 = median * 0.9;
  out.high95 = median * 1.1;
  out.repeats = 9;
  out.p_ns = 54;
  out.distance = "near";
  return out;
}

std::vector<BenchRecord> session() {
  std::vector<BenchRecord> records;
  for (const std::uint64_t size : {8U, 4096U, 1048576U}) {
    records.push_back(record("pingpong", "put", "shm", "latency", size, 62.1 + static_cast<double>(size - 8) / 20));
    records.push_back(record("pingpong", "put", "ucx", "latency", size, 74 + static_cast<double>(size - 8) / 10));
  }
  records.push_back(record("rate", "am", "shm", "rate", 8, 93, 2));
  records.push_back(record("rate", "tagged", "ucx", "rate", 8, 30, 2));
  records.push_back(record("gups", "atomic", "shm", "rate", 8, 40, 2));
  return harness::with_ratios(records);
}

const harness::Origin kOrigin = {"2026-11-22 10:00 +0000", "a machine", "0.1.0", "heddle bench --repeat 5", 2, 0.1};

NamedResults run_of(const std::vector<BenchRecord>& records, const std::string& name = "a.json") {
  return {name, {kOrigin, records}};
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(Words, NoiseIsSaidInWords) {
  BenchRecord one = record("rate", "put", "shm", "rate", 8, 100);
  const auto words = [&](double low, double high) {
    one.low95 = low;
    one.high95 = high;
    return noise_words(one);
  };
  EXPECT_EQ(words(99, 101), "steady: ±1 %");
  EXPECT_EQ(words(95, 105), "±5 %");
  EXPECT_EQ(words(60, 140), "noisy: ±40 %, only a rough figure");
  EXPECT_EQ(words(50, 600), "useless: ±275 %, which says nothing");
  one.repeats = 2;
  EXPECT_EQ(noise_words(one), "measured twice: its noise is unknown");
  one.repeats = 1;
  EXPECT_EQ(noise_words(one), "measured once: its noise is unknown");
}

TEST(Words, AChangeIsWithinOrBeyondTheNoise) {
  const auto said = [](double before, double after, const char* metric = "latency") {
    return change(record("x", "put", "shm", metric, 8, before), record("x", "put", "shm", metric, 8, after));
  };
  EXPECT_EQ(said(100, 103).words, "3 % slower, within the noise of ±20 %");
  EXPECT_EQ(said(100, 103, "rate").words, "3 % faster, within the noise of ±20 %");
  EXPECT_EQ(said(100, 60).words, "40 % faster, beyond the noise of ±16 %");
  EXPECT_EQ(said(100, 60).standing, Standing::ahead);
  EXPECT_EQ(said(100, 60, "bandwidth").words, "40 % slower, beyond the noise of ±16 %");
  EXPECT_EQ(said(100, 60, "bandwidth").standing, Standing::behind);
  EXPECT_EQ(said(100, 240).words, "2.4 × as slow, beyond the noise of ±34 %");
  EXPECT_EQ(said(100, 240, "rate").words, "2.4 × as fast, beyond the noise of ±34 %");
  EXPECT_EQ(said(100, 60, "voluntary").words, "40 % fewer, beyond the noise of ±16 %");
  EXPECT_EQ(said(100, 100.1).words, "the same, within the noise of ±20 %");
  EXPECT_EQ(said(0, 100).standing, Standing::level) << "nothing is said of nothing";
  BenchRecord few = record("x", "put", "shm", "latency", 8, 200);
  few.repeats = 2;
  const Change unknown = change(record("x", "put", "shm", "latency", 8, 100), few);
  EXPECT_EQ(unknown.words, "2 × as slow; with fewer than 3 repeats nobody knows the noise");
  EXPECT_EQ(unknown.standing, Standing::level);
}

TEST(Answer, StandsFirstAndPicksNothing) {
  EXPECT_EQ(answer(session())[0], "On this machine: 3.1 × UCX with 2 threads, 1.15 × the limit.");
  const auto rate_of = [](double ours, double peer) {
    return answer({record("rate", "put", "shm", "rate", 8, ours), record("rate", "put", "ucx", "rate", 8, peer)})[0];
  };
  EXPECT_EQ(rate_of(50, 100), "On this machine: 0.50 × UCX with 1 thread (behind).");
  EXPECT_EQ(rate_of(105, 100), "On this machine: 1.05 × UCX with 1 thread (within the noise).");
  EXPECT_EQ(answer({record("duplex", "put", "shm", "rate", 8, 30), record("duplex", "put", "ucx", "rate", 8, 20)})[0],
            "On this machine: 1.50 × as good as the best peer in the middle of 1 figures.");
  EXPECT_EQ(answer({})[0], "Measured beside neither a peer nor a limit.");
}

TEST(Verdict, CountsEachFigureOnceBesideTheBestPeer) {
  auto records = session();
  // 8 bytes: 62.1 and 74 with a tenth on either side, so that the intervals just overlap.
  EXPECT_NE(verdict(records)[0].find("Of 4 figures that a peer (UCX)"), std::string::npos) << verdict(records)[0];
  EXPECT_NE(verdict(records)[0].find("in 3, behind in 0, and level in 1,"), std::string::npos) << verdict(records)[0];
  records.push_back(record("rate", "get", "shm", "rate", 8, 100));
  records.push_back(record("rate", "get", "ucx", "rate", 8, 200));
  ASSERT_EQ(verdict(records).size(), 2U);
  EXPECT_EQ(verdict(records)[1], "rate get of 8 bytes, 1 thread: 0.50 × UCX: behind");
  std::erase_if(records, [](const BenchRecord& one) { return one.key.transport == "ucx"; });
  EXPECT_NE(verdict(records)[0].find("No peer was measured"), std::string::npos);
}

TEST(Trust, SaysHowFarAndWarnsInWords) {
  harness::Results results = run_of(session()).results;
  EXPECT_EQ(trust(results),
            (std::vector<std::string>{"Some noise: half of the figures are certain to ±10 %, nine of ten to ±10 %.",
                                      "P = 54.0 ns."}));
  results.origin.load = 3.5;
  results.records[0].distance = "far";
  results.records[1].verified = false;
  ASSERT_EQ(trust(results).size(), 5U);
  EXPECT_EQ(trust(results)[1].substr(0, 28), "!Other programs were at work");
  EXPECT_NE(trust(results)[3].find("in 1 of 9 figures"), std::string::npos) << trust(results)[3];
  EXPECT_EQ(trust(results)[4].substr(0, 19), "!A result was wrong");
}

TEST(Compare, WhatIsBeyondTheNoiseComesFirst) {
  const NamedResults before = run_of(session());
  NamedResults after = run_of(session(), "b.json");
  after.results.records[2].median *= 1.02;  // P, and 8 bytes of UCX behind it, are the same
  for (BenchRecord& one : after.results.records) {
    if (one.key.bench == "gups") one = record("gups", "atomic", "shm", "rate", 8, 80, 2);
    one.p_ns = 70;
  }
  const Comparison with = compare(before.results, after.results);
  ASSERT_EQ(with.figures.size(), 9U) << "ratios are no figures";
  EXPECT_EQ(with.figures[0].after->key.bench, "gups");
  EXPECT_EQ(with.figures[0].change.words, "2 × as fast, beyond the noise of ±30 %");
  EXPECT_EQ(with.summary[0],
            "Of 5 figures of Heddle, 1 are better and 0 worse beyond the noise; 4 differ by no more than the noise.");
  EXPECT_EQ(with.summary.back().substr(0, 28), "!P was 54.0 ns and is 70.0 n");
  EXPECT_TRUE(compare(before.results, run_of({}).results).figures.empty());
}

// Each command is one that heddle bench understands.
TEST(Command, RepeatsAFigure) {
  BenchRecord own = record("programs_busy_2", "pairs_own", "shm", "rate", 8, 90, 8);
  const BenchRecord peer = record("programs_busy_2", "pairs_own", "ucx", "rate", 8, 30, 8);
  own.key.memory = "malloc";
  own.key.sharing = "auto";
  BenchRecord registered = record("bandwidth", "put", "shm", "bandwidth", 1 << 20, 9);
  registered.key.memory = "registered";
  const BenchRecord limit = record("limit", "cma", "limit", "bandwidth", 65536, 9);
  const BenchRecord message = record("pingpong", "am", "shm", "latency", 8, 9);
  const BenchRecord tagged = record("pingpong", "tagged", "ucx", "latency", 4096, 9);
  BenchRecord spread = record("broadcast", "blocking_overlapped", "shm", "latency", 4096, 9);
  spread.key.processes = 3;
  const std::pair<std::vector<const BenchRecord*>, std::string> commands[] = {
      {{&spread}, "heddle bench broadcast --ranks 3 --form blocking --size 4K"},
      {{&own}, "heddle bench programs --op pairs --size 8 --threads 8 --sharing auto --memory malloc --busy 2"},
      {{&peer}, "heddle bench programs --op pairs --size 8 --threads 8 --busy 2 --peers"},
      {{&registered}, "heddle bench bandwidth --op put --size 1M --memory registered"},
      {{&limit}, "heddle bench limit"},
      {{&message, &tagged}, "heddle bench pingpong --op am,tagged --size 8,4K --peers"}};
  for (const auto& [figures, wanted] : commands) {
    const std::string command = command_for(figures, "heddle bench --repeat 5 --json x");
    EXPECT_EQ(command, wanted + " --repeat 5");
    std::istringstream text(command.substr(7));
    std::vector<std::string> words;
    for (std::string word; text >> word;) words.push_back(word);
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    std::string error;
    EXPECT_TRUE(harness::parse_options(static_cast<int>(arguments.size()), arguments.data(), &error)) << error;
  }
}

TEST(Page, HasEveryFigureAndAChartForEachSubject) {
  const std::string data = page_data({run_of(session())});
  EXPECT_EQ(count(data, "\"interval\":"), 9U);
  EXPECT_EQ(count(data, "\"lines\":true"), 1U);
  EXPECT_EQ(count(data, "\"lines\":false"), 1U) << "GUPS is one number, and no picture";
  EXPECT_EQ(count(data, "\"name\":\"UCX, tagged\""), 1U) << "beside messages of Heddle";
  EXPECT_NE(data.find("3.1 × UCX tagged: ahead (30.0 Mop/s)"), std::string::npos);
  const std::string two = page_data({run_of(session()), run_of(session(), "b.json")});
  EXPECT_EQ(count(two, "\"name\":\"Heddle · b.json\""), 3U);
  EXPECT_EQ(count(two, "\"hidden\":true"), 2U) << "peers of the earlier run";
}

TEST(Page, TextFromFilesCannotBecomeMarkup) {
  auto records = session();
  for (BenchRecord& each : records) each.key.op = "</script><script>alert(1)</script><!--\xff";
  NamedResults one = run_of(records, "<b>.json");
  one.results.origin.command = "{{library}}{{script}}</SCRIPT>";
  const std::string html = page({one});
  EXPECT_EQ(page_data({one}).find('<'), std::string::npos);
  EXPECT_EQ(count(html, "</script"), 3U);
  EXPECT_EQ(count(html, "{{"), 2U) << "as text of the command only";
  for (const char* from_elsewhere : {"src=", "url(", "@import"})
    EXPECT_EQ(html.find(from_elsewhere), std::string::npos);
}

TEST(Page, AFileIsNamedWithItsLine) {
  std::string error;
  EXPECT_FALSE(write_report({"/nonexistent/x.json"}, "/dev/null", &error));
  EXPECT_NE(error.find("/nonexistent/x.json"), std::string::npos);
  const std::string path = std::filesystem::temp_directory_path() / ("bench_report_test." + std::to_string(getpid()));
  std::ofstream(path) << to_json(run_of(session()).results) << "{\"bench\":";
  EXPECT_FALSE(write_report({path}, "/dev/null", &error));
  EXPECT_NE(error.find(path + " is no result of heddle bench --json: line 16: "), std::string::npos) << error;
  std::filesystem::remove(path);
}

TEST(Table, ShowsRatiosAndMarksWhatIsWrongOrFar) {
  auto records = session();
  records.push_back(records[0]);
  records.back().distance = "far";
  records.back().verified = false;
  const std::string text = driver::table(records, false);
  EXPECT_NE(text.find("3.10× ucx"), std::string::npos);
  EXPECT_NE(text.find("(far)"), std::string::npos);
  EXPECT_NE(text.find("WRONG RESULT"), std::string::npos);
  EXPECT_EQ(text.find('\033'), std::string::npos);
  EXPECT_NE(driver::table(records, true).find("\033[32m3.10× ucx tagged\033[0m"), std::string::npos);
}

}  // namespace
}  // namespace heddle::bench::report::bench_report_test
