#include "queue/command_queue.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "base/random.hpp"
#include "queue/bell.hpp"
#include "queue/locks.hpp"

namespace heddle::queue::command_queue_test {
namespace {

struct Words {
  std::array<std::uint64_t, 7> word;
};
using Queue = CommandQueue<Words>;

// A command's content is derived from its producer and number.
void fill(Queue& queue, const Queue::Command& claim, std::uint64_t producer, std::uint64_t number) {
  for (std::uint32_t r = 0; r < claim.records; ++r) queue.body(claim, r).word.fill(producer << 48 | number << 8 | r);
}
bool holds(Queue& queue, const Queue::Command& command, std::uint64_t producer, std::uint64_t number) {
  for (std::uint32_t r = 0; r < command.records; ++r) {
    for (const std::uint64_t word : queue.body(command, r).word) {
      if (word != (producer << 48 | number << 8 | r)) return false;
    }
  }
  return true;
}

TEST(CommandQueue, IsInvisibleUntilPublishedAndThenInOrder) {
  Queue queue(4);
  Queue::Command command;
  EXPECT_FALSE(queue.take(&command));
  const auto first = queue.claim();
  const auto second = queue.claim(2);
  ASSERT_TRUE(first && second);
  fill(queue, first, 1, 1);
  fill(queue, second, 2, 2);
  EXPECT_FALSE(queue.publish(second)) << "nobody sleeps";
  EXPECT_FALSE(queue.take(&command)) << "the first is not there yet";
  EXPECT_FALSE(queue.publish(first));
  ASSERT_TRUE(queue.take(&command));
  EXPECT_EQ(command.records, 1U);
  EXPECT_TRUE(holds(queue, command, 1, 1));
  ASSERT_TRUE(queue.take(&command));
  EXPECT_EQ(command.records, 2U);
  EXPECT_TRUE(holds(queue, command, 2, 2));
  EXPECT_FALSE(queue.take(&command));
}

TEST(CommandQueue, FullMeansThatNothingHappened) {
  Queue queue(4);
  ASSERT_EQ(queue.capacity(), 4U);
  Queue::Command command;
  for (std::uint64_t lap = 0; lap < 5; ++lap) {
    for (std::uint64_t i = 0; i < 3; ++i) {
      const auto claim = queue.claim();
      ASSERT_TRUE(claim);
      fill(queue, claim, lap, i);
      static_cast<void>(queue.publish(claim));
    }
    EXPECT_FALSE(queue.claim(2)) << "one is left";
    const auto last = queue.claim();
    ASSERT_TRUE(last) << "the refused claim took nothing";
    fill(queue, last, lap, 3);
    static_cast<void>(queue.publish(last));
    EXPECT_FALSE(queue.claim());
    const std::uint64_t queued = queue.claimed();
    for (std::uint64_t i = 0; i < 4; ++i) {
      ASSERT_TRUE(queue.take(&command));
      ASSERT_TRUE(holds(queue, command, lap, i));
      EXPECT_FALSE(queue.claim()) << "taken, but not released";
      EXPECT_LT(queue.executed(), queued);
    }
    queue.release(command);
    EXPECT_EQ(queue.executed(), queued);
  }
}

TEST(CommandQueue, PartOfABatchCanBeReleased) {
  Queue queue(4);
  std::array<Queue::Command, 3> batch;
  for (std::uint64_t i = 0; i < 3; ++i) {
    const auto claim = queue.claim();
    fill(queue, claim, 0, i);
    static_cast<void>(queue.publish(claim));
  }
  for (Queue::Command& command : batch) ASSERT_TRUE(queue.take(&command));
  queue.release(batch[1]);
  EXPECT_EQ(queue.executed(), 2U);
  for (std::uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(queue.claim()) << i;
  EXPECT_FALSE(queue.claim());
  EXPECT_TRUE(holds(queue, batch[2], 0, 2)) << "what the transport did not accept stays";
}

// The later records of a command are never taken for a first record, whatever they held before.
TEST(CommandQueue, WhatIsPutBackIsTakenAgain) {
  Queue queue(4);
  for (std::uint64_t lap = 0; lap < 9; ++lap) {
    const auto first = queue.claim();
    const auto second = queue.claim(2);
    ASSERT_TRUE(first && second);
    fill(queue, first, 1, lap);
    fill(queue, second, 2, lap);
    EXPECT_FALSE(queue.publish(first) || queue.publish(second));
    Queue::Command one;
    Queue::Command two;
    ASSERT_TRUE(queue.take(&one) && queue.take(&two));
    queue.put_back(one.position);
    EXPECT_FALSE(queue.prepare_sleep()) << "there is something to take";
    ASSERT_TRUE(queue.take(&one) && queue.take(&two));
    queue.release(one);
    queue.put_back(two.position);
    EXPECT_FALSE(queue.claim(3)) << "it is not free";
    two = {};
    ASSERT_TRUE(queue.take(&two));
    EXPECT_EQ(two.records, 2U);
    EXPECT_TRUE(holds(queue, two, 2, lap));
    queue.release(two);
    EXPECT_TRUE(queue.prepare_sleep() && queue.wake_up());
  }
}

// Commands of one record, up to the end of the ring. The row ends at the first command of several
// records, and at one that the visitor rejects.
TEST(CommandQueue, ARowIsWhatTakeWouldGive) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    base::Random random(seed);
    Queue queue(static_cast<std::uint32_t>(2 + random.below(14)));
    std::deque<std::pair<std::uint64_t, std::uint32_t>> model;
    std::uint64_t number = 0;
    std::uint64_t position = 0;
    for (int step = 0; step < 3000; ++step) {
      const std::uint32_t records = random.below(6) == 0 ? 2 : 1;
      if (random.below(3) != 0) {
        if (records == 2) {
          const Queue::Command command = queue.claim(2);
          if (!command) continue;
          fill(queue, command, seed, ++number);
          static_cast<void>(queue.publish(command));
        } else {
          const auto put = queue.put([&](Words& body) { body.word[0] = ++number; });
          if (put == Queue::Put::full) continue;
          ASSERT_EQ(put, Queue::Put::done) << "nobody sleeps";
        }
        model.emplace_back(number, records);
        continue;
      }
      const std::size_t most = random.below(20);
      const std::size_t wanted = random.below(20);
      std::size_t visited = 0;
      const std::size_t row = queue.take_row(most, [&](const Words& body) {
        EXPECT_LT(visited, model.size());
        EXPECT_EQ(model[visited].second, 1U);
        EXPECT_EQ(body.word[0], model[visited].first);
        return visited++ < wanted;
      });
      std::size_t expected = 0;
      const std::size_t to_end = queue.capacity() - position % queue.capacity();
      while (expected < std::min({most, wanted, to_end, model.size()}) && model[expected].second == 1) ++expected;
      ASSERT_EQ(row, expected) << "seed " << seed << " step " << step;
      Queue::Command next;
      ASSERT_EQ(queue.take(&next), row < model.size()) << "seed " << seed << " step " << step;
      if (next) {
        ASSERT_EQ(next.position, position + row);
        ASSERT_EQ(next.records, model[row].second);
      }
      const std::size_t released = row + (next ? 1 : 0);
      for (std::size_t i = 0; i < released; ++i) {
        position += model.front().second;
        model.pop_front();
      }
      if (released != 0) queue.release({position - 1, 1});
    }
    EXPECT_GT(number, 300U);
  }
}

TEST(CommandQueue, PutTellsOfAFullRingAndOfAConsumerThatSleeps) {
  Queue queue(2);
  ASSERT_TRUE(queue.prepare_sleep());
  EXPECT_EQ(queue.put([](Words& body) { body.word[0] = 1; }), Queue::Put::wake);
  EXPECT_EQ(queue.put([](Words& body) { body.word[0] = 2; }), Queue::Put::done);
  EXPECT_EQ(queue.put([](Words&) { ADD_FAILURE() << "there is no room"; }), Queue::Put::full);
  Queue::Command command;
  for (std::uint64_t i = 1; i <= 2; ++i) {
    ASSERT_TRUE(queue.take(&command));
    EXPECT_EQ(command.records, 1U);
    EXPECT_EQ(queue.body(command).word[0], i);
  }
}

TEST(CommandQueue, AgreesWithADequeUnderRandomOperations) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    base::Random random(seed);
    Queue queue(static_cast<std::uint32_t>(2 + random.below(30)));
    std::deque<std::pair<std::uint64_t, std::uint32_t>> model;
    std::uint64_t number = 0;
    std::uint32_t used = 0;
    for (int step = 0; step < 5000; ++step) {
      const auto records = static_cast<std::uint32_t>(1 + random.below(queue.capacity()));
      Queue::Command command;
      if (random.below(2) == 0) {
        command = queue.claim(records);
        ASSERT_EQ(bool(command), used + records <= queue.capacity()) << "seed " << seed << " step " << step;
        if (!command) continue;
        fill(queue, command, seed, ++number);
        static_cast<void>(queue.publish(command));
        model.emplace_back(number, records);
        used += records;
      } else {
        ASSERT_EQ(queue.take(&command), !model.empty()) << "seed " << seed << " step " << step;
        if (model.empty()) continue;
        ASSERT_EQ(command.records, model.front().second) << "seed " << seed << " step " << step;
        ASSERT_TRUE(holds(queue, command, seed, model.front().first)) << "seed " << seed << " step " << step;
        queue.release(command);
        used -= command.records;
        model.pop_front();
      }
    }
  }
}

