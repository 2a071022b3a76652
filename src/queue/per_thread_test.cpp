#include "queue/per_thread.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "queue/tag_pool.hpp"

namespace heddle::queue {
namespace {

struct Counted {
  explicit Counted(std::atomic<int>& count) : alive(count) { ++alive; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ~Counted() { --alive; }
  std::atomic<int>& alive;
  std::uint64_t uses = 0;  // plain: only its thread's
};

TEST(PerThread, EachThreadHasItsOwnAndKeepsIt) {
  constexpr int kThreads = 4;
  std::atomic<int> alive{0};
  PerThread<Counted> objects;
  std::vector<Counted*> seen(kThreads);
  std::barrier all(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      seen[t] = &objects.get(alive);
      for (int i = 0; i < 1000; ++i) ++objects.get(alive).uses;
      EXPECT_EQ(&objects.get(alive), seen[t]);
      EXPECT_EQ(seen[t]->uses, 1000U);
      all.arrive_and_wait();
      EXPECT_EQ(alive.load(), kThreads);
      EXPECT_EQ(objects.size(), std::size_t{kThreads});
      all.arrive_and_wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::set<Counted*>(seen.begin(), seen.end()).size(), std::size_t{kThreads});
  EXPECT_EQ(alive.load(), 0) << "the threads have ended";
  EXPECT_EQ(objects.size(), 0U);
}

TEST(PerThread, SeveralOwnersDoNotMixUp) {
  std::atomic<int> alive{0};
  PerThread<Counted> first;
  PerThread<Counted> second;
  for (int i = 0; i < 10; ++i) {
    first.get(alive).uses += 1;
    second.get(alive).uses += 2;
  }
  EXPECT_EQ(first.get(alive).uses, 10U);
  EXPECT_EQ(second.get(alive).uses, 20U);
  EXPECT_EQ(alive.load(), 2);
}

TEST(PerThread, TheOwnerMayEndFirst) {
  std::atomic<int> alive{0};
  auto objects = std::make_unique<PerThread<Counted>>();
  std::barrier both(2);
  std::thread thread([&] {
    static_cast<void>(objects->get(alive));
    both.arrive_and_wait();
    both.arrive_and_wait();  // the owner is gone
    auto next = std::make_unique<PerThread<Counted>>();
    EXPECT_EQ(next->get(alive).uses, 0U) << "not what an owner that is gone has left";
  });
  both.arrive_and_wait();
  EXPECT_EQ(alive.load(), 1);
  objects.reset();
  EXPECT_EQ(alive.load(), 0);
  both.arrive_and_wait();
  thread.join();
  EXPECT_EQ(alive.load(), 0);
}

TEST(PerThread, AThreadThatOutlivesManyOwnersForgetsThem) {
  std::atomic<int> alive{0};
  for (int i = 0; i < 1000; ++i) {
    PerThread<Counted> objects;
    objects.get(alive).uses = 1;
    ASSERT_LE(detail::ThreadSeats::mine().size(), 2U);
  }
  EXPECT_EQ(alive.load(), 0);
}

// The purpose: a thread that ends gives its tags back, without a word to anybody.
TEST(PerThread, SlotsOfThreadsThatEndComeBack) {
  constexpr std::uint32_t kSlots = 64;
  TagPool<> pool(kSlots, 4);
  PerThread<TagPool<>::Local> locals;
  for (int round = 0; round < 50; ++round) {
    std::thread([&] {
      std::vector<Tag> tags;
      for (std::uint32_t i = 0; i < kSlots; ++i) tags.push_back(locals.get(pool).take());
      for (const Tag tag : tags) ASSERT_TRUE(locals.get(pool).give_back(tag)) << "round " << round;
    }).join();
  }
  TagPool<>::Local mine(pool);
  for (std::uint32_t i = 0; i < kSlots; ++i) ASSERT_TRUE(mine.take()) << i;
}

// Threads and owners end at the same time.
TEST(PerThreadStress, EndsMeet) {
  for (int round = 0; round < 300; ++round) {
    std::atomic<int> alive{0};
    auto objects = std::make_unique<PerThread<Counted>>();
    std::vector<std::thread> threads;
    std::barrier used(4);
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        ++objects->get(alive).uses;
        used.arrive_and_wait();
      });
    }
    used.arrive_and_wait();
    objects.reset();
    EXPECT_EQ(alive.load(), 0);
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace heddle::queue
