// VCQs, ids, paths and registered memory as programs see them, in strict mode on a machine with all
// six axes.
#include <gtest/gtest.h>
#include <utofu.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <vector>

#include "tofu/tests/one_process.hpp"

namespace tofu_emulator::test::manage_test {
namespace {

int create(utofu_tni_id_t tni, unsigned long flags, std::vector<utofu_vcq_hdl_t>* all) {
  utofu_vcq_hdl_t handle = 0;
  const int status = utofu_create_vcq(tni, flags, &handle);
  if (status == UTOFU_SUCCESS) all->push_back(handle);
  return status;
}

void free_all(std::vector<utofu_vcq_hdl_t>* all) {
  for (const utofu_vcq_hdl_t handle : *all) EXPECT_EQ(utofu_free_vcq(handle), UTOFU_SUCCESS);
  all->clear();
}

utofu_cq_id_t cq_of(utofu_vcq_hdl_t handle) {
  utofu_vcq_id_t id = 0;
  std::uint8_t coords[6];
  utofu_tni_id_t tni = 0;
  utofu_cq_id_t cq = 0xFF;
  std::uint16_t extra = 0;
  EXPECT_EQ(utofu_query_vcq_id(handle, &id), UTOFU_SUCCESS);
  EXPECT_EQ(utofu_query_vcq_info(id, coords, &tni, &cq, &extra), UTOFU_SUCCESS);
  return cq;
}

TEST(Tnis, AllSixForTheOnlyProcessOfANode) {
  utofu_tni_id_t* ids = nullptr;
  std::size_t count = 0;
  ASSERT_EQ(utofu_get_onesided_tnis(&ids, &count), UTOFU_SUCCESS);
  EXPECT_EQ(count, 6U);
  EXPECT_EQ(std::set<utofu_tni_id_t>(ids, ids + count).size(), 6U);
  std::free(ids);
}

TEST(Vcqs, NineExclusiveOnesOfATniAndThenNoneIsAvailable) {
  std::vector<utofu_vcq_hdl_t> all;
  std::set<utofu_cq_id_t> cqs;
  while (create(2, UTOFU_VCQ_FLAG_EXCLUSIVE, &all) == UTOFU_SUCCESS) cqs.insert(cq_of(all.back()));
  EXPECT_EQ(all.size(), 9U);
  EXPECT_EQ(cqs.size(), 9U);
  EXPECT_EQ(create(2, UTOFU_VCQ_FLAG_EXCLUSIVE, &all), UTOFU_ERR_NOT_AVAILABLE);
  EXPECT_EQ(create(2, UTOFU_VCQ_FLAG_SESSION_MODE, &all), UTOFU_ERR_NOT_AVAILABLE);
  EXPECT_EQ(create(2, 0, &all), UTOFU_ERR_FULL);
  EXPECT_EQ(create(3, UTOFU_VCQ_FLAG_EXCLUSIVE, &all), UTOFU_SUCCESS) << "another TNI";
  EXPECT_EQ(utofu_free_vcq(all.front()), UTOFU_SUCCESS);
  all.erase(all.begin());
  EXPECT_EQ(create(2, UTOFU_VCQ_FLAG_EXCLUSIVE, &all), UTOFU_SUCCESS);
  free_all(&all);
}

TEST(Vcqs, EightOfACqShareItAndThenTheTniIsFull) {
  std::vector<utofu_vcq_hdl_t> all;
  std::set<utofu_vcq_id_t> ids;
  std::array<int, 9> of_cq{};
  int status = UTOFU_SUCCESS;
  while ((status = create(1, UTOFU_VCQ_FLAG_THREAD_SAFE, &all)) == UTOFU_SUCCESS) {
    utofu_vcq_id_t id = 0;
    EXPECT_EQ(utofu_query_vcq_id(all.back(), &id), UTOFU_SUCCESS);
    EXPECT_TRUE(ids.insert(id).second);
    ++of_cq.at(cq_of(all.back()));
    if (all.size() == 8) {
      EXPECT_EQ(of_cq.at(cq_of(all.back())), 8) << "they fill a CQ before they open the next";
    }
  }
  EXPECT_EQ(status, UTOFU_ERR_FULL);
  EXPECT_EQ(all.size(), 72U);
  for (const int vcqs : of_cq) EXPECT_EQ(vcqs, 8);
  free_all(&all);
}

TEST(Vcqs, FewSessionQueues) {
  std::vector<utofu_vcq_hdl_t> all;
  EXPECT_EQ(create(4, UTOFU_VCQ_FLAG_SESSION_MODE, &all), UTOFU_SUCCESS);
  EXPECT_EQ(create(4, UTOFU_VCQ_FLAG_SESSION_MODE | UTOFU_VCQ_FLAG_EXCLUSIVE, &all), UTOFU_SUCCESS);
  EXPECT_EQ(create(4, UTOFU_VCQ_FLAG_SESSION_MODE, &all), UTOFU_ERR_NOT_AVAILABLE);
  EXPECT_EQ(create(4, UTOFU_VCQ_FLAG_EXCLUSIVE, &all), UTOFU_SUCCESS) << "others there are";
  free_all(&all);
}

TEST(Components, PeersCanComputeTheirIds) {
  std::uint8_t coords[6];
  ASSERT_EQ(utofu_query_my_coords(coords), UTOFU_SUCCESS);
  std::vector<utofu_vcq_hdl_t> all;
  for (utofu_cmp_id_t component = 0; component < 8; ++component) {
    utofu_vcq_hdl_t handle = 0;
    ASSERT_EQ(utofu_create_vcq_with_cmp_id(5, component, 0, &handle), UTOFU_SUCCESS);
    all.push_back(handle);
    utofu_vcq_id_t id = 0;
    utofu_vcq_id_t computed = 0;
    ASSERT_EQ(utofu_query_vcq_id(handle, &id), UTOFU_SUCCESS);
    ASSERT_EQ(utofu_construct_vcq_id(coords, 5, 0, component, &computed), UTOFU_SUCCESS);
    EXPECT_EQ(id, computed);
    std::uint8_t of_id[6];
    utofu_tni_id_t tni = 0;
    utofu_cq_id_t cq = 9;
    std::uint16_t extra = 9;
    ASSERT_EQ(utofu_query_vcq_info(id, of_id, &tni, &cq, &extra), UTOFU_SUCCESS);
    EXPECT_TRUE(std::equal(coords, coords + 6, of_id));
    EXPECT_EQ(tni, 5);
    EXPECT_EQ(cq, 0);
    EXPECT_EQ(extra, component);
    utofu_vcq_hdl_t again = 0;
    EXPECT_EQ(utofu_create_vcq_with_cmp_id(5, component, 0, &again), UTOFU_ERR_USED);
  }
  free_all(&all);
}

TEST(Components, OthersLeaveThemTheirQueueAsLongAsTheyCan) {
  std::vector<utofu_vcq_hdl_t> all;
  for (int i = 0; i < 8; ++i) ASSERT_EQ(create(0, UTOFU_VCQ_FLAG_EXCLUSIVE, &all), UTOFU_SUCCESS);
  utofu_vcq_hdl_t component = 0;
  ASSERT_EQ(utofu_create_vcq_with_cmp_id(0, 3, 0, &component), UTOFU_SUCCESS);
  EXPECT_EQ(create(0, UTOFU_VCQ_FLAG_EXCLUSIVE, &all), UTOFU_ERR_NOT_AVAILABLE);
  utofu_vcq_hdl_t second = 0;
  EXPECT_EQ(utofu_create_vcq_with_cmp_id(0, 4, UTOFU_VCQ_FLAG_EXCLUSIVE, &second), UTOFU_ERR_NOT_AVAILABLE);
  EXPECT_EQ(create(0, 0, &all), UTOFU_SUCCESS) << "it may be shared";
  all.push_back(component);
  free_all(&all);
  ASSERT_EQ(utofu_create_vcq_with_cmp_id(0, 3, UTOFU_VCQ_FLAG_EXCLUSIVE, &component), UTOFU_SUCCESS);
  EXPECT_EQ(utofu_create_vcq_with_cmp_id(0, 4, 0, &second), UTOFU_ERR_NOT_AVAILABLE);
  EXPECT_EQ(utofu_create_vcq_with_cmp_id(0, 3, 0, &second), UTOFU_ERR_USED);
  EXPECT_EQ(utofu_free_vcq(component), UTOFU_SUCCESS);
}

TEST(Ids, OneWithAPathIsAnotherNumber) {
  const Queue queue(0);
  std::uint8_t first[3] = {0, 0, 0};
  std::uint8_t last[3] = {1, 2, 1};
  std::set<utofu_vcq_id_t> seen{queue.id()};
  for (std::uint8_t* path : {static_cast<std::uint8_t*>(nullptr), first, last}) {
    utofu_vcq_id_t id = queue.id();
    ASSERT_EQ(utofu_set_vcq_id_path(&id, path), UTOFU_SUCCESS);
    EXPECT_TRUE(seen.insert(id).second) << "the default path, too, makes it another";
    utofu_vcq_id_t again = id;
    ASSERT_EQ(utofu_set_vcq_id_path(&again, path), UTOFU_SUCCESS);
    EXPECT_EQ(again, id);
    std::uint8_t coords[6];
    utofu_tni_id_t tni = 9;
    utofu_cq_id_t cq = 9;
    std::uint16_t extra = 9;
    EXPECT_EQ(utofu_query_vcq_info(id, coords, &tni, &cq, &extra), UTOFU_SUCCESS);
    EXPECT_EQ(tni, 0);
  }
}

TEST(Ids, PathsHaveNumbersAndCoordinates) {
  const Queue queue(0);
  std::set<utofu_path_id_t> seen;
  for (std::uint8_t a = 0; a < 2; ++a) {
    for (std::uint8_t b = 0; b < 3; ++b) {
      for (std::uint8_t c = 0; c < 2; ++c) {
        std::uint8_t coords[3] = {a, b, c};
        utofu_path_id_t path = 0;
        ASSERT_EQ(utofu_get_path_id(queue.id(), coords, &path), UTOFU_SUCCESS);
        EXPECT_TRUE(seen.insert(path).second);
        EXPECT_LT(path, 16);
        std::uint8_t back[3] = {9, 9, 9};
        ASSERT_EQ(utofu_get_path_coords(queue.id(), path, back), UTOFU_SUCCESS);
        EXPECT_TRUE(std::equal(coords, coords + 3, back));
      }
    }
  }
  utofu_path_id_t path = 9;
  ASSERT_EQ(utofu_get_path_id(queue.id(), nullptr, &path), UTOFU_SUCCESS);
  EXPECT_EQ(path, 0) << "the default";
}

TEST(Memory, FixedStagsNeedNoExchange) {
  Queue queue(0);
  alignas(256) std::array<std::byte, 512> memory{};
  utofu_stadd_t computed = 0;
  utofu_stadd_t stadd = 0;
  ASSERT_EQ(utofu_query_stadd(queue.id(), 255, &computed), UTOFU_SUCCESS);
  ASSERT_EQ(utofu_reg_mem_with_stag(queue.handle(), memory.data(), 512, 255, 0, &stadd), UTOFU_SUCCESS);
  EXPECT_EQ(stadd, computed);
  utofu_stadd_t second = 0;
  EXPECT_EQ(utofu_reg_mem_with_stag(queue.handle(), memory.data(), 512, 255, 0, &second), UTOFU_ERR_USED);
  ASSERT_EQ(utofu_put_piggyback8(queue.handle(), queue.id(), 77, computed + 256, 8, 0,
                                 UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr),
            UTOFU_SUCCESS);
  utofu_mrq_notice notice{};
  EXPECT_EQ(queue.mrq(&notice), UTOFU_SUCCESS);
  EXPECT_EQ(memory[256], std::byte{77});
  queue.dereg(stadd);
}

TEST(Memory, VcqsOfOneCqHaveTheSameAddressesAndCountThem) {
  Queue one(0, 0);
  Queue other(0, 0);
  ASSERT_EQ(cq_of(one.handle()), cq_of(other.handle()));
  std::array<std::byte, 64> memory{};
  const utofu_stadd_t stadd = one.reg(memory.data(), memory.size());
  EXPECT_EQ(other.reg(memory.data(), memory.size()), stadd);
  one.dereg(stadd);
  ASSERT_EQ(
      utofu_put_piggyback8(one.handle(), other.id(), 5, stadd, 1, 0, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr),
      UTOFU_SUCCESS);
  utofu_mrq_notice notice{};
  EXPECT_EQ(one.mrq(&notice), UTOFU_SUCCESS) << "the other still has it";
  EXPECT_EQ(memory[0], std::byte{5});
  other.dereg(stadd);
  EXPECT_EQ(utofu_dereg_mem(one.handle(), stadd, 0), UTOFU_ERR_INVALID_STADD);
}

TEST(Memory, CqsHaveDifferentAddresses) {
  Queue one(0);
  Queue other(0);
  std::array<std::byte, 64> memory{};
  const utofu_stadd_t mine = one.reg(memory.data(), memory.size());
  const utofu_stadd_t its = other.reg(memory.data(), memory.size());
  EXPECT_NE(mine, its);
  EXPECT_NE(mine >> 40U, its >> 40U);
  one.dereg(mine);
  other.dereg(its);
}

}  // namespace
}  // namespace tofu_emulator::test::manage_test
