#include "queue/tag_pool.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "base/random.hpp"
#include "queue/bounded_queue.hpp"

namespace heddle::queue {
namespace {

using Local = TagPool<>::Local;

// Takes all that can be had.
std::vector<Tag> take_all(Local& local) {
  std::vector<Tag> tags;
  while (const Tag tag = local.take()) tags.push_back(tag);
  return tags;
}

TEST(TagPool, EachSlotOnceAndNotMore) {
  for (const std::uint32_t slots : {0U, 1U, 2U, 7U, 64U, 1000U}) {
    for (const std::uint32_t threads : {0U, 1U, 4U}) {
      TagPool<> pool(slots, threads);
      Local local(pool);
      for (int round = 0; round < 3; ++round) {
        std::set<std::uint32_t> seen;
        const std::vector<Tag> tags = take_all(local);
        for (const Tag tag : tags) {
          EXPECT_LT(tag.index, slots);
          EXPECT_TRUE(pool.live(tag));
          seen.insert(tag.index);
        }
        EXPECT_EQ(seen.size(), slots);
        EXPECT_EQ(tags.size(), slots);
        for (const Tag tag : tags) EXPECT_TRUE(local.give_back(tag));
      }
    }
  }
}

TEST(TagPool, AStaleTagIsRefusedAndChangesNothing) {
  TagPool<> pool(4, 1);
  Local local(pool);
  const Tag old = local.take();
  ASSERT_TRUE(local.give_back(old));
  EXPECT_FALSE(pool.live(old));
  EXPECT_FALSE(local.give_back(old)) << "twice";
  EXPECT_FALSE(pool.give_back(old));
  Tag now;
  do {  // until the slot is used again
    now = local.take();
    ASSERT_TRUE(now);
  } while (now.index != old.index);
  EXPECT_NE(now, old);
  EXPECT_FALSE(pool.live(old));
  EXPECT_FALSE(local.give_back(old)) << "the slot is another's";
  EXPECT_TRUE(pool.live(now));
  EXPECT_TRUE(local.give_back(now));
}

TEST(TagPool, NonsenseIsRefused) {
  TagPool<> pool(4, 1);
  Local local(pool);
  const Tag tag = local.take();
  for (const Tag bad : {Tag{}, Tag{4, 1}, Tag{UINT32_MAX, 1}, Tag{tag.index, tag.generation + 1},
                        Tag{tag.index, tag.generation + 2}, Tag{tag.index ^ 1, 0}}) {
    EXPECT_FALSE(pool.live(bad)) << bad.index << " " << bad.generation;
    EXPECT_FALSE(local.give_back(bad)) << bad.index << " " << bad.generation;
    EXPECT_FALSE(pool.give_back(bad)) << bad.index << " " << bad.generation;
  }
  EXPECT_EQ(Tag::from_word(tag.word()), tag);
  EXPECT_TRUE(pool.live(tag));
}

TEST(TagPool, WhatLocalsHoldBackIsBoundedAndComesBack) {
  constexpr std::uint32_t kSlots = 64;
  TagPool<> pool(kSlots, 2);
  ASSERT_EQ(pool.local_limit(), 16U);
  Local taker(pool);
  {
    Local holder(pool);
    Local third(pool);  // more Locals than were announced: holds nothing back
    const std::vector<Tag> all = take_all(holder);
    ASSERT_EQ(all.size(), kSlots);
    for (std::uint32_t i = 0; i < kSlots; ++i) EXPECT_TRUE((i % 2 == 0 ? holder : third).give_back(all[i]));
    const std::vector<Tag> some = take_all(taker);
    EXPECT_GE(some.size(), kSlots - pool.local_limit());
    EXPECT_LT(some.size(), kSlots) << "the holder does hold some back, or this tests nothing";
    for (const Tag tag : some) EXPECT_TRUE(pool.give_back(tag));
    holder.drain();
    const std::vector<Tag> drained = take_all(taker);
    EXPECT_EQ(drained.size(), kSlots);
    for (const Tag tag : drained) EXPECT_TRUE(holder.give_back(tag));
  }
  EXPECT_EQ(take_all(taker).size(), kSlots) << "what a Local held when it ended";
}

TEST(TagPool, LocalsComeAndGoWithinTheBound) {
  TagPool<> pool(64, 2);
  for (int round = 0; round < 100; ++round) {
    std::vector<std::unique_ptr<Local>> locals;
    for (int i = 0; i < 5; ++i) locals.push_back(std::make_unique<Local>(pool));
    std::vector<Tag> tags = take_all(*locals[0]);
    ASSERT_EQ(tags.size(), 64U) << "round " << round;
    for (std::size_t i = 0; i < tags.size(); ++i) ASSERT_TRUE(locals[i % 5]->give_back(tags[i]));
  }
}

// Takers queue their tags for givers, some threads are short-lived. `user` is plain: two holders of one slot are a race
// that ThreadSanitizer reports, and a sum that does not come out.
TEST(TagPoolStress, TagsGoFromHandToHand) {
  constexpr std::uint32_t kSlots = 24;
  constexpr int kTakers = 3;
  constexpr int kRounds = 200000;
  TagPool<> pool(kSlots, 2);
  BoundedQueue<> hands(kSlots);
  std::vector<std::uint64_t> words(kSlots);
  std::vector<std::uint64_t> user(kSlots);
  std::atomic<int> taking{kTakers};
  std::atomic<std::uint64_t> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kTakers; ++t) {
    threads.emplace_back([&, t] {
      auto local = std::make_unique<Local>(pool);
      for (int i = 0; i < kRounds; ++i) {
        if (i % 1000 == 999) local = std::make_unique<Local>(pool);
        Tag tag;
        while (!(tag = local->take())) std::this_thread::yield();
        ++user[tag.index];
        if (i % 4 == t) {
          if (!local->give_back(tag)) ++wrong;
          continue;
        }
        words[tag.index] = tag.word();
        while (!hands.push(tag.index)) std::this_thread::yield();
      }
      --taking;
    });
  }
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      Local local(pool);
      std::uint32_t slot = 0;
      for (;;) {
        const bool last = taking.load() == 0;
        if (!hands.pop(&slot)) {
          if (last) return;
          local.drain();  // an idle thread keeps nothing from the others
          std::this_thread::yield();
          continue;
        }
        ++user[slot];
        const Tag tag = Tag::from_word(words[slot]);
        if (!(t == 0 ? local.give_back(tag) : pool.give_back(tag)) || pool.give_back(Tag{slot, 0})) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0U);
  Local local(pool);
  EXPECT_EQ(take_all(local).size(), kSlots) << "no slot is lost";
  std::uint64_t sum = 0;
  for (const std::uint64_t n : user) sum += n;
  EXPECT_EQ(sum, 2U * kTakers * kRounds - kTakers * (kRounds / 4));
}

}  // namespace
}  // namespace heddle::queue
