// Barrier gates on the emulator, connected by hand: results, errors, and how many gates there are.
// How a team's gates are connected is tested in the room collective.
#include "transport/gates.hpp"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/test_support.hpp"
#include "bootstrap/inproc/inproc.hpp"
#include "transport/utofu/utofu.hpp"

namespace heddle::transport::utofu::gates_test {
namespace {

using Overrides = base::Config::Overrides;
constexpr std::uint32_t kNone = GateWires::kNone;

class Side {
 public:
  Side(bootstrap::inproc::ThreadJob& job, std::uint32_t rank, Overrides variables = {},
       base::Level level = base::Level::error) {
    variables.insert({"HEDDLE_LIBRARIES", "utofu=" HEDDLE_TOFUCOM});
    variables.insert({"HEDDLE_MAX_WORKERS", "1"});
    auto config = base::Config::read(variables);
    EXPECT_TRUE(config.ok()) << base::last_message();
    environment_.config = *config;
    environment_.log = base::Log(level, rank);
    environment_.clock = &clock_;
    bootstrap_ = std::move(*bootstrap::inproc::open(job, rank));
    auto transport = open(*bootstrap_, environment_);
    EXPECT_TRUE(transport.ok()) << base::last_message();
    if (transport) transport_ = std::move(*transport);
  }
  [[nodiscard]] BarrierGates* gates() { return transport_->gates(); }

 private:
  base::SystemClock clock_;
  base::Environment environment_;
  std::unique_ptr<bootstrap::Bootstrap> bootstrap_;
  std::unique_ptr<Transport> transport_;
};

// Two ranks: each start gate sends to both relays, each relay to its own start gate.
class Pair {
 public:
  explicit Pair(std::uint32_t lane = 0) : job_(2) {
    std::array<GateKey, 2> keys;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      sides_.push_back(std::make_unique<Side>(job_, rank));
      auto opened = sides_[rank]->gates()->open(2, lane);
      EXPECT_TRUE(opened.ok()) << base::last_message();
      chains_.push_back(std::move(*opened));
      keys[rank] = chains_[rank]->key(0, 1);
    }
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      const GateKey& other = keys[1 - rank];
      const std::array<GateWires, 2> wires = {{{1, 1, nullptr, &other}, {0, 0, &other, nullptr}}};
      EXPECT_EQ(chains_[rank]->bind(wires), HEDDLE_DONE) << base::last_message();
    }
  }
  GateChain& operator[](std::uint32_t rank) { return *chains_[rank]; }

 private:
  bootstrap::inproc::ThreadJob job_;
  std::vector<std::unique_ptr<Side>> sides_;
  std::vector<std::unique_ptr<GateChain>> chains_;
};

base::Status end_of(GateChain& chain, std::span<std::uint64_t> words) {
  base::Status status = HEDDLE_AGAIN;
  EXPECT_TRUE(test::within_time([&] { return (status = chain.poll(words)) != HEDDLE_AGAIN; }));
  return status;
}

TEST(UtofuGates, NobodyLeavesABarrierBeforeTheOtherHasCome) {
  Pair pair;
  for (std::uint32_t run = 0; run < 50; ++run) {
    const std::uint32_t early = run % 2;
    ASSERT_EQ(pair[early].start(GateOperator::barrier, {}), HEDDLE_DONE);
    for (int i = 0; i < 20; ++i) ASSERT_EQ(pair[early].poll({}), HEDDLE_AGAIN);
    ASSERT_EQ(pair[1 - early].start(GateOperator::barrier, {}), HEDDLE_DONE);
    ASSERT_EQ(end_of(pair[1 - early], {}), HEDDLE_DONE);
    ASSERT_EQ(end_of(pair[early], {}), HEDDLE_DONE);
    ASSERT_EQ(pair[early].poll({}), HEDDLE_DONE) << "and stays so";
  }
}

TEST(UtofuGates, WordsAreCombined) {
  Pair pair(5);
  const auto both = [&](GateOperator op, std::vector<std::uint64_t> a, std::vector<std::uint64_t> b) {
    EXPECT_EQ(pair[0].start(op, a), HEDDLE_DONE) << base::last_message();
    EXPECT_EQ(pair[1].start(op, b), HEDDLE_DONE) << base::last_message();
    EXPECT_EQ(end_of(pair[0], a), HEDDLE_DONE) << base::last_message();
    EXPECT_EQ(end_of(pair[1], b), HEDDLE_DONE) << base::last_message();
    EXPECT_EQ(a, b);
    return a;
  };
  using Words = std::vector<std::uint64_t>;
  const std::uint64_t top = std::uint64_t{1} << 63;
  EXPECT_EQ(both(GateOperator::sum, {1, 2, 3, 4, 5, ~0ULL}, {10, 20, 30, 40, 50, 2}), (Words{11, 22, 33, 44, 55, 1}));
  EXPECT_EQ(both(GateOperator::max, {7, top}, {8, 1}), (Words{8, top})) << "without signs";
  EXPECT_EQ(both(GateOperator::band, {0xF0}, {0x3C}), (Words{0x30}));
  EXPECT_EQ(both(GateOperator::bor, {0xF0}, {0x3C}), (Words{0xFC}));
  EXPECT_EQ(both(GateOperator::bxor, {0xF0}, {0x3C}), (Words{0xCC}));
}

