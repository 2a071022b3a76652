// Strict mode: each test is a small program that breaks a rule of the interface, and is caught.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utofu.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "tofu/tests/one_process.hpp"

namespace tofu_emulator::test::rules_test {
namespace {

class Rules : public ::testing::Test {
 protected:
  // The parent never calls the library, so that each test's child starts with its own world.
  template <class Program>
  static void expect_caught(Program&& program, const char* message) {
    const auto run = [&] {
      program();
      std::exit(0);
    };
    EXPECT_EXIT(run(), ::testing::KilledBySignal(SIGABRT), message);
  }
  template <class Program>
  static void expect_clean(Program&& program, const char* message = "") {
    const auto run = [&] {
      program();
      std::exit(::testing::Test::HasFailure() ? 1 : 0);
    };
    EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), message);
  }
};

struct Pair {
  Queue from{0};
  Queue to{1};
  alignas(256) std::array<std::byte, 8192> memory{};
  utofu_stadd_t local = from.reg(memory.data(), 4096);
  utofu_stadd_t remote = to.reg(&memory[4096], 4096);

  Pair() = default;
  ~Pair() {
    from.dereg(local);
    to.dereg(remote);
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  int put(utofu_stadd_t lcl, utofu_stadd_t rmt, std::size_t length, unsigned long flags, std::uint64_t edata = 0) {
    return utofu_put(from.handle(), to.id(), lcl, rmt, length, edata, flags, nullptr);
  }
  // Puts, and returns when the memory is no longer in use.
  void put_whole() {
    EXPECT_EQ(put(local, remote, 8, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE), UTOFU_SUCCESS);
    utofu_mrq_notice notice{};
    EXPECT_EQ(from.mrq(&notice), UTOFU_SUCCESS);
  }
};

// A forked child ends at its first call, with a message; its parent continues.
template <class Call>
void in_forked_child(const char* mode, Call call) {
  ::setenv("UTOFU_EMU_MODE", mode, 1);
  Pair pair;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    call(pair);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) << mode << ": status " << status;
  pair.put_whole();
}

TEST_F(Rules, AForkedChildHasNoNetworkInterfaces) {
  for (const char* mode : {"plain", "strict"}) {
    const auto posts = [=] {
      in_forked_child(mode, [](Pair& pair) { (void)pair.put(pair.local, pair.remote, 8, 0); });
    };
    const auto polls = [=] {
      in_forked_child(mode, [](Pair& pair) {
        utofu_mrq_notice notice;
        (void)utofu_poll_mrq(pair.to.handle(), 0, &notice);
      });
    };
    const auto creates = [=] { in_forked_child(mode, [](Pair&) { const Queue another(2); }); };
    const auto run = [](const auto& program) {
      program();
      std::exit(::testing::Test::HasFailure() ? 1 : 0);
    };
    EXPECT_EXIT(run(posts), ::testing::ExitedWithCode(0), "was forked: a child has no network interfaces");
    EXPECT_EXIT(run(polls), ::testing::ExitedWithCode(0), "was forked: a child has no network interfaces");
    EXPECT_EXIT(run(creates), ::testing::ExitedWithCode(0), "was forked: a child has no network interfaces");
  }
}

TEST_F(Rules, OneThreadMakesAllCallsWhereThatIsAskedFor) {
  for (const char* mode : {"plain", "strict"}) {
    const auto prepare = [=] {
      ::setenv("UTOFU_EMU_MODE", mode, 1);
      ::setenv("UTOFU_EMU_ONE_THREAD", "1", 1);
    };
    const char* const message = "UTOFU_EMU_ONE_THREAD=1 one thread makes all calls";
    expect_clean([&] {
      prepare();
      Pair pair;
      pair.put_whole();
    });
    expect_caught(
        [&] {
          prepare();
          Pair pair;
          std::thread([&] { (void)pair.put(pair.local, pair.remote, 8, 0); }).join();
        },
        message);
    expect_caught(
        [&] {
          prepare();
          Pair pair;
          std::thread([] { const Queue other(3); }).join();
        },
        message);
    expect_caught(
        [&] {
          prepare();
          Pair pair;
          void* cbdata = nullptr;
          std::thread([&] { (void)utofu_poll_tcq(pair.from.handle(), 0, &cbdata); }).join();
        },
        message);
  }
}

