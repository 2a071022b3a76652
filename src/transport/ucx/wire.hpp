// The formats that are this transport's own; the others are in ../network/wire.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/network/wire.hpp"

namespace heddle::transport::ucx {

using network::cost_of;
using network::Head;
using network::kMostMessage;

// UCX's numbers of active messages.
inline constexpr unsigned kNoteId = 1;
inline constexpr auto kMessageId = static_cast<unsigned>(network::Kind::message);
inline constexpr auto kCreditId = static_cast<unsigned>(network::Kind::credit);
inline constexpr auto kBundleId = static_cast<unsigned>(network::Kind::bundle);

// The contents of a packed region.
struct KeyBytes {
  std::uint32_t magic = kMagic;
  std::uint32_t rank = 0;
  std::uint64_t id = 0;
  std::uint64_t address = 0;  // in its owner
  std::uint64_t bytes = 0;
  std::uint64_t seal = 0;
  std::uint64_t zero = 0;
  static constexpr std::uint32_t kMagic = 0x32585548;  // "HUX2"
  static constexpr std::uint32_t kUsed = 40;           // bytes
};
static_assert(sizeof(KeyBytes) == kKeyBytes && offsetof(KeyBytes, zero) == KeyBytes::kUsed);

}  // namespace heddle::transport::ucx
