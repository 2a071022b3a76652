// How a rank and rank 0 prove to each other that they know the job's secret, without showing it.
//
//   rank   → host   Knock:  who I am, a random number
//   host   → rank   Answer: a random number, and a code over both numbers that needs the secret
//   rank   → host   Code:   another code over the same numbers; it differs, so that neither can be
//                           sent back to its sender
//
// The codes are SipHash-2-4 with 128 bits, a keyed hash made for short messages. The data after the
// proof is neither encrypted nor signed: an attacker who can change packets on the way can take
// over the connection (docs/clusters.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "bootstrap/bootstrap.hpp"

namespace heddle::bootstrap::hosted {

inline constexpr std::uint64_t kKnockMagic = 0x6B63'6F6E'6C64'6468ULL;  // "hddlnock" in a dump
inline constexpr std::uint32_t kKnockVersion = 1;
inline constexpr std::uint32_t kLibraryVersion =
    HEDDLE_VERSION_MAJOR << 16 | HEDDLE_VERSION_MINOR << 8 | HEDDLE_VERSION_PATCH;

using Code = std::array<std::uint8_t, 16>;

struct Knock {
  std::uint64_t magic = kKnockMagic;
  std::uint32_t version = kKnockVersion;
  std::uint32_t library = kLibraryVersion;
  std::uint32_t rank = 0;
  std::uint32_t reserved = 0;
  Code nonce{};
};
static_assert(sizeof(Knock) == 40);

struct Answer {
  std::uint64_t magic = kKnockMagic;
  std::uint32_t version = kKnockVersion;
  std::uint32_t library = kLibraryVersion;
  Code nonce{};
  Code code{};  // zeros where the versions differ
};
static_assert(sizeof(Answer) == 48);

// SipHash-2-4, 128 bits.
Code keyed_hash(const JobSecret& key, std::span<const std::byte> message);

enum class Side : std::uint64_t { host = 1, rank = 2 };
Code proof(const JobSecret& secret, Side side, const Knock& knock, const Code& host_nonce);

// Takes a time that does not depend on where they differ.
bool equal(const Code& a, const Code& b);

}  // namespace heddle::bootstrap::hosted