// Rule 4.
TEST_F(Rules, EdataIsOneByte) {
  expect_caught(
      [] {
        Pair pair;
        (void)pair.put(pair.local, pair.remote, 8, 0, 256);
      },
      "utofu emulator: .*edata 256 has more than one byte");
}

TEST_F(Rules, EdataIsOneByteAndIsRefusedWhereRulesAreOnlyReported) {
  expect_clean([] {
    ::setenv("UTOFU_EMU_RULES", "report", 1);
    Pair pair;
    EXPECT_EQ(pair.put(pair.local, pair.remote, 8, 0, 256), UTOFU_ERR_INVALID_EDATA);
  });
}

// Rule 5.
TEST_F(Rules, TooMuchIsNoLength) {
  expect_clean([] {
    Pair pair;
    EXPECT_EQ(pair.put(pair.local, pair.remote, 16'777'216, 0), UTOFU_ERR_INVALID_SIZE);
  });
}

// Rule 6: a local address of another CQ.
void put_with_an_address_of_another_cq() {
  Pair pair;
  const utofu_stadd_t others = pair.to.reg(pair.memory.data(), 4096);
  ASSERT_EQ(pair.put(others, pair.remote, 8, UTOFU_ONESIDED_FLAG_TCQ_NOTICE), UTOFU_SUCCESS);
  void* cbdata = nullptr;
  EXPECT_EQ(pair.from.tcq(&cbdata), UTOFU_ERR_TCQ_STADD);
  pair.to.dereg(others);
}

TEST_F(Rules, ALocalAddressBelongsToTheIssuingCq) {
  expect_caught(put_with_an_address_of_another_cq,
                "names local memory [0-9a-f]+, 8 bytes, which is not registered with it");
}

TEST_F(Rules, ALocalAddressOfAnotherCqIsRefusedWhereRulesAreOnlyReported) {
  expect_clean([] {
    ::setenv("UTOFU_EMU_RULES", "report", 1);
    put_with_an_address_of_another_cq();
  });
}

// Rule 6: the same for a remote address.
TEST_F(Rules, ARemoteAddressBelongsToTheTargetsCq) {
  expect_clean([] {
    Pair pair;
    ASSERT_EQ(pair.put(pair.local, pair.local + 64, 8, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE), UTOFU_SUCCESS);
    utofu_mrq_notice notice{};
    EXPECT_EQ(pair.from.mrq(&notice), UTOFU_ERR_MRQ_RMT_STADD);
    EXPECT_EQ(notice.notice_type, UTOFU_MRQ_TYPE_LCL_PUT);
    EXPECT_EQ(notice.vcq_id, pair.to.id());
  });
}

// Rule 6: the hardware checks pages; here the check is exact.
TEST_F(Rules, ARangeEndsWhereItWasRegistered) {
  expect_clean([] {
    Pair pair;
    utofu_mrq_notice notice{};
    ASSERT_EQ(pair.put(pair.local, pair.remote + 4089, 8, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE), UTOFU_SUCCESS);
    EXPECT_NE(pair.from.mrq(&notice), UTOFU_SUCCESS);
    ASSERT_EQ(pair.put(pair.local, pair.remote - 1, 8, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE), UTOFU_SUCCESS);
    EXPECT_NE(pair.from.mrq(&notice), UTOFU_SUCCESS);
    ASSERT_EQ(pair.put(pair.local, pair.remote + 4088, 8, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE), UTOFU_SUCCESS);
    EXPECT_EQ(pair.from.mrq(&notice), UTOFU_SUCCESS);
    for (const std::size_t k : {4088U, 4095U}) EXPECT_EQ(pair.memory[4096 + k], std::byte{0});
  });
}

