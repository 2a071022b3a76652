// Real processes, killed at any moment: the survivor never hangs, is never corrupted, and nothing
// is left behind.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>

#include "base/random.hpp"
#include "base/test_support.hpp"
#include "transport/shm/layout.hpp"
#include "transport/test/shm_job.hpp"

namespace heddle::transport::shm::shm_death_test {
namespace {

// What one process sends to the other: its card and a region of registered memory.
struct Hello {
  std::int32_t pid = 0;
  std::array<std::byte, sizeof(Agreement)> card{};
  MemoryKey key;
};

void send_hello(int socket, const Hello& hello, int fd) {
  iovec part{const_cast<Hello*>(&hello), sizeof hello};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = sizeof room;
  cmsghdr* control = CMSG_FIRSTHDR(&message);
  control->cmsg_level = SOL_SOCKET;
  control->cmsg_type = SCM_RIGHTS;
  control->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(control), &fd, sizeof fd);
  ASSERT_EQ(sendmsg(socket, &message, 0), static_cast<ssize_t>(sizeof hello));
}

int receive_hello(int socket, Hello* hello) {
  iovec part{hello, sizeof *hello};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = sizeof room;
  int fd = -1;
  if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != static_cast<ssize_t>(sizeof *hello)) return -1;
  std::memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
  return fd;
}

// One side of a job of two processes.
struct Side {
  Side(int socket, std::uint32_t me, const TestRank::Settings& settings, bool adopts)
      : memory(kBytes), rank(cards, me, 2, settings) {
    const std::uint32_t other = 1 - me;
    region = adopts ? *rank.transport->adopt(memory.data(), memory.size())
                    : *rank.transport->register_memory(memory.data(), memory.size());
    Hello mine;
    const bootstrap::Card& card = cards.cards[me];
    mine.pid = card.pid;
    std::copy(card.bytes.begin(), card.bytes.end(), mine.card.begin());
    mine.key = region.key.front();
    send_hello(socket, mine, card.fd);
    Hello theirs;
    bootstrap::Card peer;
    peer.fd = receive_hello(socket, &theirs);
    EXPECT_GE(peer.fd, 0);
    peer.pid = theirs.pid;
    peer.bytes.assign(theirs.card.begin(), theirs.card.end());
    cards.cards[other] = peer;
    remote = *rank.transport->import(other, theirs.key);
  }
  static constexpr std::size_t kBytes = 300000;

  TestCards cards;
  std::vector<std::byte> memory;
  TestRank rank;
  LocalMemory region;
  RemoteMemory remote;
};

template <class Child, class Parent>
void two_processes(const TestRank::Settings& settings, Child child, Parent parent, bool adopt = false) {
  int sockets[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
  const pid_t pid = fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    alarm(60);
    close(sockets[0]);
    Side side(sockets[1], 1, settings, adopt);
    child(side);
    _exit(0);
  }
  close(sockets[1]);
  {
    Side side(sockets[0], 0, settings, adopt);
    parent(side, pid);
    kill(pid, SIGKILL);
    int status = 0;
    waitpid(pid, &status, 0);
  }
  close(sockets[0]);
}

void kill_and_tell(Side& side, pid_t pid) {
  kill(pid, SIGKILL);
  int status = 0;
  waitpid(pid, &status, 0);
  {
    const std::lock_guard lock(side.cards.mutex);
    side.cards.failed[1] = true;
  }
  side.rank.worker->peer_failed(1);
}

constexpr int kRounds = 40;

TEST(ShmDeath, SenderKilledLeavesWholeMessages) {
  for (int round = 0; round < kRounds; ++round) {
    two_processes(
        {},
        [](Side& side) {
          for (std::uint32_t i = 0;; ++i) {
            const auto data = bytes_of(i, i % 3000);
            while (!side.rank.send(0, data, i)) sched_yield();
          }
        },
        [round](Side& side, pid_t pid) {
          std::uint32_t next = 0;
          bool killed = false;
          for (int quiet = 0; quiet < 50;) {
            const auto events = side.rank.poll();
            for (const auto& got : events) {
              ASSERT_EQ(got.completion.immediate, next);
              ASSERT_EQ(got.data, bytes_of(next, next % 3000));
              ++next;
            }
            if (!killed && next > static_cast<std::uint32_t>(round * 37)) {
              kill_and_tell(side, pid);
              killed = true;
            }
            quiet = killed && events.empty() ? quiet + 1 : 0;
          }
          EXPECT_EQ(side.rank.worker->counters().malformed, 0U);
          Command command;
          command.rank = 1;
          command.token = 1;
          ASSERT_EQ(side.rank.worker->post({&command, 1}), 1U);
          EXPECT_EQ(side.rank.poll().at(0).completion.status, HEDDLE_ERR_PEER_FAILED);
        });
  }
}

