// The threads of one process and its engine, all at the same time: for ThreadSanitizer.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "base/random.hpp"
#include "tofu/tests/one_process.hpp"

namespace tofu_emulator::test::engine_stress_test {
namespace {

constexpr std::size_t kThreads = 4;
constexpr std::uint64_t kOperations = 3000;
constexpr std::size_t kWords = 512;  // of each thread's part

// All threads add to word 0 of each part. Other threads read the first half; the thread's own gets
// write the second half.
struct Part {
  explicit Part(std::uint16_t tni, unsigned long flags) : queue(tni, flags), words(2 * kWords, tni) {
    words[0] = 0;
    stadd = queue.reg(words.data(), words.size() * 8);
  }
  ~Part() { queue.dereg(stadd); }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  // Polls for its own notice, and makes room in the TOQ. False: no notice has come.
  bool done(int type) const {
    void* none = nullptr;
    (void)utofu_poll_tcq(queue.handle(), 0, &none);
    utofu_mrq_notice notice{};
    const int status = utofu_poll_mrq(queue.handle(), 0, &notice);
    if (status == UTOFU_ERR_NOT_FOUND) return false;
    EXPECT_EQ(status, UTOFU_SUCCESS);
    EXPECT_EQ(notice.notice_type, type);
    return true;
  }

  Queue queue;
  std::vector<std::uint64_t> words;
  utofu_stadd_t stadd = 0;
};

using Parts = std::vector<std::unique_ptr<Part>>;

void add(const Part& from, const Part& to) {
  EXPECT_EQ(utofu_armw8(from.queue.handle(), to.queue.id(), UTOFU_ARMW_OP_ADD, 1, to.stadd, 0,
                        UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr),
            UTOFU_SUCCESS);
  EXPECT_TRUE(heddle::test::within_time([&] { return from.done(UTOFU_MRQ_TYPE_LCL_ARMW); }));
}

void get(Part& own, const Part& other, std::uint64_t expected, std::size_t words) {
  EXPECT_EQ(utofu_get(own.queue.handle(), other.queue.id(), own.stadd + kWords * 8, other.stadd + 8, words * 8, 0,
                      UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr),
            UTOFU_SUCCESS);
  EXPECT_TRUE(heddle::test::within_time([&] { return own.done(UTOFU_MRQ_TYPE_LCL_GET); }));
  for (std::size_t i = 0; i < words; ++i) EXPECT_EQ(own.words[kWords + i], expected);
}

TEST(Stress, EveryThreadHasAQueue) {
  Parts parts;
  for (std::uint16_t i = 0; i < kThreads; ++i) parts.push_back(std::make_unique<Part>(i, UTOFU_VCQ_FLAG_EXCLUSIVE));
  std::vector<std::thread> threads;
  for (std::uint16_t self = 0; self < kThreads; ++self) {
    threads.emplace_back([&parts, self] {
      heddle::base::Random random(self + 1);
      for (std::uint64_t i = 0; i < kOperations; ++i) {
        const auto other = static_cast<std::uint16_t>(random.below(kThreads));
        if (i % 4 == 3) {
          get(*parts[self], *parts[other], other, 1 + random.below(kWords - 1));
        } else {
          add(*parts[self], *parts[(self + i) % kThreads]);
        }
        if (i % 500 == 250) {  // rounds continue while other threads create and free VCQs
          const Part visitor(5, UTOFU_VCQ_FLAG_EXCLUSIVE);
          add(visitor, *parts[other]);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::uint64_t sum = 0;
  for (const auto& part : parts) {
    // The engine wrote it last, for an operation whose notice was polled.
    sum += __atomic_load_n(part->words.data(), __ATOMIC_ACQUIRE);
  }
  EXPECT_EQ(sum, kThreads * (kOperations - kOperations / 4 + kOperations / 500));
}

TEST(Stress, ThreadsShareACq) {
  Parts parts;
  for (std::size_t i = 0; i < kThreads; ++i) parts.push_back(std::make_unique<Part>(0, UTOFU_VCQ_FLAG_THREAD_SAFE));
  std::vector<std::thread> threads;
  for (std::size_t self = 0; self < kThreads; ++self) {
    threads.emplace_back([&parts, self] {
      for (std::uint64_t i = 0; i < kOperations; ++i) {
        add(*parts[self], *parts[(self + i) % kThreads]);
        if (i % 500 == 250) {  // other VCQs of the same CQ are created and freed
          const Part visitor(0, UTOFU_VCQ_FLAG_THREAD_SAFE);
          add(visitor, *parts[self]);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::uint64_t sum = 0;
  for (const auto& part : parts) sum += __atomic_load_n(part->words.data(), __ATOMIC_ACQUIRE);
  EXPECT_EQ(sum, kThreads * (kOperations + kOperations / 500));
}

// A flag after data, without notices: a thread that sees the flag finds the data.
TEST(Stress, FlagsComeAfterData) {
  Part from(0, UTOFU_VCQ_FLAG_EXCLUSIVE);
  Part to(1, UTOFU_VCQ_FLAG_EXCLUSIVE);
  constexpr std::size_t kFlag = kWords - 1;
  for (std::uint64_t round = 100; round < 300; ++round) {
    for (std::size_t i = 0; i <= kFlag; ++i) from.words[i] = round;
    EXPECT_EQ(utofu_put(from.queue.handle(), to.queue.id(), from.stadd, to.stadd, kWords * 8, 0,
                        UTOFU_ONESIDED_FLAG_STRONG_ORDER | UTOFU_ONESIDED_FLAG_TCQ_NOTICE, nullptr),
              UTOFU_SUCCESS);
    EXPECT_TRUE(
        heddle::test::within_time([&] { return __atomic_load_n(&to.words[kFlag], __ATOMIC_ACQUIRE) == round; }));
    for (std::size_t i = 0; i < kFlag; ++i) ASSERT_EQ(to.words[i], round);
    void* none = nullptr;
    EXPECT_EQ(from.queue.tcq(&none), UTOFU_SUCCESS);
  }
}

}  // namespace
}  // namespace tofu_emulator::test::engine_stress_test