TEST_F(Rules, ALocalRangeEndsWhereItWasRegistered) {
  expect_caught(
      [] {
        Pair pair;
        ASSERT_EQ(pair.put(pair.local + 4089, pair.remote, 8, UTOFU_ONESIDED_FLAG_TCQ_NOTICE), UTOFU_SUCCESS);
        void* cbdata = nullptr;
        (void)pair.from.tcq(&cbdata);
      },
      "names local memory [0-9a-f]+, 8 bytes");
}

// Rule 7: a notice contains neither the beginning of the buffer nor the id with its path.
TEST_F(Rules, NoticesHaveEndAddressesAndRawIds) {
  expect_clean([] {
    Pair pair;
    utofu_vcq_id_t with_path = pair.to.id();
    ASSERT_EQ(utofu_set_vcq_id_path(&with_path, nullptr), UTOFU_SUCCESS);
    ASSERT_NE(with_path, pair.to.id());
    ASSERT_EQ(utofu_put(pair.from.handle(), with_path, pair.local, pair.remote + 8, 100, 0x5A, kBothNotices, nullptr),
              UTOFU_SUCCESS);
    utofu_mrq_notice notice{};
    ASSERT_EQ(pair.from.mrq(&notice), UTOFU_SUCCESS);
    EXPECT_EQ(notice.notice_type, UTOFU_MRQ_TYPE_LCL_PUT);
    EXPECT_EQ(notice.vcq_id, pair.to.id());
    EXPECT_EQ(notice.rmt_stadd, pair.remote + 108);
    EXPECT_EQ(notice.edata, 0x5AU);
    ASSERT_EQ(pair.to.mrq(&notice), UTOFU_SUCCESS);
    EXPECT_EQ(notice.notice_type, UTOFU_MRQ_TYPE_RMT_PUT);
    EXPECT_EQ(notice.vcq_id, pair.from.id());
    EXPECT_EQ(notice.rmt_stadd, pair.remote + 108);
    EXPECT_EQ(notice.edata, 0x5AU);
    ASSERT_EQ(utofu_get(pair.from.handle(), with_path, pair.local + 16, pair.remote, 50, 7,
                        UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr),
              UTOFU_SUCCESS);
    ASSERT_EQ(pair.from.mrq(&notice), UTOFU_SUCCESS);
    EXPECT_EQ(notice.notice_type, UTOFU_MRQ_TYPE_LCL_GET);
    EXPECT_EQ(notice.vcq_id, pair.to.id());
    EXPECT_EQ(notice.lcl_stadd, pair.local + 66);
    EXPECT_EQ(notice.rmt_stadd, pair.remote + 50);
  });
}

// A program frees a queue whose commands are in flight. The engine makes one step in each call, so
// that they certainly are.
TEST_F(Rules, AVcqIsNotFreedUnderItsCommands) {
  expect_caught(
      [] {
        ::setenv("UTOFU_EMU_STEP", "1", 1);
        Pair pair;
        EXPECT_EQ(pair.put(pair.local, pair.remote, 4096, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE), UTOFU_SUCCESS);
        (void)utofu_free_vcq(pair.from.handle());
      },
      "VCQ [0-9a-f]+ .node [0-9 ]+, TNI 0 CQ [0-8]. is freed while [1-9][0-9]* of its commands are under way");
}

TEST_F(Rules, AnIdIsNoHandle) {
  expect_caught(
      [] {
        Pair pair;
        utofu_mrq_notice notice;
        (void)utofu_poll_mrq(pair.to.id(), 0, &notice);
      },
      "VCQ [0-9a-f]+ .* is an id, for peers to name it by");
  expect_clean([] {
    Pair pair;
    utofu_mrq_notice notice;
    EXPECT_EQ(utofu_poll_mrq(pair.to.handle() + 1, 0, &notice), UTOFU_ERR_INVALID_VCQ_HDL);
  });
}