// The target dies while it serves puts and gets: each transfer completes, or fails with
// PEER_FAILED.
void target_killed(const TestRank::Settings& settings, std::size_t bytes = Side::kBytes) {
  std::size_t well = 0;
  for (int round = 0; round < kRounds; ++round) {
    two_processes(
        settings,
        [](Side& side) {
          for (;;) {
            if (side.rank.poll().empty()) sched_yield();
          }
        },
        [round, bytes, &well](Side& side, pid_t pid) {
          auto data = bytes_of(1, bytes);
          std::size_t started = 0;
          std::size_t finished = 0;
          std::size_t failed = 0;
          bool killed = false;
          const heddle::test::Deadline deadline;
          int last = 400;  // some are started after the target has died, however late that is
          for (int polls = 0; polls < last || finished < started; ++polls) {
            ASSERT_FALSE(deadline.over()) << "hangs";
            if (polls >= 400) sched_yield();
            Command command;
            if (polls < last &&
                side.rank.transfer(polls % 2 == 0 ? Opcode::put : Opcode::get, side.remote, 0, data, &command)) {
              ++started;
              finished += command.done ? 1 : 0;
            }
            for (const auto& got : side.rank.poll()) {
              const base::Status status = got.completion.status;
              ASSERT_TRUE(status == HEDDLE_DONE || (killed && status == HEDDLE_ERR_PEER_FAILED)) << status;
              failed += status == HEDDLE_DONE ? 0 : 1;
              ++finished;
            }
            // In later rounds only after it has served a transfer, however slow the machine is.
            if (!killed && polls >= round * 8 && (round < 4 || finished > 0)) {
              kill_and_tell(side, pid);
              killed = true;
              last = std::max(last, polls + 8);
            }
          }
          EXPECT_GT(failed, 0U);
          EXPECT_EQ(finished, started);
          well += finished - failed;
        });
  }
  EXPECT_GT(well, 0U) << "no process lived long enough to serve anything";
}

TEST(ShmDeath, TargetKilledWhileServingBounce) {
  target_killed({{"HEDDLE_SHM_CMA", "0"}, {"HEDDLE_SHM_BOUNCE", "pool=256K"}});
}

TEST(ShmDeath, TargetKilledUnderTheKernelsCopy) {
  if (!test::kernel_copies()) GTEST_SKIP() << test::kNoKernelCopy;
  target_killed({{"HEDDLE_SHM_BOUNCE", "pool=0"}});
}

TEST(ShmDeath, TargetKilledWhileServingSmall) {
  target_killed({{"HEDDLE_SHM_CMA", "0"}}, 8);
}

// The initiator dies while it puts into our memory: each byte there is old or new, and the target
// goes on.
void initiator_killed(std::size_t bytes) {
  for (int round = 0; round < kRounds; ++round) {
    two_processes(
        {{"HEDDLE_SHM_CMA", "0"}, {"HEDDLE_SHM_BOUNCE", "pool=256K"}},
        [bytes](Side& side) {
          std::vector<std::byte> data(bytes, std::byte{7});
          for (;;) {
            static_cast<void>(side.rank.transfer(Opcode::put, side.remote, 0, data));
            static_cast<void>(side.rank.poll());
          }
        },
        [round](Side& side, pid_t pid) {
          while (side.memory[0] != std::byte{7}) static_cast<void>(side.rank.poll());
          for (int i = 0; i < round * 5; ++i) static_cast<void>(side.rank.poll());
          kill_and_tell(side, pid);
          for (int i = 0; i < 1000; ++i) EXPECT_TRUE(side.rank.poll().empty());
          for (const std::byte b : side.memory) ASSERT_TRUE(b == std::byte{7} || b == std::byte{0});
          EXPECT_EQ(side.rank.worker->counters().malformed, 0U);
          ASSERT_TRUE(side.rank.send(0, bytes_of(1, 8), 3));
          EXPECT_EQ(side.rank.poll().at(0).completion.immediate, 3U);
        });
  }
}

TEST(ShmDeath, InitiatorKilledLeavesTheTargetWorking) {
  initiator_killed(Side::kBytes);
}

TEST(ShmDeath, InitiatorOfSmallKilledLeavesTheTargetWorking) {
  initiator_killed(100);
}

// Anonymous memory only: no process of the job creates a name that outlives it.
// One that writes into adopted memory dies, and its own adopted memory outlives it.
TEST(ShmDeath, AdoptedMemoryOutlivesAPeer) {
  for (int round = 0; round < kRounds; ++round) {
    two_processes(
        {},
        [](Side& side) {
          ASSERT_NE(side.remote.direct, nullptr);
          const std::size_t begin = side.remote.edge_before;
          const std::size_t bytes = side.remote.bytes - begin - side.remote.edge_after;
          for (int value = 1;; value = value % 2 + 1) {
            std::memset(side.memory.data(), value, side.memory.size());
            std::memset(side.remote.direct + begin, value, bytes);
          }
        },
        [round](Side& side, pid_t pid) {
          const std::size_t at = side.remote.edge_before;
          const volatile std::byte* theirs = side.remote.direct + at;
          while (*theirs == std::byte{0} || side.memory[at] == std::byte{0}) sched_yield();
          usleep(static_cast<useconds_t>(round * 50));
          kill_and_tell(side, pid);
          const auto written = [](std::byte byte) { return byte == std::byte{1} || byte == std::byte{2}; };
          const std::size_t end = side.memory.size() - side.remote.edge_after;
          ASSERT_TRUE(std::all_of(side.remote.direct + at, side.remote.direct + end, written));
          // its edges cannot be reached any more
          std::byte byte{};
          if (at != 0) {
            ASSERT_TRUE(side.rank.transfer(Opcode::get, side.remote, 0, {&byte, 1}));
            const auto events = side.rank.poll();
            ASSERT_EQ(events.size(), 1U);
            ASSERT_EQ(events[0].completion.status, HEDDLE_ERR_PEER_FAILED);
          }
          const std::vector<std::byte> before = side.memory;
          side.rank.transport->deregister(side.region);
          ASSERT_EQ(side.memory, before);
        },
        true);
  }
}

TEST(ShmDeath, SegmentHasNoName) {
  TestCards cards;
  TestRank rank(cards, 0, 1);
  std::array<char, 256> target{};
  const std::string link = "/proc/self/fd/" + std::to_string(cards.cards[0].fd);
  ASSERT_GT(readlink(link.c_str(), target.data(), target.size() - 1), 0);
  EXPECT_EQ(std::string(target.data()), "/memfd:heddle (deleted)");
}

}  // namespace
}  // namespace heddle::transport::shm::shm_death_test
