#include "bootstrap/hosted/connect.hpp"

#include <gtest/gtest.h>

namespace heddle::bootstrap::hosted::proof_test {
namespace {

JobSecret counting() {
  JobSecret key;
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::uint8_t>(i);
  return key;
}

// From the reference implementation: the key and the message are 0, 1, 2, …
TEST(proof, the_hash_is_siphash) {
  const Code of_nothing = {0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6,
                           0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02, 0x93};
  const Code of_one_byte = {0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44,
                            0x34, 0x76, 0x59, 0x11, 0x9b, 0x22, 0xfc, 0x45};
  EXPECT_EQ(keyed_hash(counting(), {}), of_nothing);
  const std::byte zero{0};
  EXPECT_EQ(keyed_hash(counting(), std::span(&zero, 1)), of_one_byte);
}

TEST(proof, every_byte_counts) {
  std::array<std::byte, 24> message{};
  const Code before = keyed_hash(counting(), message);
  for (std::byte& byte : message) {
    byte ^= std::byte{1};
    EXPECT_NE(keyed_hash(counting(), message), before);
    byte ^= std::byte{1};
  }
  EXPECT_NE(keyed_hash(counting(), std::span(message).first(23)), before);
}

TEST(proof, each_side_proves_something_else) {
  Knock knock;
  knock.rank = 3;
  const Code nonce{1, 2, 3};
  const Code good = proof(counting(), Side::host, knock, nonce);
  EXPECT_TRUE(equal(good, proof(counting(), Side::host, knock, nonce)));
  EXPECT_FALSE(equal(good, proof(counting(), Side::rank, knock, nonce)));
  EXPECT_FALSE(equal(good, proof(JobSecret{}, Side::host, knock, nonce)));
  EXPECT_FALSE(equal(good, proof(counting(), Side::host, knock, Code{})));
  Knock other = knock;
  other.rank = 4;
  EXPECT_FALSE(equal(good, proof(counting(), Side::host, other, nonce)));
  other = knock;
  other.nonce[15] = 1;
  EXPECT_FALSE(equal(good, proof(counting(), Side::host, other, nonce)));
}

}  // namespace
}  // namespace heddle::bootstrap::hosted::proof_test
