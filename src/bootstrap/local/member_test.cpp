// A rank whose broker takes nothing: it is stopped, or it is gone and nothing has told the rank.
#include "bootstrap/local/member.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstdlib>

#include "base/test_waits.hpp"
#include "bootstrap/process_fd.hpp"

namespace heddle::bootstrap::local {
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
  Guest guest({pair.here.get(), 1, 3, true, kTimeoutNs}, JobSecret{}, Reader(Direction::to_rank, 3));
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
  Guest guest({pair.here.get(), 1, 2, true, kTimeoutNs}, JobSecret{}, Reader(Direction::to_rank, 2));
  ASSERT_EQ(guest.start(), HEDDLE_DONE);
  EXPECT_EQ(guest.publish({-1, 1, std::vector<std::byte>(kMaxCardBytes), nullptr}), HEDDLE_ERR_BOOTSTRAP);
  EXPECT_TRUE(test::within_time([&] { return guest.failed(0); }));
  guest.leave();
}

}  // namespace
}  // namespace heddle::bootstrap::local
