// Strict mode: the network interfaces keep the promises of the interface and nothing more. Tests of
// order run in single steps, others with the engine's thread.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utofu.h>
#include <utofu_emulator.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "tofu/tests/one_process.hpp"

namespace tofu_emulator::test::engine_rules_test {
namespace {

constexpr std::size_t kPacket = 1920;

class EngineRules : public ::testing::Test {
 protected:
  // The parent never calls the library, so that each test's child starts with its own world.
  template <class Program>
  static void expect_caught(const char* mode, Program&& program, const char* message) {
    const auto run = [&] {
      ::setenv("UTOFU_EMU_MODE", mode, 1);
      program();
      std::exit(0);
    };
    EXPECT_EXIT(run(), ::testing::KilledBySignal(SIGABRT), message);
  }
  template <class Program>
  static void expect_clean(const char* mode, Program&& program, const char* said = "") {
    const auto run = [&] {
      ::setenv("UTOFU_EMU_MODE", mode, 1);
      program();
      std::fflush(nullptr);
      std::exit(::testing::Test::HasFailure() ? 1 : 0);
    };
    EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), said);
  }
};

// Two VCQs over the two halves of some memory.
struct Two {
  explicit Two(std::size_t bytes, unsigned long flags = UTOFU_VCQ_FLAG_EXCLUSIVE)
      : to(1, flags), memory(2 * bytes), local(from.reg(memory.data(), bytes)), remote(to.reg(&memory[bytes], bytes)) {}
  ~Two() {
    from.dereg(local);
    to.dereg(remote);
  }
  Two(const Two&) = delete;
  Two& operator=(const Two&) = delete;

  Queue from{0};
  Queue to;
  std::vector<std::uint8_t> memory;
  utofu_stadd_t local;
  utofu_stadd_t remote;
};

// The order in which the packets of one message land. The notice comes after all of them.
std::vector<std::size_t> landing_order(std::size_t packets, unsigned long flags) {
  Two two(packets * kPacket);
  std::fill_n(two.memory.begin(), packets * kPacket, std::uint8_t{1});
  const std::uint8_t* target = &two.memory[packets * kPacket];
  EXPECT_EQ(utofu_put(two.from.handle(), two.to.id(), two.local, two.remote, packets * kPacket, 9,
                      flags | UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE, nullptr),
            UTOFU_SUCCESS);
  std::vector<std::size_t> order;
  std::vector<bool> seen(packets);
  utofu_mrq_notice notice{};
  EXPECT_TRUE(heddle::test::within_time([&] {
    const int status = utofu_poll_mrq(two.to.handle(), 0, &notice);
    std::vector<std::size_t> now;
    for (std::size_t i = 0; i < packets; ++i) {
      if (seen[i] || target[(i + 1) * kPacket - 1] == 0) continue;
      seen[i] = true;
      now.push_back(i);
    }
    // The order within a round is not visible: assume the most favourable.
    order.insert(order.end(), now.begin(), now.end());
    EXPECT_TRUE(status != UTOFU_SUCCESS || order.size() == packets) << "a notice before its data";
    return status == UTOFU_SUCCESS;
  }));
  return order;
}

// Rule 1.
TEST_F(EngineRules, PiecesLandInAnyOrder) {
  expect_clean("strict", [] {
    ::setenv("UTOFU_EMU_STEP", "1", 1);
    const std::vector<std::size_t> order = landing_order(60, 0);
    EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
  });
}

TEST_F(EngineRules, PiecesLandInOrderWithStrongOrder) {
  expect_clean("strict", [] {
    ::setenv("UTOFU_EMU_STEP", "1", 1);
    for (int i = 0; i < 5; ++i) {
      const std::vector<std::size_t> order = landing_order(60, UTOFU_ONESIDED_FLAG_STRONG_ORDER);
      EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
    }
  });
}

