// Each notice finds its operation, in any order; compared with a simple map.
#include "transport/utofu/operations.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/random.hpp"

namespace heddle::transport::utofu::lanes_test {
namespace {

utofu_mrq_notice notice_of(const TofuOperation& operation) {
  utofu_mrq_notice notice{};
  notice.notice_type = operation.type();
  notice.vcq_id = operation.vcq;
  notice.rmt_stadd = operation.address;
  notice.edata = TofuOperations::lane(operation);
  return notice;
}

TEST(TofuOperations, EachNoticeFindsItsOwn) {
  for (const std::uint32_t count : {16U, 256U, 1024U, 4096U}) {
    TofuOperations operations(count);
    base::Random random(count);
    std::map<Token, utofu_mrq_notice> under_way;
    Token next = 1;
    for (int step = 0; step < 60'000; ++step) {
      // Few addresses, so that many operations are alike; more starts than ends, so that it fills
      // up.
      if (random.below(5) < 3) {
        const Task task = random.below(2) == 0 ? Task::get : Task::put;
        TofuOperation* operation = operations.take(task, 7 + random.below(2), 1000 + 8 * random.below(3));
        if (operation == nullptr) continue;
        operation->token = next++;
        under_way[operation->token] = notice_of(*operation);
      } else if (!under_way.empty()) {
        auto ended = under_way.begin();
        std::advance(ended, static_cast<std::ptrdiff_t>(random.below(std::min<std::size_t>(under_way.size(), 50))));
        TofuOperation* found = operations.find(ended->second, false);
        ASSERT_NE(found, nullptr);
        TofuOperation* plain = nullptr;
        ASSERT_TRUE(operations.plain(ended->second, &plain));
        ASSERT_EQ(plain, found);
        ASSERT_EQ(found->token, ended->first);
        operations.give_back(found);
        under_way.erase(ended);
      }
      ASSERT_EQ(operations.under_way(), under_way.size());
    }
  }
}

TEST(TofuOperations, ManyOfOnePlaceAreAsManyAsThereAreLanes) {
  TofuOperations operations(1024);
  std::vector<TofuOperation*> taken;
  while (TofuOperation* operation = operations.take(Task::get, 1, 64)) {
    taken.push_back(operation);
  }
  EXPECT_EQ(taken.size(), TofuOperations::kLanes);
  TofuOperation* elsewhere = operations.take(Task::get, 1, 65);
  ASSERT_NE(elsewhere, nullptr);
  operations.give_back(taken.front());
  EXPECT_NE(operations.take(Task::get, 1, 64), nullptr);
}

TEST(TofuOperations, WhatNobodyAskedForIsFoundByNobody) {
  TofuOperations operations(512);
  TofuOperation* operation = operations.take(Task::put, 5, 100);
  ASSERT_NE(operation, nullptr);
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

TEST(TofuOperations, ARecordOfAnEarlierTurnIsNobodys) {
  TofuOperations operations(16);
  TofuOperation* first = operations.take(Task::put, 5, 100);
  ASSERT_NE(first, nullptr);
  void* tag = first->tag;
  EXPECT_EQ(operations.tagged(tag), first);
  operations.retire(first);
  EXPECT_EQ(operations.tagged(tag), nullptr);
  TofuOperation* second = operations.take(Task::put, 5, 100);
  ASSERT_EQ(second, first);
  EXPECT_EQ(operations.tagged(tag), nullptr);
  EXPECT_EQ(operations.tagged(second->tag), second);
}

// plain() does not accept an operation that needs more than a completion at its end.
TEST(TofuOperations, OnlyPlainEndsArePlain) {
  for (const std::uint32_t count : {16U, 1024U}) {
    TofuOperations operations(count);
    TofuOperation* operation = operations.take(Task::put, 5, 100);
    ASSERT_NE(operation, nullptr);
    const utofu_mrq_notice notice = notice_of(*operation);
    TofuOperation* found = nullptr;
    EXPECT_TRUE(operations.plain(notice, &found));
    EXPECT_EQ(found, operation);
    for (const std::uint16_t bit : {TofuOperation::kOwesSource, TofuOperation::kOrphan}) {
      operation->set(bit);
      EXPECT_FALSE(operations.plain(notice, &found));
      EXPECT_EQ(operations.find(notice, false), operation);
      operation->clear(bit);
      EXPECT_TRUE(operations.plain(notice, &found));
    }
    operations.give_back(operation);
    EXPECT_FALSE(operations.plain(notice, &found));
    TofuOperation* message = operations.take(Task::message, 5, 100);
    EXPECT_FALSE(operations.plain(notice_of(*message), &found));
    EXPECT_EQ(operations.find(notice_of(*message), false), message);
  }
}

// Operations that the fast paths take do not say where they go; other operations under way still
// do.
TEST(TofuOperations, TakenInStepsAreFoundByTheirLane) {
  TofuOperations operations(256);
  TofuOperation* message = operations.take(Task::message, 5, 100);
  ASSERT_NE(message, nullptr);
  std::vector<TofuOperation*> taken;
  while (TofuOperation* front = operations.front()) {
    TofuOperations::begin(front, taken.size() % 2 == 0 ? Task::put : Task::get);
    front->token = taken.size() + 1;
    operations.take_front();
    taken.push_back(front);
  }
  EXPECT_EQ(taken.size(), 255U);
  EXPECT_EQ(operations.under_way(), 256U);
  utofu_mrq_notice notice = notice_of(*message);
  notice.rmt_stadd += 1;
  EXPECT_EQ(operations.find(notice, false), nullptr);
  EXPECT_EQ(operations.find(notice, true), message);
  for (TofuOperation* operation : taken) {
    notice = notice_of(*operation);
    notice.vcq_id = 9;
    notice.rmt_stadd = 9;
    TofuOperation* plain = nullptr;
    ASSERT_TRUE(operations.plain(notice, &plain));
    ASSERT_EQ(plain, operation);
    ASSERT_EQ(operations.find(notice, false), operation);
    notice.notice_type = operation->task == Task::put ? UTOFU_MRQ_TYPE_LCL_GET : UTOFU_MRQ_TYPE_LCL_PUT;
    ASSERT_EQ(operations.find(notice, true), nullptr);
  }
  TofuOperations::Ends ends(operations);
  for (TofuOperation* operation : taken) ends.give_back(operation);
  ends.finish(taken.size());
  EXPECT_EQ(operations.under_way(), 1U);
  EXPECT_EQ(operations.front(), taken.back());
  notice = notice_of(*taken.front());
  EXPECT_EQ(operations.find(notice, true), nullptr) << "it is free";
}

// Commands without an operation have a null tag; their records must never match an operation.
TEST(TofuOperations, NoTagIsNull) {
  TofuOperations operations(16);
  for (int turn = 0; turn < 70'000; ++turn) {  // more turns than 16 bits can count
    TofuOperation* operation = operations.take(Task::put, 5, 100);
    ASSERT_NE(operation, nullptr);
    ASSERT_NE(operation->tag, nullptr);
    ASSERT_EQ(operations.tagged(nullptr), nullptr);
    operations.retire(operation);
  }
}

}  // namespace
}  // namespace heddle::transport::utofu::lanes_test
