#include "report/report.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "driver/table.hpp"
#include "report/plot.hpp"

namespace heddle::bench::report {
namespace {

using harness::Record;

Record record(const std::string& bench, const std::string& op, const std::string& transport, const std::string& metric,
              std::uint64_t size, double median, std::uint32_t threads = 1) {
  Record out;
  out.key.bench = bench;
  out.key.op = op;
  out.key.transport = transport;
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

std::vector<Record> session() {
  std::vector<Record> records;
  for (const std::uint64_t size : {8U, 4096U, 1048576U}) {
    records.push_back(record("pingpong", "put", "shm", "latency", size, 50.0 + static_cast<double>(size) / 20));
    records.push_back(record("pingpong", "put", "ucx", "latency", size, 60.0 + static_cast<double>(size) / 10));
  }
  records.push_back(record("rate", "put", "shm", "rate", 8, 210));
  records.push_back(record("rate", "put", "ucx", "rate", 8, 130));
  records.push_back(record("gups", "atomic", "shm", "rate", 8, 40, 2));
  return harness::with_ratios(records);
}

const std::vector<harness::Origin> kOrigin = {{"2026-11-22 10:00 +0000", "a machine", "0.1.0", "heddle bench", 2, 0.1}};

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(Report, IsOneFileThatNeedsNothingElse) {
  const std::string html = page(session(), kOrigin);
  EXPECT_EQ(html.find("http"), std::string::npos);
  EXPECT_EQ(html.find("src="), std::string::npos);
  EXPECT_EQ(html.find("url("), std::string::npos);
  for (const char* tag : {"svg", "figure", "table", "tr", "td", "div", "main", "text", "span"}) {
    EXPECT_EQ(count(html, std::string("<") + tag + ">") + count(html, std::string("<") + tag + " "),
              count(html, std::string("</") + tag + ">"))
        << tag;
  }
  EXPECT_EQ(html.find("nan"), std::string::npos);
  EXPECT_EQ(html.find("inf\""), std::string::npos);
}

TEST(Report, HasAChartPerSubjectAndEveryFigureInTheTable) {
  const std::string html = page(session(), kOrigin);
  EXPECT_NE(html.find("Put: one-way latency"), std::string::npos);
  EXPECT_NE(html.find("Puts of 8 bytes"), std::string::npos);
  EXPECT_NE(html.find("GUPS: atomic xor"), std::string::npos);
  EXPECT_EQ(html.find("GUPS: get + xor + put"), std::string::npos) << "not measured, not drawn";
  EXPECT_EQ(count(html, "<tr><td>") + count(html, "<tr class=\"ours\"><td>"), 9U);
  EXPECT_NE(html.find("<span class=\"chip good\">1.62 × ucx</span>"), std::string::npos);
}

// Each measurement of a paper brings its charts, and none without it.
TEST(Report, PapersHaveTheirCharts) {
  const std::size_t usual = count(page(session(), kOrigin), "<svg");
  const auto charts = [&](const std::vector<Record>& more) {
    auto records = session();
    records.insert(records.end(), more.begin(), more.end());
    return count(page(records, kOrigin), "<svg") - usual;
  };
  Record get = record("overhead", "get", "shm", "rate", 8, 1);
  get.key.memory = "registered";
  EXPECT_EQ(charts({get, record("overhead", "am", "shm", "latency", 8, 500)}), 2U);
  EXPECT_EQ(charts({record("fairness", "thread_0", "shm", "callbacks", 8, 100, 8),
                    record("fairness", "thread_7", "shm", "callbacks", 8, 90, 8),
                    record("fairness", "sorted_50", "shm", "callbacks", 8, 90, 8)}),
            2U);
  Record pairs = record("duplex", "put", "shm", "bandwidth", 65536, 10);
  pairs.key.processes = 4;
  const std::vector<Record> duplex = {record("duplex", "put", "shm", "bandwidth", 65536, 12, 2), pairs};
  EXPECT_EQ(charts(duplex), 1U);
  EXPECT_EQ(count(page(duplex, kOrigin), "2 pairs"), 1U) << "threads and processes stand in one group";
  EXPECT_EQ(count(page(duplex, kOrigin), "put, 4 processes"), 1U);
  EXPECT_EQ(charts({record("overlap", "both", "shm", "latency", 64, 100),
                    record("overlap", "both", "shm", "latency", 4096, 200),
                    record("overlap", "both_adaptive", "shm", "latency", 64, 90),
                    record("overlap", "both_adaptive", "shm", "latency", 4096, 120)}),
            1U)
      << "a policy stands beside none";
  EXPECT_EQ(charts({record("convolution", "idle", "shm", "latency", 4096, 1e6, 2)}), 1U);
}

TEST(Report, SaysWhenAndWhereItWasMeasuredAndBesideWhat) {
  const std::string html = page(session(), kOrigin);
  EXPECT_NE(html.find("Measured 2026-11-22 10:00 +0000 · a machine · 2 cores, load 0.1"), std::string::npos);
  EXPECT_EQ(html.find("Other programs were at work"), std::string::npos);
  auto loaded = kOrigin;
  loaded.push_back({"another date", "another machine", "0.1.0", "heddle bench put", 2, 3.5});
  const std::string both = page(session(), loaded);
  EXPECT_EQ(count(both, "Other programs were at work"), 1U);
  EXPECT_NE(both.find("another machine"), std::string::npos);
}

TEST(Report, GivesAVerdict) {
  auto records = session();
  // Four figures stand beside a peer: latencies of three sizes, all better, and a rate.
  EXPECT_NE(page(records, kOrigin).find("Of 4 figures that a peer (ucx)"), std::string::npos);
  // Put of 8 bytes: 50.4 and 60.8 with a tenth on either side, so that the intervals just overlap.
  EXPECT_NE(page(records, kOrigin).find("in <b>3</b>, behind in <b>0</b>, and level in <b>1</b>"), std::string::npos);
  records.push_back(record("rate", "get", "shm", "rate", 8, 100));
  records.push_back(record("rate", "get", "ucx", "rate", 8, 200));
  EXPECT_NE(page(records, kOrigin).find("rate get of 8, 1 thread: ucx is 2 × as good"), std::string::npos);
  std::erase_if(records, [](const Record& one) { return one.key.transport == "ucx"; });
  EXPECT_NE(page(records, kOrigin).find("No peer was measured"), std::string::npos);
}

TEST(Report, ExplainsTheNamesThatOccur) {
  auto records = session();
  EXPECT_EQ(page(records, kOrigin).find("<dt>copy_in_out_256K</dt>"), std::string::npos);
  records.push_back(record("limit", "copy_in_out_256K", "limit", "bandwidth", 1048576, 8));
  EXPECT_NE(page(records, kOrigin).find("<dt>copy_in_out_256K</dt>"), std::string::npos);
}

TEST(Report, TheLastTickOfAnAxisHasALabel) {
  const Series odd{"a", "#000", false, {{8, 7, 7, 7}, {3 << 20, 300, 300, 300}}};
  const std::string chart = line_chart("t", "u", {odd});
  EXPECT_NE(chart.find(">3M</text>"), std::string::npos);
  EXPECT_NE(chart.find(">500</text>"), std::string::npos) << "where the axis ends";
  const std::string bars = bar_chart("t", "u", {{"g", {{"a", "#000", false, {{0, 91, 85, 97}}}}}});
  EXPECT_NE(bars.find(">100</text>"), std::string::npos);
}

TEST(Report, TextFromFilesCannotBecomeMarkup) {
  auto records = session();
  for (Record& one : records) one.key.op = "<script>\"&";
  const std::string html = page(records, {{"date", "<b>machine", "<b>1", "heddle bench <b>", 2, 0}});
  EXPECT_EQ(html.find("<script"), std::string::npos);
  EXPECT_EQ(html.find("<b>machine"), std::string::npos);
  EXPECT_NE(html.find("&lt;script&gt;&quot;&amp;"), std::string::npos);
}

TEST(Report, ZeroAndAbsentValuesAreDrawnAsNothing) {
  EXPECT_EQ(line_chart("t", "u", {}), "");
  EXPECT_EQ(line_chart("t", "u", {{"a", "#000", false, {{8, 0, 0, 0}}}}), "");
  EXPECT_EQ(bar_chart("t", "u", {}), "");
  EXPECT_NE(line_chart("t", "u", {{"a", "#000", false, {{8, 5, 5, 5}}}}).find("<circle"), std::string::npos);
}

TEST(Report, AFileThatIsNotThereIsNamed) {
  std::string error;
  EXPECT_FALSE(write_report({"/nonexistent/x.json"}, "/dev/null", &error));
  EXPECT_NE(error.find("/nonexistent/x.json"), std::string::npos);
}

TEST(Table, ShowsRatiosAndMarksWhatIsWrongOrFar) {
  auto records = session();
  records[0].distance = "far";
  records[0].verified = false;
  const std::string text = driver::table(records, false);
  EXPECT_NE(text.find("1.62× ucx"), std::string::npos);
  EXPECT_NE(text.find("(far)"), std::string::npos);
  EXPECT_NE(text.find("WRONG RESULT"), std::string::npos);
  EXPECT_EQ(text.find('\033'), std::string::npos);
  EXPECT_NE(driver::table(records, true).find("\033[32m1.62× ucx\033[0m"), std::string::npos);
}

}  // namespace
}  // namespace heddle::bench::report
