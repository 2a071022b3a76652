#include "engine/aggregator.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/random.hpp"

namespace heddle::engine::aggregator_test {
namespace {

using transport::Command;
using transport::Completion;
using transport::Event;
using transport::Opcode;
using transport::Token;

// Records which messages a transport has taken, and limits what it will still take.
struct Wire {
  struct Arrived {
    std::uint32_t rank;
    std::uint32_t worker;
    std::uint64_t number;  // first word of the payload
  };
  std::size_t room = 0;  // commands
  bool at_once = true;   // complete in post(); otherwise held until a test completes them
  bool no_memory = false;
  std::vector<Arrived> arrived;
  std::vector<std::size_t> packets;  // how many messages each had
  std::vector<Command> held;
  std::vector<Completion> ends;  // completions for the next poll
  std::vector<std::uint64_t> puts;

  void take(const Command& command) {
    if (wire::kind_of(command.immediate) != wire::Kind::packet) return take_one(command, {}, command.immediate);
    const std::span packet(static_cast<const std::byte*>(command.local), command.bytes);
    ASSERT_TRUE(well_formed_packet(packet));
    PacketReader reader(packet);
    std::size_t count = 0;
    for (; const auto message = reader.next(); ++count) take_one(command, message->bytes, message->immediate);
    packets.push_back(count);
  }
  void take_one(const Command& command, std::span<const std::byte> bytes, std::uint32_t immediate) {
    std::uint64_t number = 0;
    if (bytes.empty()) bytes = {static_cast<const std::byte*>(command.source()), command.bytes};
    ASSERT_GE(bytes.size(), sizeof number);
    std::memcpy(&number, bytes.data(), sizeof number);
    ASSERT_EQ(wire::kind_of(immediate), wire::Kind::active_message);
    arrived.push_back({command.rank, command.worker, number});
  }
  void end_held(base::Status status) {
    for (const Command& command : held) {
      Completion completion;
      completion.token = command.token;
      completion.status = status;
      ends.push_back(completion);
      if (status == HEDDLE_DONE) take(command);
    }
    held.clear();
  }
};

class Inner final : public transport::TransportWorker {
 public:
  explicit Inner(Wire& wire) : wire_(wire) {}
  [[nodiscard]] std::size_t post(std::span<Command> batch) override {
    std::size_t taken = 0;
    for (Command& command : batch) {
      if (wire_.no_memory) throw std::bad_alloc();
      if (wire_.room == 0) break;
      --wire_.room;
      ++taken;
      if (command.opcode != Opcode::message) {
        wire_.puts.push_back(command.token);
        command.done = true;
      } else if (wire_.at_once) {
        wire_.take(command);
        command.done = command.source_free = true;
      } else {
        wire_.held.push_back(command);
      }
    }
    return taken;
  }
  [[nodiscard]] std::size_t poll(std::span<Completion> completions) override {
    const std::size_t count = std::min(completions.size(), wire_.ends.size());
    std::copy_n(wire_.ends.begin(), count, completions.begin());
    wire_.ends.erase(wire_.ends.begin(), wire_.ends.begin() + static_cast<std::ptrdiff_t>(count));
    return count;
  }
  void peer_failed(std::uint32_t /*rank*/) override {}

 private:
  Wire& wire_;
};

class AggregatorTest : public testing::Test {
 protected:
  static constexpr std::uint32_t kMaxMessage = 16384;

  // A message whose payload begins with `number`; its token is number + 1.
  bool send(std::uint64_t number, std::uint32_t rank = 0, std::uint64_t bytes = 8) {
    sources_.push_back(std::make_unique<std::vector<std::uint64_t>>(bytes / 8, 0));
    (*sources_.back())[0] = number;
    Command command;
    command.rank = rank;
    command.immediate = wire::encode_am(1, 0);
    command.set_message(nullptr, 0, sources_.back()->data(), bytes);
    command.token = number + 1;
    if (aggregator_.post({&command, 1}) == 0) {
      EXPECT_FALSE(command.done || command.source_free);
      return false;
    }
    if (command.done) ends_[number] = HEDDLE_DONE;
    return true;
  }
  // Polls once and checks that no completion is reported twice.
  void poll(std::size_t room = 32) {
    std::vector<Completion> completions(room);
    const std::size_t count = aggregator_.poll(completions);
    ASSERT_LE(count, room);
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(completions[i].event, Event::done);
      ASSERT_LT(completions[i].token, Aggregator::kPacketToken);
      ASSERT_TRUE(ends_.emplace(completions[i].token - 1, completions[i].status).second) << "told twice";
    }
  }
  void poll_to_the_end() {
    for (int i = 0; i < 100 && !(aggregator_.idle() && wire_.ends.empty()); ++i) poll();
    EXPECT_TRUE(aggregator_.idle());
  }

