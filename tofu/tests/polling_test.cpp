// Programs that poll memory without a call: the emulator gets a core from them, and tells a job in
// which nothing moves any more.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utofu.h>

#include <atomic>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

#include "base/test_support.hpp"
#include "tofu/tests/world_of.hpp"

namespace {

std::atomic<std::uint64_t> g_yields_of_engines{0};

}  // namespace

// For the whole program: counts yields by the calling thread.
extern "C" int sched_yield() noexcept {  // NOLINT: the C library's name
  char name[16] = {};
  ::pthread_getname_np(::pthread_self(), name, sizeof name);
  if (std::string_view(name) == "utofu-engine") g_yields_of_engines.fetch_add(1, std::memory_order_relaxed);
  return static_cast<int>(::syscall(SYS_sched_yield));
}

namespace tofu_emulator::test::polling_test {
namespace {

#define CHECK(condition)                                                           \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      return 1;                                                                    \
    }                                                                              \
  } while (false)

// A word that the other process writes, and one to write from.
struct Words {
  utofu_vcq_hdl_t vcq = 0;
  utofu_stadd_t stadd = 0;
  alignas(256) std::array<std::atomic<std::uint64_t>, 64> memory{};

  int open(Place& place) {
    CHECK(utofu_create_vcq(0, UTOFU_VCQ_FLAG_EXCLUSIVE, &vcq) == UTOFU_SUCCESS);
    CHECK(utofu_reg_mem(vcq, memory.data(), sizeof memory, 0, &stadd) == UTOFU_SUCCESS);
    utofu_vcq_id_t id = 0;
    CHECK(utofu_query_vcq_id(vcq, &id) == UTOFU_SUCCESS);
    place.note(place.process(), 0) = id;
    place.note(place.process(), 1) = stadd;
    CHECK(place.barrier());
    return 0;
  }
  int close() const {
    CHECK(utofu_dereg_mem(vcq, stadd, 0) == UTOFU_SUCCESS);
    CHECK(utofu_free_vcq(vcq) == UTOFU_SUCCESS);
    return 0;
  }
  int send(const Place& place, std::uint64_t value) {
    const std::uint32_t peer = 1 - place.process();
    memory[32].store(value, std::memory_order_relaxed);
    CHECK(utofu_put(vcq, place.note(peer, 0), stadd + 256, place.note(peer, 1), 8, 0,
                    UTOFU_ONESIDED_FLAG_TCQ_NOTICE | UTOFU_ONESIDED_FLAG_STRONG_ORDER, nullptr) == UTOFU_SUCCESS);
    return 0;
  }
};

// As programs poll: no call of uTofu, no yield, no sleep.
template <class Condition>
bool spin_until(Condition&& condition) {
  const auto end = std::chrono::steady_clock::now() + heddle::test::kFaultTime;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
  }
  return true;
}

int exchange_on_one_core(Place& place) {
  cpu_set_t own;
  CHECK(::sched_getaffinity(0, sizeof own, &own) == 0);
  int first = 0;
  while (CPU_ISSET(first, &own) == 0) ++first;
  CPU_ZERO(&own);
  CPU_SET(first, &own);
  CHECK(::sched_setaffinity(0, sizeof own, &own) == 0);
  Words words;
  CHECK(words.open(place) == 0);
  g_yields_of_engines = 0;
  for (std::uint64_t round = 1; round <= 20; ++round) {
    CHECK(words.send(place, round) == 0);
    CHECK(spin_until([&] { return words.memory[0].load(std::memory_order_acquire) >= round; }));
    void* none = nullptr;
    CHECK(poll_until([&] { return utofu_poll_tcq(words.vcq, 0, &none); }) == UTOFU_SUCCESS);
  }
  CHECK(g_yields_of_engines == 0);
  CHECK(place.barrier());
  return words.close();
}

// A yield costs the time slices of all that poll; a thread that sleeps and is woken comes first.
TEST(Polling, TheEngineSleepsWhereThePollingProgramsHaveTheCore) {
  for (const char* mode : {"plain", "strict"})
    EXPECT_EQ(run_world(2, {{"UTOFU_EMU_MODE", mode}}, exchange_on_one_core), (std::vector<int>{0, 0})) << mode;
}

std::size_t times_said(const std::string& text, const std::string& words) {
  std::size_t count = 0;
  for (std::size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) ++count;
  return count;
}

constexpr const char* kStandsStill = "for 1 s no process of the job has posted, received or read anything";

std::string said_so_far() {
  std::ifstream text("/proc/self/fd/2");
  std::stringstream all;
  all << text.rdbuf();
  return all.str();
}

// Each waits for a word that the other has not sent. One was sent, so the job has moved before.
TEST(Polling, AJobThatStandsStillIsToldByEachProcessThatPolls) {
  const auto body = [](Place& place) {
    Words words;
    CHECK(words.open(place) == 0);
    CHECK(words.send(place, 1) == 0);
    CHECK(spin_until([&] {
      return words.memory[0].load(std::memory_order_acquire) >= 2 || times_said(said_so_far(), kStandsStill) == 2;
    }));
    CHECK(words.memory[0].load(std::memory_order_acquire) == 1);
    CHECK(place.barrier());
    return words.close();
  };
  testing::internal::CaptureStderr();
  const std::vector<int> ends = run_world(2, {{"UTOFU_EMU_WATCHDOG", "1"}}, body);
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(ends, (std::vector<int>{0, 0})) << text;
  EXPECT_EQ(times_said(text, kStandsStill), 2U) << text;
  EXPECT_EQ(times_said(text, "TOQ posted 1 executed 1"), 2U) << text;
}

}  // namespace
}  // namespace tofu_emulator::test::polling_test
