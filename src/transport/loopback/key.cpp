#include "transport/loopback/key.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace heddle::transport::loopback {
namespace {

struct KeyBytes {
  std::uint32_t magic = kMagic;
  std::uint32_t rank = 0;
  std::uint64_t id = 0;
  std::uint64_t bytes = 0;
  std::uint64_t seal = 0;

  static constexpr std::uint32_t kMagic = 0x4b504c48;  // "HLPK"
};
static_assert(sizeof(KeyBytes) == kRegionKeyBytes);

// A checksum that depends on the secret: against accident and confusion of jobs, not against an
// attacker who computes.
std::uint64_t seal(const KeyBytes& key, const bootstrap::JobSecret& secret) {
  std::array<std::uint64_t, sizeof key / 8> words;
  std::memcpy(words.data(), &key, sizeof key);
  std::array<std::uint64_t, 2> keys;
  static_assert(sizeof keys == sizeof secret);
  std::memcpy(keys.data(), secret.data(), sizeof keys);
  std::uint64_t sum = keys[0];
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    sum = (sum ^ words[i]) * 0xBF58476D1CE4E5B9ULL;
    sum ^= sum >> 29;
  }
  sum = (sum ^ keys[1]) * 0x94D049BB133111EBULL;
  return sum ^ sum >> 31;
}

}  // namespace

MemoryKey encode_key(const RegionName& name, const bootstrap::JobSecret& secret) {
  KeyBytes bytes;
  bytes.rank = name.rank;
  bytes.id = name.id;
  bytes.bytes = name.bytes;
  bytes.seal = seal(bytes, secret);
  MemoryKey key;
  std::memcpy(key.bytes.data(), &bytes, sizeof bytes);
  return key;
}

std::optional<RegionName> decode_key(const MemoryKey& key, const bootstrap::JobSecret& secret) {
  KeyBytes bytes;
  std::memcpy(&bytes, key.bytes.data(), sizeof bytes);
  const bool ends = std::all_of(key.bytes.begin() + sizeof bytes, key.bytes.end(),
                                [](std::byte byte) { return byte == std::byte{0}; });
  if (bytes.magic != KeyBytes::kMagic || bytes.seal != seal(bytes, secret) || !ends) return std::nullopt;
  return RegionName{bytes.rank, bytes.id, bytes.bytes};
}

}  // namespace heddle::transport::loopback
