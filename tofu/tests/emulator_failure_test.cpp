// Failures of processes: they die, end the job, or have settings that do not match.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <utofu.h>
#include <utofu_emulator.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "tofu/emulator/machine.hpp"
#include "tofu/emulator/settings.hpp"
#include "tofu/emulator/world.hpp"
#include "tofu/tests/world_of.hpp"

namespace tofu_emulator::test::emulator_failure_test {
namespace {

#define CHECK(condition)                                                           \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      return 1;                                                                    \
    }                                                                              \
  } while (false)

constexpr std::size_t kBytes = 1U << 20U;

struct Peer {
  utofu_vcq_hdl_t vcq = 0;
  utofu_stadd_t stadd = 0;
  std::vector<std::uint8_t> memory = std::vector<std::uint8_t>(kBytes);

  int open(Place& place) {
    CHECK(utofu_create_vcq(0, UTOFU_VCQ_FLAG_EXCLUSIVE, &vcq) == UTOFU_SUCCESS);
    CHECK(utofu_reg_mem(vcq, memory.data(), memory.size(), 0, &stadd) == UTOFU_SUCCESS);
    utofu_vcq_id_t id = 0;
    CHECK(utofu_query_vcq_id(vcq, &id) == UTOFU_SUCCESS);
    place.note(place.process(), 0) = id;
    place.note(place.process(), 1) = stadd;
    CHECK(place.barrier());
    return 0;
  }
};

enum class Kind : std::uint8_t { put, get, armw };

int post(const Peer& peer, const Place& place, Kind kind) {
  const utofu_vcq_id_t to = place.note(1, 0);
  const utofu_stadd_t there = place.note(1, 1);
  switch (kind) {
    case Kind::put:
      return utofu_put(peer.vcq, to, peer.stadd, there, kBytes, 1, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr);
    case Kind::get:
      return utofu_get(peer.vcq, to, peer.stadd, there, kBytes, 1, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr);
    case Kind::armw:
      return utofu_armw8(peer.vcq, to, UTOFU_ARMW_OP_ADD, 1, there, 1, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr);
  }
  return UTOFU_ERR_INVALID_ARG;
}

// Process 0 posts until process 1, which is killed meanwhile, no longer answers; it never waits for
// ever.
int until_the_peer_is_gone(Place& place, Kind kind) {
  Peer peer;
  CHECK(peer.open(place) == 0);
  if (place.process() == 1) {
    CHECK(heddle::test::within_time([&] { return place.note(0, 2) >= 3; }));
    ::raise(SIGKILL);
  }
  utofu_mrq_notice notice{};
  int status = UTOFU_SUCCESS;
  while (status == UTOFU_SUCCESS) {
    void* none = nullptr;
    CHECK(post(peer, place, kind) == UTOFU_SUCCESS);
    status = poll_until([&] { return utofu_poll_mrq(peer.vcq, 0, &notice); });
    (void)utofu_poll_tcq(peer.vcq, 0, &none);
    place.note(0, 2).fetch_add(1);
  }
  CHECK(status == UTOFU_ERR_MRQ_PEER);
  CHECK(notice.vcq_id == place.note(1, 0));
  // The next command fails too.
  CHECK(post(peer, place, kind) == UTOFU_SUCCESS);
  CHECK(poll_until([&] { return utofu_poll_mrq(peer.vcq, 0, &notice); }) == UTOFU_ERR_MRQ_PEER);
  CHECK(utofu_dereg_mem(peer.vcq, peer.stadd, 0) == UTOFU_SUCCESS);
  CHECK(utofu_free_vcq(peer.vcq) == UTOFU_SUCCESS);
  return 0;
}