// Posts `puts` puts of a word each. Returns the order of their notices.
std::vector<std::uint64_t> notice_order(std::size_t puts, unsigned long flags, std::size_t senders) {
  std::vector<std::unique_ptr<Queue>> from;
  for (std::size_t i = 0; i < senders; ++i) from.push_back(std::make_unique<Queue>(static_cast<std::uint16_t>(i % 6)));
  Queue to(5);
  std::vector<std::uint64_t> words(puts);
  const utofu_stadd_t remote = to.reg(words.data(), puts * 8);
  for (std::size_t i = 0; i < puts; ++i) {
    EXPECT_EQ(utofu_put_piggyback8(from[i % senders]->handle(), to.id(), i + 1, remote + 8 * i, 8, i,
                                   flags | UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE, nullptr),
              UTOFU_SUCCESS);
  }
  std::vector<std::uint64_t> order;
  for (std::size_t i = 0; i < puts; ++i) {
    utofu_mrq_notice notice{};
    EXPECT_EQ(to.mrq(&notice), UTOFU_SUCCESS);
    EXPECT_EQ(words[notice.edata], notice.edata + 1) << "a notice before its data";
    order.push_back(notice.edata);
  }
  to.dereg(remote);
  return order;
}

TEST_F(EngineRules, MessagesOvertakeEachOther) {
  expect_clean("strict", [] {
    ::setenv("UTOFU_EMU_STEP", "1", 1);
    const auto order = notice_order(40, 0, 1);
    EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
  });
}

TEST_F(EngineRules, MessagesOfOnePairWithStrongOrderDoNot) {
  expect_clean("strict", [] {
    ::setenv("UTOFU_EMU_STEP", "1", 1);
    const auto order = notice_order(40, UTOFU_ONESIDED_FLAG_STRONG_ORDER, 1);
    EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  });
}

TEST_F(EngineRules, EverythingIsInOrderInPlainMode) {
  expect_clean("plain", [] {
    ::setenv("UTOFU_EMU_STEP", "1", 1);
    const auto notices = notice_order(40, 0, 1);
    EXPECT_TRUE(std::is_sorted(notices.begin(), notices.end()));
    const auto pieces = landing_order(60, 0);
    EXPECT_TRUE(std::is_sorted(pieces.begin(), pieces.end()));
  });
}

// Some programs split their messages into packets of 256 bytes and poll the last word of each,
// while later packets are still in flight. Returns how often an earlier word of a packet was not
// there.
std::size_t packets_without_their_data(std::size_t puts) {
  constexpr std::size_t kBytes = 16'384;
  constexpr std::size_t kWords = 256 / sizeof(std::uint64_t);
  alignas(4096) static std::array<std::uint64_t, kBytes / 8> source;
  alignas(4096) static std::array<std::uint64_t, kBytes / 8> target;
  Queue from(0);
  Queue to(1);
  const utofu_stadd_t local = from.reg(source.data(), kBytes);
  const utofu_stadd_t remote = to.reg(target.data(), kBytes);
  std::size_t early = 0;
  for (std::uint64_t value = 1; value <= puts; ++value) {
    source.fill(value);
    EXPECT_EQ(utofu_put(from.handle(), to.id(), local, remote, kBytes, 0,
                        UTOFU_ONESIDED_FLAG_STRONG_ORDER | UTOFU_ONESIDED_FLAG_TCQ_NOTICE, nullptr),
              UTOFU_SUCCESS);
    for (std::size_t packet = 0; packet < kBytes / 256; ++packet) {
      const std::atomic_ref last(target[(packet + 1) * kWords - 1]);
      const auto there = [&] { return last.load(std::memory_order_acquire) == value; };
      // the interval is short: only a thread that does nothing but poll meets it
      unsigned spins = 100'000;
      while (!there() && --spins != 0) continue;
      const bool came = spins != 0 || heddle::test::within_time(there);
      // Backwards: the words written last have had the least time to arrive.
      for (std::size_t word = (packet + 1) * kWords - 1; word-- > packet * kWords;)
        early += std::atomic_ref(target[word]).load(std::memory_order_relaxed) != value ? 1 : 0;
      EXPECT_TRUE(came);
    }
    void* none = nullptr;
    EXPECT_EQ(from.tcq(&none), UTOFU_SUCCESS);
  }
  from.dereg(local);
  to.dereg(remote);
  return early;
}

