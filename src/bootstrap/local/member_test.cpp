// A rank whose broker takes nothing: it is stopped, or it is gone and nothing has told the rank.
#include "bootstrap/local/local.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstdlib>
#include <vector>

#include "base/test_support.hpp"
#include "bootstrap/process_fd.hpp"

namespace heddle::bootstrap::local::member_test {
namespace {

// A rank whose broker is rank 0.
class Guest final : public Member {
 public:
  using Member::Member;
  ~Guest() override { end(); }
  [[nodiscard]] const char* name() const override { return "guest"; }
  [[noreturn]] void abort(int code, const char*) override { std::_Exit(code); }

 private:
  void lost(const char*, const char*) override { count_all_gone(0); }
};

struct Connected {
  Connected() {
    auto ends = ProcessFd::make_pair();
    here = std::move(ends[0]);
    there = std::move(ends[1]);
  }
  ProcessFd here;
  ProcessFd there;  // nobody reads from it
};

constexpr std::int64_t kTimeoutNs = 1'000'000;

TEST(member, an_exchange_that_is_not_taken_fails) {
  Connected pair;
  Guest guest({pair.here.get(), 1, 3, true, kTimeoutNs}, {}, JobSecret{}, Reader(Direction::to_rank, 3));
  ASSERT_EQ(guest.start(), HEDDLE_DONE);
  ASSERT_EQ(guest.exchange_start(std::vector<std::byte>(kMaxExchangeBytes)), HEDDLE_DONE);
  std::vector<std::vector<std::byte>> all;
  base::Status status = HEDDLE_AGAIN;
  EXPECT_TRUE(test::within_time([&] { return (status = guest.exchange_test(&all)) != HEDDLE_AGAIN; }));
  EXPECT_EQ(status, HEDDLE_ERR_PEER_FAILED);
  EXPECT_TRUE(guest.failed(0) && guest.failed(2));
}

TEST(member, a_card_that_is_not_taken_is_not_published) {
  Connected pair;
  // The frames that are queued already leave no room for a card.
  while (try_send_header(pair.here.get(), {FrameType::fetch, 0, 1}) == HEDDLE_DONE) {
  }
  Guest guest({pair.here.get(), 1, 2, true, kTimeoutNs}, {}, JobSecret{}, Reader(Direction::to_rank, 2));
  ASSERT_EQ(guest.start(), HEDDLE_DONE);
  EXPECT_EQ(guest.publish({-1, 1, std::vector<std::byte>(kMaxCardBytes), nullptr}), HEDDLE_ERR_BOOTSTRAP);
  EXPECT_TRUE(test::within_time([&] { return guest.failed(0); }));
  guest.leave();
}

// Frames that the rank has sent, as its broker sees them.
std::vector<Header> sent(const Connected& pair, Reader& reader) {
  std::vector<Header> all;
  Frame frame;
  while (reader.fill(pair.there.get(), MSG_DONTWAIT) == Reader::Fill::data) {
    while (reader.next(&frame) == HEDDLE_DONE) all.push_back(frame.header);
  }
  return all;
}

TEST(member, a_card_that_is_asked_for_ahead_rings_and_is_fetched_at_once) {
  Connected pair;
  Guest guest({pair.here.get(), 1, 4, true, kTimeoutNs}, {}, JobSecret{}, Reader(Direction::to_rank, 4));
  ASSERT_EQ(guest.start(), HEDDLE_DONE);
  const std::uint32_t before = guest.card_bell()->rings();
  guest.ask_ahead(2);
  guest.ask_ahead(2);
  guest.ask_ahead(4);  // no such rank
  Reader reader(Direction::to_launcher, 4);
  const std::vector<Header> asked = sent(pair, reader);
  ASSERT_EQ(asked.size(), 1U) << "once";
  EXPECT_EQ(asked[0].type, FrameType::fetch);
  EXPECT_EQ(asked[0].rank, 2U);

  const std::vector<std::byte> bytes(3, std::byte{7});
  ASSERT_EQ(send_frame(pair.there.get(), {FrameType::card, 0, 2, 99}, bytes), HEDDLE_DONE);
  ASSERT_TRUE(test::within_time([&] { return guest.card_bell()->rings() != before; }));
  const auto card = guest.fetch(2);
  ASSERT_TRUE(card.ok()) << base::last_message();
  EXPECT_EQ(card->pid, 99);
  EXPECT_EQ(card->bytes, bytes);
  EXPECT_TRUE(sent(pair, reader).empty()) << "nothing more was asked";
}

TEST(member, who_waits_for_the_card_of_a_rank_that_goes_is_told) {
  Connected pair;
  Guest guest({pair.here.get(), 1, 4, true, kTimeoutNs}, {}, JobSecret{}, Reader(Direction::to_rank, 4));
  ASSERT_EQ(guest.start(), HEDDLE_DONE);
  guest.ask_ahead(3);
  const std::uint32_t before = guest.card_bell()->rings();
  ASSERT_EQ(send_frame(pair.there.get(), {FrameType::gone, 0, 3}, {}), HEDDLE_DONE);
  EXPECT_TRUE(test::within_time([&] { return guest.card_bell()->rings() != before; }));
  EXPECT_EQ(guest.fetch_wait(3).status(), HEDDLE_ERR_PEER_FAILED);
}

}  // namespace
}  // namespace heddle::bootstrap::local::member_test