class Death : public testing::TestWithParam<const char*> {
 protected:
  void expect_noticed(int (*body)(Place&)) {
    const std::vector<int> ends = run_world(2, {{"UTOFU_EMU_MODE", GetParam()}}, body);
    EXPECT_EQ(ends[0], 0);
    EXPECT_TRUE(WIFSIGNALED(ends[1]) && WTERMSIG(ends[1]) == SIGKILL);
  }
};
TEST_P(Death, OfTheTargetOfPuts) {
  expect_noticed([](Place& place) { return until_the_peer_is_gone(place, Kind::put); });
}
TEST_P(Death, OfTheTargetOfGets) {
  expect_noticed([](Place& place) { return until_the_peer_is_gone(place, Kind::get); });
}
TEST_P(Death, OfTheTargetOfAtomics) {
  expect_noticed([](Place& place) { return until_the_peer_is_gone(place, Kind::armw); });
}
INSTANTIATE_TEST_SUITE_P(, Death, testing::Values("plain", "strict"),
                         [](const auto& mode) { return std::string(mode.param); });

// Whether this process's stderr, a file, contains `words`.
bool said(const char* words) {
  std::ifstream text("/proc/self/fd/2");
  std::stringstream all;
  all << text.rdbuf();
  return all.str().find(words) != std::string::npos;
}

// Nobody communicates with the dead process: a process that waits for its word in memory learns of
// the death too.
TEST(Deaths, AreToldByOneOfThoseThatAreLeft) {
  struct End {
    void (*die)();
    const char* words;
  };
  static End end;
  for (const End& each : {End{[] { ::raise(SIGKILL); }, "has been killed by signal 9"},
                          End{[] { ::_exit(7); }, "has ended with status 7 without leaving the emulated machine"}}) {
    end = each;
    const auto body = [](Place& place) {
      Peer peer;
      CHECK(peer.open(place) == 0);
      if (place.process() == 2) end.die();
      CHECK(heddle::test::within_time([] { return said(end.words); }));
      CHECK(place.process() != 2);
      CHECK(utofu_dereg_mem(peer.vcq, peer.stadd, 0) == UTOFU_SUCCESS);
      CHECK(utofu_free_vcq(peer.vcq) == UTOFU_SUCCESS);
      return 0;
    };
    testing::internal::CaptureStderr();
    const std::vector<int> ends = run_world(3, {}, body);
    const std::string text = testing::internal::GetCapturedStderr();
    EXPECT_EQ(ends[0], 0) << text;
    EXPECT_EQ(ends[1], 0) << text;
    EXPECT_NE(ends[2], 0);
    const std::size_t first = text.find(each.words);
    ASSERT_NE(first, std::string::npos) << text;
    EXPECT_EQ(text.find(each.words, first + 1), std::string::npos) << "told twice: " << text;
    EXPECT_NE(text.find("process 2 (pid "), std::string::npos) << text;
  }
}

// A VCQ freed by its owner.
TEST(Peers, ThatFreeTheirVcqAreGone) {
  const auto body = [](Place& place) {
    Peer peer;
    CHECK(peer.open(place) == 0);
    if (place.process() == 1) {
      CHECK(utofu_dereg_mem(peer.vcq, peer.stadd, 0) == UTOFU_SUCCESS);
      CHECK(utofu_free_vcq(peer.vcq) == UTOFU_SUCCESS);
    }
    CHECK(place.barrier());
    if (place.process() == 0) {
      for (const Kind kind : {Kind::put, Kind::get, Kind::armw}) {
        utofu_mrq_notice notice{};
        CHECK(post(peer, place, kind) == UTOFU_SUCCESS);
        CHECK(poll_until([&] { return utofu_poll_mrq(peer.vcq, 0, &notice); }) == UTOFU_ERR_MRQ_PEER);
      }
    }
    CHECK(place.barrier());
    return 0;
  };
  EXPECT_EQ(run_world(2, {}, body), (std::vector<int>{0, 0}));
}

