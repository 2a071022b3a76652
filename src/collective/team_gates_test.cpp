// Checks that gates_of() gives a barrier and a reduction for any number of ranks: simulated signal
// by signal, in any order, with ranks that are an operation ahead.
#include "collective/gate_offload.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <set>
#include <tuple>
#include <utility>

#include "base/random.hpp"

namespace heddle::collective::team_gates_test {
namespace {

struct Signal {
  std::uint64_t run = 0;
  std::uint64_t sum = 0;
  std::uint64_t givers = 0;  // one bit for each rank whose part is in it
};

// The gates of all ranks, and the wires between them; each wire keeps its order.
class Network {
 public:
  Network(Rank ranks, std::uint64_t seed) : random_(seed) {
    for (Rank rank = 0; rank < ranks; ++rank) ranks_.push_back({gates_of(rank, ranks), {}, 0, 0, {}});
    for (Of& of : ranks_) of.inputs.resize(of.gates.size());
  }
  [[nodiscard]] Rank ranks() const { return static_cast<Rank>(ranks_.size()); }
  [[nodiscard]] std::uint64_t begun(Rank rank) const { return ranks_[rank].begun; }
  [[nodiscard]] std::uint64_t ended(Rank rank) const { return ranks_[rank].ended; }
  [[nodiscard]] std::uint64_t ends() const { return ends_; }  // of all ranks
  [[nodiscard]] const Signal& result(Rank rank) const { return ranks_[rank].result; }
  static std::uint64_t gives(Rank rank, std::uint64_t run) { return (rank + 1) * 1'000'003ULL * run; }

  void begin(Rank rank) {
    Of& of = ranks_[rank];
    const std::uint64_t run = ++of.begun;
    send(rank, 0, {run, gives(rank, run), std::uint64_t{1} << rank});
    fire(rank, 0);
  }
  // Delivers one random signal that is under way. False: there is none.
  bool deliver() {
    if (wires_.empty()) return false;
    const std::size_t which = random_.next() % wires_.size();
    Wire& wire = wires_[which];
    const Signal signal = wire.signals.front();
    wire.signals.pop_front();
    auto& input = ranks_[wire.rank].inputs[wire.gate][wire.remote ? 1 : 0];
    input.push_back(signal);
    // A hardware gate is not a queue: it must not have to hold more than this.
    EXPECT_LE(input.size(), 2U);
    const std::pair at{wire.rank, wire.gate};
    if (wire.signals.empty()) {
      std::swap(wire, wires_.back());
      wires_.pop_back();
    }
    fire(at.first, at.second);
    return true;
  }

 private:
  struct Of {
    std::vector<GateLinks> gates;
    std::vector<std::array<std::deque<Signal>, 2>> inputs;  // by gate: local, remote
    std::uint64_t begun = 0;
    std::uint64_t ended = 0;
    Signal result;
  };
  struct Wire {
    Rank rank = 0;  // where the wire ends
    std::uint32_t gate = 0;
    bool remote = false;
    Rank from = 0;
    std::uint32_t from_gate = 0;
    std::deque<Signal> signals;
  };

  void put(const Wire& to, const Signal& signal) {
    for (Wire& wire : wires_) {
      if (std::tie(wire.rank, wire.gate, wire.remote, wire.from, wire.from_gate) !=
          std::tie(to.rank, to.gate, to.remote, to.from, to.from_gate)) {
        continue;
      }
      wire.signals.push_back(signal);
      return;
    }
    wires_.push_back(to);
    wires_.back().signals.push_back(signal);
  }
  void send(Rank rank, std::uint32_t number, const Signal& signal) {
    const GateLinks& gate = ranks_[rank].gates[number];
    if (gate.to_local != GateLinks::kNone) put({rank, gate.to_local, false, rank, number, {}}, signal);
    if (gate.to_rank != GateLinks::kNone) put({gate.to_rank, gate.to_gate, true, rank, number, {}}, signal);
  }
  void fire(Rank rank, std::uint32_t number) {
    Of& of = ranks_[rank];
    const GateLinks& gate = of.gates[number];
    auto& [local, remote] = of.inputs[number];
    while ((gate.from_local == GateLinks::kNone || !local.empty()) &&
           (gate.from_rank == GateLinks::kNone || !remote.empty())) {
      if (number == 0 && of.begun == of.ended) return;
      Signal signal;
      for (auto* input : {&local, &remote}) {
        if (input->empty()) continue;
        const Signal& came = input->front();
        EXPECT_TRUE(signal.run == 0 || signal.run == came.run) << "operations are mixed";
        EXPECT_EQ(signal.givers & came.givers, 0U) << "a part is counted twice";
        signal = {came.run, signal.sum + came.sum, signal.givers | came.givers};
        input->pop_front();
      }
      if (number != 0) {
        send(rank, number, signal);
        continue;
      }
      of.result = signal;
      ++of.ended;
      ++ends_;
    }
  }

