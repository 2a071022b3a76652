#include "tofu/emulator/gates.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <vector>

extern "C" {
#include "tofu/programs/wiring.h"
}

namespace tofu_emulator::gate_graph_test {
namespace {

constexpr std::uint64_t id_of(int rank, int gate) {
  return 1000 * static_cast<std::uint64_t>(rank + 1) + static_cast<std::uint64_t>(gate);
}

using Wire = int (*)(int, int, gate_wiring*);

// All ranks of a group. Signals between them wait in a queue for each pair of gates until they are
// delivered.
class Group {
 public:
  Group(int size, Wire wire) : graphs_(static_cast<std::size_t>(size)) {
    for (int rank = 0; rank < size; rank++) {
      gate_wiring wiring[kMostGates];
      const int count = wire(rank, size, wiring);
      for (int gate = 0; gate < count; gate++) graph(rank).add(id_of(rank, gate), gate == 0);
      for (int gate = 0; gate < count; gate++) graph(rank).set(setting(rank, gate, wiring[gate]));
    }
  }

  GateGraph& graph(int rank) { return graphs_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] int size() const { return static_cast<int>(graphs_.size()); }
  int start(int rank, const GateValue& value) { return graph(rank).start(id_of(rank, 0), value, 0); }
  int fetch(int rank, GateData data, GateSignal* result) { return graph(rank).fetch(id_of(rank, 0), data, result); }

  // Delivers the oldest signal of a pair chosen at random. False: there is none.
  bool deliver_one(std::mt19937_64& random) {
    for (GateGraph& from : graphs_)
      for (; !from.outgoing().empty(); from.outgoing().pop_front())
        wires_[{from.outgoing().front().from, from.outgoing().front().to}].push_back(from.outgoing().front());
    if (wires_.empty()) return false;
    auto wire = wires_.begin();
    std::advance(wire, static_cast<std::ptrdiff_t>(random() % wires_.size()));
    const GateSignal signal = wire->second.front();
    wire->second.pop_front();
    if (wire->second.empty()) wires_.erase(wire);
    EXPECT_EQ(graph(static_cast<int>(signal.to / 1000) - 1).receive(signal), SignalTrouble::none);
    return true;
  }
  void deliver_all(std::mt19937_64& random) {
    while (deliver_one(random)) {
    }
  }

 private:
  static utofu_vbg_setting setting(int rank, int gate, const gate_wiring& wires) {
    const auto named = [](int of, int which) { return of == kNoGate ? UTOFU_VBG_ID_NULL : id_of(of, which); };
    return {.vbg_id = id_of(rank, gate),
            .src_lcl_vbg_id = named(wires.src_local == kNoGate ? kNoGate : rank, wires.src_local),
            .src_rmt_vbg_id = named(wires.src_rank, wires.src_gate),
            .dst_lcl_vbg_id = named(wires.dst_local == kNoGate ? kNoGate : rank, wires.dst_local),
            .dst_rmt_vbg_id = named(wires.dst_rank, wires.dst_gate),
            .dst_path_coords = {0xFF, 0xFF, 0xFF}};
  }