// Process 1 without the emulator's engine: it answers the get of process 0 with a packet that fits
// the length that it names itself, and not what was asked for.
int answer_beyond(Place& place, std::uint32_t asked) {
  EmulatorSettings settings;
  std::string problem;
  CHECK(read_settings(&settings, &problem));
  const Machine machine(settings);
  const std::unique_ptr<World> world = World::join(settings, machine, &problem);
  CHECK(world != nullptr);
  const std::uint32_t self = place.process();
  VcqPlace own;
  own.node = machine.node_of(self);
  own.cq = machine.share(self, own.tni).first;
  CHECK(world->claim_cq(own.node, own.tni, own.cq));
  world->entry(self).engine_runs.store(1, std::memory_order_release);
  place.note(self, 0) = machine.vcq_id(own);
  CHECK(place.barrier());

  auto requests = world->consumer(0, self, Channel::requests);
  heddle::queue::Record record;
  CHECK(heddle::test::within_time([&] { return requests.take(&record) == heddle::queue::Take::record; }));
  CHECK(static_cast<PacketKind>(record.type) == PacketKind::get);
  PacketHead head;
  std::memcpy(&head, record.data, sizeof head);
  CHECK(head.length == asked);
  head.length = 2 * asked;
  head.offset = asked;
  head.bytes = static_cast<std::uint16_t>(asked);
  auto responses = world->producer(self, 0, Channel::responses);
  std::byte* const packet = responses.begin(static_cast<std::uint8_t>(PacketKind::got), 0, sizeof head + asked);
  CHECK(packet != nullptr);
  std::memcpy(packet, &head, sizeof head);
  std::memset(packet + sizeof head, 0xAB, asked);
  responses.publish();
  ProcessEntry& target = world->entry(0);
  target.filled[static_cast<std::size_t>(Channel::responses)][0].fetch_or(std::uint64_t{1} << self,
                                                                          std::memory_order_seq_cst);
  Doorbell<>(&target.doorbell).ring();
  CHECK(place.barrier());
  world->entry(self).engine_runs.store(0, std::memory_order_release);
  return 0;
}

// A packet of data is checked against the get that it answers, too.
TEST(Peers, ThatAnswerMoreThanAGetAskedForWriteNothing) {
  const auto body = [](Place& place) {
    constexpr std::uint32_t kAsked = 256;
    if (place.process() == 1) return answer_beyond(place, kAsked);
    Peer peer;
    CHECK(peer.open(place) == 0);
    CHECK(utofu_get(peer.vcq, place.note(1, 0), peer.stadd, 64, kAsked, 1, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE,
                    nullptr) == UTOFU_SUCCESS);
    utofu_mrq_notice notice{};
    CHECK(poll_until([&] { return utofu_poll_mrq(peer.vcq, 0, &notice); }) == UTOFU_ERR_MRQ_LCL_MEMORY);
    CHECK(std::ranges::all_of(peer.memory, [](std::uint8_t byte) { return byte == 0; }));
    CHECK(place.barrier());
    CHECK(utofu_dereg_mem(peer.vcq, peer.stadd, 0) == UTOFU_SUCCESS);
    CHECK(utofu_free_vcq(peer.vcq) == UTOFU_SUCCESS);
    return 0;
  };
  EXPECT_EQ(run_world(2, {}, body), (std::vector<int>{0, 0}));
}

// Posted commands are executed although the process exits without waiting for them.
TEST(Peers, ThatExitHaveSentWhatTheyPosted) {
  const auto body = [](Place& place) {
    static Peer peer;  // its memory is read until the process has ended
    CHECK(peer.open(place) == 0);
    if (place.process() == 0) {
      for (int i = 0; i < 3; ++i)
        CHECK(utofu_put(peer.vcq, place.note(1, 0), peer.stadd, place.note(1, 1), kBytes, 5,
                        UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE, nullptr) == UTOFU_SUCCESS);
      return 0;
    }
    for (int i = 0; i < 3; ++i) {
      utofu_mrq_notice notice{};
      CHECK(poll_until([&] { return utofu_poll_mrq(peer.vcq, 0, &notice); }) == UTOFU_SUCCESS);
    }
    return 0;
  };
  EXPECT_EQ(run_world(2, {}, body), (std::vector<int>{0, 0}));
}