// Each thread runs at its own pace, so that now and then one is an operation ahead of the other.
TEST(UtofuGates, ThreadsAtTheirOwnPace) {
  Pair pair(2);
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      for (std::uint64_t run = 1; run <= 10'000; ++run) {
        std::array<std::uint64_t, 2> words = {run * (rank + 1), rank};
        ASSERT_EQ(pair[rank].start(GateOperator::sum, words), HEDDLE_DONE);
        ASSERT_EQ(end_of(pair[rank], words), HEDDLE_DONE) << base::last_message();
        ASSERT_EQ(words[0], run * 3);
        ASSERT_EQ(words[1], 1U);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(UtofuGates, ThoseWhoDisagreeAreTold) {
  Pair pair;
  std::array<std::uint64_t, 1> words = {5};
  ASSERT_EQ(pair[0].start(GateOperator::sum, words), HEDDLE_DONE);
  EXPECT_EQ(pair[0].start(GateOperator::sum, words), HEDDLE_ERR_STATE) << "one is under way";
  ASSERT_EQ(pair[1].start(GateOperator::max, words), HEDDLE_DONE);
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(end_of(pair[rank], words), HEDDLE_ERR_ARGUMENT);
    EXPECT_EQ(pair[rank].start(GateOperator::sum, words), HEDDLE_ERR_ARGUMENT) << "and so it stays";
  }
}

TEST(UtofuGates, WhatIsNotSoIsRefused) {
  bootstrap::inproc::ThreadJob job(1);
  Side side(job, 0);
  auto opened = side.gates()->open(2, 1);
  auto elsewhere = side.gates()->open(1, 2);
  ASSERT_TRUE(opened.ok() && elsewhere.ok()) << base::last_message();
  GateChain& chain = **opened;
  EXPECT_NE(chain.lane(), (*elsewhere)->lane());
  const GateKey key = chain.key(0, kNone);
  GateKey forged = key;
  forged.bytes[8] ^= std::byte{1};
  const GateKey other = (*elsewhere)->key(0, 0);
  const auto bind = [&](const GateWires& wires) {
    const std::array<GateWires, 2> both = {{wires, {}}};
    return chain.bind(both);
  };
  EXPECT_EQ(bind({1, 2, nullptr, nullptr}), HEDDLE_ERR_RANGE);
  EXPECT_EQ(bind({kNone, kNone, &forged, nullptr}), HEDDLE_ERR_PROTOCOL);
  EXPECT_EQ(bind({kNone, kNone, nullptr, &key}), HEDDLE_ERR_RANGE) << "the key names none that gets";
  EXPECT_EQ(bind({kNone, kNone, nullptr, &other}), HEDDLE_ERR_PROTOCOL) << "on another TNI";
  EXPECT_EQ(chain.bind({}), HEDDLE_ERR_RANGE);
}

TEST(UtofuGates, TheyRunOutAndComeBack) {
  bootstrap::inproc::ThreadJob job(1);
  Side side(job, 0, {{"HEDDLE_UTOFU_GATES", "100"}});
  for (int round = 0; round < 2; ++round) {
    std::vector<std::unique_ptr<GateChain>> open;
    for (;;) {
      auto opened = side.gates()->open(1, 3);
      if (!opened) {
        EXPECT_EQ(opened.status(), HEDDLE_ERR_NO_MEMORY);
        break;
      }
      open.push_back(std::move(*opened));
    }
    EXPECT_EQ(open.size(), 16U) << "start gates of one TNI";
    EXPECT_TRUE(side.gates()->open(1, 4).ok()) << "those of another";
  }
}

TEST(UtofuGates, AsManyAsAllowed) {
  bootstrap::inproc::ThreadJob job(1);
  Side side(job, 0, {{"HEDDLE_UTOFU_GATES", "4"}});
  auto opened = side.gates()->open(3, 0);
  EXPECT_TRUE(opened.ok());
  EXPECT_EQ(side.gates()->open(2, 0).status(), HEDDLE_ERR_NO_MEMORY);
  EXPECT_TRUE(side.gates()->open(1, 0).ok());
  EXPECT_EQ(side.gates()->open(5, 0).status(), HEDDLE_ERR_NO_MEMORY);
}

TEST(UtofuGates, ThereAreNoneWhereNotWanted) {
  bootstrap::inproc::ThreadJob job(1);
  EXPECT_EQ(Side(job, 0, {{"HEDDLE_UTOFU_GATES", "0"}}).gates(), nullptr);
  bootstrap::inproc::ThreadJob other(1);
  testing::internal::CaptureStderr();
  EXPECT_EQ(Side(other, 0, {{"HEDDLE_UTOFU_SINGLE_THREAD", "1"}}, base::Level::info).gates(), nullptr);
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_NE(told.find("no session queues and no barrier gates"), std::string::npos) << told;
}

// An operation that never ends: its gates stay allocated.
TEST(UtofuGates, WhatIsLeftStays) {
  Pair pair(4);
  ASSERT_EQ(pair[0].start(GateOperator::barrier, {}), HEDDLE_DONE);
  EXPECT_EQ(pair[0].poll({}), HEDDLE_AGAIN);
  pair[0].leave();
  pair[1].leave();  // the signal of the other chain waits there
}

}  // namespace
}  // namespace heddle::transport::utofu::gates_test
