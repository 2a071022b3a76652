#include "bootstrap/hosted/proof.hpp"

#include <bit>
#include <cstring>

namespace heddle::bootstrap::hosted {
namespace {

struct State {
  std::uint64_t v0, v1, v2, v3;

  void round() {
    v0 += v1;
    v1 = std::rotl(v1, 13) ^ v0;
    v0 = std::rotl(v0, 32);
    v2 += v3;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 += v3;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 += v1;
    v1 = std::rotl(v1, 17) ^ v2;
    v2 = std::rotl(v2, 32);
  }
  void take(std::uint64_t word) {
    v3 ^= word;
    round();
    round();
    v0 ^= word;
  }
  std::uint64_t finish() {
    for (int i = 0; i < 4; ++i) round();
    return v0 ^ v1 ^ v2 ^ v3;
  }
};

std::uint64_t load(const void* bytes, std::size_t count = 8) {
  std::uint64_t word = 0;
  if (count > 0) std::memcpy(&word, bytes, count);  // an empty message may have no address
  static_assert(std::endian::native == std::endian::little, "the words of SipHash are little-endian");
  return word;
}

}  // namespace

Code keyed_hash(const JobSecret& key, std::span<const std::byte> message) {
  const std::uint64_t k0 = load(key.data());
  const std::uint64_t k1 = load(key.data() + 8);
  State state{k0 ^ 0x736f6d6570736575ULL, k1 ^ 0x646f72616e646f6dULL ^ 0xeeU, k0 ^ 0x6c7967656e657261ULL,
              k1 ^ 0x7465646279746573ULL};
  std::size_t at = 0;
  for (; at + 8 <= message.size(); at += 8) state.take(load(message.data() + at));
  state.take(load(message.data() + at, message.size() - at) | (message.size() & 0xFFU) << 56U);
  state.v2 ^= 0xeeU;
  const std::uint64_t low = state.finish();
  state.v1 ^= 0xddU;
  const std::uint64_t high = state.finish();
  Code code;
  std::memcpy(code.data(), &low, sizeof low);
  std::memcpy(code.data() + sizeof low, &high, sizeof high);
  return code;
}

Code proof(const JobSecret& secret, Side side, const Knock& knock, const Code& host_nonce) {
  struct {
    Side side;
    Knock knock;
    Code host_nonce;
  } const message{side, knock, host_nonce};
  static_assert(sizeof message == sizeof(Side) + sizeof(Knock) + sizeof(Code), "no padding");
  return keyed_hash(secret, std::as_bytes(std::span(&message, 1)));
}

bool equal(const Code& a, const Code& b) {
  unsigned different = 0;
  for (std::size_t i = 0; i < a.size(); ++i) different |= static_cast<unsigned>(a[i] ^ b[i]);
  return different == 0;
}

}  // namespace heddle::bootstrap::hosted