TEST_F(Rules, DescriptorsAreAligned) {
  const auto program = [](const char* mode) {
    ::setenv("UTOFU_EMU_MODE", mode, 1);
    Pair pair;
    alignas(8) std::array<std::byte, 64> desc{};
    std::size_t bytes = 0;
    EXPECT_EQ(utofu_prepare_nop(pair.from.handle(), 0, desc.data(), &bytes), UTOFU_SUCCESS);
    std::memmove(&desc[4], desc.data(), bytes);
    EXPECT_EQ(utofu_post_toq(pair.from.handle(), &desc[4], bytes, nullptr), UTOFU_ERR_INVALID_DESC);
  };
  expect_caught([&] { program("strict"); },
                "utofu_post_toq of VCQ .* got descriptors at 0x[0-9a-f]+, which is no multiple of 8");
  expect_clean([&] { program("plain"); }, "utofu emulator: .* got descriptors at");
}

TEST_F(Rules, OnlyPagesThatCanBeWrittenAreRegisteredForThat) {
  expect_clean(
      [] {
        const Queue queue(0);
        void* page = ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        ASSERT_NE(page, MAP_FAILED);
        utofu_stadd_t stadd = 0;
        EXPECT_EQ(utofu_reg_mem(queue.handle(), page, 4096, 0, &stadd), UTOFU_ERR_INVALID_ADDRESS);
        ASSERT_EQ(utofu_reg_mem(queue.handle(), page, 4096, UTOFU_REG_MEM_FLAG_READ_ONLY, &stadd), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_dereg_mem(queue.handle(), stadd, 0), UTOFU_SUCCESS);
        ASSERT_EQ(::mprotect(page, 4096, PROT_READ | PROT_WRITE), 0);
        ASSERT_EQ(utofu_reg_mem(queue.handle(), page, 4096, 0, &stadd), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_dereg_mem(queue.handle(), stadd, 0), UTOFU_SUCCESS);
      },
      "4096 bytes at 0x[0-9a-f]+ are registered for writing with VCQ .*UTOFU_REG_MEM_FLAG_READ_ONLY");
}

// An error that poll_tcq returns is printed in plain mode too.
TEST_F(Rules, WhatIsWrongHereIsSaidInPlainModeToo) {
  expect_clean(
      [] {
        ::setenv("UTOFU_EMU_MODE", "plain", 1);
        Pair pair;
        ASSERT_EQ(pair.put(pair.local + 5000, pair.remote, 8, UTOFU_ONESIDED_FLAG_TCQ_NOTICE), UTOFU_SUCCESS);
        void* cbdata = nullptr;
        EXPECT_EQ(pair.from.tcq(&cbdata), UTOFU_ERR_TCQ_LENGTH);
      },
      "a command of VCQ [0-9a-f]+ .node [0-9 ]+, TNI 0 CQ [0-8]. names local memory .* it ends before");
}

// If rules are only reported, a loop that breaks one prints it a few times, and prints the count at
// the end.
TEST_F(Rules, ReportsDoNotFlood) {
  expect_clean(
      [] {
        ::setenv("UTOFU_EMU_RULES", "report", 1);
        Pair pair;
        for (unsigned i = 0; i < 40; ++i) {
          ASSERT_EQ(pair.put(pair.local + 5000 + i, pair.remote, 8, UTOFU_ONESIDED_FLAG_TCQ_NOTICE), UTOFU_SUCCESS);
          void* cbdata = nullptr;
          ASSERT_EQ(pair.from.tcq(&cbdata), UTOFU_ERR_TCQ_LENGTH);
        }
      },
      "32 more lines like this one were left out: a command of VCQ");
}

