#include "wire/packet.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "base/random.hpp"
#include "wire/messages.hpp"

namespace heddle::wire::packet_test {
namespace {

template <class Header>
std::vector<std::byte> packet_of(const Header& header, std::size_t payload) {
  std::vector<std::byte> packet(sizeof header + payload, std::byte{0x5A});
  std::memcpy(packet.data(), &header, sizeof header);
  return packet;
}

TEST(Packet, ActiveMessageCarriesHandlerAndHeaderInTheImmediate) {
  const std::vector<std::byte> packet(24);
  const auto message = decode_am(encode_am(1023, 13), packet);
  ASSERT_TRUE(message);
  EXPECT_EQ(message->handler, 1023U);
  EXPECT_EQ(message->header_bytes, 13U);
  EXPECT_EQ(message->payload, packet.data() + 16);
  EXPECT_EQ(message->payload_bytes, 8U);
}

TEST(Packet, ActiveMessageWithAHeaderBeyondItsPacketIsRejected) {
  const std::vector<std::byte> packet(16);
  EXPECT_FALSE(decode_am(encode_am(0, 17), packet));
  EXPECT_FALSE(decode_am(encode_am(0, 65), std::vector<std::byte>(128)));
  EXPECT_TRUE(decode_am(encode_am(0, 16), packet));
}

TEST(Packet, FragmentBeyondItsMessageIsRejected) {
  FragmentHeader head{1, 2, 100, 90, 5, 0};
  EXPECT_TRUE(decode_fragment(packet_of(head, 10)));
  EXPECT_FALSE(decode_fragment(packet_of(head, 11)));
  head.offset = ~std::uint64_t{0} - 3;
  EXPECT_FALSE(decode_fragment(packet_of(head, 10)));
  head = {1, 2, 100, 0, 5, 12};
  const auto first = decode_fragment(packet_of(head, 16 + 100));
  ASSERT_TRUE(first);
  EXPECT_EQ(first->header.size(), 12U);
  EXPECT_EQ(first->payload.size(), 100U);
  head.handler = kHandlerNumbers;
  EXPECT_FALSE(decode_fragment(packet_of(head, 16)));
}

TEST(Packet, RequestsMustBeConsistent) {
  RequestHeader head{};
  head.kind = RequestKind::put;
  head.bytes = 8;
  EXPECT_TRUE(decode_request(packet_of(head, 8)));
  EXPECT_FALSE(decode_request(packet_of(head, 7)));
  head.kind = RequestKind::atomic;
  head.atomic_op = HEDDLE_ADD64;
  EXPECT_TRUE(decode_request(packet_of(head, 0)));
  head.bytes = 4;
  EXPECT_FALSE(decode_request(packet_of(head, 0)));
  head.atomic_op = 6;
  EXPECT_FALSE(decode_request(packet_of(head, 0)));
  head.kind = static_cast<RequestKind>(9);
  EXPECT_FALSE(decode_request(packet_of(head, 0)));
}

TEST(Packet, TaggedMessagesCarryTagAndDataOrAnOffer) {
  std::vector<std::byte> packet(8 + 5);
  const std::uint64_t tag = 0x1122334455667788;
  std::memcpy(packet.data(), &tag, 8);
  const auto message = decode_tagged(encode_tagged(kSequenceMask + 3, false), packet);
  ASSERT_TRUE(message);
  EXPECT_EQ(message->tag, tag);
  EXPECT_EQ(message->bytes, 5U);
  EXPECT_EQ(message->payload.data(), packet.data() + 8);
  EXPECT_EQ(message->sequence, 2U) << "numbers wrap";
  EXPECT_FALSE(message->offer);
  EXPECT_FALSE(decode_tagged(encode_tagged(0, false), std::span(packet).first(7)));
  Offer offer{tag, 1 << 20, 7, 9, {}};
  const auto offered = decode_tagged(encode_tagged(1, true), packet_of(offer, 0));
  ASSERT_TRUE(offered);
  EXPECT_TRUE(offered->offer);
  EXPECT_EQ(offered->bytes, 1U << 20);
  EXPECT_EQ(offered->tag, tag);
  EXPECT_FALSE(decode_tagged(encode_tagged(1, true), packet_of(offer, 1)));
  offer.bytes = 0;
  const auto empty = decode_tagged(encode_tagged(1, true), packet_of(offer, 0));
  ASSERT_TRUE(empty);
  EXPECT_TRUE(empty->offer);
  EXPECT_EQ(empty->bytes, 0U);
  EXPECT_EQ(kind_of(encode_tagged(kSequenceMask, true)), Kind::tagged);
  const std::uint32_t word = encode_word(Word::credit);
  EXPECT_EQ(kind_of(word), Kind::tagged);
  EXPECT_TRUE(is_word(word));
  EXPECT_EQ(word_of(word), Word::credit);
  EXPECT_NE(word_of(word | kOfferBit), Word::credit);
  EXPECT_FALSE(is_word(encode_tagged(~0U, true)));
  EXPECT_FALSE(decode_tagged(word, packet));
  EXPECT_FALSE(decode_tagged(word | kOfferBit, packet_of(Offer{1, 2, 3, 4, {}}, 0)));
  EXPECT_FALSE(decode_credit(packet));
  EXPECT_EQ(decode_credit(std::span(packet).first(8)), tag);
}

TEST(Packet, OffersOfLargeMessagesCarryTheirHeader) {
  AmOfferHeader head{7, std::uint64_t{1} << 20, 9, HEDDLE_AM_USER + 3, 5, {}};
  const auto packet = packet_of(head, 5);
  const auto offer = decode_am_offer(packet);
  ASSERT_TRUE(offer);
  EXPECT_EQ(offer->header.data(), packet.data() + sizeof head);
  EXPECT_EQ(offer->header.size(), 5U);
  EXPECT_EQ(offer->head.bytes, std::uint64_t{1} << 20);
  EXPECT_EQ(kind_of(kAmOffer), Kind::fragment);
  EXPECT_NE(kAmOffer, immediate_of(Kind::fragment));
  for (const std::size_t behind : {0U, 4U, 6U}) EXPECT_FALSE(decode_am_offer(packet_of(head, behind))) << behind;
  EXPECT_FALSE(decode_am_offer(std::span(packet).first(sizeof head - 1)));
  AmOfferHeader wrong = head;
  wrong.header_bytes = HEDDLE_AM_HEADER_BYTES + 1;
  EXPECT_FALSE(decode_am_offer(packet_of(wrong, HEDDLE_AM_HEADER_BYTES + 1)));
  wrong = head;
  wrong.handler = kHandlerNumbers;
  EXPECT_FALSE(decode_am_offer(packet_of(wrong, 5)));
  wrong = head;
  wrong.bytes = 0;
  EXPECT_FALSE(decode_am_offer(packet_of(wrong, 5)));
}

TEST(Packet, NoticesOfPartitionedOperationsAreWhole) {
  PartitionedHeader head{PartitionedKind::offer, 0, 0, 3, 7, 0, 800, 8, 0};
  EXPECT_TRUE(decode_partitioned(packet_of(head, 0)));
  EXPECT_FALSE(decode_partitioned(packet_of(head, 1)));
  const auto packet = packet_of(head, 0);
  EXPECT_FALSE(decode_partitioned(std::span(packet).first(sizeof head - 1)));
  const auto with = [&](auto&& change) {
    PartitionedHeader changed = head;
    change(changed);
    return decode_partitioned(packet_of(changed, 0)).has_value();
  };
  EXPECT_FALSE(with([](PartitionedHeader& h) { h.partitions = 0; }));
  EXPECT_FALSE(with([](PartitionedHeader& h) { h.partitions = HEDDLE_MOST_PARTITIONS + 1; }));
  EXPECT_FALSE(with([](PartitionedHeader& h) { h.bytes = 801; })) << "parts have one length";
  EXPECT_FALSE(with([](PartitionedHeader& h) { h.to = 1; }));
  EXPECT_FALSE(with([](PartitionedHeader& h) { h.from = 0; }));
  EXPECT_FALSE(with([](PartitionedHeader& h) { h.zero = 1; }));
  EXPECT_FALSE(with([](PartitionedHeader& h) { h.kind = static_cast<PartitionedKind>(0); }));
  EXPECT_FALSE(with([](PartitionedHeader& h) { h.kind = static_cast<PartitionedKind>(6); }));
  head.to = 5;
  for (const PartitionedKind kind : {PartitionedKind::begun, PartitionedKind::freed}) {
    EXPECT_TRUE(with([kind](PartitionedHeader& h) { h.kind = kind; }));
  }
  EXPECT_FALSE(with([](PartitionedHeader& h) { h.kind = PartitionedKind::rejected; })) << "refused, and all is well";
  head.status = HEDDLE_ERR_ARGUMENT;
  EXPECT_TRUE(with([](PartitionedHeader& h) { h.kind = PartitionedKind::rejected; }));
  head.kind = PartitionedKind::accept;
  EXPECT_TRUE(decode_partitioned(packet_of(head, sizeof(PartitionedPlaces))));
  EXPECT_FALSE(decode_partitioned(packet_of(head, sizeof(PartitionedPlaces) - 1)));
  EXPECT_EQ(kind_of(kExtension), Kind::fragment);
  EXPECT_NE(kExtension, kAmOffer);
  for (const std::uint32_t others : {kAmOffer, immediate_of(Kind::fragment)})
    EXPECT_EQ(row_of(others), row_of(Kind::fragment));
  EXPECT_EQ(row_of(extension(kExtensions - 1)), kRows - 1);
}

TEST(Packet, TheChargeOfATaggedMessageCoversWhatIsKeptOfIt) {
  for (std::uint64_t bytes = 0; bytes < 20'000; ++bytes) {
    ASSERT_GE(tagged_charge(bytes), kTaggedNode + bytes);
    ASSERT_LE(tagged_charge(bytes), std::max(kTaggedLeast, kTaggedNode + bytes + 63));
  }
}

TEST(Packet, RandomBytesNeverLeadOutside) {
  base::Random random(7);
  for (int round = 0; round < 200000; ++round) {
    std::vector<std::byte> packet(random.below(160));
    for (auto& byte : packet) byte = static_cast<std::byte>(random.below(8) != 0 ? random.below(16) : random.next());
    const auto inside = [&](std::span<const std::byte> part) {
      return part.empty() ||
             (part.data() >= packet.data() && part.data() + part.size() <= packet.data() + packet.size());
    };
    if (const auto fragment = decode_fragment(packet)) {
      ASSERT_TRUE(inside(fragment->header) && inside(fragment->payload));
      ASSERT_LE(fragment->head.offset + fragment->payload.size(), fragment->head.total_bytes);
    }
    if (const auto offer = decode_am_offer(packet)) {
      ASSERT_TRUE(inside(offer->header));
      ASSERT_LE(offer->header.size(), std::size_t{HEDDLE_AM_HEADER_BYTES});
      ASSERT_LT(offer->head.handler, kHandlerNumbers);
    }
    if (const auto request = decode_request(packet)) {
      ASSERT_TRUE(inside(request->payload));
    }
    if (const auto reply = decode_reply(packet)) {
      ASSERT_TRUE(inside(reply->payload));
    }
    if (const auto message = decode_tagged(static_cast<std::uint32_t>(random.next()), packet)) {
      ASSERT_TRUE(inside(message->payload));
    }
  }
}

TEST(PackedRegion, SurvivesTheTripAndNothingElseDoes) {
  for (const std::size_t last : {std::size_t{5}, kTransportKeyBytes - 1, kTransportKeyBytes, kTransportKeysBytes - 1}) {
    PackedRegion region{0x1234, 7, 99, 1 << 20, {}};
    region.key[last] = std::byte{42};
    const auto bytes = encode(region);
    const std::size_t length = packed_bytes(region);
    EXPECT_EQ(length, last < kTransportKeyBytes ? kNarrowRegionBytes : kPackedRegionBytes);
    const auto read = decode_region(std::span(bytes).first(length));
    ASSERT_TRUE(read);
    EXPECT_EQ(read->rank, 7U);
    EXPECT_EQ(read->region, 99U);
    EXPECT_EQ(read->key, region.key);
    EXPECT_EQ(decode_region(std::span(bytes).first(length - 1)).status(), HEDDLE_ERR_PROTOCOL);
    for (std::size_t i = 0; i < length; ++i) {
      auto damaged = bytes;
      damaged[i] ^= std::byte{1};
      EXPECT_FALSE(decode_region(damaged)) << "byte " << i;
    }
  }
}

TEST(PackedRegion, ANarrowOneLeavesOutWhatIsForOthers) {
  PackedRegion region{0x1234, 7, 99, 1 << 20, {}};
  region.key[1] = std::byte{1};
  region.key[kTransportKeyBytes] = std::byte{2};
  const auto read = decode_region(encode_narrow(region));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->key[1], std::byte{1});
  EXPECT_EQ(read->key[kTransportKeyBytes], std::byte{0});
}

}  // namespace
}  // namespace heddle::wire::packet_test