TEST_F(EngineRules, WordsOfAStrongOrderPutBecomeVisibleInOrder) {
  for (const char* mode : {"plain", "strict"})
    expect_clean(mode, [] { EXPECT_EQ(packets_without_their_data(2'000), 0U); });
}

// Rule 15.
TEST_F(EngineRules, NoticesOfDifferentPeersComeInAnyOrder) {
  expect_clean("strict", [] {
    ::setenv("UTOFU_EMU_STEP", "1", 1);
    const auto order = notice_order(40, UTOFU_ONESIDED_FLAG_STRONG_ORDER, 4);
    EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
    for (std::size_t sender = 0; sender < 4; ++sender) {
      std::vector<std::uint64_t> own;
      std::copy_if(order.begin(), order.end(), std::back_inserter(own), [&](auto i) { return i % 4 == sender; });
      EXPECT_TRUE(std::is_sorted(own.begin(), own.end()));
    }
  });
}

TEST_F(EngineRules, TheSameSeedGivesTheSameOrder) {
  expect_clean("strict", [] {
    ::setenv("UTOFU_EMU_STEP", "1", 1);
    std::array<std::vector<std::uint64_t>, 3> orders;
    for (std::size_t i = 0; i < orders.size(); ++i) {
      utofu_emu_reseed(i == 2 ? 77 : 5);
      orders[i] = notice_order(40, 0, 2);
    }
    EXPECT_EQ(orders[0], orders[1]);
    EXPECT_NE(orders[0], orders[2]);
  });
}

// Rule 2.
TEST_F(EngineRules, SlotsAreFreedByPollingOnly) {
  for (const char* mode : {"plain", "strict"}) {
    expect_clean(mode, [] {
      ::setenv("UTOFU_EMU_STEP", "1", 1);
      ::setenv("UTOFU_EMU_TOQ", "8", 1);
      const Queue queue(0);
      for (int i = 0; i < 8; ++i) EXPECT_EQ(utofu_nop(queue.handle(), 0, nullptr), UTOFU_SUCCESS);
      for (int i = 0; i < 50; ++i) EXPECT_EQ(utofu_nop(queue.handle(), 0, nullptr), UTOFU_ERR_BUSY);
      void* none = nullptr;
      EXPECT_EQ(utofu_poll_tcq(queue.handle(), 0, &none), UTOFU_ERR_NOT_FOUND);
      for (int i = 0; i < 8; ++i) EXPECT_EQ(utofu_nop(queue.handle(), 0, nullptr), UTOFU_SUCCESS);
    });
  }
}

// Programs post a batch with DELAY_START, except for its last command.
TEST_F(EngineRules, DelayedCommandsBeginWithTheNextThatIsNot) {
  for (const char* mode : {"plain", "strict"}) {
    expect_clean(mode, [] {
      ::setenv("UTOFU_EMU_STEP", "1", 1);
      Two two(64);
      constexpr unsigned long kFlags = UTOFU_ONESIDED_FLAG_TCQ_NOTICE | UTOFU_ONESIDED_FLAG_STRONG_ORDER;
      const auto put = [&](std::uint64_t value, unsigned long flags) {
        return utofu_put_piggyback8(two.from.handle(), two.to.id(), value, two.remote + 8 * value, 8, 0, kFlags | flags,
                                    nullptr);
      };
      void* none = nullptr;
      for (const std::uint64_t value : {0U, 1U, 2U})
        EXPECT_EQ(put(value, UTOFU_ONESIDED_FLAG_DELAY_START), UTOFU_SUCCESS);
      for (int i = 0; i < 1000; ++i) EXPECT_EQ(utofu_poll_tcq(two.from.handle(), 0, &none), UTOFU_ERR_NOT_FOUND);
      EXPECT_EQ(put(3, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE), UTOFU_SUCCESS);
      for (int i = 0; i < 4; ++i) EXPECT_EQ(two.from.tcq(&none), UTOFU_SUCCESS);
      utofu_mrq_notice notice{};
      EXPECT_EQ(two.from.mrq(&notice), UTOFU_SUCCESS);
      const std::uint8_t* target = &two.memory[64];
      for (std::uint8_t value = 0; value < 4; ++value) EXPECT_EQ(target[8 * value], value);
    });
  }
}

// A batch posted at once: commands behind its last command without the flag wait for the next
// command without it.
TEST_F(EngineRules, APostedBatchIsHeldFromItsLastDelayedCommandsOn) {
  expect_clean(
      "plain",
      [] {
        ::setenv("UTOFU_EMU_STEP", "1", 1);
        const Queue queue(0);
        std::array<std::uint64_t, 12> batch{};
        std::size_t bytes = 0;
        for (std::size_t i = 0; i < 3; ++i) {
          const unsigned long delay = i == 1 ? 0 : UTOFU_ONESIDED_FLAG_DELAY_START;
          EXPECT_EQ(utofu_prepare_nop(queue.handle(), UTOFU_ONESIDED_FLAG_TCQ_NOTICE | delay, &batch.at(4 * i), &bytes),
                    UTOFU_SUCCESS);
        }
        EXPECT_EQ(utofu_post_toq(queue.handle(), batch.data(), sizeof batch, nullptr), UTOFU_SUCCESS);
        void* none = nullptr;
        EXPECT_EQ(utofu_poll_tcq(queue.handle(), 0, &none), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_poll_tcq(queue.handle(), 0, &none), UTOFU_SUCCESS);
        for (int i = 0; i < 100; ++i) EXPECT_EQ(utofu_poll_tcq(queue.handle(), 0, &none), UTOFU_ERR_NOT_FOUND);
        utofu_emu_dump(2);
        EXPECT_EQ(utofu_nop(queue.handle(), 0, nullptr), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_poll_tcq(queue.handle(), 0, &none), UTOFU_SUCCESS);
      },
      "held back by DELAY_START 1, for a command without it");
}

TEST_F(EngineRules, AFullQueueOfDelayedCommandsBegins) {
  expect_clean("plain", [] {
    ::setenv("UTOFU_EMU_TOQ", "8", 1);
    const Queue queue(0);
    for (int i = 0; i < 8; ++i) EXPECT_EQ(utofu_nop(queue.handle(), UTOFU_ONESIDED_FLAG_DELAY_START, nullptr), 0);
    EXPECT_TRUE(heddle::test::within_time([&] {
      void* none = nullptr;
      EXPECT_EQ(utofu_poll_tcq(queue.handle(), 0, &none), UTOFU_ERR_NOT_FOUND);
      return utofu_nop(queue.handle(), 0, nullptr) == UTOFU_SUCCESS;
    }));
  });
}

TEST_F(EngineRules, DelayedCommandsThatNothingBeginsAreReported) {
  expect_caught(
      "strict",
      [] {
        const Two two(64);
        (void)utofu_put_piggyback8(two.from.handle(), two.to.id(), 1, two.remote, 8, 0, UTOFU_ONESIDED_FLAG_DELAY_START,
                                   nullptr);
      },
      "broken rule: VCQ .* is freed while 1 of its commands are under way");
}

// A stride with more blocks than the TOQ has slots is posted as it gets room.
TEST_F(EngineRules, AStrideMayBeLongerThanTheQueue) {
  for (const char* mode : {"plain", "strict"}) {
    for (const char* step : {"0", "1"}) {
      expect_clean(mode, [step] {
        ::setenv("UTOFU_EMU_STEP", step, 1);
        ::setenv("UTOFU_EMU_TOQ", "16", 1);
        constexpr std::size_t kBlocks = 99;
        Two two(16 * kBlocks);
        std::iota(two.memory.begin(), two.memory.begin() + 16 * kBlocks, std::uint8_t{1});
        int mark = 0;
        for (int i = 0; i < 3; ++i) EXPECT_EQ(utofu_nop(two.from.handle(), UTOFU_ONESIDED_FLAG_TCQ_NOTICE, &two), 0);
        EXPECT_EQ(utofu_put_stride(two.from.handle(), two.to.id(), two.local, two.remote, 8, 16, kBlocks, 0,
                                   UTOFU_ONESIDED_FLAG_TCQ_NOTICE | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, &mark),
                  UTOFU_SUCCESS);
        void* data = nullptr;
        utofu_mrq_notice notice{};
        for (std::size_t i = 0; i < 3 + kBlocks; ++i) {
          EXPECT_EQ(two.from.tcq(&data), UTOFU_SUCCESS);
          EXPECT_EQ(data, i < 3 ? static_cast<void*>(&two) : &mark);
        }
        for (std::size_t i = 0; i < kBlocks; ++i) EXPECT_EQ(two.from.mrq(&notice), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_poll_tcq(two.from.handle(), 0, &data), UTOFU_ERR_NOT_FOUND);
        const std::uint8_t* target = &two.memory[16 * kBlocks];
        for (std::size_t i = 0; i < 16 * kBlocks; ++i) EXPECT_EQ(target[i], i % 16 < 8 ? two.memory[i] : 0);
      });
    }
  }
}

TEST_F(EngineRules, AStrideThatCouldNeverBeginIsRefused) {
  expect_clean("plain", [] {
    ::setenv("UTOFU_EMU_TOQ", "16", 1);
    const Two two(64, UTOFU_VCQ_FLAG_SESSION_MODE);
    const auto stride = [&](const Queue& from, utofu_stadd_t local, const Queue& to, utofu_stadd_t remote,
                            std::size_t blocks, unsigned long flags) {
      return utofu_put_stride(from.handle(), to.id(), local, remote, 1, 0, blocks, 0, flags, nullptr);
    };
    EXPECT_EQ(stride(two.to, two.remote, two.from, two.local, 17, 0), UTOFU_ERR_INVALID_NUMBER) << "session mode";
    EXPECT_EQ(stride(two.from, two.local, two.to, two.remote, 17, UTOFU_ONESIDED_FLAG_DELAY_START),
              UTOFU_ERR_INVALID_NUMBER);
    EXPECT_EQ(stride(two.from, two.local, two.to, two.remote, (1U << 21U) + 1, 0), UTOFU_ERR_INVALID_NUMBER);
  });
}

// Rule 3, in both modes.
TEST_F(EngineRules, AnMrqThatNobodyPollsEndsTheJob) {
  for (const char* mode : {"plain", "strict"}) {
    expect_caught(
        mode,
        [] {
          ::setenv("UTOFU_EMU_MRQ", "16", 1);
          Two two(64);
          for (int i = 0; i < 17; ++i)
            (void)utofu_put_piggyback8(two.from.handle(), two.to.id(), 1, two.remote, 8, 0,
                                       UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE, nullptr);
          // the job ends before this returns
          EXPECT_TRUE(heddle::test::within_time([] { return false; }));
        },
        "the MRQ of VCQ [0-9a-f]+ .* has overflowed: 16 notices");
  }
}

TEST_F(EngineRules, AnMrqHoldsAsMuchAsItsDepth) {
  expect_clean("strict", [] {
    ::setenv("UTOFU_EMU_MRQ", "16", 1);
    Two two(64);
    for (int round = 0; round < 4; ++round) {
      for (int i = 0; i < 16; ++i)
        EXPECT_EQ(utofu_put_piggyback8(two.from.handle(), two.to.id(), 1, two.remote, 8, 0,
                                       UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE, nullptr),
                  UTOFU_SUCCESS);
      utofu_mrq_notice notice{};
      for (int i = 0; i < 16; ++i) EXPECT_EQ(two.to.mrq(&notice), UTOFU_SUCCESS);
    }
  });
}

// Rule 10.
TEST_F(EngineRules, CreditsThatNoCommandUsesAreReported) {
  expect_caught(
      "strict",
      [] {
        Two two(64, UTOFU_VCQ_FLAG_SESSION_MODE);
        utofu_mrq_notice notice{};
        (void)utofu_put_piggyback8(two.from.handle(), two.to.id(), 1, two.remote, 8, 0,
                                   UTOFU_ONESIDED_FLAG_SPS(3) | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr);
        EXPECT_EQ(two.from.mrq(&notice), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_nop(two.to.handle(), 0, nullptr), UTOFU_SUCCESS);
      },
      "broken rule: TNI 1 CQ [0-9]+ is freed with 2 credits");
}

TEST_F(EngineRules, CommandsThatNoCreditReleasesAreReported) {
  expect_caught(
      "strict",
      [] {
        const Two two(64, UTOFU_VCQ_FLAG_SESSION_MODE);
        EXPECT_EQ(utofu_nop(two.to.handle(), 0, nullptr), UTOFU_SUCCESS);
      },
      "broken rule: TNI 1 CQ [0-9]+ is freed with 1 slots of commands that have not run");
}

TEST_F(EngineRules, CreditsAreForSessionModeOnly) {
  expect_caught(
      "strict",
      [] {
        Two two(64);
        utofu_mrq_notice notice{};
        (void)utofu_put_piggyback8(two.from.handle(), two.to.id(), 1, two.remote, 8, 0,
                                   UTOFU_ONESIDED_FLAG_SPS(1) | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr);
        (void)two.from.mrq(&notice);
        EXPECT_TRUE(heddle::test::within_time([] { return false; }));
      },
      "broken rule: a message with SPS\\(1\\) came for TNI 1 CQ [0-9]+, which is not in session mode");
}

TEST_F(EngineRules, ADumpShowsWhatWaits) {
  expect_clean(
      "plain",
      [] {
        const Two two(64, UTOFU_VCQ_FLAG_SESSION_MODE);
        for (int i = 0; i < 10; ++i)
          EXPECT_EQ(utofu_put_piggyback8(two.to.handle(), two.from.id(), 1, two.local, 8, 0, 0, nullptr),
                    UTOFU_SUCCESS);
        utofu_emu_dump(2);
      },
      "TNI 1 CQ [0-9]+ \\(session\\): TOQ posted 10 executed 0 reaped 0 scheduled 0");
}

TEST_F(EngineRules, AQueueThatDoesNotGoOnIsReported) {
  expect_clean(
      "plain",
      [] {
        ::setenv("UTOFU_EMU_WATCHDOG", "1", 1);
        const Two two(64, UTOFU_VCQ_FLAG_SESSION_MODE);
        EXPECT_EQ(utofu_nop(two.to.handle(), 0, nullptr), UTOFU_SUCCESS);
        // Reads what is printed on stderr, and prints it afterwards.
        std::array<int, 2> ends{};
        EXPECT_EQ(::pipe2(ends.data(), O_NONBLOCK), 0);
        const int stderr_before = ::dup(STDERR_FILENO);
        ::dup2(ends[1], STDERR_FILENO);
        std::string said;
        const bool told = heddle::test::within_time([&] {
          std::array<char, 512> some{};
          const ssize_t got = ::read(ends[0], some.data(), some.size());
          if (got > 0) said.append(some.data(), static_cast<std::size_t>(got));
          return said.find("scheduled 0") != std::string::npos;
        });
        ::dup2(stderr_before, STDERR_FILENO);
        EXPECT_TRUE(told);
        std::fputs(said.c_str(), stderr);
      },
      "the commands of TNI 1 CQ [0-9]+ have not gone on for 1 s\n.*\n?.*TNI 1 CQ [0-9]+ \\(session\\): TOQ posted 1");
}

TEST_F(EngineRules, AVcqFindsNothingOfItsPredecessor) {
  expect_clean("plain", [] {
    const Queue neighbour(0, 0);  // keeps the CQ
    Queue from(1);
    std::array<std::uint64_t, 2> words{};
    utofu_vcq_id_t before = 0;
    {
      Queue to(0, 0);
      before = to.id();
      const utofu_stadd_t remote = to.reg(words.data(), sizeof words);
      utofu_mrq_notice notice{};
      for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(utofu_put_piggyback8(from.handle(), to.id(), 1, remote, 8, 0, kBothNotices, nullptr), UTOFU_SUCCESS);
        EXPECT_EQ(from.mrq(&notice), UTOFU_SUCCESS);
      }
      EXPECT_EQ(utofu_nop(to.handle(), UTOFU_ONESIDED_FLAG_TCQ_NOTICE, nullptr), UTOFU_SUCCESS);
      std::size_t unread = 0;
      EXPECT_TRUE(heddle::test::within_time(
          [&] { return utofu_query_num_unread_tcq(to.handle(), &unread) == UTOFU_SUCCESS && unread == 1; }));
      to.dereg(remote);
    }
    const Queue next(0, 0);
    EXPECT_EQ(next.id(), before);
    void* none = nullptr;
    utofu_mrq_notice notice{};
    EXPECT_EQ(utofu_poll_tcq(next.handle(), 0, &none), UTOFU_ERR_NOT_FOUND);
    EXPECT_EQ(utofu_poll_mrq(next.handle(), 0, &notice), UTOFU_ERR_NOT_FOUND);
    EXPECT_EQ(utofu_poll_mrq(neighbour.handle(), 0, &notice), UTOFU_ERR_NOT_FOUND);
  });
}

// Rule 14.
TEST_F(EngineRules, PaddingMayOverwriteTheLine) {
  expect_clean("strict", [] {
    Two two(1024);
    std::fill(two.memory.begin(), two.memory.end(), std::uint8_t{7});
    std::uint8_t* target = &two.memory[1024];
    const std::size_t first = 512 - reinterpret_cast<std::uintptr_t>(target) % 256;
    utofu_mrq_notice notice{};
    EXPECT_EQ(utofu_put_piggyback8(two.from.handle(), two.to.id(), 0x0101010101010101, two.remote + first + 64, 8, 0,
                                   UTOFU_ONESIDED_FLAG_PADDING | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr),
              UTOFU_SUCCESS);
    EXPECT_EQ(two.from.mrq(&notice), UTOFU_SUCCESS);
    for (std::size_t i = 0; i < 1024; ++i) {
      const bool data = i >= first + 64 && i < first + 72;
      const bool line = i >= first && i < first + 256;
      EXPECT_EQ(target[i], data ? 1 : line ? 0xDB : 7) << i;
    }
  });
}

TEST_F(EngineRules, MemoryThatIsNoLongerMappedIsNoticed) {
  expect_caught(
      "strict",
      [] {
        constexpr std::size_t kBytes = 65'536;
        void* memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        Two two(64);
        const utofu_stadd_t local = two.from.reg(memory, kBytes);
        ::munmap(memory, kBytes);
        (void)utofu_put(two.from.handle(), two.to.id(), local, two.remote, 64, 0, UTOFU_ONESIDED_FLAG_TCQ_NOTICE,
                        nullptr);
        void* none = nullptr;
        (void)two.from.tcq(&none);
      },
      "broken rule: VCQ .* from memory at .* which is not mapped any more");
}

}  // namespace
}  // namespace tofu_emulator::test::engine_rules_test
