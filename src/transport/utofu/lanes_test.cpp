// Each notice finds the operation that it is about, whatever the order, against a naive book.
#include "transport/utofu/operations.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/random.hpp"

namespace heddle::transport::utofu {
namespace {

utofu_mrq_notice notice_of(const Operation& operation) {
  utofu_mrq_notice notice{};
  notice.notice_type = operation.type;
  notice.vcq_id = operation.vcq;
  notice.rmt_stadd = operation.address;
  notice.edata = Operations::lane(operation);
  return notice;
}

TEST(Operations, EachNoticeFindsItsOwn) {
  for (const std::uint32_t count : {16U, 256U, 1024U, 4096U}) {
    Operations operations(count);
    base::Random random(count);
    std::map<Token, utofu_mrq_notice> under_way;
    Token next = 1;
    for (int step = 0; step < 60'000; ++step) {
      // Few addresses, so that many are alike; more starts than ends, so that it fills.
      if (random.below(5) < 3) {
        const auto type = random.below(2) == 0 ? UTOFU_MRQ_TYPE_LCL_GET : UTOFU_MRQ_TYPE_LCL_PUT;
        Operation* operation = operations.take(type, 7 + random.below(2), 1000 + 8 * random.below(3));
        if (operation == nullptr) continue;
        operation->task = Task::get;
        operation->token = next++;
        under_way[operation->token] = notice_of(*operation);
      } else if (!under_way.empty()) {
        auto ended = under_way.begin();
        std::advance(ended, static_cast<std::ptrdiff_t>(random.below(std::min<std::size_t>(under_way.size(), 50))));
        Operation* found = operations.find(ended->second, false);
        ASSERT_NE(found, nullptr);
        ASSERT_EQ(found->token, ended->first);
        operations.give_back(found);
        under_way.erase(ended);
      }
      ASSERT_EQ(operations.under_way(), under_way.size());
    }
  }
}

TEST(Operations, ManyOfOnePlaceAreAsManyAsThereAreLanes) {
  Operations operations(1024);
  std::vector<Operation*> taken;
  while (Operation* operation = operations.take(UTOFU_MRQ_TYPE_LCL_GET, 1, 64)) {
    operation->task = Task::get;
    taken.push_back(operation);
  }
  EXPECT_EQ(taken.size(), Operations::kLanes);
  Operation* elsewhere = operations.take(UTOFU_MRQ_TYPE_LCL_GET, 1, 65);
  ASSERT_NE(elsewhere, nullptr);
  elsewhere->task = Task::get;
  operations.give_back(taken.front());
  EXPECT_NE(operations.take(UTOFU_MRQ_TYPE_LCL_GET, 1, 64), nullptr);
}

TEST(Operations, WhatNobodyAskedForIsFoundByNobody) {
  Operations operations(512);
  Operation* operation = operations.take(UTOFU_MRQ_TYPE_LCL_PUT, 5, 100);
  ASSERT_NE(operation, nullptr);
  operation->task = Task::put;
  const utofu_mrq_notice right = notice_of(*operation);
  utofu_mrq_notice wrong = right;
  wrong.rmt_stadd += 1;
  EXPECT_EQ(operations.find(wrong, false), nullptr);
  EXPECT_EQ(operations.find(wrong, true), operation) << "a failure may come without the address";
  wrong = right;
  wrong.vcq_id = 6;
  EXPECT_EQ(operations.find(wrong, true), nullptr);
  wrong = right;
  wrong.notice_type = UTOFU_MRQ_TYPE_LCL_GET;
  EXPECT_EQ(operations.find(wrong, true), nullptr);
  wrong = right;
  wrong.edata = 1 + right.edata;
  EXPECT_EQ(operations.find(wrong, true), nullptr);
  operations.give_back(operation);
  EXPECT_EQ(operations.find(right, true), nullptr);
}

TEST(Operations, ARecordOfAnEarlierTurnIsNobodys) {
  Operations operations(16);
  Operation* first = operations.take(UTOFU_MRQ_TYPE_LCL_PUT, 5, 100);
  ASSERT_NE(first, nullptr);
  first->task = Task::put;
  void* tag = Operations::tag(*first);
  EXPECT_EQ(operations.tagged(tag), first);
  operations.give_back(first);
  EXPECT_EQ(operations.tagged(tag), nullptr);
  Operation* second = operations.take(UTOFU_MRQ_TYPE_LCL_PUT, 5, 100);
  ASSERT_EQ(second, first);
  second->task = Task::put;
  EXPECT_EQ(operations.tagged(tag), nullptr);
  EXPECT_EQ(operations.tagged(Operations::tag(*second)), second);
}

// Commands without an operation give no tag; their records must never be taken for those of one.
TEST(Operations, NoTagIsNull) {
  Operations operations(16);
  for (int turn = 0; turn < 70'000; ++turn) {  // more than a tag can count
    Operation* operation = operations.take(UTOFU_MRQ_TYPE_LCL_PUT, 5, 100);
    ASSERT_NE(operation, nullptr);
    operation->task = Task::put;
    ASSERT_NE(Operations::tag(*operation), nullptr);
    ASSERT_EQ(operations.tagged(nullptr), nullptr);
    operations.give_back(operation);
  }
}

}  // namespace
}  // namespace heddle::transport::utofu