// Memory becomes inaccessible while it is registered: plain mode dies of it, and prints the
// address. The memory is protected, not unmapped: another thread's mapping (an arena, a stack)
// could take its address, and be overwritten.
TEST_F(Rules, WhatTheInterfaceCannotTouchIsNamed) {
  const auto program = [] {
    ::setenv("UTOFU_EMU_MODE", "plain", 1);
    Pair pair;
    void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const utofu_stadd_t stadd = pair.to.reg(page, 4096);
    ASSERT_EQ(::mprotect(page, 4096, PROT_NONE), 0);
    EXPECT_EQ(pair.put(pair.local, stadd, 64, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE), UTOFU_SUCCESS);
    utofu_mrq_notice notice{};
    (void)pair.from.mrq(&notice);
    std::exit(0);
  };
  // Ends by the signal, or as a sanitizer ends it.
  EXPECT_EXIT(
      program(), [](int status) { return status != 0; },
      "memory at 0x[0-9a-f]+ cannot be touched: VCQ [0-9a-f]+ .node [0-9 ]+, TNI 0 CQ [0-8]. names steering address "
      "[0-9a-f]+");
}

// Rule 9: two threads, one handle. They poll until they are caught, however long the scheduler
// keeps them apart.
void poll_for_ever(utofu_vcq_hdl_t handle) {
  utofu_mrq_notice notice{};
  for (;;) (void)utofu_poll_mrq(handle, 0, &notice);
}

TEST_F(Rules, AHandleIsForOneThreadAtATime) {
  expect_caught(
      [] {
        const Queue queue(0);
        std::thread other([&] { poll_for_ever(queue.handle()); });
        poll_for_ever(queue.handle());
      },
      "threads [0-9]+ and [0-9]+ are in calls on TNI 0 CQ [0-8] at once.*is not thread-safe");
}

TEST_F(Rules, ACqIsForOneThreadAtATime) {
  expect_caught(
      [] {
        const Queue one(0, UTOFU_VCQ_FLAG_THREAD_SAFE);
        const Queue other(0, 0);
        std::thread thread([&] { poll_for_ever(other.handle()); });
        poll_for_ever(one.handle());
      },
      "are in calls on TNI 0 CQ [0-8] at once");
}

TEST_F(Rules, ThreadSafeHandlesAreForAll) {
  expect_clean([] {
    const Queue one(0, UTOFU_VCQ_FLAG_THREAD_SAFE);
    const Queue other(0, UTOFU_VCQ_FLAG_THREAD_SAFE);
    const auto poll = [&] {
      utofu_mrq_notice notice{};
      for (int i = 0; i < 20'000; ++i) {
        EXPECT_EQ(utofu_poll_mrq(i % 2 == 0 ? one.handle() : other.handle(), 0, &notice), UTOFU_ERR_NOT_FOUND);
      }
    };
    std::thread thread(poll);
    poll();
    thread.join();
  });
}

// Rule 11: ids and addresses of one run say nothing about those of another.
TEST_F(Rules, NobodyCanKnowAnIdOrAnAddress) {
  expect_clean([] {
    ::setenv("UTOFU_EMU_SEED", "5", 1);
    const Queue queue(0);
    utofu_vcq_id_t id = queue.id();
    std::uint8_t coords[6];
    utofu_tni_id_t tni = 0;
    utofu_cq_id_t cq = 0;
    std::uint16_t extra = 0;
    ASSERT_EQ(utofu_query_vcq_info(id, coords, &tni, &cq, &extra), UTOFU_SUCCESS);
    for (unsigned bit = 0; bit < 64; ++bit) {
      const utofu_vcq_id_t guess = id ^ (utofu_vcq_id_t{1} << bit);
      EXPECT_EQ(utofu_query_vcq_info(guess, coords, &tni, &cq, &extra), UTOFU_ERR_INVALID_VCQ_ID);
    }
    // The layout observed on the hardware: X, Y, Z in bytes, A, B, C, TNI above, CQ in bits 58-63.
    const utofu_vcq_id_t parsed = utofu_vcq_id_t{tni} << 29U | utofu_vcq_id_t{cq} << 58U;
    EXPECT_NE(parsed, id);
  });
}

