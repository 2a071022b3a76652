// The functions of barrier gates in a world of one process. Several "ranks" have their own gates;
// their remote signals go through the engine.
#include <gtest/gtest.h>
#include <utofu.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

extern "C" {
#include "tofu/programs/wiring.h"
}

namespace {

constexpr utofu_vbg_id_t kNone = UTOFU_VBG_ID_NULL;

using Wire = int (*)(int, int, gate_wiring*);

class Ranks {
 public:
  Ranks(int size, Wire wire, utofu_tni_id_t tni) : gates_(static_cast<std::size_t>(size)) {
    std::vector<std::vector<gate_wiring>> wiring(gates_.size());
    for (int rank = 0; rank < size; rank++) {
      auto& wires = wiring[static_cast<std::size_t>(rank)];
      wires.resize(kMostGates);
      gates(rank).resize(static_cast<std::size_t>(wire(rank, size, wires.data())));
      EXPECT_EQ(utofu_alloc_vbg(tni, gates(rank).size(), 0, gates(rank).data()), UTOFU_SUCCESS);
    }
    for (int rank = 0; rank < size; rank++) {
      std::vector<utofu_vbg_setting> settings;
      for (std::size_t gate = 0; gate < gates(rank).size(); gate++) {
        const gate_wiring& wires = wiring[static_cast<std::size_t>(rank)][gate];
        settings.push_back({.vbg_id = gates(rank)[gate],
                            .src_lcl_vbg_id = name(wires.src_local == kNoGate ? kNoGate : rank, wires.src_local),
                            .src_rmt_vbg_id = name(wires.src_rank, wires.src_gate),
                            .dst_lcl_vbg_id = name(wires.dst_local == kNoGate ? kNoGate : rank, wires.dst_local),
                            .dst_rmt_vbg_id = name(wires.dst_rank, wires.dst_gate),
                            .dst_path_coords = {0xFF, 0xFF, 0xFF}});
      }
      EXPECT_EQ(utofu_set_vbg(settings.data(), settings.size()), UTOFU_SUCCESS);
    }
  }
  ~Ranks() {
    for (auto& of_rank : gates_) EXPECT_EQ(utofu_free_vbg(of_rank.data(), of_rank.size()), UTOFU_SUCCESS);
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  [[nodiscard]] int size() const { return static_cast<int>(gates_.size()); }
  std::vector<utofu_vbg_id_t>& gates(int rank) { return gates_[static_cast<std::size_t>(rank)]; }
  utofu_vbg_id_t start(int rank) { return gates(rank)[0]; }

 private:
  utofu_vbg_id_t name(int rank, int gate) {
    return rank == kNoGate ? kNone : gates(rank)[static_cast<std::size_t>(gate)];
  }
  std::vector<std::vector<utofu_vbg_id_t>> gates_;
};

// Polls until there is a result; the engine runs on another thread.
template <class Poll>
int result_of(Poll poll) {
  int code = UTOFU_ERR_NOT_COMPLETED;
  while ((code = poll()) == UTOFU_ERR_NOT_COMPLETED) std::this_thread::yield();
  return code;
}

TEST(BarrierApi, RandomOperationsAgreeWithThePlainComputation) {
  std::mt19937_64 random(5);
  for (const auto& [wire, size] : {std::pair{&wire_doubling, 8}, std::pair{&wire_tree, 7}, std::pair{&wire_tree, 1}}) {
    Ranks ranks(size, wire, static_cast<utofu_tni_id_t>(random() % 6));
    for (int round = 0; round < 100; round++) {
      const std::size_t count = 1 + random() % 6;
      const auto op =
          static_cast<utofu_reduce_op>(std::array{UTOFU_REDUCE_OP_BAND, UTOFU_REDUCE_OP_BOR, UTOFU_REDUCE_OP_BXOR,
                                                  UTOFU_REDUCE_OP_MAX, UTOFU_REDUCE_OP_SUM}[random() % 5]);
      std::vector<std::uint64_t> expected;
      std::vector<int> order(static_cast<std::size_t>(size));
      for (int rank = 0; rank < size; rank++) order[static_cast<std::size_t>(rank)] = rank;
      std::shuffle(order.begin(), order.end(), random);
      for (const int rank : order) {
        std::vector<std::uint64_t> data(count);
        for (std::uint64_t& word : data) word = random();
        if (expected.empty()) {
          expected = data;
        } else {
          for (std::size_t i = 0; i < count; i++) {
            if (op == UTOFU_REDUCE_OP_BAND) expected[i] &= data[i];
            if (op == UTOFU_REDUCE_OP_BOR) expected[i] |= data[i];
            if (op == UTOFU_REDUCE_OP_BXOR) expected[i] ^= data[i];
            if (op == UTOFU_REDUCE_OP_MAX) expected[i] = std::max(expected[i], data[i]);
            if (op == UTOFU_REDUCE_OP_SUM) expected[i] += data[i];
          }
        }
        ASSERT_EQ(utofu_reduce_uint64(ranks.start(rank), op, data.data(), count, 0), UTOFU_SUCCESS);
        ASSERT_EQ(utofu_reduce_uint64(ranks.start(rank), op, data.data(), count, 0), UTOFU_ERR_BUSY);
      }
      for (int rank = 0; rank < size; rank++) {
        std::vector<std::uint64_t> data(count);
        ASSERT_EQ(result_of([&] { return utofu_poll_reduce_uint64(ranks.start(rank), 0, data.data()); }),
                  UTOFU_SUCCESS);
        ASSERT_EQ(data, expected);
      }
    }
  }
}

TEST(BarrierApi, NobodyLeavesABarrierBeforeAllHaveEntered) {
  Ranks ranks(5, wire_tree, 2);
  for (int round = 0; round < 20; round++) {
    for (int rank = 1; rank < 5; rank++) ASSERT_EQ(utofu_barrier(ranks.start(rank), 0), UTOFU_SUCCESS);
    for (int rank = 1; rank < 5; rank++) EXPECT_EQ(utofu_poll_barrier(ranks.start(rank), 0), UTOFU_ERR_NOT_COMPLETED);
    ASSERT_EQ(utofu_barrier(ranks.start(0), 0), UTOFU_SUCCESS);
    for (int rank = 0; rank < 5; rank++)
      EXPECT_EQ(result_of([&] { return utofu_poll_barrier(ranks.start(rank), 0); }), UTOFU_SUCCESS);
  }
}

// Threads act as ranks, each at its own pace: sums of doubles are equal on all, in any order.
TEST(BarrierApi, ThreadsAtTheirOwnPace) {
  constexpr int kRounds = 200;
  Ranks ranks(4, wire_doubling, 4);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; rank++)
    threads.emplace_back([&, rank] {
      for (int round = 1; round <= kRounds; round++) {
        double data[3] = {0.1 * rank * round, 1e10 / round, -1.0 * rank};
        double expected = 0;
        for (int other = 0; other < 4; other++) expected -= other;
        if (utofu_reduce_double(ranks.start(rank), UTOFU_REDUCE_OP_BFPSUM, data, 3, 0) != UTOFU_SUCCESS) wrong++;
        if (result_of([&] { return utofu_poll_reduce_double(ranks.start(rank), 0, data); }) != UTOFU_SUCCESS) wrong++;
        if (data[2] != expected || data[1] != 4 * (1e10 / round)) wrong++;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(BarrierApi, ThoseWhoDisagreeAreTold) {
  Ranks ranks(4, wire_doubling, 1);
  std::uint64_t data[2] = {1, 2};
  for (int rank = 0; rank < 4; rank++)
    ASSERT_EQ(utofu_reduce_uint64(ranks.start(rank), rank == 2 ? UTOFU_REDUCE_OP_MAX : UTOFU_REDUCE_OP_SUM, data, 2, 0),
              UTOFU_SUCCESS);
  for (int rank = 0; rank < 4; rank++)
    EXPECT_EQ(result_of([&] { return utofu_poll_reduce_uint64(ranks.start(rank), 0, data); }),
              UTOFU_ERR_BARRIER_MISMATCH);
}

TEST(BarrierApi, StartGatesAndRelaysRunOut) {
  std::vector<std::array<utofu_vbg_id_t, 3>> sets;
  std::array<utofu_vbg_id_t, 3> gates;
  int code = UTOFU_SUCCESS;
  while ((code = utofu_alloc_vbg(5, 3, 0, gates.data())) == UTOFU_SUCCESS) sets.push_back(gates);
  EXPECT_EQ(code, UTOFU_ERR_FULL);
  EXPECT_EQ(sets.size(), 16u);
  EXPECT_EQ(utofu_alloc_vbg(5, 1, 0, gates.data()), UTOFU_ERR_FULL);
  EXPECT_EQ(utofu_alloc_vbg(4, 34, 0, std::array<utofu_vbg_id_t, 34>{}.data()), UTOFU_ERR_FULL) << "32 relays";
  std::array<utofu_vbg_id_t, 33> all;
  EXPECT_EQ(utofu_alloc_vbg(4, 33, 0, all.data()), UTOFU_SUCCESS) << "nothing was kept of what failed";
  EXPECT_EQ(utofu_free_vbg(all.data(), all.size()), UTOFU_SUCCESS);
  for (auto& set : sets) EXPECT_EQ(utofu_free_vbg(set.data(), set.size()), UTOFU_SUCCESS);
}

TEST(BarrierApi, IdsTellWhatTheyName) {
  std::array<utofu_vbg_id_t, 2> gates;
  ASSERT_EQ(utofu_alloc_vbg(3, 2, UTOFU_VBG_FLAG_THREAD_SAFE, gates.data()), UTOFU_SUCCESS);
  std::array<std::uint8_t, 6> mine{};
  std::array<std::uint8_t, 6> coords{};
  utofu_tni_id_t tni = 9;
  std::array<utofu_bg_id_t, 2> numbers{};
  std::uint16_t extra = 0;
  ASSERT_EQ(utofu_query_my_coords(mine.data()), UTOFU_SUCCESS);
  for (std::size_t i = 0; i < 2; i++) {
    ASSERT_EQ(utofu_query_vbg_info(gates[i], coords.data(), &tni, &numbers[i], &extra), UTOFU_SUCCESS);
    EXPECT_EQ(tni, 3);
    EXPECT_EQ(coords, mine);
  }
  EXPECT_LT(numbers[0], 16) << "a start gate";
  EXPECT_GE(numbers[1], 16) << "a relay";
  EXPECT_EQ(utofu_query_vbg_info(gates[0] ^ 0x100, coords.data(), &tni, &numbers[0], &extra), UTOFU_ERR_INVALID_VBG_ID);
  EXPECT_EQ(utofu_query_vbg_info(gates[0], nullptr, &tni, &numbers[0], &extra), UTOFU_ERR_INVALID_POINTER);
  EXPECT_EQ(utofu_free_vbg(gates.data(), 2), UTOFU_SUCCESS);
  EXPECT_EQ(utofu_free_vbg(gates.data(), 2), UTOFU_ERR_INVALID_VBG_ID);
}

TEST(BarrierApi, ArgumentsAreChecked) {
  std::array<utofu_vbg_id_t, 2> gates;
  EXPECT_EQ(utofu_alloc_vbg(6, 2, 0, gates.data()), UTOFU_ERR_INVALID_TNI_ID);
  EXPECT_EQ(utofu_alloc_vbg(0, 0, 0, gates.data()), UTOFU_ERR_INVALID_NUMBER);
  EXPECT_EQ(utofu_alloc_vbg(0, 2, 2, gates.data()), UTOFU_ERR_INVALID_FLAGS);
  EXPECT_EQ(utofu_alloc_vbg(0, 2, 0, nullptr), UTOFU_ERR_INVALID_POINTER);
  ASSERT_EQ(utofu_alloc_vbg(0, 2, 0, gates.data()), UTOFU_SUCCESS);
  utofu_vbg_setting setting{gates[0], gates[1], kNone, gates[1], kNone, {0xFF, 0xFF, 0xFF}};
  EXPECT_EQ(utofu_set_vbg(nullptr, 1), UTOFU_ERR_INVALID_POINTER);
  EXPECT_EQ(utofu_set_vbg(&setting, 0), UTOFU_ERR_INVALID_NUMBER);
  const auto with = [&](auto change) {
    utofu_vbg_setting changed = setting;
    change(changed);
    return utofu_set_vbg(&changed, 1);
  };
  EXPECT_EQ(with([](auto& s) { s.vbg_id = kNone; }), UTOFU_ERR_INVALID_VBG_ID);
  EXPECT_EQ(with([](auto& s) { s.src_lcl_vbg_id ^= 4; }), UTOFU_ERR_INVALID_VBG_ID);
  EXPECT_EQ(with([](auto& s) { s.dst_lcl_vbg_id ^= 4; }), UTOFU_ERR_INVALID_VBG_ID);
  EXPECT_EQ(with([](auto& s) { s.src_rmt_vbg_id = 12345; }), UTOFU_ERR_INVALID_VBG_ID);
  EXPECT_EQ(with([](auto& s) { s.dst_rmt_vbg_id = 12345; }), UTOFU_ERR_INVALID_VBG_ID);
  EXPECT_EQ(with([](auto& s) { s.src_rmt_vbg_id = s.src_lcl_vbg_id; }), UTOFU_ERR_INVALID_VBG_ID);
  EXPECT_EQ(with([](auto& s) { s.dst_path_coords[0] = 200; }), UTOFU_ERR_INVALID_PATH);
  EXPECT_EQ(utofu_barrier(gates[0], 0), UTOFU_ERR_INVALID_VBG_ID) << "not set";
  ASSERT_EQ(utofu_set_vbg(&setting, 1), UTOFU_SUCCESS);
  EXPECT_EQ(utofu_barrier(gates[1], 0), UTOFU_ERR_INVALID_VBG_ID) << "a relay";
  EXPECT_EQ(utofu_barrier(gates[0], 1), UTOFU_ERR_INVALID_FLAGS);
  EXPECT_EQ(utofu_poll_barrier(gates[0], 1), UTOFU_ERR_INVALID_FLAGS);
  EXPECT_EQ(utofu_poll_barrier(gates[1], 0), UTOFU_ERR_INVALID_VBG_ID);
  EXPECT_EQ(utofu_poll_barrier(gates[0], 0), UTOFU_ERR_BARRIER_OTHER) << "nothing was started";
  std::uint64_t word = 1;
  double number = 1;
  EXPECT_EQ(utofu_reduce_uint64(gates[0], UTOFU_REDUCE_OP_SUM, &word, 7, 0), UTOFU_ERR_INVALID_NUMBER);
  EXPECT_EQ(utofu_reduce_uint64(gates[0], UTOFU_REDUCE_OP_BFPSUM, &word, 1, 0), UTOFU_ERR_INVALID_OP);
  EXPECT_EQ(utofu_reduce_uint64(gates[0], UTOFU_REDUCE_OP_SUM, nullptr, 1, 0), UTOFU_ERR_INVALID_POINTER);
  EXPECT_EQ(utofu_reduce_uint64(gates[0], UTOFU_REDUCE_OP_SUM, &word, 1, 8), UTOFU_ERR_INVALID_FLAGS);
  EXPECT_EQ(utofu_reduce_double(gates[0], UTOFU_REDUCE_OP_SUM, &number, 1, 0), UTOFU_ERR_INVALID_OP);
  EXPECT_EQ(utofu_reduce_double(gates[0], UTOFU_REDUCE_OP_BFPSUM, &number, 1, 1), UTOFU_ERR_INVALID_FLAGS);
  EXPECT_EQ(utofu_poll_reduce_uint64(gates[0], 0, nullptr), UTOFU_ERR_INVALID_POINTER);
  EXPECT_EQ(utofu_poll_reduce_double(gates[0], 0, nullptr), UTOFU_ERR_INVALID_POINTER);
  EXPECT_EQ(utofu_poll_reduce_double(gates[0], 1, &number), UTOFU_ERR_INVALID_FLAGS);
  EXPECT_EQ(utofu_free_vbg(nullptr, 1), UTOFU_ERR_INVALID_POINTER);
  EXPECT_EQ(utofu_free_vbg(gates.data(), 0), UTOFU_ERR_INVALID_NUMBER);
  EXPECT_EQ(utofu_free_vbg(gates.data(), 2), UTOFU_SUCCESS);
}

TEST(BarrierApi, CapabilitiesAndTnis) {
  utofu_tni_id_t* tnis = nullptr;
  std::size_t count = 0;
  ASSERT_EQ(utofu_get_barrier_tnis(&tnis, &count), UTOFU_SUCCESS);
  EXPECT_EQ(count, 6u);
  utofu_barrier_caps* caps = nullptr;
  for (std::size_t i = 0; i < count; i++) {
    ASSERT_EQ(utofu_query_barrier_caps(tnis[i], &caps), UTOFU_SUCCESS);
    EXPECT_EQ(caps->reduce_ops, 0x1FEu);
    EXPECT_EQ(caps->max_uint64_reduction, 6u);
    EXPECT_EQ(caps->max_double_reduction, 3u);
  }
  std::free(tnis);
  EXPECT_EQ(utofu_query_barrier_caps(6, &caps), UTOFU_ERR_INVALID_TNI_ID);
  EXPECT_EQ(utofu_query_barrier_caps(0, nullptr), UTOFU_ERR_INVALID_POINTER);
  EXPECT_EQ(utofu_get_barrier_tnis(nullptr, &count), UTOFU_ERR_INVALID_POINTER);
}

}  // namespace
