// Jobs of a launcher that only passes on one value: how they meet, what their exchanges give, and
// what deaths mean.
#include "bootstrap/hosted/hosted.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <iterator>

#include "base/fd.hpp"
#include "bootstrap/hosted/connect.hpp"
#include "bootstrap/hosted/test_job.hpp"

namespace heddle::bootstrap::hosted::hosted_test {
namespace {

std::vector<std::byte> bytes_of(std::uint32_t count, std::uint32_t value) {
  return std::vector<std::byte>(count, static_cast<std::byte>(value));
}

base::Fd file_with(std::uint32_t number) {
  base::Fd file(::memfd_create("card", MFD_CLOEXEC));
  EXPECT_EQ(::write(file.get(), &number, sizeof number), static_cast<ssize_t>(sizeof number));
  return file;
}

void expect_card(Bootstrap& bootstrap, std::uint32_t peer, bool with_file) {
  const auto card = fetch(bootstrap, peer);
  ASSERT_TRUE(card.ok()) << base::last_message();
  const base::Fd file(card->fd);
  EXPECT_EQ(file.valid(), with_file) << peer;
  std::uint32_t read = ~0U;
  if (with_file) {
    EXPECT_EQ(::pread(file.get(), &read, sizeof read, 0), static_cast<ssize_t>(sizeof read));
    EXPECT_EQ(read, peer);
  }
  EXPECT_EQ(card->bytes, bytes_of(peer, 7));
  EXPECT_EQ(card->pid, ::getpid());
  EXPECT_TRUE(test::within_time([&] {
    const auto bare = bootstrap.fetch_bytes(peer);
    if (bare.status() == HEDDLE_AGAIN) return false;
    EXPECT_TRUE(bare.ok() && bare->fd == -1 && bare->bytes == card->bytes) << peer;
    return true;
  }));
}

void expect_exchanges(Bootstrap& bootstrap, std::uint32_t rounds, std::uint32_t bytes) {
  for (std::uint32_t round = 0; round < rounds; ++round) {
    Parts all;
    ASSERT_EQ(exchange(bootstrap, bytes_of(bootstrap.rank() * bytes, round), &all), HEDDLE_DONE);
    ASSERT_EQ(all.size(), bootstrap.size());
    for (std::uint32_t peer = 0; peer < bootstrap.size(); ++peer) EXPECT_EQ(all[peer], bytes_of(peer * bytes, round));
  }
}

// Each rank marks a line of its own; the ranks are of one machine.
void expect_board(Bootstrap& bootstrap) {
  const auto board = bootstrap.board();
  ASSERT_EQ(board.size(), kBoardBytes);
  const auto line = [&](std::uint32_t rank) {
    return std::atomic_ref(reinterpret_cast<std::uint32_t&>(board[std::size_t{rank} * 128]));
  };
  EXPECT_EQ(line(bootstrap.rank()).exchange(bootstrap.rank() + 1), 0U);
  EXPECT_EQ(barrier(bootstrap), HEDDLE_DONE);
  for (std::uint32_t peer = 0; peer < bootstrap.size(); ++peer) EXPECT_EQ(line(peer).load(), peer + 1);
}

TEST(hosted, ranks_meet) {
  Space space(5);
  run(5, [&](std::uint32_t rank) {
    auto joined = join(space, rank);
    ASSERT_TRUE(joined.ok()) << base::last_message();
    Bootstrap& bootstrap = **joined;
    EXPECT_STREQ(bootstrap.name(), "fake");
    EXPECT_EQ(bootstrap.rank(), rank);
    EXPECT_EQ(bootstrap.size(), 5U);
    EXPECT_EQ(bootstrap.host(4), 0U);
    EXPECT_EQ(bootstrap.place(rank).rank, rank);
    EXPECT_EQ(bootstrap.place(rank).size, 5U);
    EXPECT_EQ(bootstrap.place(rank).hosts, 1U);
    const auto contact = decode_contact(space.value());
    ASSERT_TRUE(contact.ok());
    EXPECT_EQ(bootstrap.secret(), contact->secret);
    // rank 0 does not listen to the network for a job of one machine
    EXPECT_TRUE(contact->addresses.empty());
    const base::Fd file = file_with(rank);
    EXPECT_EQ(bootstrap.publish({file.get(), ::getpid(), bytes_of(rank, 7), nullptr}), HEDDLE_DONE);
    for (std::uint32_t peer = 0; peer < 5; ++peer) expect_card(bootstrap, peer, true);
    expect_exchanges(bootstrap, 20, 100);
    expect_board(bootstrap);
    bootstrap.leave();
  });
  EXPECT_EQ(space.finished_ranks(), 5U);
}

TEST(hosted, a_job_of_one) {
  Space space(1);
  auto joined = join(space, 0);
  ASSERT_TRUE(joined.ok()) << base::last_message();
  EXPECT_EQ(barrier(**joined), HEDDLE_DONE);
  EXPECT_TRUE((*joined)->board().empty());
  (*joined)->leave();
}

// Odd ranks are told of another machine, so they connect by TCP, which passes no descriptors; since
// they are on this machine, they can open the descriptors.
TEST(hosted, ranks_of_other_machines_come_by_tcp) {
  Space space(4);
  run(4, [&](std::uint32_t rank) {
    const bool apart = rank % 2 == 1;
    auto joined = join(space, rank, false, [&](const std::string& value) {
      auto contact = decode_contact(value);
      EXPECT_TRUE(contact.ok());
      EXPECT_FALSE(contact->addresses.empty());
      if (!apart) return value;
      contact->machine[0] ^= 1;
      contact->addresses = {{"127.0.0.1", contact->addresses.front().port}};
      return encode(*contact);
    });
    ASSERT_TRUE(joined.ok()) << base::last_message();
    Bootstrap& bootstrap = **joined;
    const base::Fd file = file_with(rank);
    EXPECT_EQ(bootstrap.publish({file.get(), ::getpid(), bytes_of(rank, 7), nullptr}), HEDDLE_DONE);
    for (std::uint32_t peer = 0; peer < 4; ++peer) expect_card(bootstrap, peer, true);
    expect_exchanges(bootstrap, 10, 20'000);
    expect_board(bootstrap);
    bootstrap.leave();
  });
}

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

TEST(hosted, no_descriptor_is_left_when_all_have_left) {
  const std::size_t before = open_descriptors();
  Space space(3);
  run(3, [&](std::uint32_t rank) {
    auto joined = join(space, rank);
    ASSERT_TRUE(joined.ok()) << base::last_message();
    EXPECT_FALSE((*joined)->board().empty());
    EXPECT_EQ(barrier(**joined), HEDDLE_DONE);
    (*joined)->leave();
  });
  EXPECT_EQ(open_descriptors(), before);
}

TEST(hosted, a_descriptor_is_opened_by_its_name) {
  const base::Fd file = file_with(77);
  const auto name = name_descriptor(file.get());
  ASSERT_TRUE(name.ok()) << base::last_message();
  const auto again = open_descriptor(*name, 3);
  ASSERT_TRUE(again.ok()) << base::last_message();
  std::uint32_t read = 0;
  EXPECT_EQ(::pread(again->get(), &read, sizeof read, 0), static_cast<ssize_t>(sizeof read));
  EXPECT_EQ(read, 77U);
  const base::Fd other = file_with(78);
  DescriptorName lie = *name;
  lie.number = other.get();
  EXPECT_EQ(open_descriptor(lie, 3).status(), HEDDLE_ERR_PEER_FAILED) << "it is another file";
  lie.number = 1 << 20;
  EXPECT_EQ(open_descriptor(lie, 3).status(), HEDDLE_ERR_PEER_FAILED) << "there is none";
  EXPECT_EQ(name_descriptor(1 << 20).status(), HEDDLE_ERR_SYSTEM);
  const auto none = name_descriptor(-1);
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->number, -1);
}

TEST(hosted, a_rank_that_dies_is_told_to_the_others) {
  Space space(4);
  run(4, [&](std::uint32_t rank) {
    auto joined = join(space, rank);
    ASSERT_TRUE(joined.ok()) << base::last_message();
    Bootstrap& bootstrap = **joined;
    EXPECT_EQ(barrier(bootstrap), HEDDLE_DONE);
    bootstrap.board()[rank] = std::byte{5};
    if (rank == 2) return;  // without leaving: as if it had died
    await_failure(bootstrap, 2);
    EXPECT_EQ(bootstrap.board()[2], std::byte{5});
    EXPECT_GE(bootstrap.failure_epoch().load(), 1U);
    EXPECT_EQ(fetch(bootstrap, 2).status(), HEDDLE_ERR_PEER_FAILED);
    EXPECT_EQ(barrier(bootstrap), HEDDLE_ERR_PEER_FAILED);
    EXPECT_FALSE(bootstrap.failed(rank));
    bootstrap.leave();
  });
  EXPECT_EQ(space.finished_ranks(), 3U);  // the dead rank has not called finish()
}

// Every waiting call returns, and every rank knows that no other is left.
TEST(hosted, without_rank_0_nobody_is_left) {
  Space space(4);
  run(4, [&](std::uint32_t rank) {
    auto joined = join(space, rank);
    ASSERT_TRUE(joined.ok()) << base::last_message();
    Bootstrap& bootstrap = **joined;
    EXPECT_EQ(barrier(bootstrap), HEDDLE_DONE);  // rank 0 gets the result last, so all have it
    if (rank == 0) return;
    Parts none;
    EXPECT_EQ(exchange(bootstrap, {}, &none), HEDDLE_ERR_PEER_FAILED);
    for (std::uint32_t peer = 0; peer < 4; ++peer) {
      if (peer == rank) continue;
      await_failure(bootstrap, peer);
      EXPECT_EQ(fetch(bootstrap, peer).status(), HEDDLE_ERR_PEER_FAILED);
    }
    EXPECT_FALSE(bootstrap.failed(rank));
    EXPECT_EQ(exchange(bootstrap, {}, &none), HEDDLE_ERR_PEER_FAILED);
    bootstrap.leave();
  });
}

TEST(hosted, rank_0_waits_for_those_who_have_not_left_yet) {
  Space space(2);
  std::atomic<bool> other_left{false};
  std::atomic<bool> first_goes{false};
  run(2, [&](std::uint32_t rank) {
    auto joined = join(space, rank);
    ASSERT_TRUE(joined.ok()) << base::last_message();
    EXPECT_EQ(barrier(**joined), HEDDLE_DONE);
    if (rank == 0) {
      (*joined)->leave();
      first_goes.store(true);
      joined->reset();
      EXPECT_TRUE(other_left.load());
      return;
    }
    EXPECT_TRUE(test::within_time([&] { return first_goes.load(); }, [] {}));
    await_failure(**joined, 0);  // it has left, and its broker still works
    EXPECT_EQ(barrier(**joined), HEDDLE_ERR_PEER_FAILED);
    other_left.store(true);
    (*joined)->leave();
  });
}

TEST(hosted, a_wrong_contact_is_told) {
  struct Bad {
    std::function<std::string(const std::string&)> alter;
    base::Status status;
    const char* text;
  };
  const auto changed = [](auto&& change) {
    return [change](const std::string& value) {
      auto contact = decode_contact(value);
      change(*contact);
      return encode(*contact);
    };
  };
  const std::vector<Bad> all = {
      {[](const std::string&) { return std::string("nonsense"); }, HEDDLE_ERR_BOOTSTRAP, "not one of Heddle's"},
      {changed([](Contact& contact) { contact.secret[0] ^= 1; }), HEDDLE_ERR_BOOTSTRAP, "secret"},
      {changed([](Contact& contact) { contact.socket[0] ^= 1; }), HEDDLE_ERR_BOOTSTRAP, "cannot be reached"},
      {changed([](Contact& contact) { contact.machine[0] ^= 1; }), HEDDLE_ERR_BOOTSTRAP, "another machine"},
  };
  for (const Bad& bad : all) {
    Space space(2);
    // Without its peer rank 0 would wait for ever. A real launcher ends rank 0 when the other
    // process ends without having finished. In this test another process comes in place of the
    // rejected one.
    run(2, [&](std::uint32_t rank) {
      if (rank == 1) {
        EXPECT_EQ(join(space, 1, true, bad.alter).status(), bad.status);
        EXPECT_NE(std::strstr(base::last_message(), bad.text), nullptr) << base::last_message();
      }
      auto joined = join(space, rank);
      ASSERT_TRUE(joined.ok()) << base::last_message();
      EXPECT_EQ(barrier(**joined), HEDDLE_DONE);
      (*joined)->leave();
    });
  }
}

TEST(service, makes_all_calls_on_one_thread_in_order) {
  auto service = Service::start();
  ASSERT_TRUE(service.ok());
  std::mutex mutex;
  std::vector<std::thread::id> threads;
  std::vector<int> last(4, -1);
  run(4, [&](std::uint32_t caller) {
    for (int i = 0; i < 100; ++i) {
      const base::Status status = (*service)->call([&, i] {
        const std::lock_guard lock(mutex);
        threads.push_back(std::this_thread::get_id());
        EXPECT_EQ(last[caller], i - 1);
        last[caller] = i;
        return i % 2 == 0 ? HEDDLE_DONE : base::fail(HEDDLE_ERR_STATE, "call %d of %u", i, caller);
      });
      EXPECT_EQ(status, i % 2 == 0 ? HEDDLE_DONE : HEDDLE_ERR_STATE);
      if (i % 2 == 0) continue;
      EXPECT_EQ(base::last_message(), "call " + std::to_string(i) + " of " + std::to_string(caller));
    }
  });
  EXPECT_EQ(threads.size(), 400U);
  for (const std::thread::id& thread : threads) EXPECT_EQ(thread, threads.front());
}

// The thread exists in the parent only: a child must neither ask it for something nor wait for it.
TEST(service, a_forked_child_waits_for_nothing) {
  auto service = Service::start();
  ASSERT_TRUE(service.ok());
  pid_t thread = 0;
  ASSERT_EQ((*service)->call([&] {
    thread = test::this_thread();
    return HEDDLE_DONE;
  }),
            HEDDLE_DONE);
  ASSERT_TRUE(test::await_asleep(thread));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const base::Status status = (*service)->call([] { return HEDDLE_DONE; });
    service->reset();
    ::_exit(status == HEDDLE_ERR_STATE ? 0 : 1);
  }
  int status = 0;
  const bool ended = test::within_time([&] { return ::waitpid(child, &status, WNOHANG) == child; });
  if (!ended) {
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
  }
  EXPECT_TRUE(ended && WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ((*service)->call([] { return HEDDLE_DONE; }), HEDDLE_DONE);
}

}  // namespace
}  // namespace heddle::bootstrap::hosted::hosted_test