TEST(CommandQueue, TheFirstToClaimLearnsThatTheConsumerSleeps) {
  Queue queue(8);
  Queue::Command command;
  ASSERT_TRUE(queue.prepare_sleep());
  const auto first = queue.claim();
  const auto second = queue.claim();
  EXPECT_FALSE(queue.publish(second));
  EXPECT_TRUE(queue.publish(first));
  EXPECT_FALSE(queue.wake_up()) << "a producer did";
  EXPECT_FALSE(queue.prepare_sleep()) << "there are two";
  ASSERT_TRUE(queue.take(&command));
  EXPECT_FALSE(queue.prepare_sleep()) << "there is one";
  ASSERT_TRUE(queue.take(&command));
  ASSERT_TRUE(queue.prepare_sleep());
  EXPECT_TRUE(queue.wake_up());
  EXPECT_FALSE(queue.wake_up());
  EXPECT_FALSE(queue.publish(queue.claim())) << "it is awake again";
}

TEST(CommandQueue, ClaimedButNotPublishedKeepsTheConsumerAwake) {
  Queue queue(8);
  const auto claim = queue.claim();
  Queue::Command command;
  EXPECT_FALSE(queue.take(&command));
  EXPECT_FALSE(queue.prepare_sleep());
  EXPECT_FALSE(queue.publish(claim));
  EXPECT_TRUE(queue.take(&command));
}

