#include "harness/overlap.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace heddle::bench::harness {
namespace {

// A library whose messages are words in shared memory; `broken`: the data that arrives is another.
struct Wire {
  std::atomic<std::uint64_t> sent{0};
  std::atomic<std::uint64_t> answered{0};
  std::vector<std::byte> data;
};
class Endpoint {
 public:
  Endpoint(Wire& wire, bool broken) : wire_(wire), broken_(broken) {}
  void begin_send(const void* data, std::uint64_t size) {
    const auto* from = static_cast<const std::byte*>(data);
    wire_.data.assign(from, from + size);
    if (broken_) wire_.data.back() ^= std::byte{0x80};
    wire_.sent.fetch_add(1);
  }
  void finish_send() {}
  void begin_receive(void* data, std::uint64_t) {
    target_ = static_cast<std::byte*>(data);
    ++expected_;
  }
  void finish_receive() {
    while (wire_.sent.load() < expected_) sched_yield();
    std::copy(wire_.data.begin(), wire_.data.end(), target_);
  }
  void answer() { wire_.answered.fetch_add(1); }
  void await_answer() {
    ++awaited_;
    while (wire_.answered.load() < awaited_) sched_yield();
  }
  void progress() {}

 private:
  Wire& wire_;
  const bool broken_;
  std::byte* target_ = nullptr;
  std::uint64_t expected_ = 0;
  std::uint64_t awaited_ = 0;
};

std::map<std::string, Sample> run_both(bool broken) {
  std::map<std::string, Sample> samples;
  auto channel = Channel::create(0);
  EXPECT_TRUE(channel);
  if (!channel) return samples;
  Options options;
  options.repeat = 1;
  options.target_ns = 200'000;
  options.sizes = {64};
  Wire wire;
  const auto process = [&](std::uint32_t rank) {
    auto own = Channel::open(channel->path());
    ASSERT_TRUE(own);
    own->set_rank(rank);
    Session session(*own, options, [&](const Sample& sample) { samples[sample.key.op] = sample; });
    Endpoint endpoint(wire, broken);
    measure_overlap(session, endpoint, [](const char* op, std::uint64_t size) {
      Figure figure;
      figure.key.op = op;
      figure.key.metric = "latency";
      figure.key.size_bytes = size;
      return figure;
    });
  };
  std::thread other([&] { process(1); });
  process(0);
  other.join();
  return samples;
}

// How long a case takes is not looked at: the computation is as long as it was when it was tried,
// perhaps on a core that had other work.
TEST(Overlap, EveryCaseIsMeasured) {
  const auto samples = run_both(false);
  ASSERT_EQ(samples.size(), kOverlapCases.size());
  for (const auto& [op, sample] : samples) {
    EXPECT_TRUE(sample.verified) << op;
    EXPECT_GT(sample.value, 0) << op;
  }
}

TEST(Overlap, DataThatIsWrongIsNoticed) {
  const auto samples = run_both(true);
  ASSERT_EQ(samples.size(), kOverlapCases.size());
  EXPECT_FALSE(samples.at("communication").verified);
  EXPECT_FALSE(samples.at("both").verified);
  EXPECT_TRUE(samples.at("compute").verified) << "no message, nothing wrong";
}

TEST(Overlap, ComputationsAreAsLongAsThePapers) {
  EXPECT_EQ(overlap_compute_ns(64), 20'000U);
  EXPECT_EQ(overlap_compute_ns(16384), 20'000U);
  EXPECT_EQ(overlap_compute_ns(32768), 100'000U);
}

}  // namespace
}  // namespace heddle::bench::harness