  std::vector<GateGraph> graphs_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::deque<GateSignal>> wires_;
};

GateValue words(utofu_reduce_op op, std::vector<std::uint64_t> data) {
  GateValue value;
  EXPECT_EQ(GateValue::of_words(op, data.data(), data.size(), &value), UTOFU_SUCCESS);
  return value;
}

std::uint64_t plain(utofu_reduce_op op, std::uint64_t a, std::uint64_t b) {
  switch (op) {
    case UTOFU_REDUCE_OP_BAND:
      return a & b;
    case UTOFU_REDUCE_OP_BOR:
      return a | b;
    case UTOFU_REDUCE_OP_BXOR:
      return a ^ b;
    case UTOFU_REDUCE_OP_MAX:
      return a > b ? a : b;
    default:
      return a + b;
  }
}

// Every rank performs a sequence of operations at its own pace, some as far ahead of others as the
// graph allows. Each result is compared with a direct computation from all values.
void compare_with_plain(int size, Wire wire, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Group group(size, wire);
  constexpr int kOperations = 12;
  std::vector<utofu_reduce_op> ops;
  std::vector<std::vector<std::vector<std::uint64_t>>> given;  // by operation and rank
  std::vector<std::vector<std::uint64_t>> expected;
  for (int i = 0; i < kOperations; i++) {
    ops.push_back(static_cast<utofu_reduce_op>(UTOFU_REDUCE_OP_BAND + random() % 6));
    const bool pairs = ops.back() == UTOFU_REDUCE_OP_MAXLOC;
    const std::size_t count = pairs ? 2 * (1 + random() % 3) : 1 + random() % 6;
    auto& all = given.emplace_back();
    for (int rank = 0; rank < size; rank++) {
      auto& mine = all.emplace_back();
      for (std::size_t k = 0; k < count; k++)
        mine.push_back(pairs ? (k % 2 ? static_cast<std::uint64_t>(size - rank) : random() % 4) : random());
    }
    expected.push_back(all[0]);
    for (int rank = 1; rank < size; rank++) {
      const auto& mine = all[static_cast<std::size_t>(rank)];
      for (std::size_t k = 0; k < count; k += pairs ? 2 : 1) {
        auto& sum = expected.back();
        if (!pairs) {
          sum[k] = plain(ops.back(), sum[k], mine[k]);
        } else if (mine[k] > sum[k] || (mine[k] == sum[k] && mine[k + 1] < sum[k + 1])) {
          sum[k] = mine[k], sum[k + 1] = mine[k + 1];
        }
      }
    }
  }
  std::vector<std::size_t> started(static_cast<std::size_t>(size));
  std::vector<std::size_t> fetched(static_cast<std::size_t>(size));
  std::size_t done = 0;
  while (done < static_cast<std::size_t>(size) * kOperations) {
    if (random() % 2) group.deliver_one(random);
    const int rank = static_cast<int>(random() % static_cast<std::uint64_t>(size));
    const auto r = static_cast<std::size_t>(rank);
    if (started[r] == fetched[r] && started[r] < kOperations) {
      ASSERT_EQ(group.start(rank, words(ops[started[r]], given[started[r]][r])), UTOFU_SUCCESS);
      started[r]++;
      ASSERT_EQ(group.start(rank, words(UTOFU_REDUCE_OP_SUM, {1})), UTOFU_ERR_BUSY);
    }
    if (started[r] == fetched[r]) continue;
    GateSignal result;
    const int code = group.fetch(rank, GateData::words, &result);
    if (code == UTOFU_ERR_NOT_COMPLETED) continue;
    ASSERT_EQ(code, UTOFU_SUCCESS);
    const auto& sum = expected[fetched[r]];
    for (const std::size_t begun : started) ASSERT_GT(begun, fetched[r]) << "over before all had begun";
    ASSERT_TRUE(std::equal(sum.begin(), sum.end(), result.value.words.begin()));
    fetched[r]++;
    done++;
  }
  EXPECT_FALSE(group.deliver_one(random));
}

TEST(GateGraph, DoublingAgreesWithThePlainComputation) {
  for (const int size : {1, 2, 4, 8, 16, 32})
    for (std::uint64_t seed = 1; seed <= 10; seed++) compare_with_plain(size, wire_doubling, seed);
}

TEST(GateGraph, TreesOfAnySizeAgreeWithThePlainComputation) {
  for (int size = 1; size <= 25; size++)
    for (std::uint64_t seed = 1; seed <= 6; seed++) compare_with_plain(size, wire_tree, seed);
}

TEST(GateGraph, SumsOfDoublesAreTheSameInEveryGraphAndOrder) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 20; round++) {
    std::vector<double> given;
    for (int rank = 0; rank < 16; rank++)
      given.push_back(
          std::ldexp(static_cast<double>(static_cast<std::int64_t>(random())), static_cast<int>(random() % 80) - 40));
    std::vector<double> results;
    for (const Wire wire : {wire_doubling, wire_tree}) {
      Group group(16, wire);
      for (int rank = 0; rank < 16; rank++) {
        GateValue value;
        ASSERT_EQ(GateValue::of_doubles(UTOFU_REDUCE_OP_BFPSUM, &given[static_cast<std::size_t>(rank)], 1, &value), 0);
        ASSERT_EQ(group.start(rank, value), UTOFU_SUCCESS);
      }
      group.deliver_all(random);
      for (int rank = 0; rank < 16; rank++) {
        GateSignal result;
        ASSERT_EQ(group.fetch(rank, GateData::doubles, &result), UTOFU_SUCCESS);
        results.push_back(result.value.sums[0].value());
      }
    }
    for (const double result : results) EXPECT_EQ(result, results.front());
  }
}

