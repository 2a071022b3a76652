// Tests the calls that the way by barrier gates makes to an interface, and its use of the answers.
// The test provides the interface.
#include "collective/gate_offload.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "collective/assembly.hpp"
#include "collective/reduction.hpp"

namespace heddle::collective::gate_offload_test {
namespace {

// The history of a chain; the chain may be destroyed already.
struct Seen {
  std::size_t wires = 0;
  int binds = 0;
  std::vector<std::uint64_t> given;
  std::vector<std::uint64_t> result;
  base::Status start = HEDDLE_DONE;
  base::Status poll = HEDDLE_AGAIN;
  bool left = false;
};

class Chain final : public transport::GateChain {
 public:
  Chain(Seen& seen, std::uint32_t lane) : seen_(seen), lane_(lane) {}
  [[nodiscard]] std::uint32_t lane() const override { return lane_; }
  [[nodiscard]] transport::GateKey key(std::uint32_t, std::uint32_t) const override { return {}; }
  base::Status bind(std::span<const transport::GateWires> wires) override {
    seen_.wires = wires.size();
    ++seen_.binds;
    return HEDDLE_DONE;
  }
  base::Status start(transport::GateOperator, std::span<const std::uint64_t> words) override {
    seen_.given.assign(words.begin(), words.end());
    return seen_.start;
  }
  base::Status poll(std::span<std::uint64_t> words) override {
    if (seen_.poll == HEDDLE_DONE) std::ranges::copy(seen_.result, words.begin());
    return seen_.poll;
  }
  void leave() override { seen_.left = true; }

 private:
  Seen& seen_;
  const std::uint32_t lane_;
};

class Gates final : public transport::BarrierGates {
 public:
  explicit Gates(std::uint32_t most) : most_(most) {}
  [[nodiscard]] Limits limits() const override { return {6}; }
  base::Result<std::unique_ptr<transport::GateChain>> open(std::uint32_t gates, std::uint32_t lane) override {
    if (gates > most_) return base::fail(HEDDLE_ERR_NO_MEMORY, "there are %u gates", most_);
    return std::unique_ptr<transport::GateChain>(std::make_unique<Chain>(seen, lane));
  }
  Seen seen;

 private:
  const std::uint32_t most_;
};

// A sum of 64-bit integers, as the program requests it.
struct Sum {
  Sum() {
    const auto named = named_reduction("test", {HEDDLE_UINT64, HEDDLE_SUM, nullptr, nullptr, 0});
    EXPECT_TRUE(named.ok());
    call.operation = Operation::allreduce;
    call.bytes = sizeof given;
    call.element_bytes = sizeof given[0];
    call.reduction = named->reduction;
    call.reduction_name = named->name;
    call.send = given.data();
    call.receive = taken.data();
  }
  std::array<std::uint64_t, 2> given{3, 4};
  std::array<std::uint64_t, 2> taken{};
  Call call;
};

struct Offloaded {
  explicit Offloaded(Gates& gates)
      : how(*GateReduction::of(sum.call, 6)), runner(TeamGates::open(&gates, 0, 2, {1, 0}), how, "allreduce.gates") {
    runner.set_buffers(sum.call);
  }
  Sum sum;
  GateReduction how;
  GateOffload runner;
};

TEST(GateOffload, NeedsGatesThatTheInterfaceHas) {
  EXPECT_EQ(TeamGates::open(nullptr, 0, 2, {0, 0}), nullptr);
  Gates none(0);
  EXPECT_EQ(TeamGates::open(&none, 0, 2, {0, 0}), nullptr);
  Gates many(16);
  EXPECT_EQ(TeamGates::open(&many, 0, 1, {0, 0}), nullptr);
  EXPECT_NE(TeamGates::open(&many, 0, 2, {0, 0}), nullptr);
}

TEST(GateOffload, GivesWordsAndTakesTheResult) {
  Gates gates(16);
  Offloaded offloaded(gates);
  GateOffload& runner = offloaded.runner;
  EXPECT_TRUE(runner.offloaded());
  EXPECT_STREQ(runner.algorithm("allreduce.flat"), "allreduce.gates");
  runner.start();
  EXPECT_EQ(gates.seen.given, (std::vector<std::uint64_t>{3, 4}));
  EXPECT_FALSE(runner.advance());
  gates.seen.result = {30, 40};
  gates.seen.poll = HEDDLE_DONE;
  EXPECT_TRUE(runner.advance());
  EXPECT_EQ(runner.status(), HEDDLE_DONE);
  EXPECT_EQ(offloaded.sum.taken, (std::array<std::uint64_t, 2>{30, 40}));
}

TEST(GateOffload, MembersAgreeWhereTheirGatesAreOfOneNetworkAndLane) {
  Gates gates(16);
  const auto same = TeamGates::open(&gates, 0, 2, {1, 5});
  const auto other_lane = TeamGates::open(&gates, 1, 2, {1, 6});
  const auto other_network = TeamGates::open(&gates, 1, 2, {2, 5});
  const auto agree = [&](const TeamGates& second) {
    std::vector<SetupRecord> records(2);
    GateKeys keys;
    same->tell(1, &keys);
    records[0].keys.set(keys);
    second.tell(0, &keys);
    records[1].keys.set(keys);
    return same->agreed(records);
  };
  EXPECT_TRUE(agree(*same));
  EXPECT_FALSE(agree(*other_lane));
  EXPECT_FALSE(agree(*other_network));
}

TEST(GateOffload, BindsOneNetworkOnce) {
  Gates gates(16);
  Offloaded offloaded(gates);
  std::vector<SetupRecord> records(2);
  for (SetupRecord& record : records) offloaded.runner.tell(1, &record);
  EXPECT_EQ(offloaded.runner.bind({}, records), HEDDLE_DONE);
  EXPECT_EQ(offloaded.runner.bind({}, records), HEDDLE_DONE);
  EXPECT_EQ(gates.seen.binds, 1);
  EXPECT_EQ(gates.seen.wires, gates_of(0, 2).size());
}

TEST(GateOffload, SaysWhatMembersHaveDoneWrong) {
  Gates gates(16);
  Offloaded offloaded(gates);
  offloaded.runner.start();
  gates.seen.poll = HEDDLE_ERR_ARGUMENT;
  EXPECT_TRUE(offloaded.runner.advance());
  EXPECT_EQ(offloaded.runner.status(), HEDDLE_ERR_ARGUMENT);
  EXPECT_NE(std::string(offloaded.runner.reason(HEDDLE_ERR_ARGUMENT)).find("other calls"), std::string::npos);
  EXPECT_STREQ(offloaded.runner.reason(HEDDLE_ERR_RANGE), "what was put to a member did not arrive");
}

TEST(GateOffload, AStartThatTheInterfaceRejectsEndsTheRun) {
  Gates gates(16);
  Offloaded offloaded(gates);
  gates.seen.start = HEDDLE_ERR_SYSTEM;
  offloaded.runner.start();
  EXPECT_TRUE(offloaded.runner.advance());
  EXPECT_EQ(offloaded.runner.status(), HEDDLE_ERR_SYSTEM);
  EXPECT_EQ(offloaded.runner.retire({false, true, false, false, true}), Runner::Memory::now);
  EXPECT_TRUE(gates.seen.left);
}

}  // namespace
}  // namespace heddle::collective::gate_offload_test
