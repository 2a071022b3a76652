#include "harness/record.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace heddle::bench::harness::bench_papers_test {
namespace {

BenchRecord record(const char* bench, const char* op, const char* metric, const char* sharing, std::uint32_t threads,
                   double median) {
  BenchRecord out;
  out.key.bench = bench;
  out.key.op = op;
  out.key.transport = "shm";
  out.key.sharing = sharing;
  out.key.metric = metric;
  out.key.threads = threads;
  out.key.workers = std::string(sharing) == "exclusive" ? threads : 1;
  out.median = median;
  out.p_ns = 50;
  return out;
}

// The ratio of records[0] to `against`; 0: there is none, -1: there are several.
double ratio(const std::vector<BenchRecord>& records, const std::string& against) {
  std::vector<BenchRecord> out;
  add_paper_ratios(records.front(), records, &out);
  double found = 0;
  for (const BenchRecord& one : out) {
    EXPECT_EQ(one.key, records.front().key);
    if (one.against == against) found = found == 0 ? one.ratio : -1;
  }
  return found;
}

TEST(Papers, OverheadAsForLlcl) {
  const auto post = [](std::uint32_t threads) {
    return record("overhead", "get_post", "cycles", "offload", threads, 54);
  };
  EXPECT_DOUBLE_EQ(ratio({post(1)}, "LLCL"), 0.25);
  EXPECT_EQ(ratio({post(2)}, "LLCL"), 0);
  const auto get = [](const char* metric, const char* sharing, std::uint32_t threads, double median) {
    return record("overhead", "get", metric, sharing, threads, median);
  };
  EXPECT_DOUBLE_EQ(ratio({get("rate", "offload", 15, 8.8), get("rate", "offload", 1, 4), get("rate", "offload", 4, 10),
                          get("rate", "shared", 4, 99)},
                         "best"),
                   0.88);
  EXPECT_DOUBLE_EQ(ratio({get("rate", "exclusive", 2, 5), get("rate", "exclusive", 1, 2.5)}, "best"), 1);
  const std::vector<BenchRecord> slower = {get("latency", "offload", 2, 300), get("latency", "exclusive", 2, 100),
                                           get("latency", "exclusive", 1, 7)};
  EXPECT_DOUBLE_EQ(ratio(slower, "exclusive"), 3);
  EXPECT_DOUBLE_EQ(ratio(slower, "P added"), 4);
  EXPECT_EQ(ratio({get("latency", "shared", 1, 90), get("latency", "exclusive", 1, 100)}, "P added"), 0)
      << "it adds nothing";
  EXPECT_EQ(ratio({get("latency", "exclusive", 1, 100), get("latency", "offload", 1, 300)}, "exclusive"), 0);
  EXPECT_EQ(ratio({get("latency", "offload", 1, 300)}, "exclusive"), 0) << "nothing to compare with";
}

TEST(Papers, ThreadsBesideAsManyProcesses) {
  const auto duplex = [](const char* op, std::uint32_t processes, std::uint32_t threads, double median) {
    BenchRecord out = record("duplex", op, "bandwidth", "exclusive", threads, median);
    out.key.processes = processes;
    return out;
  };
  const std::vector<BenchRecord> others = {duplex("put", 2, 4, 30), duplex("put", 4, 1, 7), duplex("get", 8, 1, 9),
                                           duplex("put", 8, 1, 20)};
  EXPECT_DOUBLE_EQ(ratio(others, "processes"), 1.5);
  EXPECT_EQ(ratio({duplex("put", 8, 1, 20), duplex("put", 2, 4, 30)}, "processes"), 0) << "not the other way round";
  EXPECT_EQ(ratio({duplex("put", 2, 1, 20), duplex("put", 2, 1, 20)}, "processes"), 0) << "one thread is one process";
}

TEST(Papers, OverlapBesideTheLongerPartAndTheSumOfPeersToo) {
  for (const char* transport : {"shm", "ucx"}) {
    const auto overlap = [&](const char* op, double median) {
      BenchRecord out = record("overlap", op, "latency", "exclusive", 1, median);
      out.key.transport = transport;
      return out;
    };
    const std::vector<BenchRecord> parts = {overlap("both_adaptive", 110), overlap("communication", 1),
                                            overlap("compute", 2), overlap("communication_adaptive", 50),
                                            overlap("compute_adaptive", 100)};
    EXPECT_DOUBLE_EQ(ratio(parts, "max"), 1.1);
    EXPECT_DOUBLE_EQ(ratio(parts, "sum"), 110.0 / 150);
    EXPECT_EQ(ratio({overlap("sender", 110), overlap("compute", 100)}, "max"), 0) << "a part is missing";
    EXPECT_EQ(ratio({overlap("compute", 110), overlap("communication", 100)}, "sum"), 0) << "parts have no parts";
  }
}

TEST(Papers, OneOtherFigureOfTheSameRun) {
  const auto rate = [](const char* sharing, std::uint32_t workers, double median) {
    BenchRecord one = record("network_tcp", "am", "rate", sharing, 4, median);
    one.key.workers = workers;
    return one;
  };
  const std::vector<BenchRecord> all = {rate("offload", 1, 6), rate("shared", 1, 4), rate("exclusive", 4, 12)};
  EXPECT_DOUBLE_EQ(ratio(all, "direct"), 1.5);
  EXPECT_DOUBLE_EQ(ratio(all, "own workers"), 0.5);
  EXPECT_EQ(ratio({all[1], all[2]}, "direct"), 0) << "only what is offloaded";

  BenchRecord joint = record("mixed_job", "am", "latency", "exclusive", 1, 110);
  BenchRecord alone = joint;
  joint.key.transport = "heddle shm,ucx";
  alone.median = 100;
  EXPECT_DOUBLE_EQ(ratio({joint, alone}, "shm alone"), 1.1);
  EXPECT_EQ(ratio({alone, alone}, "shm alone"), 0);

  const BenchRecord none = record("convolution", "none", "latency", "exclusive", 8, 100);
  const BenchRecord adaptive = record("convolution", "adaptive", "latency", "exclusive", 8, 87);
  EXPECT_DOUBLE_EQ(ratio({adaptive, none, record("convolution", "none", "latency", "offload", 8, 1)}, "none"), 0.87);
  EXPECT_EQ(ratio({none, none}, "none"), 0);

  EXPECT_DOUBLE_EQ(ratio({record("fairness", "deviation", "callbacks", "shared", 8, 131.25)}, "even share"), 1);
  EXPECT_EQ(ratio({record("fairness", "thread_0", "callbacks", "shared", 8, 131.25)}, "even share"), 0);
}

}  // namespace
}  // namespace heddle::bench::harness::bench_papers_test
