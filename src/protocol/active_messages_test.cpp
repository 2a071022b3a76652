// Active messages over a transport that is played.
#include "protocol/active_messages.hpp"

#include "engine/test_core.hpp"

namespace heddle::protocol::active_messages_test {
namespace {

constexpr std::uint32_t kHandler = 3;

class ActiveMessagesTest : public engine::test::PlayedCore {
 protected:
  ActiveMessagesTest() {
    completer.add(wire::row_of(wire::Kind::active_message), messages);
    completer.add(wire::row_of(wire::Kind::fragment), messages);
    completer.add(wire::row_of(wire::Kind::user), messages);
    job.register_handler(kHandler, {[](const heddle_am_arrival* arrival, void* arg) {
                                      auto* self = static_cast<ActiveMessagesTest*>(arg);
                                      ++self->ran;
                                      self->last_bytes = arrival->payload_bytes;
                                    },
                                    this});
  }
  // A part of a message of `total` bytes, at `offset`.
  void part(std::uint64_t number, std::uint64_t total, std::uint64_t offset, std::uint64_t bytes) {
    const wire::FragmentHeader head{100 + number, number, total, offset, kHandler, 0};
    std::vector<std::byte> packet(sizeof head + bytes);
    std::memcpy(packet.data(), &head, sizeof head);
    played.arrive(1, wire::immediate_of(wire::Kind::fragment), packet.data(), packet.size());
    static_cast<void>(progress());
  }

  ActiveMessages messages{core};
  int ran = 0;
  std::uint64_t last_bytes = 0;
};

TEST_F(ActiveMessagesTest, AHandlerRunsWithHeaderAndPayload) {
  const std::uint64_t words[2] = {1, 2};
  played.arrive(1, wire::encode_am(kHandler, 5), words, sizeof words);
  played.arrive(1, wire::encode_am(kHandler, 0), words, 8);
  EXPECT_EQ(progress(), 2);
  EXPECT_EQ(ran, 2);
  EXPECT_EQ(core.stats.received, 2U);
  EXPECT_EQ(last_bytes, 8U);
}

TEST_F(ActiveMessagesTest, WithoutAHandlerItIsDropped) {
  const std::uint64_t word = 1;
  played.arrive(1, wire::encode_am(kHandler + 1, 0), &word, 8);
  played.arrive(1, wire::encode_am(kHandler, 64), &word, 8);  // a header that is not there
  EXPECT_EQ(progress(), 2);
  EXPECT_EQ(core.stats.dropped, 2U);
  EXPECT_EQ(ran, 0);
}

TEST_F(ActiveMessagesTest, PartsBecomeOneMessageAndAnAnswer) {
  part(1, 1000, 0, 600);
  EXPECT_EQ(ran, 0);
  EXPECT_TRUE(played.posted.empty());
  part(1, 1000, 600, 400);
  EXPECT_EQ(ran, 1);
  EXPECT_EQ(last_bytes, 1000U);
  ASSERT_EQ(played.posted.size(), 1U);
  wire::ReplyHeader reply{};
  std::memcpy(&reply, played.posted[0].packet.data(), sizeof reply);
  EXPECT_EQ(reply.token, 101U);
  EXPECT_EQ(reply.status, HEDDLE_DONE);
}

TEST_F(ActiveMessagesTest, PartsThatDoNotFitAreDropped) {
  part(1, 1000, 0, 600);
  part(1, 1000, 600, 401);
  part(1, 1000, 0, 600);
  EXPECT_EQ(core.stats.dropped, 2U);
  EXPECT_EQ(ran, 0);
}

TEST_F(ActiveMessagesTest, PartsOfTheDeadAreForgotten) {
  part(1, 1000, 0, 600);
  static_cast<void>(inproc.fail(1));
  for (int i = 0; i < 3; ++i) static_cast<void>(progress());
  part(1, 1000, 600, 400);
  EXPECT_EQ(ran, 0);
  EXPECT_EQ(core.stats.dropped, 1U);
}

// A message of class USER is stored and run later. Its credit is granted when half a window is
// handled.
TEST_F(ActiveMessagesTest, UserMessagesAreStoredAndGranted) {
  job.register_handler(HEDDLE_AM_USER + 1,
                       {[](const heddle_am_arrival*, void* arg) { ++*static_cast<int*>(arg); }, &ran});
  const std::vector<std::byte> payload(4096);
  const std::uint64_t window = job.environment().config.number(base::Var::am_user_bytes);
  std::uint64_t sent = 0;
  for (; sent < window / 2; sent += payload.size()) {
    played.arrive(1, wire::encode_user(HEDDLE_AM_USER + 1, 0), payload.data(), payload.size());
    EXPECT_EQ(progress(), 1);
  }
  EXPECT_GT(messages.tasks().stored(), 0U);
  EXPECT_EQ(ran, 0);
  EXPECT_TRUE(played.posted.empty());
  while (Tasks::Task* task = messages.tasks().take()) {
    ActiveMessages::EndedTask ended{};
    if (messages.run_task({}, task, &ended)) messages.ended_task(ended);
  }
  EXPECT_GT(ran, 0);
  ASSERT_EQ(played.posted.size(), 1U) << "one grant";
  EXPECT_EQ(played.posted[0].immediate, wire::kGrant);
}

TEST_F(ActiveMessagesTest, CreditOfAUserMessageThatFailsComesBack) {
  played.done_at_once = false;
  const std::vector<std::byte> payload(20'000);
  engine::LongMessage message;
  message.handler = HEDDLE_AM_USER + 1;
  message.payload = payload.data();
  message.payload_bytes = payload.size();
  const heddle_peer target{1, 0};
  ASSERT_FALSE(messages.is_offered(message.payload_bytes));
  ASSERT_TRUE(messages.take_credit(target, 0, message.payload_bytes));
  EXPECT_GT(messages.credit_used(target), 0U);
  ASSERT_EQ(messages.try_long(target, message, {}), HEDDLE_POSTED);
  static_cast<void>(inproc.fail(1));
  for (int i = 0; i < 3; ++i) static_cast<void>(progress());
  for (const auto& posted : played.posted) played.complete(posted.token, HEDDLE_ERR_PEER_FAILED);
  static_cast<void>(progress());
  EXPECT_EQ(messages.credit_used(target), 0U);
  EXPECT_EQ(core.operations.under_way(), 0U);
}

}  // namespace
}  // namespace heddle::protocol::active_messages_test
