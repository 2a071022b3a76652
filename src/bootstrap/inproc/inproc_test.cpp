#include "bootstrap/inproc/inproc.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <string>
#include <thread>

#include "base/wait.hpp"
#include "bootstrap/common.hpp"

namespace heddle::bootstrap::inproc_test {
namespace {

using Parts = std::vector<std::vector<std::byte>>;

std::unique_ptr<Bootstrap> join(inproc::ThreadJob& job, std::uint32_t rank) {
  auto opened = open({"inproc", &job, rank}, {});
  EXPECT_TRUE(opened.ok()) << base::last_message();
  return opened ? std::move(*opened) : nullptr;
}

std::vector<std::byte> bytes_of(std::uint32_t rank, std::uint32_t round) {
  return std::vector<std::byte>((rank * 7 + round) % 50, static_cast<std::byte>(rank + round));
}

base::Status finish(Bootstrap& bootstrap, Parts* all) {
  base::SystemClock clock;
  base::Waiter waiter(clock, 20'000'000'000);
  base::Status status{};
  while ((status = bootstrap.exchange_test(all)) == HEDDLE_AGAIN) {
    if (!waiter.idle()) return HEDDLE_ERR_TIMEOUT;
  }
  return status;
}

TEST(inproc, exchange_gives_every_rank_all_parts_in_rank_order) {
  constexpr std::uint32_t kSize = 5;
  constexpr std::uint32_t kRounds = 200;
  inproc::ThreadJob job(kSize);
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < kSize; ++rank) {
    threads.emplace_back([&, rank] {
      const auto bootstrap = join(job, rank);
      for (std::uint32_t round = 0; round < kRounds; ++round) {
        ASSERT_EQ(bootstrap->exchange_start(bytes_of(rank, round)), HEDDLE_DONE);
        Parts all;
        ASSERT_EQ(finish(*bootstrap, &all), HEDDLE_DONE) << base::last_message();
        ASSERT_EQ(all.size(), kSize);
        for (std::uint32_t peer = 0; peer < kSize; ++peer) ASSERT_EQ(all[peer], bytes_of(peer, round));
      }
      bootstrap->leave();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(inproc, a_card_carries_its_file_and_bytes) {
  inproc::ThreadJob job(2);
  const auto a = join(job, 0);
  const auto b = join(job, 1);
  base::Fd file(memfd_create("card", MFD_CLOEXEC));
  ASSERT_EQ(write(file.get(), "warp", 4), 4);
  const auto object = std::make_shared<int>(5);
  std::thread reader([&] {
    auto card = b->fetch_wait(0);  // usually before it is published
    ASSERT_TRUE(card.ok()) << base::last_message();
    const base::Fd copy(card->fd);
    EXPECT_NE(copy.get(), file.get());
    EXPECT_EQ(card->pid, 77);
    EXPECT_EQ(card->bytes, std::vector<std::byte>(3, std::byte{9}));
    char text[5] = "";
    EXPECT_EQ(pread(copy.get(), text, 4, 0), 4);
    EXPECT_STREQ(text, "warp");
    EXPECT_NE(fcntl(copy.get(), F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_EQ(card->object, object);
  });
  ASSERT_EQ(a->publish({file.get(), 77, std::vector<std::byte>(3, std::byte{9}), object}), HEDDLE_DONE);
  EXPECT_EQ(a->publish({}), HEDDLE_ERR_STATE);
  reader.join();
  EXPECT_GE(fcntl(file.get(), F_GETFD), 0) << "the publisher's descriptor stays its own";
}

TEST(inproc, asking_for_a_card_that_is_not_there_yet_returns_at_once) {
  inproc::ThreadJob job(3);
  const auto a = join(job, 0);
  const auto b = join(job, 1);
  const auto c = join(job, 2);
  EXPECT_EQ(b->fetch(0).status(), HEDDLE_AGAIN);
  EXPECT_EQ(b->fetch(0).status(), HEDDLE_AGAIN);
  ASSERT_EQ(a->publish({-1, 5, {}}), HEDDLE_DONE);
  const auto card = b->fetch(0);
  ASSERT_TRUE(card.ok());
  EXPECT_EQ(card->pid, 5);
  EXPECT_EQ(b->fetch(2).status(), HEDDLE_AGAIN);
  ASSERT_EQ(job.fail(2), HEDDLE_DONE);
  EXPECT_EQ(b->fetch(2).status(), HEDDLE_ERR_PEER_FAILED);
}

TEST(inproc, a_dead_rank_is_told_to_the_others_and_ends_their_waits) {
  inproc::ThreadJob job(3);
  const auto a = join(job, 0);
  const auto b = join(job, 1);
  const auto c = join(job, 2);
  std::thread waiting([&] { EXPECT_EQ(a->fetch_wait(2).status(), HEDDLE_ERR_PEER_FAILED); });
  ASSERT_EQ(a->exchange_start({}), HEDDLE_DONE);
  Parts all;
  EXPECT_EQ(a->exchange_test(&all), HEDDLE_AGAIN);
  ASSERT_EQ(job.fail(2), HEDDLE_DONE);
  waiting.join();
  EXPECT_EQ(a->failure_epoch().load(), 1U);
  EXPECT_EQ(b->failure_epoch().load(), 1U);
  EXPECT_TRUE(a->failed(2));
  EXPECT_FALSE(a->failed(1));
  EXPECT_EQ(a->exchange_test(&all), HEDDLE_AGAIN) << "the living are still waited for";
  ASSERT_EQ(b->exchange_start({}), HEDDLE_DONE);
  EXPECT_EQ(a->exchange_test(&all), HEDDLE_ERR_PEER_FAILED);
  EXPECT_NE(std::string(base::last_message()).find("rank 2"), std::string::npos);
  EXPECT_EQ(b->exchange_test(&all), HEDDLE_ERR_PEER_FAILED);
  EXPECT_EQ(c->exchange_start({}), HEDDLE_ERR_PEER_FAILED);
  EXPECT_EQ(c->fetch(0).status(), HEDDLE_ERR_PEER_FAILED);
}

TEST(inproc, leaving_is_seen_once_and_what_a_rank_gave_before_still_counts) {
  inproc::ThreadJob job(2);
  auto a = join(job, 0);
  const auto b = join(job, 1);
  ASSERT_EQ(a->exchange_start(bytes_of(0, 3)), HEDDLE_DONE);
  a->leave();
  a.reset();
  EXPECT_EQ(b->failure_epoch().load(), 1U);
  Parts all;
  ASSERT_EQ(b->exchange_start({}), HEDDLE_DONE);
  ASSERT_EQ(b->exchange_test(&all), HEDDLE_DONE);
  EXPECT_EQ(all[0], bytes_of(0, 3));
  ASSERT_EQ(b->exchange_start({}), HEDDLE_DONE);
  EXPECT_EQ(b->exchange_test(&all), HEDDLE_ERR_PEER_FAILED);
}

TEST(inproc, who_joins_late_knows_who_is_gone) {
  inproc::ThreadJob job(3);
  ASSERT_EQ(job.fail(1), HEDDLE_DONE);
  const auto late = join(job, 0);
  EXPECT_TRUE(late->failed(1));
  EXPECT_EQ(late->failure_epoch().load(), 1U);
}

TEST(inproc, ranks_have_one_board) {
  inproc::ThreadJob job(2);
  inproc::ThreadJob another(2);
  auto a = join(job, 0);
  const auto b = join(job, 1);
  const auto board = a->board();
  ASSERT_EQ(board.size(), kBoardBytes);
  EXPECT_EQ(b->board().data(), board.data());
  EXPECT_NE(join(another, 0)->board().data(), board.data());
  board[9] = std::byte{9};
  EXPECT_EQ(join(another, 1)->board()[9], std::byte{});
  ASSERT_EQ(job.fail(0), HEDDLE_DONE);
  a.reset();
  EXPECT_EQ(b->board()[9], std::byte{9}) << "a death changes nothing there";
  inproc::ThreadJob alone(1);
  EXPECT_TRUE(join(alone, 0)->board().empty());
}

TEST(inproc, misuse_is_rejected) {
  inproc::ThreadJob job(2);
  const auto a = join(job, 0);
  EXPECT_EQ(open({"inproc", &job, 0}, {}).status(), HEDDLE_ERR_BOOTSTRAP);
  EXPECT_FALSE(job.failed(0)) << "the refused attempt must not end the rank";
  EXPECT_EQ(open({"inproc", &job, 2}, {}).status(), HEDDLE_ERR_RANK);
  EXPECT_EQ(open({"inproc", nullptr, 0}, {}).status(), HEDDLE_ERR_ARGUMENT);
  EXPECT_EQ(open({"nowhere", nullptr, 0}, {}).status(), HEDDLE_ERR_ARGUMENT);
  EXPECT_EQ(job.fail(2), HEDDLE_ERR_RANK);
  Parts all;
  EXPECT_EQ(a->exchange_test(&all), HEDDLE_ERR_STATE);
  ASSERT_EQ(a->exchange_start({}), HEDDLE_DONE);
  EXPECT_EQ(a->exchange_start({}), HEDDLE_ERR_STATE);
  EXPECT_EQ(a->exchange_start(std::vector<std::byte>(kMaxExchangeBytes + 1)), HEDDLE_ERR_SIZE);
  EXPECT_EQ(a->publish({-1, 0, std::vector<std::byte>(kMaxCardBytes + 1), nullptr}), HEDDLE_ERR_SIZE);
  EXPECT_EQ(a->publish({123456, 0, {}, nullptr}), HEDDLE_ERR_SYSTEM);
  EXPECT_EQ(a->fetch(2).status(), HEDDLE_ERR_RANK);
  inproc::ThreadJob none(0);
  EXPECT_EQ(open({"inproc", &none, 0}, {}).status(), HEDDLE_ERR_ARGUMENT);
  inproc::ThreadJob many(kMaxRanks + 1);
  EXPECT_EQ(open({"inproc", &many, 0}, {}).status(), HEDDLE_ERR_ARGUMENT);
}

TEST(single, is_a_job_of_one) {
  auto alone = open({"single", nullptr, 0}, {});
  ASSERT_TRUE(alone.ok()) << base::last_message();
  auto other = open({"single", nullptr, 0}, {});
  EXPECT_EQ((*alone)->size(), 1U);
  EXPECT_TRUE((*alone)->board().empty());
  EXPECT_NE((*alone)->secret(), (*other)->secret());
  ASSERT_EQ((*alone)->publish({-1, 5, {}, nullptr}), HEDDLE_DONE);
  auto card = (*alone)->fetch(0);
  ASSERT_TRUE(card.ok());
  EXPECT_EQ(card->pid, 5);
  EXPECT_EQ(card->fd, -1);
  ASSERT_EQ((*alone)->exchange_start(bytes_of(1, 1)), HEDDLE_DONE);
  Parts all;
  ASSERT_EQ((*alone)->exchange_test(&all), HEDDLE_DONE);
  EXPECT_EQ(all, Parts{bytes_of(1, 1)});
  (*alone)->leave();
}

TEST(single, abort_says_who_and_exits_with_the_code) {
  auto alone = open({"single", nullptr, 0}, {});
  ASSERT_TRUE(alone.ok());
  EXPECT_EXIT((*alone)->abort(7, "no warp"), testing::ExitedWithCode(7), "rank 0 aborts the job: no warp");
  EXPECT_EXIT((*alone)->abort(0, ""), testing::ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace heddle::bootstrap::inproc_test