  base::Random random_;
  std::uint64_t ends_ = 0;
  std::vector<Of> ranks_;
  std::vector<Wire> wires_;
};

// Checks the results of ranks that have ended a run, and that no rank has left before all had
// arrived.
void verify(const Network& network) {
  const Rank ranks = network.ranks();
  const std::uint64_t all = ranks == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << ranks) - 1;
  std::uint64_t least = network.begun(0);
  for (Rank rank = 0; rank < ranks; ++rank) least = std::min(least, network.begun(rank));
  for (Rank rank = 0; rank < ranks; ++rank) {
    ASSERT_LE(network.ended(rank), least) << "left before all had come";
    if (network.ended(rank) == 0) continue;
    const Signal& result = network.result(rank);
    std::uint64_t sum = 0;
    for (Rank other = 0; other < ranks; ++other) sum += Network::gives(other, result.run);
    ASSERT_EQ(result.givers, all);
    ASSERT_EQ(result.sum, sum);
    ASSERT_EQ(result.run, network.ended(rank));
  }
}

TEST(TeamGates, AreABarrierAndAReductionForAnyNumberOfRanks) {
  constexpr std::uint64_t kRuns = 5;
  for (Rank ranks = 2; ranks <= 64; ++ranks) {
    for (std::uint64_t seed = 1; seed <= 2; ++seed) {
      Network network(ranks, seed);
      base::Random random(std::uint64_t{ranks} * 100 + seed);
      std::uint64_t verified = 0;
      for (std::uint64_t idle = 0; network.ends() < kRuns * ranks && idle < 100'000;) {
        const auto rank = static_cast<Rank>(random.next() % ranks);
        const bool may_begin = network.begun(rank) == network.ended(rank) && network.begun(rank) < kRuns;
        // One rank is late.
        if (may_begin && (rank != ranks / 2 || random.next() % 16 == 0)) network.begin(rank);
        idle = network.deliver() ? 0 : idle + 1;
        if (network.ends() == verified) continue;
        verified = network.ends();
        verify(network);
        ASSERT_FALSE(::testing::Test::HasFailure()) << ranks << " ranks";
      }
      ASSERT_EQ(network.ends(), kRuns * ranks) << ranks << " ranks: it does not end";
      ASSERT_FALSE(network.deliver()) << "signals are left over";
    }
  }
}

// Both ends of a connection agree; two ranks have at most one connection in each direction.
TEST(TeamGates, BothEndsAgree) {
  for (const Rank ranks : {2U, 3U, 4U, 5U, 7U, 8U, 12U, 31U, 64U, 1000U, 4097U}) {
    for (Rank rank = 0; rank < ranks; ++rank) {
      const std::vector<GateLinks> gates = gates_of(rank, ranks);
      std::set<Rank> sent_to;
      for (std::uint32_t number = 0; number < gates.size(); ++number) {
        const GateLinks& gate = gates[number];
        ASSERT_TRUE(gate.to_local != number && gate.from_local != number) << "to itself";
        if (gate.to_local != GateLinks::kNone) {
          ASSERT_EQ(gates.at(gate.to_local).from_local, number);
        }
        if (gate.from_local != GateLinks::kNone) {
          ASSERT_EQ(gates.at(gate.from_local).to_local, number);
        }
        if (gate.to_rank == GateLinks::kNone) continue;
        ASSERT_TRUE(sent_to.insert(gate.to_rank).second) << "two connections";
        const GateLinks there = gates_of(gate.to_rank, ranks).at(gate.to_gate);
        ASSERT_EQ(there.from_rank, rank);
        ASSERT_EQ(there.from_gate, number);
      }
      // A rank that sends to another also gets from it, so that one key serves both.
      std::set<Rank> got_from;
      for (const GateLinks& gate : gates)
        if (gate.from_rank != GateLinks::kNone) got_from.insert(gate.from_rank);
      ASSERT_EQ(sent_to, got_from);
    }
  }
}

// Gates are few.
TEST(TeamGates, AsManyGatesAsStagesAndTwoMore) {
  EXPECT_EQ(gates_of(0, 2).size(), 2U);
  EXPECT_EQ(gates_of(0, 8).size(), 3U);
  EXPECT_EQ(gates_of(0, 9).size(), 5U);
  EXPECT_EQ(gates_of(8, 9).size(), 1U);
  EXPECT_EQ(gates_of(1, 9).size(), 3U);
  EXPECT_EQ(gates_of(158'975, 158'976).size(), 1U);
  EXPECT_EQ(gates_of(0, 158'976).size(), 19U);
}

}  // namespace
}  // namespace heddle::collective::team_gates_test
