#include "protocol/reassembly.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/random.hpp"

namespace heddle::protocol::reassembly_test {
namespace {

struct Piece {
  wire::Fragment fragment;
};

std::vector<Piece> pieces_of(const std::vector<std::byte>& payload, std::size_t piece, std::uint64_t number) {
  std::vector<Piece> pieces;
  for (std::size_t at = 0; at < payload.size(); at += piece) {
    const std::size_t bytes = std::min(piece, payload.size() - at);
    pieces.push_back({{{77, number, payload.size(), at, 3, 0}, {}, std::span(payload).subspan(at, bytes)}});
  }
  return pieces;
}

TEST(Reassembly, PartsInAnyOrderFromSeveralSources) {
  base::Random random(3);
  std::vector<std::byte> payload(1000);
  for (auto& byte : payload) byte = static_cast<std::byte>(random.next());
  std::vector<std::pair<heddle_peer, wire::Fragment>> all;
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    for (std::uint64_t number = 0; number < 3; ++number) {
      for (const Piece& piece : pieces_of(payload, 96, number)) all.push_back({{rank, rank % 2}, piece.fragment});
    }
  }
  for (std::size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[random.below(i)]);
  Reassembly reassembly(1 << 20, 1 << 20);
  int complete = 0;
  for (const auto& [source, fragment] : all) {
    Reassembly::Message whole;
    if (reassembly.add(source, fragment, &whole) != Reassembly::Outcome::complete) continue;
    ++complete;
    EXPECT_EQ(whole.token, 77U);
    EXPECT_EQ(std::memcmp(whole.payload.get(), payload.data(), payload.size()), 0);
  }
  EXPECT_EQ(complete, 12);
  EXPECT_EQ(reassembly.memory(), 0U);
}

TEST(Reassembly, RejectsOnceWhatWouldExceedTheLimit) {
  const std::vector<std::byte> payload(1000);
  Reassembly reassembly(2000, 1500);
  Reassembly::Message whole;
  const auto first = pieces_of(payload, 500, 0);
  const auto second = pieces_of(payload, 500, 1);
  EXPECT_EQ(reassembly.add({0, 0}, first[0].fragment, &whole), Reassembly::Outcome::incomplete);
  EXPECT_EQ(reassembly.add({0, 0}, second[0].fragment, &whole), Reassembly::Outcome::incomplete);
  EXPECT_EQ(reassembly.add({0, 0}, second[1].fragment, &whole), Reassembly::Outcome::rejected);
  EXPECT_EQ(reassembly.add({0, 0}, first[1].fragment, &whole), Reassembly::Outcome::complete);
}

TEST(Reassembly, DuplicatesDoNotFillHoles) {
  const std::vector<std::byte> payload(1000);
  Reassembly reassembly(2000, 5000);
  Reassembly::Message whole;
  const auto parts = pieces_of(payload, 500, 0);
  EXPECT_EQ(reassembly.add({1, 0}, parts[0].fragment, &whole), Reassembly::Outcome::incomplete);
  EXPECT_EQ(reassembly.add({1, 0}, parts[0].fragment, &whole), Reassembly::Outcome::malformed);
  EXPECT_EQ(reassembly.add({1, 0}, parts[1].fragment, &whole), Reassembly::Outcome::complete);
  EXPECT_EQ(reassembly.memory(), 0U);
}

TEST(Reassembly, OverlapsAndContradictionsAreRejected) {
  const std::vector<std::byte> payload(1000);
  const auto part = [&](std::uint64_t offset, std::size_t bytes) {
    return wire::Fragment{{77, 0, payload.size(), offset, 3, 0}, {}, std::span(payload).subspan(offset, bytes)};
  };
  Reassembly reassembly(2000, 5000);
  Reassembly::Message whole;
  EXPECT_EQ(reassembly.add({1, 0}, part(900, 100), &whole), Reassembly::Outcome::incomplete) << "the last part first";
  EXPECT_EQ(reassembly.add({1, 0}, part(800, 200), &whole), Reassembly::Outcome::malformed) << "another last part";
  EXPECT_EQ(reassembly.add({1, 0}, part(0, 400), &whole), Reassembly::Outcome::malformed) << "900 is no multiple";
  EXPECT_EQ(reassembly.add({1, 0}, part(300, 300), &whole), Reassembly::Outcome::incomplete);
  EXPECT_EQ(reassembly.add({1, 0}, part(450, 300), &whole), Reassembly::Outcome::malformed) << "overlaps";
  EXPECT_EQ(reassembly.add({1, 0}, part(0, 1000), &whole), Reassembly::Outcome::malformed) << "all at once after all";
  EXPECT_EQ(reassembly.add({1, 0}, part(900, 100), &whole), Reassembly::Outcome::malformed) << "again";
  wire::Fragment other = part(0, 300);
  other.head.handler = 4;
  EXPECT_EQ(reassembly.add({1, 0}, other, &whole), Reassembly::Outcome::malformed) << "another handler";
  EXPECT_EQ(reassembly.add({1, 0}, part(0, 300), &whole), Reassembly::Outcome::incomplete);
  EXPECT_EQ(reassembly.add({1, 0}, part(600, 300), &whole), Reassembly::Outcome::complete);
  EXPECT_EQ(reassembly.add({1, 1}, part(0, 32), &whole), Reassembly::Outcome::malformed) << "shorter than any unit";
  EXPECT_EQ(reassembly.messages(), 0U);
}

// Compares with a plain model: whatever arrives, a message is complete exactly when each of its
// bytes has arrived.
TEST(Reassembly, RandomPartsAgainstAModel) {
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    base::Random random(seed);
    const std::size_t header_bytes = random.below(3) * 12;
    const std::size_t room = wire::pad8(static_cast<std::uint32_t>(header_bytes));
    const std::size_t unit = 64 + 8 * random.below(20);
    std::vector<std::byte> header(header_bytes, std::byte{9});
    std::vector<std::byte> payload(1 + random.below(3000));
    for (auto& byte : payload) byte = static_cast<std::byte>(random.next());
    // positions in the stream of header and payload
    const auto cut = [&](std::size_t at, std::size_t bytes) {
      const std::size_t from = at == 0 ? 0 : at - room;
      const std::size_t to = at + bytes - room;
      return wire::Fragment{{5, 1, payload.size(), from, 3, static_cast<std::uint32_t>(header_bytes)},
                            at == 0 ? std::span<const std::byte>(header) : std::span<const std::byte>(),
                            std::span<const std::byte>(payload).subspan(from, to - from)};
    };
    const std::size_t stream = room + payload.size();
    const std::size_t parts = (stream - 1) / unit + 1;
    std::vector<bool> model(parts);
    std::size_t missing = parts;
    Reassembly reassembly(1 << 20, 1 << 20);
    Reassembly::Message whole;
    for (int step = 0; missing > 0; ++step) {
      ASSERT_LT(step, 100'000);
      const std::size_t index = random.below(parts);
      // a part that is impossible once the unit is known
      if (step > 0 && random.below(4) == 0 && missing < parts) {
        const std::size_t at = room + 1 + random.below(payload.size());
        const std::size_t bytes = at < stream ? 1 + random.below(stream - at) : 0;
        const bool full = std::count(model.begin(), model.end() - 1, true) > 0;
        if (bytes > 0 && full && (at % unit != 0 || (bytes != unit && at + bytes != stream))) {
          ASSERT_EQ(reassembly.add({0, 0}, cut(at, bytes), &whole), Reassembly::Outcome::malformed) << seed;
        }
        continue;
      }
      const wire::Fragment fragment = cut(index * unit, std::min(unit, stream - index * unit));
      const auto outcome = reassembly.add({0, 0}, fragment, &whole);
      if (model[index]) {
        ASSERT_EQ(outcome, Reassembly::Outcome::malformed) << seed;
        continue;
      }
      model[index] = true;
      --missing;
      ASSERT_EQ(outcome, missing == 0 ? Reassembly::Outcome::complete : Reassembly::Outcome::incomplete) << seed;
    }
    ASSERT_EQ(std::memcmp(whole.payload.get(), payload.data(), payload.size()), 0) << seed;
    ASSERT_TRUE(std::equal(header.begin(), header.end(), whole.header.begin())) << seed;
    ASSERT_EQ(reassembly.memory(), 0U);
    ASSERT_EQ(reassembly.messages(), 0U);
  }
}

TEST(Reassembly, OnePeerCannotTakeAllMemory) {
  const std::vector<std::byte> payload(1000);
  Reassembly reassembly(1000, 4000);
  Reassembly::Message whole;
  for (std::uint64_t number = 0; number < 10; ++number) {
    EXPECT_EQ(reassembly.add({1, 0}, pieces_of(payload, 500, number)[0].fragment, &whole),
              Reassembly::Outcome::incomplete);
  }
  EXPECT_EQ(reassembly.memory(), 2000U);
  EXPECT_EQ(reassembly.add({2, 0}, pieces_of(payload, 500, 0)[0].fragment, &whole), Reassembly::Outcome::incomplete);
  EXPECT_EQ(reassembly.add({2, 0}, pieces_of(payload, 500, 0)[1].fragment, &whole), Reassembly::Outcome::complete);
}

TEST(Reassembly, WhatIsRememberedOfRejectedAndTinyMessagesIsBounded) {
  Reassembly reassembly(1000, 100'000);
  Reassembly::Message whole;
  const std::vector<std::byte> payload(2000);
  std::uint64_t rejected = 0;
  for (std::uint64_t number = 1; number <= 5000; ++number) {
    if (reassembly.add({1, 0}, pieces_of(payload, 500, number)[0].fragment, &whole) == Reassembly::Outcome::rejected) {
      ++rejected;
    }
  }
  EXPECT_EQ(reassembly.messages(), Reassembly::kMostRejected);
  EXPECT_EQ(rejected, 5000 - Reassembly::kMostRejected) << "told at once when they cannot be remembered";
  // The late parts of a message that was rejected and forgotten do not open it anew.
  EXPECT_EQ(reassembly.add({1, 0}, pieces_of(std::vector<std::byte>(900), 500, 4000)[1].fragment, &whole),
            Reassembly::Outcome::rejected);
  const std::vector<std::byte> little(100);
  for (std::uint64_t number = 1; number <= 5000; ++number) {
    static_cast<void>(reassembly.add({2, 0}, pieces_of(little, 64, number)[0].fragment, &whole));
  }
  EXPECT_LE(reassembly.memory(), 100'000U);
  EXPECT_LE(reassembly.messages(), 2 * Reassembly::kMostRejected + 100'000 / Reassembly::kLeastCharge);
}

TEST(Reassembly, ForgetsTheDead) {
  const std::vector<std::byte> payload(1000);
  Reassembly reassembly(2000, 5000);
  Reassembly::Message whole;
  EXPECT_EQ(reassembly.add({1, 0}, pieces_of(payload, 500, 0)[0].fragment, &whole), Reassembly::Outcome::incomplete);
  EXPECT_EQ(reassembly.add({2, 0}, pieces_of(payload, 500, 0)[0].fragment, &whole), Reassembly::Outcome::incomplete);
  EXPECT_EQ(reassembly.memory(), 2000U);
  reassembly.forget(1);
  EXPECT_EQ(reassembly.memory(), 1000U);
}

}  // namespace
}  // namespace heddle::protocol::reassembly_test
