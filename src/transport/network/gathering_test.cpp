// Short messages that leave together: when a packet begins, when it leaves, and what is in it.
#include "transport/network/streams.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace heddle::transport::network::gathering_test {
namespace {

struct Packet {
  Packet* next = nullptr;
  std::uint32_t bytes = 0;
  std::byte data[kMostBundle] = {};
};

struct PeerState : StreamPeer {
  bool by_value = false;
  Packet* gathered = nullptr;
  void update_by_value() { by_value = ready() && gathered == nullptr; }
};

// A library that takes everything.
struct Library {
  explicit Library(std::uint32_t packets) : pool(packets) {}
  Packet* begin_bundle(PeerState& peer) {
    if (pool.front() == nullptr) return nullptr;
    Packet* packet = pool.take();
    std::memcpy(packet->data, static_cast<const Head*>(&peer.next), sizeof(Head));
    packet->bytes = sizeof(Head);
    return packet;
  }
  // Notes the values of the messages in it.
  void send(PeerState& peer, Packet* packet) {
    EXPECT_EQ(peer.gathered, nullptr);
    ++calls;
    EXPECT_EQ(read_head(packet->data).position, next_position);
    const std::byte* at = packet->data + sizeof(Head);
    const std::byte* const end = packet->data + packet->bytes;
    for (Part part; at != end; at += part_bytes(part.bytes)) {
      ASSERT_TRUE(read_part(at, static_cast<std::uint32_t>(end - at), &part));
      std::uint64_t value = 0;
      ASSERT_EQ(part.bytes, sizeof value);
      std::memcpy(&value, at + sizeof part, sizeof value);
      sent.push_back(value);
      next_position += cost_of(part.bytes);
    }
    pool.give_back(packet);
  }
  Pool<Packet> pool;
  std::uint32_t next_position = 0;
  int calls = 0;
  std::vector<std::uint64_t> sent;
};

class GatheringTest : public testing::Test {
 protected:
  GatheringTest() {
    for (PeerState* peer : {&peer_, &other_}) {
      peer->stage = Peer::Stage::ready;
      peer->update_by_value();
    }
    gathering_.make_room_for(2);
  }
  static Command message(std::uint64_t value) {
    Command command;
    command.opcode = Opcode::message;
    command.inlined = true;
    command.bytes = sizeof value;
    std::memcpy(command.packet, &value, sizeof value);
    return command;
  }
  bool add(PeerState& peer, std::uint64_t value) {
    Command command = message(value);
    const bool added = gathering_.add(peer, command);
    EXPECT_EQ(command.source_free, added);
    return added;
  }

  Library library_{2};
  Completions completions_{256};
  Undelivered undelivered_{completions_, 256};
  Gathering<PeerState, Library> gathering_{library_, undelivered_};
  PeerState peer_;
  PeerState other_;
};

TEST_F(GatheringTest, OnlyShortMessagesToABusyPeer) {
  EXPECT_FALSE(gathering_.is_for(peer_, 8)) << "nothing is under way";
  peer_.next.position = StreamPeer::kBusyBytes + 1;
  EXPECT_TRUE(gathering_.is_for(peer_, 8));
  EXPECT_TRUE(gathering_.is_for(peer_, kMostPart));
  EXPECT_FALSE(gathering_.is_for(peer_, kMostPart + 1));
  peer_.delivered = 1;
  EXPECT_FALSE(gathering_.is_for(peer_, 8)) << "some of it has arrived";
  peer_.delivered = 0;
  peer_.stage = Peer::Stage::broken;
  EXPECT_FALSE(gathering_.is_for(peer_, 8));
}

TEST_F(GatheringTest, AFullBundleLeavesAndTheOrderIsKept) {
  constexpr std::uint64_t kMessages = 200;
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    ASSERT_TRUE(add(peer_, i));
    EXPECT_FALSE(peer_.by_value) << "a message by value would overtake them";
  }
  EXPECT_EQ(library_.calls, static_cast<int>(kMessages / ((kMostBundle - sizeof(Head)) / part_bytes(8))));
  EXPECT_LT(library_.sent.size(), kMessages);
  gathering_.leave_all();
  EXPECT_TRUE(gathering_.empty());
  EXPECT_TRUE(peer_.by_value);
  ASSERT_EQ(library_.sent.size(), kMessages);
  for (std::uint64_t i = 0; i < kMessages; ++i) EXPECT_EQ(library_.sent[i], i);
  EXPECT_EQ(undelivered_.count(), kMessages);
  EXPECT_EQ(peer_.next.position, kMessages * cost_of(8));
}

TEST_F(GatheringTest, EachPeerHasItsOwn) {
  ASSERT_TRUE(add(peer_, 1));
  ASSERT_TRUE(add(other_, 2));
  PeerState third;
  third.stage = Peer::Stage::ready;
  EXPECT_FALSE(add(third, 3)) << "there are two packets";
  EXPECT_EQ(third.next.position, 0U);
  gathering_.leave(peer_);
  gathering_.leave(peer_);  // nothing more
  EXPECT_EQ(library_.calls, 1);
  EXPECT_FALSE(gathering_.empty());
  Packet* packet = gathering_.drop(other_);
  ASSERT_NE(packet, nullptr);
  library_.pool.give_back(packet);
  EXPECT_TRUE(gathering_.empty());
  EXPECT_EQ(gathering_.drop(other_), nullptr);
  EXPECT_EQ(library_.sent, std::vector<std::uint64_t>{1});
}

}  // namespace
}  // namespace heddle::transport::network::gathering_test