TEST(CommandQueue, AFullRingKeepsTheSleepingBit) {
  Queue queue(2);
  EXPECT_FALSE(queue.publish(queue.claim(2)));
  Queue::Command command;
  ASSERT_TRUE(queue.take(&command));
  ASSERT_TRUE(queue.prepare_sleep()) << "taken, though not released";
  EXPECT_FALSE(queue.claim());
  queue.release(command);
  const auto claim = queue.claim();
  ASSERT_TRUE(claim);
  EXPECT_TRUE(queue.publish(claim)) << "the refused claim has not used up the wake-up";
}

TEST(Sleeper, ATokenIsKeptAndConsumedOnce) {
  Sleeper<> sleeper;
  sleeper.wake();
  sleeper.wake();
  EXPECT_TRUE(sleeper.sleep(-1));
  EXPECT_FALSE(sleeper.sleep(1'000'000));
}

TEST(Sleeper, TheTimeoutIsKept) {
  Sleeper<> sleeper;
  const auto start = std::chrono::steady_clock::now();
  constexpr auto kTimeout = std::chrono::milliseconds(20);
  EXPECT_FALSE(sleeper.sleep(std::chrono::nanoseconds(kTimeout).count()));
  EXPECT_GE(std::chrono::steady_clock::now() - start, kTimeout);
}

// Two threads wake each other in turn: a lost wake-up is a hang.
TEST(Sleeper, WakesAcrossThreads) {
  constexpr int kRounds = 5000;
  std::array<Sleeper<>, 2> sleepers;
  std::uint64_t ball = 0;  // plain: the token orders it
  std::thread partner([&] {
    for (int i = 0; i < kRounds; ++i) {
      while (!sleepers[1].sleep(-1)) continue;
      ++ball;
      sleepers[0].wake();
    }
  });
  for (int i = 0; i < kRounds; ++i) {
    ++ball;
    sleepers[1].wake();
    while (!sleepers[0].sleep(-1)) continue;
  }
  partner.join();
  EXPECT_EQ(ball, 2U * kRounds);
}

TEST(TryLock, OneAtATime) {
  TryLock<> lock;
  {
    const TryLock<>::Guard guard(lock);
    ASSERT_TRUE(guard);
    EXPECT_TRUE(lock.looks_held());
    const TryLock<>::Guard second(lock);
    EXPECT_FALSE(second);
  }
  EXPECT_FALSE(lock.looks_held()) << "the guard that did not get it has not let go of it";
  EXPECT_TRUE(lock.try_lock());
  lock.unlock();
}