TEST(Jobs, AreEndedForAllByAnOverflow) {
  const auto body = [](Place& place) {
    Peer peer;
    CHECK(peer.open(place) == 0);
    if (place.process() == 1) {
      for (int i = 0; i < 9; ++i)
        CHECK(utofu_put_piggyback8(peer.vcq, place.note(1, 0), 1, peer.stadd, 8, 0,
                                   UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE, nullptr) == UTOFU_SUCCESS);
    }
    CHECK(heddle::test::within_time([] { return false; }));  // both processes are ended earlier
    return 0;
  };
  const std::vector<int> ends = run_world(2, {{"UTOFU_EMU_MRQ", "8"}}, body);
  EXPECT_TRUE(WIFEXITED(ends[0]) && WEXITSTATUS(ends[0]) == EXIT_FAILURE) << ends[0];
  EXPECT_TRUE(WIFSIGNALED(ends[1]) && WTERMSIG(ends[1]) == SIGABRT) << ends[1];
}

int fails_to_join(Place& /*place*/) {
  utofu_vcq_hdl_t vcq = 0;
  return utofu_create_vcq(0, 0, &vcq) == UTOFU_ERR_FATAL ? 0 : 1;
}

TEST(Worlds, OfDifferentSettingsAreNone) {
  const auto body = [](Place& place) {
    if (place.process() == 0) CHECK(utofu_emu_processes() == 2);
    CHECK(place.barrier());
    if (place.process() == 0) return 0;
    ::setenv("UTOFU_EMU_SEED", "99", 1);
    return fails_to_join(place);
  };
  EXPECT_EQ(run_world(2, {}, body), (std::vector<int>{0, 0}));
}

TEST(Worlds, HaveEachProcessOnce) {
  const auto body = [](Place& place) {
    if (place.process() == 0) CHECK(utofu_emu_process() == 0);
    CHECK(place.barrier());
    if (place.process() == 0) {
      CHECK(place.barrier());
      return 0;
    }
    ::setenv("UTOFU_EMU_RANK", "0", 1);
    const int failed = fails_to_join(place);
    CHECK(place.barrier());
    return failed;
  };
  EXPECT_EQ(run_world(2, {}, body), (std::vector<int>{0, 0}));
}

TEST(Worlds, WithANameAreRemovedByTheLast) {
  const std::string path = testing::TempDir() + "utofu_world_" + std::to_string(::getpid());
  const auto body = [&path](Place& place) {
    ::unsetenv("UTOFU_EMU_FD");
    ::setenv("UTOFU_EMU_WORLD", path.c_str(), 1);
    Peer peer;
    CHECK(peer.open(place) == 0);
    struct stat status{};
    CHECK(::stat(path.c_str(), &status) == 0 && (status.st_mode & 0777) == 0600);
    if (place.process() == 0) {
      utofu_mrq_notice notice{};
      CHECK(post(peer, place, Kind::put) == UTOFU_SUCCESS);
      CHECK(poll_until([&] { return utofu_poll_mrq(peer.vcq, 0, &notice); }) == UTOFU_SUCCESS);
    }
    CHECK(place.barrier());
    return 0;
  };
  for (int job = 0; job < 2; ++job) {
    EXPECT_EQ(run_world(3, {}, body), (std::vector<int>{0, 0, 0}));
    EXPECT_FALSE(std::filesystem::exists(path));
  }
}

TEST(Worlds, InFilesThatOthersCanReadAreRefused) {
  const std::string path = testing::TempDir() + "utofu_open_world_" + std::to_string(::getpid());
  std::fclose(std::fopen(path.c_str(), "w"));
  ::chmod(path.c_str(), 0644);
  const auto body = [&path](Place& place) {
    ::unsetenv("UTOFU_EMU_FD");
    ::setenv("UTOFU_EMU_WORLD", path.c_str(), 1);
    return fails_to_join(place);
  };
  EXPECT_EQ(run_world(1, {}, body), std::vector<int>{0});
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace tofu_emulator::test::emulator_failure_test
