#include "tofu/emulator/machine.hpp"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "base/random.hpp"

namespace tofu_emulator::machine_test {
namespace {

EmulatorSettings settings_of(Shape shape, std::uint32_t processes, std::uint32_t per_node, std::uint64_t seed = 1) {
  EmulatorSettings settings;
  settings.shape = shape;
  settings.processes = processes;
  settings.per_node = per_node;
  settings.seed = seed;
  return settings;
}

TEST(Machine, NodesAndCoordinatesAreEachOthersInverse) {
  const Machine machine(settings_of({3, 2, 4, 2, 3, 2}, 1, 1));
  ASSERT_EQ(machine.nodes(), 288U);
  std::set<Coords> seen;
  for (std::uint32_t node = 0; node < machine.nodes(); ++node) {
    const Coords coords = machine.coords_of(node);
    EXPECT_TRUE(seen.insert(coords).second);
    EXPECT_EQ(machine.node_at(coords.data()), node);
  }
  for (std::size_t axis = 0; axis < 6; ++axis) {
    Coords outside{};
    outside.at(axis) = Shape{3, 2, 4, 2, 3, 2}.at(axis);
    EXPECT_FALSE(machine.node_at(outside.data()));
  }
}

TEST(Machine, IdsTellWhatTheyWereMadeOf) {
  const Machine machine(settings_of({32, 32, 32, 2, 3, 2}, 256, 1, 77));
  std::set<utofu_vcq_id_t> ids;
  for (const std::uint32_t node : {0U, 1U, 4711U, machine.nodes() - 1}) {
    for (std::uint16_t tni = 0; tni < kTnis; ++tni) {
      for (std::uint16_t cq = 0; cq < kCqs; ++cq) {
        for (std::uint16_t slot = 0; slot < kVcqsOfCq; ++slot) {
          const VcqPlace place{node, tni, cq, slot, kNoPath};
          const utofu_vcq_id_t id = machine.vcq_id(place);
          EXPECT_TRUE(ids.insert(id).second);
          VcqPlace back;
          ASSERT_TRUE(machine.decode(id, &back));
          EXPECT_EQ(back, place);
          EXPECT_EQ(machine.raw(id), id);
        }
      }
    }
  }
}

EmulatorSettings vendors(EmulatorSettings settings) {
  settings.numbering = Numbering::vendor;
  return settings;
}

TEST(Machine, IdsOfTheVendorsLayoutTellWhatTheyWereMadeOf) {
  const Machine machine(vendors(settings_of({32, 32, 32, 2, 3, 2}, 256, 1, 77)));
  std::set<utofu_vcq_id_t> ids;
  for (const std::uint32_t node : {0U, 1U, 4711U, machine.nodes() - 1}) {
    for (std::uint16_t tni = 0; tni < kTnis; ++tni) {
      for (std::uint16_t cq = 0; cq < kCqs; ++cq) {
        for (const std::uint8_t path : {kNoPath, std::uint8_t{1}, kPaths, kDefaultPath}) {
          const VcqPlace place{node, tni, cq, static_cast<std::uint16_t>(cq % kVcqsOfCq), path};
          const utofu_vcq_id_t id = machine.vcq_id(place);
          EXPECT_NE(id, 0U);
          EXPECT_TRUE(ids.insert(id).second);
          VcqPlace back;
          ASSERT_TRUE(machine.decode(id, &back));
          EXPECT_EQ(back, place);
        }
      }
    }
  }
}

TEST(Machine, TheVendorsLayoutIsWhatProgramsTakeApart) {
  const Machine machine(vendors(settings_of({24, 23, 24, 2, 3, 2}, 1, 1)));
  const Coords at{23, 5, 17, 1, 2, 1};
  const std::uint32_t node = machine.node_at(at.data()).value();
  const utofu_vbg_id_t gate = machine.vbg_id(node, 5, 47);
  EXPECT_EQ(gate & 0x3FU, 47U);
  EXPECT_EQ(gate & 0xFFFFFFC0U, 0U);
  EXPECT_EQ(gate >> 32U & 0xFFU, 23U);
  EXPECT_EQ(gate >> 40U & 0xFFU, 5U);
  EXPECT_EQ(gate >> 48U & 0xFFU, 17U);
  EXPECT_EQ(gate >> 56U & 1U, 1U);
  EXPECT_EQ(gate >> 57U & 3U, 2U);
  EXPECT_EQ(gate >> 59U & 1U, 1U);
  EXPECT_EQ(gate >> 60U & 1U, 0U) << "which programs use for themselves";
  EXPECT_EQ(gate >> 61U, 5U);
  std::uint32_t back_node = 0;
  std::uint16_t tni = 0;
  std::uint16_t number = 0;
  ASSERT_TRUE(machine.decode_vbg(gate, &back_node, &tni, &number));
  EXPECT_EQ(std::tuple(back_node, tni, number), std::tuple(node, std::uint16_t{5}, std::uint16_t{47}));
  for (const utofu_vbg_id_t other : {gate | 0x40U, gate | std::uint64_t{1} << 60U, gate | 63U, UTOFU_VBG_ID_NULL}) {
    EXPECT_FALSE(machine.decode_vbg(other, &back_node, &tni, &number)) << other;
  }
  const utofu_vcq_id_t vcq = machine.vcq_id({node, 4, 8, 3, kNoPath});
  EXPECT_EQ(vcq & 0xFFFFFFU, 23U | 5U << 8U | 17U << 16U);
  EXPECT_EQ(vcq >> 29U & 7U, 4U);
  EXPECT_EQ(vcq >> 58U, 8U);
  VcqPlace place;
  for (unsigned bit = 41; bit < 58; ++bit) EXPECT_FALSE(machine.decode(vcq ^ std::uint64_t{1} << bit, &place)) << bit;
}

TEST(Machine, FirstCqsOfSeveralProcessesAreWhereTheVendorHasThem) {
  const std::uint16_t known[3][4] = {{0, 6, 0, 0}, {0, 4, 8, 0}, {0, 2, 5, 8}};
  for (std::uint32_t per_node = 2; per_node <= 4; ++per_node) {
    const Machine machine(vendors(settings_of({2, 1, 1, 1, 1, 1}, 2 * per_node, per_node)));
    for (std::uint32_t process = 0; process < 2 * per_node; ++process) {
      const Machine::Share share = machine.share(process, 3);
      EXPECT_EQ(share.component, known[per_node - 2][process % per_node]);
      EXPECT_TRUE(share.component >= share.first && share.component < share.first + share.count);
      EXPECT_EQ(machine.process_of(machine.node_of(process), 3, share.component), process);
    }
  }
}

TEST(Machine, AnIdWithAPathIsAnotherIdOfTheSameQueue) {
  const Machine machine(settings_of({2, 1, 1, 2, 3, 2}, 24, 1));
  const VcqPlace place{5, 2, 3, 4, kNoPath};
  std::set<utofu_vcq_id_t> ids{machine.vcq_id(place)};
  for (std::uint8_t path = 1; path <= kDefaultPath; ++path) {
    VcqPlace with = place;
    with.path = path;
    const utofu_vcq_id_t id = machine.vcq_id(with);
    EXPECT_TRUE(ids.insert(id).second);
    EXPECT_EQ(machine.raw(id), machine.vcq_id(place));
    VcqPlace back;
    ASSERT_TRUE(machine.decode(id, &back));
    EXPECT_EQ(back, with);
  }
}

TEST(Machine, IdsOfOneSeedAreNotThoseOfAnother) {
  const Machine one(settings_of({2, 1, 1, 1, 1, 1}, 2, 1, 1));
  const Machine other(settings_of({2, 1, 1, 1, 1, 1}, 2, 1, 2));
  const VcqPlace place{1, 2, 3, 4, kNoPath};
  EXPECT_NE(one.vcq_id(place), other.vcq_id(place));
  VcqPlace back;
  EXPECT_FALSE(other.decode(one.vcq_id(place), &back));
}

TEST(Machine, NumbersThatAreNoIdsAreRejected) {
  const Machine machine(settings_of({4, 4, 4, 2, 3, 2}, 256, 1));
  heddle::base::Random random(3);
  VcqPlace place;
  std::uint32_t node = 0;
  std::uint16_t tni = 0;
  std::uint16_t gate = 0;
  for (int i = 0; i < 100'000; ++i) {
    const std::uint64_t any = random.next();
    EXPECT_FALSE(machine.decode(any, &place));
    EXPECT_FALSE(machine.decode_vbg(any, &node, &tni, &gate));
  }
  const utofu_vcq_id_t id = machine.vcq_id({3, 2, 1, 0, kNoPath});
  for (unsigned bit = 0; bit < 64; ++bit) EXPECT_FALSE(machine.decode(id ^ (std::uint64_t{1} << bit), &place)) << bit;
  EXPECT_FALSE(machine.decode(0, &place));
  EXPECT_FALSE(machine.decode_vbg(UTOFU_VBG_ID_NULL, &node, &tni, &gate));
}

TEST(Machine, GatesHaveIdsThatAreNoQueues) {
  const Machine machine(settings_of({4, 4, 4, 2, 3, 2}, 256, 1));
  for (std::uint16_t number = 0; number < kGates; ++number) {
    const utofu_vbg_id_t id = machine.vbg_id(700, 5, number);
    std::uint32_t node = 0;
    std::uint16_t tni = 0;
    std::uint16_t gate = 0;
    ASSERT_TRUE(machine.decode_vbg(id, &node, &tni, &gate));
    EXPECT_EQ(std::tuple(node, tni, gate), std::tuple(700U, 5, number));
    VcqPlace place;
    EXPECT_FALSE(machine.decode(id, &place));
    EXPECT_FALSE(machine.decode_vbg(machine.vcq_id({700, 5, 0, 0, kNoPath}), &node, &tni, &gate));
  }
}

TEST(Machine, EachQueueBelongsToOneProcessAndEachProcessHasSome) {
  for (std::uint32_t per_node = 1; per_node <= kMaxPerNode; ++per_node) {
    const Machine machine(settings_of({2, 1, 1, 1, 1, 1}, 2 * per_node, per_node));
    for (std::uint32_t process = 0; process < 2 * per_node; ++process) {
      std::uint32_t all = 0;
      for (std::uint16_t tni = 0; tni < kTnis; ++tni) {
        const auto share = machine.share(process, tni);
        all += share.count;
        for (std::uint16_t cq = share.first; cq < share.first + share.count; ++cq) {
          EXPECT_EQ(machine.process_of(process / per_node, tni, cq), process) << per_node << " " << tni << " " << cq;
        }
      }
      EXPECT_GE(all, 1U) << per_node;
      if (per_node <= kCqs) {
        EXPECT_GE(all, kTnis * (kCqs / per_node));
      }
    }
    for (std::uint16_t tni = 0; tni < kTnis; ++tni) {
      for (std::uint16_t cq = 0; cq < kCqs; ++cq) {
        const auto process = machine.process_of(1, tni, cq);
        if (!process) continue;
        const auto share = machine.share(*process, tni);
        EXPECT_TRUE(cq >= share.first && cq < share.first + share.count);
      }
    }
  }
  const Machine machine(settings_of({2, 1, 1, 1, 1, 1}, 1, 1));
  EXPECT_FALSE(machine.process_of(1, 0, 0)) << "nobody runs on that node";
  EXPECT_FALSE(machine.process_of(0, kTnis, 0));
  EXPECT_FALSE(machine.process_of(0, 0, kCqs));
}

TEST(Machine, PathsAreNumbersOfCoordinates) {
  const Machine whole(settings_of({1, 1, 1, 2, 3, 2}, 12, 1));
  std::set<PathCoords> seen;
  for (std::uint8_t path = 1; path <= kPaths; ++path) {
    const auto coords = whole.path_coords(path, 0);
    ASSERT_TRUE(coords);
    EXPECT_TRUE(seen.insert(*coords).second);
    EXPECT_EQ(whole.path_of(coords->data()), path);
  }
  EXPECT_FALSE(whole.path_coords(0, 0));
  EXPECT_FALSE(whole.path_coords(kDefaultPath + 1, 0));
  EXPECT_EQ(whole.path_of(nullptr), kNoPath);
  constexpr std::uint8_t kNull[3] = {UTOFU_PATH_COORD_NULL, 0, 0};
  EXPECT_EQ(whole.path_of(kNull), kNoPath);
  const Coords target = whole.coords_of(7);
  EXPECT_EQ(whole.path_coords(kNoPath, 7), (PathCoords{target[3], target[4], target[5]}));
  const Machine small(settings_of({4, 1, 1, 1, 1, 1}, 4, 1));
  constexpr std::uint8_t kOther[3] = {1, 0, 0};
  EXPECT_FALSE(small.path_of(kOther));
  EXPECT_TRUE(small.path_coords(1, 0));
  EXPECT_FALSE(small.path_coords(2, 0));
}

TEST(Machine, HopsGoTheShorterWayRoundAndOverThePath) {
  const Machine machine(settings_of({8, 1, 5, 2, 3, 2}, 1, 1));
  const auto at = [&](std::array<std::uint8_t, 6> coords) { return *machine.node_at(coords.data()); };
  const std::uint32_t origin = at({0, 0, 0, 0, 0, 0});
  EXPECT_EQ(machine.hops(origin, origin, kNoPath), 0U);
  EXPECT_EQ(machine.hops(origin, at({3, 0, 0, 0, 0, 0}), kNoPath), 3U);
  EXPECT_EQ(machine.hops(origin, at({6, 0, 0, 0, 0, 0}), kNoPath), 2U);
  EXPECT_EQ(machine.hops(origin, at({0, 0, 3, 0, 0, 0}), kNoPath), 2U);
  EXPECT_EQ(machine.hops(origin, at({7, 0, 4, 1, 2, 1}), kNoPath), 5U);
  constexpr std::uint8_t kThere[3] = {1, 1, 0};
  EXPECT_EQ(machine.hops(origin, at({1, 0, 0, 0, 0, 0}), *machine.path_of(kThere)), 5U) << "out, across, and back";
}

TEST(Machine, CapsAreThoseOfFugaku) {
  const utofu_onesided_caps& caps = onesided_caps();
  EXPECT_EQ(caps.flags, 3U);
  EXPECT_EQ(caps.armw_ops, 0x3FU);
  EXPECT_EQ(caps.num_cmp_ids, 8U);
  EXPECT_EQ(caps.num_reserved_stags, 256U);
  EXPECT_EQ(caps.cache_line_size, 256U);
  EXPECT_EQ(caps.stag_address_alignment, 256U);
  EXPECT_EQ(caps.max_toq_desc_size, 64U);
  EXPECT_EQ(caps.max_putget_size, 16'777'215U);
  EXPECT_EQ(caps.max_piggyback_size, 32U);
  EXPECT_EQ(caps.max_edata_size, 1U);
  EXPECT_EQ(caps.max_mtu, 1920U);
  EXPECT_EQ(caps.max_gap, 255U);
}

}  // namespace
}  // namespace tofu_emulator::machine_test
