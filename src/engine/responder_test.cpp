#include "engine/core.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace heddle::engine::responder_test {
namespace {

// Takes as many messages as it is allowed, and keeps their reply headers.
class Wire final : public transport::TransportWorker {
 public:
  [[nodiscard]] std::size_t post(std::span<transport::Command> batch) override {
    if (room == 0) return 0;
    --room;
    wire::ReplyHeader head{};
    std::memcpy(&head, batch[0].header, sizeof head);
    heads.push_back(head);
    batch[0].done = true;
    return 1;
  }
  [[nodiscard]] std::size_t poll(std::span<transport::Completion> /*completions*/) override { return 0; }
  void peer_failed(std::uint32_t /*rank*/) override {}

  std::size_t room = 0;
  std::vector<wire::ReplyHeader> heads;
};

wire::DecodedRequest get_of(std::uint64_t region, std::uint64_t bytes) {
  return {{11, region, 0, bytes, 0, 0, 0, wire::RequestKind::get, 0}, {}};
}

TEST(Responder, AnswersThatWaitForAReleasedRegionBecomeErrors) {
  std::vector<std::byte> memory(1000);
  memory::RegionTable regions;
  const std::uint64_t region = regions.add(memory.data(), memory.size());
  Wire wire;
  Responder responder(wire, regions, sizeof(wire::ReplyHeader) + 100);
  wire.room = 3;
  responder.serve({1, 0}, get_of(region, 1000));
  ASSERT_EQ(wire.heads.size(), 3U) << "three portions have left";
  EXPECT_FALSE(responder.idle());
  regions.remove(region);
  memory = {};  // the remaining portions may no longer be read
  wire.room = 100;
  EXPECT_EQ(responder.flush(), 1U);
  ASSERT_EQ(wire.heads.size(), 4U);
  EXPECT_EQ(wire.heads.back().status, HEDDLE_ERR_HANDLE);
  EXPECT_EQ(wire.heads.back().last, 1U);
  EXPECT_TRUE(responder.idle());
}

TEST(Responder, AnswersWaitInOrderAndAreForgottenWithTheirPeer) {
  memory::RegionTable regions;
  Wire wire;
  Responder responder(wire, regions, 4096);
  for (std::uint32_t i = 0; i < 200; ++i) responder.answer({i % 2, 0}, i, HEDDLE_DONE);
  responder.forget(1);
  wire.room = 60;
  EXPECT_EQ(responder.flush(), 60U);
  wire.room = 1000;
  EXPECT_EQ(responder.flush(), 40U);
  ASSERT_EQ(wire.heads.size(), 100U);
  for (std::uint64_t i = 0; i < 100; ++i) EXPECT_EQ(wire.heads[i].token, 2 * i);
  EXPECT_EQ(responder.lost(), 0U);
}

}  // namespace
}  // namespace heddle::engine::responder_test
