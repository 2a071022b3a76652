// Commands between processes, in plain and in strict mode.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <cstring>
#include <numeric>

#include "tofu/tests/world_of.hpp"

namespace tofu_emulator::test::commands_test {
namespace {

// A sanitizer multiplies the memory of each process.
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1  // the name that g++ uses
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
constexpr std::uint32_t kMany = 12;
#else
constexpr std::uint32_t kMany = 64;
#endif

constexpr unsigned long kBoth = UTOFU_ONESIDED_FLAG_TCQ_NOTICE | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE;

#define CHECK(condition)                                                           \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      return 1;                                                                    \
    }                                                                              \
  } while (false)

// A VCQ with registered memory, and the ids and addresses of all processes.
struct Peer {
  utofu_vcq_hdl_t vcq = 0;
  utofu_stadd_t stadd = 0;
  std::vector<std::uint8_t> memory;

  explicit Peer(std::size_t bytes) : memory(bytes) {}
  int open(Place& place, unsigned long flags = UTOFU_VCQ_FLAG_EXCLUSIVE) {
    CHECK(utofu_create_vcq(0, flags, &vcq) == UTOFU_SUCCESS);
    CHECK(utofu_reg_mem(vcq, memory.data(), memory.size(), 0, &stadd) == UTOFU_SUCCESS);
    utofu_vcq_id_t id = 0;
    CHECK(utofu_query_vcq_id(vcq, &id) == UTOFU_SUCCESS);
    place.note(place.process(), 0) = id;
    place.note(place.process(), 1) = stadd;
    CHECK(place.barrier());
    return 0;
  }
  int tcq(void* expected) const {
    void* data = nullptr;
    CHECK(poll_until([&] { return utofu_poll_tcq(vcq, 0, &data); }) == UTOFU_SUCCESS);
    CHECK(data == expected);
    return 0;
  }
  int mrq(std::uint8_t type, std::uint64_t edata, utofu_mrq_notice* notice) const {
    CHECK(poll_until([&] { return utofu_poll_mrq(vcq, 0, notice); }) == UTOFU_SUCCESS);
    CHECK(notice->notice_type == type);
    CHECK(notice->edata == edata);
    return 0;
  }
  int close(Place& place) const {
    CHECK(place.barrier());
    CHECK(utofu_dereg_mem(vcq, stadd, 0) == UTOFU_SUCCESS);
    CHECK(utofu_free_vcq(vcq) == UTOFU_SUCCESS);
    return 0;
  }
};

#define RUN(call)              \
  do {                         \
    if ((call) != 0) return 1; \
  } while (false)

std::uint8_t pattern(std::size_t i, std::uint32_t salt) {
  return static_cast<std::uint8_t>(i * 7 + i / 251 + salt);
}

// Process 0 puts to 1 with notices on both sides; 1 checks the data.
int put_once(Place& place) {
  constexpr std::size_t kBytes = 100'000;
  Peer peer(2 * kBytes);
  RUN(peer.open(place));
  utofu_mrq_notice notice{};
  if (place.process() == 0) {
    for (std::size_t i = 0; i < kBytes; ++i) peer.memory[i] = pattern(i, 3);
    const utofu_vcq_id_t to = place.note(1, 0);
    int mark = 0;
    CHECK(utofu_put(peer.vcq, to, peer.stadd, place.note(1, 1) + 17, kBytes, 42,
                    kBoth | UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE, &mark) == UTOFU_SUCCESS);
    RUN(peer.tcq(&mark));
    RUN(peer.mrq(UTOFU_MRQ_TYPE_LCL_PUT, 42, &notice));
    CHECK(notice.vcq_id == to);
    CHECK(notice.rmt_stadd == place.note(1, 1) + 17 + kBytes);
  } else {
    RUN(peer.mrq(UTOFU_MRQ_TYPE_RMT_PUT, 42, &notice));
    CHECK(notice.vcq_id == place.note(0, 0));
    CHECK(notice.rmt_stadd == peer.stadd + 17 + kBytes);
    for (std::size_t i = 0; i < kBytes; ++i) CHECK(peer.memory[17 + i] == pattern(i, 3));
    CHECK(peer.memory[16] == 0 && peer.memory[17 + kBytes] == 0);
  }
  return peer.close(place);
}

