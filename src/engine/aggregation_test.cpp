#include "engine/aggregator.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/random.hpp"

namespace heddle::engine::aggregation_test {
namespace {

struct Sent {
  std::uint32_t immediate;
  std::string header;
  std::string payload;
};

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::vector<std::uint64_t> packet_of(const std::vector<Sent>& messages) {
  std::vector<std::uint64_t> words;
  for (const Sent& message : messages) {
    const std::size_t at = words.size();
    const std::uint64_t bytes = packed_bytes(static_cast<std::uint32_t>(message.header.size()), message.payload.size());
    EXPECT_EQ(bytes % 8, 0U);
    words.resize(at + bytes / 8, ~std::uint64_t{0});
    pack(reinterpret_cast<std::byte*>(words.data() + at), message.immediate, bytes_of(message.header),
         bytes_of(message.payload));
  }
  return words;
}

std::string text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(Aggregation, MessagesComeOutAsTheyWouldHaveArrived) {
  const std::vector<Sent> sent = {{wire::encode_am(3, 5), "12345", "payload"},
                                  {wire::encode_am(7, 0), "", ""},
                                  {wire::encode_am(1, 8), "12345678", std::string(801, 'x')},
                                  {wire::encode_user(HEDDLE_AM_USER + 2, 0), "", "12345678"}};
  const std::vector<std::uint64_t> words = packet_of(sent);
  const auto packet = std::as_bytes(std::span(words));
  ASSERT_TRUE(well_formed_packet(packet));
  PacketReader reader(packet);
  for (const Sent& message : sent) {
    const auto arrived = reader.next();
    ASSERT_TRUE(arrived);
    EXPECT_EQ(arrived->immediate, message.immediate);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arrived->bytes.data()) % 8, 0U);
    const auto whole = wire::decode_am(arrived->immediate, arrived->bytes);
    ASSERT_TRUE(whole);
    EXPECT_EQ(text({whole->header, whole->header_bytes}), message.header);
    EXPECT_EQ(text({whole->payload, whole->payload_bytes}), message.payload);
  }
  EXPECT_FALSE(reader.next());
  EXPECT_TRUE(reader.ended());
}

TEST(Aggregation, WhatIsNoPacketIsRefused) {
  const std::vector<std::uint64_t> good =
      packet_of({{wire::encode_am(1, 0), "", "12345678"}, {wire::encode_am(2, 0), "", "abc"}});
  const auto refused = [](std::vector<std::uint64_t> words, std::size_t cut) {
    return !well_formed_packet(std::as_bytes(std::span(words)).first(words.size() * 8 - cut));
  };
  EXPECT_TRUE(refused({}, 0)) << "nothing in it";
  for (std::size_t cut = 1; cut < 16; ++cut) EXPECT_TRUE(refused(good, cut)) << cut << " bytes are missing";
  EXPECT_FALSE(refused(good, 0));
  EXPECT_FALSE(refused(good, 16)) << "the first message alone";

  const auto with_record = [&](PackedRecord record) {
    std::vector<std::uint64_t> words = good;
    std::memcpy(words.data(), &record, sizeof record);
    return words;
  };
  EXPECT_TRUE(refused(with_record({wire::encode_am(1, 0), 0xFFFFFFFF}), 0)) << "longer than the packet";
  EXPECT_TRUE(refused(with_record({wire::encode_am(1, 0), 0xFFFFFFF8}), 0)) << "longer than the packet";
  EXPECT_TRUE(refused(with_record({wire::immediate_of(wire::Kind::packet), 8}), 0)) << "a packet in a packet";
  EXPECT_TRUE(refused(with_record({wire::immediate_of(wire::Kind::fragment), 8}), 0)) << "a part of a message";
  EXPECT_TRUE(refused(with_record({0, 8}), 0)) << "no kind";
  EXPECT_FALSE(refused(with_record({wire::immediate_of(wire::Kind::reply), 8}), 0));
}

// Random bytes and damaged packets: the reader stays inside the packet and comes to an end.
TEST(Aggregation, HostilePacketsAreNeverReadBeyondTheirEnd) {
  base::Random random(11);
  std::uint64_t read = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<Sent> sent(1 + random.below(4));
    for (Sent& message : sent) {
      message.immediate = wire::encode_am(1, 0);
      message.payload = std::string(random.below(40), 'p');
    }
    std::vector<std::uint64_t> words = packet_of(sent);
    for (std::uint64_t damage = random.below(4); damage > 0; --damage) {
      reinterpret_cast<unsigned char*>(words.data())[random.below(words.size() * 8)] ^=
          static_cast<unsigned char>(1 + random.below(255));
    }
    // A block of exactly this size, so that the address sanitizer sees a read of one byte too many.
    const std::vector<std::byte> packet(
        reinterpret_cast<const std::byte*>(words.data()),
        reinterpret_cast<const std::byte*>(words.data()) + random.below(words.size() * 8 + 1));
    PacketReader reader(packet);
    while (const auto message = reader.next()) {
      ASSERT_GE(message->bytes.data(), packet.data());
      ASSERT_LE(message->bytes.data() + message->bytes.size(), packet.data() + packet.size());
      for (const std::byte byte : message->bytes) read += std::to_integer<unsigned>(byte);
    }
    static_cast<void>(well_formed_packet(packet));
  }
  EXPECT_GT(read, 0U);
}

}  // namespace
}  // namespace heddle::engine::aggregation_test
