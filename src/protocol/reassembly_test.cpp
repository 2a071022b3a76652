#include "protocol/reassembly.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/random.hpp"

namespace heddle::protocol {
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

TEST(Reassembly, RefusesOnceWhatWouldExceedTheLimit) {
  const std::vector<std::byte> payload(1000);
  Reassembly reassembly(2000, 1500);
  Reassembly::Message whole;
  const auto first = pieces_of(payload, 500, 0);
  const auto second = pieces_of(payload, 500, 1);
  EXPECT_EQ(reassembly.add({0, 0}, first[0].fragment, &whole), Reassembly::Outcome::incomplete);
  EXPECT_EQ(reassembly.add({0, 0}, second[0].fragment, &whole), Reassembly::Outcome::incomplete);
  EXPECT_EQ(reassembly.add({0, 0}, second[1].fragment, &whole), Reassembly::Outcome::refused);
  EXPECT_EQ(reassembly.add({0, 0}, first[1].fragment, &whole), Reassembly::Outcome::complete);
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
}  // namespace heddle::protocol