// Every process gets from its successor, then puts small pieces of all sizes.
int get_and_piggyback(Place& place) {
  constexpr std::size_t kBytes = 50'000;
  const std::uint32_t next = (place.process() + 1) % place.processes();
  const std::uint32_t before = (place.process() + place.processes() - 1) % place.processes();
  Peer peer(3 * kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) peer.memory[i] = pattern(i, place.process());
  RUN(peer.open(place));
  utofu_mrq_notice notice{};
  CHECK(utofu_get(peer.vcq, place.note(next, 0), peer.stadd + kBytes, place.note(next, 1), kBytes, 7, kBoth, &peer) ==
        UTOFU_SUCCESS);
  RUN(peer.tcq(&peer));
  RUN(peer.mrq(UTOFU_MRQ_TYPE_LCL_GET, 7, &notice));
  CHECK(notice.lcl_stadd == peer.stadd + 2 * kBytes);
  CHECK(notice.rmt_stadd == place.note(next, 1) + kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) CHECK(peer.memory[kBytes + i] == pattern(i, next));
  CHECK(place.barrier());
  void* none = nullptr;
  std::array<std::uint8_t, 32> data{};
  for (std::size_t length = 1; length <= data.size(); ++length) {
    for (std::size_t i = 0; i < length; ++i) data[i] = pattern(i, static_cast<std::uint32_t>(length));
    CHECK(utofu_put_piggyback(peer.vcq, place.note(next, 0), data.data(),
                              place.note(next, 1) + 2 * kBytes + 64 * length + 3, length, length,
                              UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr) == UTOFU_SUCCESS);
    RUN(peer.mrq(UTOFU_MRQ_TYPE_LCL_PUT, length, &notice));
    CHECK(utofu_poll_tcq(peer.vcq, 0, &none) == UTOFU_ERR_NOT_FOUND);
  }
  CHECK(place.barrier());
  for (std::size_t length = 1; length <= data.size(); ++length) {
    const std::uint8_t* at = &peer.memory[2 * kBytes + 64 * length + 3];
    for (std::size_t i = 0; i < length; ++i) CHECK(at[i] == pattern(i, static_cast<std::uint32_t>(length)));
    CHECK(at[length] == 0);
  }
  (void)before;
  return peer.close(place);
}

// All processes add to a word of process 0, with commands that fetch the old value and others that
// do not.
int atomics(Place& place) {
  constexpr std::uint64_t kRounds = 200;
  Peer peer(256);
  RUN(peer.open(place));
  utofu_mrq_notice notice{};
  std::vector<std::uint64_t> seen;
  for (std::uint64_t i = 0; i < kRounds; ++i) {
    CHECK(utofu_armw8(peer.vcq, place.note(0, 0), UTOFU_ARMW_OP_ADD, 1, place.note(0, 1) + 8, i % 256,
                      UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr) == UTOFU_SUCCESS);
    RUN(peer.mrq(UTOFU_MRQ_TYPE_LCL_ARMW, i % 256, &notice));
    CHECK(notice.rmt_stadd == place.note(0, 1) + 8);
    CHECK(seen.empty() || seen.back() < notice.rmt_value);
    seen.push_back(notice.rmt_value);
    void* data = nullptr;
    CHECK(utofu_poll_tcq(peer.vcq, 0, &data) == UTOFU_ERR_NOT_FOUND);
  }
  // A lock by compare and swap, 4 bytes; it protects a plain counter that is changed by get and
  // piggyback put.
  for (std::uint64_t i = 0; i < 20; ++i) {
    do {
      CHECK(utofu_cswap4(peer.vcq, place.note(0, 0), 0, place.process() + 1, place.note(0, 1) + 16, 1,
                         UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr) == UTOFU_SUCCESS);
      RUN(peer.mrq(UTOFU_MRQ_TYPE_LCL_ARMW, 1, &notice));
      void* data = nullptr;
      CHECK(utofu_poll_tcq(peer.vcq, 0, &data) == UTOFU_ERR_NOT_FOUND);
    } while (notice.rmt_value != 0);
    CHECK(utofu_get(peer.vcq, place.note(0, 0), peer.stadd + 128, place.note(0, 1) + 24, 8, 2,
                    UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr) == UTOFU_SUCCESS);
    RUN(peer.mrq(UTOFU_MRQ_TYPE_LCL_GET, 2, &notice));
    std::uint64_t value = 0;
    std::memcpy(&value, &peer.memory[128], 8);
    CHECK(utofu_put_piggyback8(peer.vcq, place.note(0, 0), value + 1, place.note(0, 1) + 24, 8, 3,
                               UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr) == UTOFU_SUCCESS);
    RUN(peer.mrq(UTOFU_MRQ_TYPE_LCL_PUT, 3, &notice));
    CHECK(utofu_armw4(peer.vcq, place.note(0, 0), UTOFU_ARMW_OP_SWAP, 0, place.note(0, 1) + 16, 4,
                      UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr) == UTOFU_SUCCESS);
    RUN(peer.mrq(UTOFU_MRQ_TYPE_LCL_ARMW, 4, &notice));
    CHECK(notice.rmt_value == place.process() + 1);
  }
  CHECK(place.barrier());
  if (place.process() == 0) {
    std::array<std::uint64_t, 4> words{};
    std::memcpy(words.data(), peer.memory.data(), sizeof words);
    CHECK(words[1] == kRounds * place.processes());
    CHECK(words[3] == 20ULL * place.processes());
  }
  return peer.close(place);
}