// If one rank gives other arguments than the rest, all get an error, and the next operation
// succeeds.
TEST(GateGraph, DisagreementIsAMismatchForAll) {
  std::mt19937_64 random(3);
  for (const Wire wire : {wire_doubling, wire_tree}) {
    for (int odd = 0; odd < 8; odd++) {
      Group group(8, wire);
      const GateValue others = words(UTOFU_REDUCE_OP_SUM, {1, 2});
      for (const GateValue& other : {words(UTOFU_REDUCE_OP_MAX, {1, 2}), words(UTOFU_REDUCE_OP_SUM, {1, 2, 3}),
                                     words(UTOFU_REDUCE_OP_SUM, {7})}) {
        for (int rank = 0; rank < 8; rank++) ASSERT_EQ(group.start(rank, rank == odd ? other : others), UTOFU_SUCCESS);
        group.deliver_all(random);
        GateSignal result;
        for (int rank = 0; rank < 8; rank++)
          EXPECT_EQ(group.fetch(rank, GateData::words, &result), UTOFU_ERR_BARRIER_MISMATCH);
        for (int rank = 0; rank < 8; rank++) ASSERT_EQ(group.start(rank, others), UTOFU_SUCCESS);
        group.deliver_all(random);
        for (int rank = 0; rank < 8; rank++) {
          ASSERT_EQ(group.fetch(rank, GateData::words, &result), UTOFU_SUCCESS);
          EXPECT_EQ(result.value.words[0], 8u);
        }
      }
    }
  }
}

// One process has set its gates again and counts from one; the others continue to count.
TEST(GateGraph, DifferentCountsOfOperationsAreAMismatch) {
  std::mt19937_64 random(3);
  Group group(2, wire_doubling);
  for (int round = 0; round < 2; round++) {
    if (round == 1)
      group.graph(1).set({.vbg_id = id_of(1, 0),
                          .src_lcl_vbg_id = id_of(1, 0),
                          .src_rmt_vbg_id = id_of(0, 0),
                          .dst_lcl_vbg_id = id_of(1, 0),
                          .dst_rmt_vbg_id = id_of(0, 0),
                          .dst_path_coords = {0xFF, 0xFF, 0xFF}});
    for (int rank = 0; rank < 2; rank++) ASSERT_EQ(group.start(rank, GateValue{}), UTOFU_SUCCESS);
    group.deliver_all(random);
    GateSignal result;
    for (int rank = 0; rank < 2; rank++)
      EXPECT_EQ(group.fetch(rank, GateData::none, &result), round == 0 ? UTOFU_SUCCESS : UTOFU_ERR_BARRIER_MISMATCH);
  }
}

TEST(GateGraph, WhatCannotBeTakenIsSaid) {
  Group group(2, wire_doubling);
  GateSignal signal{id_of(1, 0), id_of(0, 0), 0, GateValue{}};
  signal.value.sequence = 1;
  for (std::size_t i = 0; i < GateGraph::kAhead; i++) EXPECT_EQ(group.graph(0).receive(signal), SignalTrouble::none);
  EXPECT_EQ(group.graph(0).receive(signal), SignalTrouble::too_far_ahead);
  signal.from = id_of(1, 1);
  EXPECT_EQ(group.graph(0).receive(signal), SignalTrouble::not_its_source);
  signal.to = id_of(0, 1);
  EXPECT_EQ(group.graph(0).receive(signal), SignalTrouble::no_gate);
  group.graph(0).add(id_of(0, 1), false);
  EXPECT_EQ(group.graph(0).receive(signal), SignalTrouble::no_gate) << "not set";
  GateSignal result;
  EXPECT_EQ(group.fetch(0, GateData::none, &result), UTOFU_ERR_BARRIER_OTHER) << "nothing was begun";
  ASSERT_EQ(group.start(1, GateValue{}), UTOFU_SUCCESS);
  EXPECT_EQ(group.fetch(1, GateData::words, &result), UTOFU_ERR_BARRIER_MISMATCH) << "a barrier has no words";
  EXPECT_EQ(group.fetch(1, GateData::none, &result), UTOFU_ERR_NOT_COMPLETED);
}

TEST(GateGraph, ModelTimesAreThoseOfTheLastToArrive) {
  GateGraph graph(5);
  graph.add(1, true);
  graph.set({.vbg_id = 1,
             .src_lcl_vbg_id = 1,
             .src_rmt_vbg_id = 9,
             .dst_lcl_vbg_id = 1,
             .dst_rmt_vbg_id = 9,
             .dst_path_coords = {0xFF, 0xFF, 0xFF}});
  ASSERT_EQ(graph.start(1, GateValue{}, 100), UTOFU_SUCCESS);
  EXPECT_EQ(graph.outgoing().front().model_ns, 100u);
  GateSignal signal = graph.outgoing().front();
  signal.from = 9;
  signal.to = 1;
  signal.model_ns = 700;
  ASSERT_EQ(graph.receive(signal), SignalTrouble::none);
  GateSignal result;
  ASSERT_EQ(graph.fetch(1, GateData::none, &result), UTOFU_SUCCESS);
  EXPECT_EQ(result.model_ns, 700u);
}

}  // namespace
}  // namespace tofu_emulator::gate_graph_test