// Rule 12: the command waits in a session-mode queue without credits, so it has certainly not
// completed.
TEST_F(Rules, MemoryIsNotDeregisteredUnderACommand) {
  expect_caught(
      [] {
        Queue session(0, UTOFU_VCQ_FLAG_SESSION_MODE);
        std::array<std::byte, 64> memory{};
        const utofu_stadd_t stadd = session.reg(memory.data(), memory.size());
        EXPECT_EQ(utofu_put(session.handle(), session.id(), stadd, stadd + 32, 8, 0, 0, nullptr), UTOFU_SUCCESS);
        (void)utofu_dereg_mem(session.handle(), stadd, 0);
      },
      "is deregistered while 1 commands of VCQ");
}

// Rule 12: deregistered memory is no longer accessible.
TEST_F(Rules, NothingIsWrittenAfterDeregistration) {
  expect_clean([] {
    Pair pair;
    std::array<std::byte, 64> memory{};
    const utofu_stadd_t gone = pair.to.reg(memory.data(), memory.size());
    pair.to.dereg(gone);
    for (const bool get : {false, true}) {
      const int status = get ? utofu_get(pair.from.handle(), pair.to.id(), pair.local, gone, 8, 0,
                                         UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr)
                             : pair.put(pair.local, gone, 8, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE);
      ASSERT_EQ(status, UTOFU_SUCCESS);
      utofu_mrq_notice notice{};
      EXPECT_EQ(pair.from.mrq(&notice), UTOFU_ERR_MRQ_RMT_STADD);
    }
  });
}

// Rule 13.
TEST_F(Rules, AtomicsAreNaturallyAligned) {
  expect_clean([] {
    Pair pair;
    EXPECT_EQ(utofu_armw8(pair.from.handle(), pair.to.id(), UTOFU_ARMW_OP_ADD, 1, pair.remote + 4, 0, 0, nullptr),
              UTOFU_ERR_INVALID_STADD);
    EXPECT_EQ(utofu_cswap4(pair.from.handle(), pair.to.id(), 1, 1, pair.remote + 2, 0, 0, nullptr),
              UTOFU_ERR_INVALID_STADD);
  });
}

// Read-only memory can only be read by gets.
TEST_F(Rules, ReadOnlyMemoryIsNotWrittenFromAfar) {
  expect_clean([] {
    Pair pair;
    std::array<std::uint64_t, 8> memory{};
    const utofu_stadd_t stadd = pair.to.reg(memory.data(), sizeof memory, UTOFU_REG_MEM_FLAG_READ_ONLY);
    utofu_mrq_notice notice{};
    ASSERT_EQ(pair.put(pair.local, stadd, 8, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE), UTOFU_SUCCESS);
    EXPECT_EQ(pair.from.mrq(&notice), UTOFU_ERR_MRQ_RMT_MEMORY);
    ASSERT_EQ(utofu_armw8(pair.from.handle(), pair.to.id(), UTOFU_ARMW_OP_ADD, 1, stadd, 0,
                          UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr),
              UTOFU_SUCCESS);
    EXPECT_EQ(pair.from.mrq(&notice), UTOFU_ERR_MRQ_RMT_MEMORY);
    EXPECT_EQ(memory[0], 0U);
    ASSERT_EQ(utofu_get(pair.from.handle(), pair.to.id(), pair.local, stadd, 8, 0, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE,
                        nullptr),
              UTOFU_SUCCESS);
    EXPECT_EQ(pair.from.mrq(&notice), UTOFU_SUCCESS);
    pair.to.dereg(stadd);
  });
}

}  // namespace
}  // namespace tofu_emulator::test::rules_test