// Puts without data, detected by their notices and by the local completion.
int put_nothing(Place& place) {
  Peer peer(64);
  RUN(peer.open(place));
  utofu_mrq_notice notice{};
  if (place.process() == 0) {
    const utofu_vcq_id_t to = place.note(1, 0);
    const utofu_stadd_t at = place.note(1, 1) + 8;
    const unsigned long flags = kBoth | UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE | UTOFU_ONESIDED_FLAG_PADDING;
    int mark = 0;
    CHECK(utofu_put(peer.vcq, to, peer.stadd, at, 0, 1, flags, &mark) == UTOFU_SUCCESS);
    RUN(peer.tcq(&mark));
    RUN(peer.mrq(UTOFU_MRQ_TYPE_LCL_PUT, 1, &notice));
    CHECK(notice.rmt_stadd == at);
    CHECK(utofu_put_piggyback8(peer.vcq, to, 7, at, 0, 2, flags, &mark) == UTOFU_SUCCESS);
    RUN(peer.tcq(&mark));
    RUN(peer.mrq(UTOFU_MRQ_TYPE_LCL_PUT, 2, &notice));
    CHECK(utofu_put_piggyback(peer.vcq, to, nullptr, at, 0, 3, flags, &mark) == UTOFU_SUCCESS);
    RUN(peer.tcq(&mark));
    RUN(peer.mrq(UTOFU_MRQ_TYPE_LCL_PUT, 3, &notice));
    CHECK(utofu_put_stride(peer.vcq, to, peer.stadd, at, 0, 16, 2, 4, flags, &mark) == UTOFU_SUCCESS);
    for (int block = 0; block < 2; ++block) {
      RUN(peer.tcq(&mark));
      RUN(peer.mrq(UTOFU_MRQ_TYPE_LCL_PUT, 4, &notice));
    }
  } else {
    for (const std::uint64_t edata : {1U, 2U, 3U, 4U, 4U}) {
      RUN(peer.mrq(UTOFU_MRQ_TYPE_RMT_PUT, edata, &notice));
      CHECK(edata == 4 || notice.rmt_stadd == peer.stadd + 8);
      CHECK(notice.rmt_value == notice.rmt_stadd);
    }
    for (const std::uint8_t byte : peer.memory) CHECK(byte == 0);
  }
  return peer.close(place);
}

// Process 1 answers each request. A process that has the answer already has the request's
// acknowledgement.
int answers(Place& place) {
  constexpr std::uint64_t kRounds = 300;
  Peer peer(64);
  RUN(peer.open(place));
  utofu_mrq_notice notice{};
  const std::uint32_t other = 1 - place.process();
  for (std::uint64_t i = 0; i < kRounds; ++i) {
    if (place.process() == 0) {
      CHECK(utofu_put_piggyback8(peer.vcq, place.note(1, 0), i + 1, place.note(1, 1), 8, i % 256,
                                 UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE | UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE,
                                 nullptr) == UTOFU_SUCCESS);
      RUN(peer.mrq(UTOFU_MRQ_TYPE_LCL_PUT, i % 256, &notice));
      RUN(peer.mrq(UTOFU_MRQ_TYPE_RMT_PUT, i % 256, &notice));
    } else {
      RUN(peer.mrq(UTOFU_MRQ_TYPE_RMT_PUT, i % 256, &notice));
      CHECK(utofu_put_piggyback8(peer.vcq, place.note(other, 0), i + 1, place.note(other, 1), 8, i % 256,
                                 UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE, nullptr) == UTOFU_SUCCESS);
    }
    void* none = nullptr;
    CHECK(utofu_poll_tcq(peer.vcq, 0, &none) == UTOFU_ERR_NOT_FOUND);
  }
  return peer.close(place);
}