  Wire wire_;
  Aggregator aggregator_{std::make_unique<Inner>(wire_), kMaxMessage};
  std::map<std::uint64_t, base::Status> ends_;
  std::vector<std::unique_ptr<std::vector<std::uint64_t>>> sources_;
};

TEST_F(AggregatorTest, PassesEverythingOnWhileThereIsRoom) {
  wire_.room = 10;
  for (std::uint64_t i = 0; i < 9; ++i) EXPECT_TRUE(send(i));
  EXPECT_EQ(wire_.arrived.size(), 9U);
  EXPECT_TRUE(wire_.packets.empty());
  EXPECT_EQ(ends_.size(), 9U);
  EXPECT_EQ(aggregator_.counts().packets, 0U);
}

TEST_F(AggregatorTest, WhatWaitsLeavesAsOnePacketInOrder) {
  for (std::uint64_t i = 0; i < 20; ++i) ASSERT_TRUE(send(i));
  EXPECT_TRUE(wire_.arrived.empty());
  EXPECT_EQ(aggregator_.waiting_messages(), 20U);
  EXPECT_FALSE(aggregator_.idle());
  EXPECT_FALSE(aggregator_.arm()) << "only polls move what waits";
  poll();
  EXPECT_TRUE(ends_.empty()) << "nothing has left";
  wire_.room = 1;
  poll_to_the_end();
  EXPECT_EQ(wire_.packets, std::vector<std::size_t>{20});
  ASSERT_EQ(wire_.arrived.size(), 20U);
  for (std::uint64_t i = 0; i < 20; ++i) EXPECT_EQ(wire_.arrived[i].number, i);
  EXPECT_EQ(ends_.size(), 20U);
  EXPECT_EQ(aggregator_.counts().messages, 20U);
  EXPECT_EQ(aggregator_.counts().packets, 1U);
}

TEST_F(AggregatorTest, OneThatWaitedAloneLeavesAsItWouldHave) {
  ASSERT_TRUE(send(5));
  wire_.room = 1;
  poll_to_the_end();
  EXPECT_TRUE(wire_.packets.empty());
  ASSERT_EQ(wire_.arrived.size(), 1U);
  EXPECT_EQ(wire_.arrived[0].number, 5U);
  EXPECT_EQ(ends_.size(), 1U);
}

TEST_F(AggregatorTest, NothingToTheSameWorkerPassesWhatWaits) {
  ASSERT_TRUE(send(0));
  wire_.room = 1;
  ASSERT_TRUE(send(1)) << "joins the packet though there is room now";
  EXPECT_TRUE(wire_.arrived.empty());
  ASSERT_TRUE(send(2, 1)) << "another rank: at once";
  EXPECT_EQ(wire_.arrived.size(), 1U);
  EXPECT_FALSE(send(3, 0, 4096)) << "too long to join, and the packet cannot leave";
  wire_.room = 1;
  EXPECT_FALSE(send(3, 0, 4096)) << "the packet took the room";
  EXPECT_EQ(wire_.packets, std::vector<std::size_t>{2});
  wire_.room = 1;
  EXPECT_TRUE(send(3, 0, 4096));
  ASSERT_EQ(wire_.arrived.size(), 4U);
  EXPECT_EQ(wire_.arrived[3].number, 3U);
  poll_to_the_end();
  EXPECT_EQ(ends_.size(), 4U);
}

TEST_F(AggregatorTest, WhatDoesNotFitIsRefusedAsTheTransportDoes) {
  EXPECT_FALSE(send(0, 0, Aggregator::kMostPacketBytes / Aggregator::kLeastShare));
  EXPECT_TRUE(aggregator_.idle());
  Command put;
  put.opcode = Opcode::put;
  put.token = 77;
  EXPECT_EQ(aggregator_.post({&put, 1}), 0U);
  ASSERT_TRUE(send(1));
  EXPECT_EQ(aggregator_.post({&put, 1}), 0U);
  wire_.room = 1;
  EXPECT_EQ(aggregator_.post({&put, 1}), 1U) << "a put does not wait for messages";
  EXPECT_EQ(wire_.puts, std::vector<std::uint64_t>{77});
  Command fragment;
  const std::array<std::uint64_t, 8> part{};
  fragment.immediate = wire::immediate_of(wire::Kind::fragment);
  fragment.header = part.data();
  fragment.header_bytes = sizeof part;
  EXPECT_EQ(aggregator_.post({&fragment, 1}), 0U);
}

TEST_F(AggregatorTest, MemoryIsBounded) {
  std::uint64_t accepted = 0;
  while (send(accepted)) ASSERT_LE(++accepted, Aggregator::kMostMessages) << "one packet to a worker waits";
  EXPECT_EQ(accepted, Aggregator::kMostMessages);
  for (std::uint32_t rank = 1; rank < Aggregator::kPackets; ++rank) ASSERT_TRUE(send(1000 + rank, rank));
  EXPECT_FALSE(send(2000, Aggregator::kPackets)) << "all packets are in use";
  wire_.room = Aggregator::kPackets;
  poll_to_the_end();
  EXPECT_EQ(ends_.size(), Aggregator::kMostMessages + Aggregator::kPackets - 1);
  EXPECT_TRUE(send(2000, Aggregator::kPackets));
}

TEST_F(AggregatorTest, EndsWithThePacketsStatusWhenTheTransportSaysSo) {
  wire_.at_once = false;
  for (std::uint64_t i = 0; i < 40; ++i) ASSERT_TRUE(send(i, 3));
  wire_.room = 1;
  poll();
  EXPECT_TRUE(ends_.empty()) << "it has left, but not arrived";
  EXPECT_EQ(aggregator_.waiting_messages(), 0U);
  wire_.end_held(HEDDLE_ERR_PEER_FAILED);
  for (int i = 0; i < 40; ++i) poll(3);
  ASSERT_EQ(ends_.size(), 40U);
  for (const auto& [number, status] : ends_) EXPECT_EQ(status, HEDDLE_ERR_PEER_FAILED);
}

TEST_F(AggregatorTest, MessagesGatherWhileAPacketIsUnderWay) {
  wire_.at_once = false;
  ASSERT_TRUE(send(0));
  ASSERT_TRUE(send(1));
  wire_.room = 100;
  poll();
  ASSERT_EQ(wire_.held.size(), 1U);
  ASSERT_TRUE(send(2)) << "there is room, but the packet is not there yet";
  ASSERT_TRUE(send(3));
  ASSERT_TRUE(send(4, 1)) << "nothing is under way to this one";
  EXPECT_EQ(aggregator_.waiting_messages(), 2U);
  EXPECT_EQ(wire_.held.size(), 2U);
  poll();
  EXPECT_EQ(aggregator_.waiting_messages(), 0U) << "they wait for one poll";
  wire_.end_held(HEDDLE_DONE);
  EXPECT_EQ(wire_.packets, (std::vector<std::size_t>{2, 2}));
  poll_to_the_end();
  ASSERT_TRUE(send(5)) << "no longer busy";
  EXPECT_EQ(aggregator_.waiting_messages(), 0U);
  wire_.end_held(HEDDLE_DONE);
  poll_to_the_end();
  EXPECT_EQ(ends_.size(), 6U);
}

TEST_F(AggregatorTest, ExhaustedMemoryBelowLeavesThePacketWaiting) {
  ASSERT_TRUE(send(1));
  ASSERT_TRUE(send(2));
  wire_.no_memory = true;
  wire_.room = 1;
  poll();
  EXPECT_EQ(aggregator_.waiting_messages(), 2U);
  wire_.no_memory = false;
  poll_to_the_end();
  EXPECT_EQ(ends_.size(), 2U);
}

// Random room, completions, targets and lengths: every accepted message arrives once, in order for
// its target, and completes once.
TEST_F(AggregatorTest, KeepsOrderAndLosesNothingWhateverTheTransportTakes) {
  constexpr std::uint32_t kRanks = 5;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    base::Random random(seed);
    ends_.clear();
    wire_.arrived.clear();
    wire_.at_once = seed % 2 == 0;
    std::map<std::uint64_t, std::uint64_t> sent;  // both maps: by rank, the last number
    std::uint64_t accepted = 0;
    std::vector<std::unique_ptr<std::vector<std::uint64_t>>> sources;
    for (int step = 0; step < 3000; ++step) {
      wire_.room = random.below(4) == 0 ? random.below(6) : 0;
      const auto rank = static_cast<std::uint32_t>(random.below(kRanks));
      const std::uint64_t bytes = random.below(10) == 0 ? 8 * (1 + random.below(1500)) : 8 * (1 + random.below(20));
      sources.push_back(std::make_unique<std::vector<std::uint64_t>>(bytes / 8, 0));
      (*sources.back())[0] = accepted;
      Command command;
      command.rank = rank;
      command.immediate = wire::encode_am(1, 0);
      command.local = sources.back()->data();
      command.bytes = bytes;
      command.token = accepted + 1;
      if (aggregator_.post({&command, 1}) == 1) {
        if (command.done) ends_[accepted] = HEDDLE_DONE;
        // Overwrites a free source: the message must have been copied.
        if (command.source_free) std::fill(sources.back()->begin(), sources.back()->end(), 0xEEEE'EEEE'EEEE'EEEE);
        ++accepted;
      }
      if (random.below(3) == 0) wire_.end_held(HEDDLE_DONE);
      if (random.below(3) == 0) poll(1 + random.below(32));
    }
    for (int i = 0; i < 1000 && ends_.size() < accepted; ++i) {
      wire_.room = 10;
      wire_.end_held(HEDDLE_DONE);
      poll();
    }
    ASSERT_EQ(ends_.size(), accepted) << "seed " << seed;
    ASSERT_EQ(wire_.arrived.size(), accepted) << "seed " << seed;
    EXPECT_GT(accepted, 500U);
    std::map<std::uint32_t, std::uint64_t> last;
    for (const Wire::Arrived& one : wire_.arrived) {
      const auto [it, first] = last.emplace(one.rank, one.number);
      ASSERT_TRUE(first || it->second < one.number) << "seed " << seed << ": " << one.number << " came late";
      it->second = one.number;
    }
    EXPECT_TRUE(aggregator_.idle());
  }
  EXPECT_GT(aggregator_.counts().packets, 100U);
}

}  // namespace
}  // namespace heddle::engine::aggregator_test
