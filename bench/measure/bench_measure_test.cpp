// Measurements over the smallest library there can be: are all made, and is a wrong result noticed.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "measure/all.hpp"

namespace heddle::bench::measure::bench_measure_test {
namespace {

using harness::BenchSession;
using harness::Channel;
using harness::Sample;

// The state that two processes, which are threads here, share.
struct Wire {
  std::mutex mutex;
  // by rank and tag
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::deque<std::vector<std::byte>>> messages;
  std::array<std::vector<std::byte>, 2> memory = {std::vector<std::byte>(kDataAt + kDataBytes),
                                                  std::vector<std::byte>(kDataAt + kDataBytes)};
};

// `broken`: the data that arrives is another.
class Model {
 public:
  struct Request {
    bool receives = false;
    std::uint64_t tag = 0;
    void* data = nullptr;
  };
  Model(Wire& wire, Channel& channel, bool broken) : wire_(wire), channel_(channel), broken_(broken) {}

  [[nodiscard]] static Identity identity() { return {"model", "own", "allocated", true, false, false}; }
  std::byte* own(std::uint64_t at) { return wire_.memory[channel_.rank()].data() + at; }
  bool put(std::uint32_t, std::uint32_t to, std::uint64_t at, const void* data, std::uint64_t bytes) {
    const std::scoped_lock lock(wire_.mutex);
    std::memcpy(wire_.memory[to].data() + at, data, bytes);
    if (broken_) wire_.memory[to][at] ^= std::byte{0x80};
    return false;
  }
  bool get(std::uint32_t, std::uint32_t from, std::uint64_t at, void* data, std::uint64_t bytes) {
    const std::scoped_lock lock(wire_.mutex);
    std::memcpy(data, wire_.memory[from].data() + at, bytes);
    return false;
  }
  bool put_signal(std::uint32_t lane, std::uint32_t to, std::uint64_t at, const void* data, std::uint64_t bytes,
                  std::uint64_t word, std::uint64_t value) {
    put(lane, to, at, data, bytes);
    set_word(lane, to, word, value);
    return false;
  }
  void set_word(std::uint32_t, std::uint32_t to, std::uint64_t word, std::uint64_t value) {
    std::atomic_ref(*reinterpret_cast<std::uint64_t*>(wire_.memory[to].data() + word)).store(value);
  }
  void flush(std::uint32_t, std::uint32_t) {}
  void quiet(std::uint32_t) {}
  static bool progress(std::uint32_t) { return false; }
  void meet() { channel_.barrier(); }

  void send(std::uint32_t, std::uint32_t to, std::uint64_t tag, const void* data, std::uint64_t bytes,
            Request& request) {
    const auto* from = static_cast<const std::byte*>(data);
    std::vector<std::byte> message(from, from + bytes);
    if (broken_) message.back() ^= std::byte{0x80};
    const std::scoped_lock lock(wire_.mutex);
    wire_.messages[{to, tag}].push_back(std::move(message));
    request.receives = false;
  }
  void receive(std::uint32_t, std::uint32_t, std::uint64_t tag, void* data, std::uint64_t, Request& request) {
    request = {true, tag, data};
  }
  void wait_all(std::uint32_t, Request* requests, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
      while (requests[i].receives && !take(requests[i])) sched_yield();
    }
  }
  void send_now(std::uint32_t lane, std::uint32_t to, std::uint64_t tag, const void* data, std::uint64_t bytes) {
    Request request;
    send(lane, to, tag, data, bytes, request);
  }
  void receive_now(std::uint32_t lane, std::uint32_t from, std::uint64_t tag, void* data, std::uint64_t bytes) {
    Request request;
    receive(lane, from, tag, data, bytes, request);
    wait_all(lane, &request, 1);
  }

 private:
  bool take(const Request& request) {
    const std::scoped_lock lock(wire_.mutex);
    auto& queue = wire_.messages[{channel_.rank(), request.tag}];
    if (queue.empty()) return false;
    std::copy(queue.front().begin(), queue.front().end(), static_cast<std::byte*>(request.data));
    queue.pop_front();
    return true;
  }
  Wire& wire_;
  Channel& channel_;
  const bool broken_;
};

template <class Measure>
std::map<std::string, Sample> run_both(harness::BenchOptions options, bool broken, Measure&& measure) {
  std::map<std::string, Sample> samples;
  auto channel = Channel::create(0);
  EXPECT_TRUE(channel);
  if (!channel) return samples;
  options.repeat = 1;
  options.target_ns = 200'000;
  options.sizes = {64};
  options.threads = {1};
  Wire wire;
  const auto process = [&](std::uint32_t rank) {
    auto own = Channel::open(channel->path());
    ASSERT_TRUE(own);
    own->set_rank(rank);
    BenchSession session(*own, options, [&](const Sample& sample) { samples[sample.key.op] = sample; });
    Bench bench(session);
    Model library(wire, *own, broken);
    bench.use(library);
    measure(bench, library);
  };
  std::thread other([&] { process(1); });
  process(0);
  other.join();
  return samples;
}

std::map<std::string, Sample> run_overlap(bool broken) {
  harness::BenchOptions options;
  options.names = {"overlap"};
  return run_both(options, broken, [](Bench& bench, Model& library) { overlap(bench, library, ""); });
}

// How long a case takes is not looked at: the computation is as long as it was when it was tried,
// perhaps on a core that had other work.
TEST(Overlap, EveryCaseIsMeasured) {
  const auto samples = run_overlap(false);
  ASSERT_EQ(samples.size(), kOverlapCases.size());
  for (const auto& [op, sample] : samples) {
    EXPECT_TRUE(sample.verified) << op;
    EXPECT_GT(sample.value, 0) << op;
  }
}

TEST(Overlap, DataThatIsWrongIsNoticed) {
  const auto samples = run_overlap(true);
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

// Features that a library lacks are left out; those that it has are measured, labelled and checked.
TEST(Measure, EverythingThatTheLibraryHas) {
  static_assert(Library<Model> && Messages<Model>);
  static_assert(!Signals<Model> && !Active<Model> && !Counts<Model> && !HasAtomic<Model, Atomic::fetch_add>);
  harness::BenchOptions options;
  options.names = {"pingpong"};
  // without what polls, which takes long on a busy machine
  options.ops = {"put_flush", "get", "tagged"};
  for (const bool broken : {false, true}) {
    const auto samples = run_both(options, broken, [](Bench& bench, Model& library) { run_latencies(bench, library); });
    EXPECT_EQ(samples.size(), 3U);
    for (const auto& [op, sample] : samples) {
      EXPECT_EQ(sample.key.transport, "model");
      EXPECT_EQ(sample.key.processes, 2U);
      EXPECT_EQ(sample.verified, !broken || op != "tagged") << op;
    }
  }
}

}  // namespace
}  // namespace heddle::bench::measure::bench_measure_test
