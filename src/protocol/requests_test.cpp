// Requests to the owner of memory, and the answers, over a transport that is played.
#include "protocol/requests.hpp"

#include <array>

#include "engine/test_core.hpp"

namespace heddle::protocol::requests_test {
namespace {

constexpr std::uint64_t kRegion = 77;  // the owner's number

class RequestsTest : public engine::test::PlayedCore {
 protected:
  RequestsTest() {
    completer.add(wire::row_of(wire::Kind::request), requests);
    completer.add(wire::row_of(wire::Kind::reply), requests);
    remote.rank = 1;
    remote.number = kRegion;
    remote.bytes = 4096;
    remote.owner = &objects;
  }
  // The request in the last message.
  wire::RequestHeader asked() {
    wire::RequestHeader head{};
    EXPECT_EQ(wire::kind_of(played.posted.back().immediate), wire::Kind::request);
    std::memcpy(&head, played.posted.back().packet.data(), sizeof head);
    return head;
  }
  void answer(std::uint64_t token, heddle_status status, std::uint64_t value = 0, std::uint64_t offset = 0,
              std::span<const std::byte> data = {}, std::uint32_t rank = 1) {
    const wire::ReplyHeader head{token, value, offset, status, 1};
    std::vector<std::byte> packet(sizeof head + data.size());
    std::memcpy(packet.data(), &head, sizeof head);
    if (!data.empty()) std::memcpy(packet.data() + sizeof head, data.data(), data.size());
    played.arrive(rank, wire::immediate_of(wire::Kind::reply), packet.data(), packet.size());
    static_cast<void>(progress());
  }
  engine::CallersCompletion completion() {
    return {[](void* arg, heddle_status status) { *static_cast<heddle_status*>(arg) = status; }, &told, nullptr,
            HEDDLE_WHEN_REMOTE};
  }
  base::Status get(std::span<std::byte> target) {
    return core.requester.try_block({engine::Kind::get, target.data(), target.size(), &remote, 16}, completion());
  }

  Requests requests{core};
  engine::RemoteRegion remote;
  heddle_status told = HEDDLE_AGAIN;
};

TEST_F(RequestsTest, AGetAsksAndTakesTheAnswerInParts) {
  std::array<std::byte, 32> target{};
  ASSERT_EQ(get(target), HEDDLE_POSTED);
  const wire::RequestHeader head = asked();
  EXPECT_EQ(head.region, kRegion);
  EXPECT_EQ(head.offset, 16U);
  EXPECT_EQ(head.bytes, 32U);
  EXPECT_EQ(head.kind, wire::RequestKind::get);
  std::array<std::byte, 16> half;
  half.fill(std::byte{9});
  answer(head.token, HEDDLE_DONE, 0, 16, half);  // the second half first
  EXPECT_EQ(told, HEDDLE_AGAIN);
  answer(head.token, HEDDLE_DONE, 0, 0, half);
  EXPECT_EQ(told, HEDDLE_DONE);
  for (const std::byte byte : target) EXPECT_EQ(byte, std::byte{9});
}

TEST_F(RequestsTest, AnAtomicTakesTheOldValue) {
  std::uint64_t old = 0;
  ASSERT_EQ(core.requester.try_atomic({HEDDLE_ADD64, &remote, 8, 3, 0, &old}, completion()), HEDDLE_POSTED);
  EXPECT_EQ(asked().kind, wire::RequestKind::atomic);
  answer(asked().token, HEDDLE_DONE, 41);
  EXPECT_EQ(told, HEDDLE_DONE);
  EXPECT_EQ(old, 41U);
}

TEST_F(RequestsTest, AnErrorOfTheOwnerEndsIt) {
  std::array<std::byte, 32> target{};
  ASSERT_EQ(get(target), HEDDLE_POSTED);
  answer(asked().token, HEDDLE_ERR_HANDLE);
  EXPECT_EQ(told, HEDDLE_ERR_HANDLE);
}

TEST_F(RequestsTest, AnswersAreChecked) {
  std::array<std::byte, 32> target{};
  ASSERT_EQ(get(target), HEDDLE_POSTED);
  const std::uint64_t token = asked().token;
  std::array<std::byte, 64> data{};
  answer(token, HEDDLE_DONE, 0, 0, data);                          // more than was asked
  answer(token, HEDDLE_DONE, 0, 33, std::span(data).first(8));     // beyond it
  answer(token + 1, HEDDLE_DONE, 0, 0, std::span(data).first(8));  // of nothing
  answer(token, HEDDLE_DONE, 0, 0, std::span(data).first(32), 0);  // of another rank
  EXPECT_EQ(core.stats.dropped, 4U);
  EXPECT_EQ(told, HEDDLE_AGAIN);
  const std::uint64_t word = 0;
  played.arrive(1, wire::immediate_of(wire::Kind::reply), &word, 8);  // no answer
  static_cast<void>(progress());
  EXPECT_EQ(core.stats.dropped, 5U);
}

TEST_F(RequestsTest, TheOwnersDeathEndsIt) {
  std::array<std::byte, 32> target{};
  ASSERT_EQ(get(target), HEDDLE_POSTED);
  static_cast<void>(inproc.fail(1));
  for (int i = 0; i < 3; ++i) static_cast<void>(progress());
  EXPECT_EQ(told, HEDDLE_ERR_PEER_FAILED);
}

TEST_F(RequestsTest, AnUnknownRegionIsAnsweredWithAnError) {
  wire::RequestHeader head{};
  head.token = 5;
  head.region = 12345;
  head.bytes = 8;
  head.kind = wire::RequestKind::get;
  played.arrive(1, wire::immediate_of(wire::Kind::request), &head, sizeof head);
  EXPECT_EQ(progress(), 1);
  ASSERT_EQ(played.posted.size(), 1U);
  wire::ReplyHeader reply{};
  ASSERT_GE(played.posted[0].packet.size(), sizeof reply);
  std::memcpy(&reply, played.posted[0].packet.data(), sizeof reply);
  EXPECT_EQ(reply.token, 5U);
  EXPECT_LT(reply.status, HEDDLE_DONE);
}

}  // namespace
}  // namespace heddle::protocol::requests_test