// ---- stress ----

struct Producers {
  static constexpr std::uint64_t kThreads = 4;
  static constexpr std::uint64_t kCommands = 100000;  // of each

  // Queues all commands of one producer; `woken` is called when the consumer is to be woken.
  template <class Woken>
  static void run(Queue& queue, std::uint64_t self, Woken woken) {
    base::Random random(self + 1);
    for (std::uint64_t number = 0; number < kCommands; ++number) {
      const auto records = static_cast<std::uint32_t>(1 + random.below(3));
      Queue::Command claim;
      while (!(claim = queue.claim(records))) std::this_thread::yield();
      fill(queue, claim, self, number);
      if (queue.publish(claim)) woken();
      if (random.below(1000) == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
};

// The consumer's state; plain, so that ThreadSanitizer reports two consumers at once.
struct Progress {
  std::array<std::uint64_t, Producers::kThreads> next{};
  std::uint64_t taken = 0;
  bool good = true;

  void drain(Queue& queue) {
    Queue::Command command;
    bool any = false;
    while (queue.take(&command)) {
      const std::uint64_t producer = queue.body(command).word[0] >> 48;
      good = good && producer < next.size() && holds(queue, command, producer, next[producer]++);
      ++taken;
      any = true;
    }
    if (any) queue.release(command);
  }
};

TEST(CommandQueueStress, ManyProducersAndAConsumerThatSleeps) {
  constexpr std::chrono::seconds kLostAfter{30};
  Queue queue(16);
  Sleeper<> sleeper;
  std::vector<std::thread> producers;
  for (std::uint64_t self = 0; self < Producers::kThreads; ++self) {
    producers.emplace_back([&, self] { Producers::run(queue, self, [&] { sleeper.wake(); }); });
  }
  Progress progress;
  std::uint64_t sleeps = 0;
  std::uint64_t lost = 0;
  while (progress.taken < Producers::kThreads * Producers::kCommands) {
    progress.drain(queue);
    if (progress.taken < Producers::kThreads * Producers::kCommands && queue.prepare_sleep()) {
      ++sleeps;
      // A sleep may end before its timeout for no reason, for instance by a late wake-up of an
      // earlier sleep.
      const auto begun = std::chrono::steady_clock::now();
      const bool woken = sleeper.sleep(std::chrono::nanoseconds(kLostAfter).count());
      const bool over = std::chrono::steady_clock::now() - begun >= kLostAfter;
      if (!queue.wake_up() && !woken && over) ++lost;  // a producer claimed and did not wake
    } else {
      std::this_thread::yield();
    }
  }
  for (std::thread& producer : producers) producer.join();
  EXPECT_TRUE(progress.good) << "a command is not what was queued";
  EXPECT_EQ(lost, 0U);
  EXPECT_GT(sleeps, 0U);
  EXPECT_EQ(queue.executed(), queue.claimed());
}

// No executor: the producer that is told to wake the consumer becomes the consumer.
TEST(CommandQueueStress, TheRoleOfTheConsumerGoesRound) {
  Queue queue(16);
  Progress progress;
  ASSERT_TRUE(queue.prepare_sleep());
  std::vector<std::thread> producers;
  std::array<std::uint64_t, Producers::kThreads> turns{};
  for (std::uint64_t self = 0; self < Producers::kThreads; ++self) {
    producers.emplace_back([&, self] {
      Producers::run(queue, self, [&] {
        ++turns[self];
        for (;;) {
          progress.drain(queue);
          if (queue.prepare_sleep()) return;
          std::this_thread::yield();
        }
      });
    });
  }
  for (std::thread& producer : producers) producer.join();
  EXPECT_TRUE(progress.good);
  EXPECT_EQ(progress.taken, Producers::kThreads * Producers::kCommands);
  for (const std::uint64_t n : turns) EXPECT_GT(n, 0U);
}

TEST(TryLockStress, GuardsPlainData) {
  TryLock<> lock;
  std::uint64_t guarded = 0;
  std::atomic<std::uint64_t> entered{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100000; ++i) {
        const TryLock<>::Guard guard(lock);
        if (!guard) continue;
        ++guarded;
        entered.fetch_add(1, std::memory_order_relaxed);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(guarded, entered.load());
  EXPECT_GT(guarded, 0U);
}

}  // namespace
}  // namespace heddle::queue::command_queue_test