// A program on one core that polls memory without calls. Checks how often it was preempted.
int poll_memory_on_one_core(Place& place) {
  constexpr std::uint64_t kMessages = 30;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<unsigned>(::sched_getcpu()), &one);
  CHECK(::sched_setaffinity(0, sizeof one, &one) == 0);
  Peer peer(64);
  RUN(peer.open(place));
  if (place.process() == 0) {
    const auto* word = reinterpret_cast<const std::uint64_t*>(peer.memory.data());
    rusage before{};
    ::getrusage(RUSAGE_THREAD, &before);
    for (std::uint64_t i = 1; i <= kMessages; ++i) {
      CHECK(utofu_put_piggyback8(peer.vcq, place.note(0, 0), i, peer.stadd, 8, 0, 0, nullptr) == UTOFU_SUCCESS);
      const heddle::test::Deadline deadline;
      while (__atomic_load_n(word, __ATOMIC_ACQUIRE) != i) CHECK(!deadline.over());
    }
    rusage after{};
    ::getrusage(RUSAGE_THREAD, &after);
    const long switches = after.ru_nivcsw - before.ru_nivcsw;
    if (switches >= 15 * static_cast<long>(kMessages)) std::fprintf(stderr, "%ld switches\n", switches);
    CHECK(switches < 15 * static_cast<long>(kMessages));
  }
  return peer.close(place);
}

// The CQs where programs of the vendor's machine expect the VCQs of a node's processes.
int component_cqs(Place& place) {
  const std::uint16_t known[] = {0, 2, 5, 8};
  utofu_vcq_hdl_t vcq = 0;
  CHECK(utofu_create_vcq_with_cmp_id(1, 7, 0, &vcq) == UTOFU_SUCCESS);
  utofu_vcq_id_t id = 0;
  CHECK(utofu_query_vcq_id(vcq, &id) == UTOFU_SUCCESS);
  std::uint8_t coords[6];
  CHECK(utofu_query_my_coords(coords) == UTOFU_SUCCESS);
  utofu_vcq_id_t computed = 0;
  CHECK(utofu_construct_vcq_id(coords, 1, known[place.process() % 4], 7, &computed) == UTOFU_SUCCESS);
  CHECK(id == computed);
  CHECK(place.barrier());
  CHECK(utofu_free_vcq(vcq) == UTOFU_SUCCESS);
  return 0;
}

class Modes : public testing::TestWithParam<const char*> {
 protected:
  void expect_all_well(std::uint32_t processes, int (*body)(Place&)) {
    const std::vector<int> ends = run_world(processes, {{"UTOFU_EMU_MODE", GetParam()}}, body);
    EXPECT_EQ(ends, std::vector<int>(processes, 0));
  }
};

TEST_P(Modes, PutsWithNotices) {
  expect_all_well(2, put_once);
}
TEST_P(Modes, GetsAndPiggybacks) {
  expect_all_well(3, get_and_piggyback);
}
TEST_P(Modes, Atomics) {
  expect_all_well(4, atomics);
}
TEST_P(Modes, PutsOfNothing) {
  expect_all_well(2, put_nothing);
}
TEST_P(Modes, AnswersComeAfterWhatTheyAnswerIsAcknowledged) {
  expect_all_well(2, answers);
}
TEST_P(Modes, APollerOfMemoryKeepsItsCore) {
  expect_all_well(2, poll_memory_on_one_core);
}
TEST(Vendor, ComponentsAreOnTheCqsWherePeersLookForThem) {
  EXPECT_EQ(run_world(8, {{"UTOFU_EMU_PPN", "4"}}, component_cqs), std::vector<int>(8, 0));
}
TEST_P(Modes, ManyProcesses) {
  expect_all_well(kMany, get_and_piggyback);
}

INSTANTIATE_TEST_SUITE_P(, Modes, testing::Values("plain", "strict"),
                         [](const auto& mode) { return std::string(mode.param); });

}  // namespace
}  // namespace tofu_emulator::test::commands_test
