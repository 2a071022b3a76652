// The formats that are this transport's own; the others are in ../network/wire.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/network/wire.hpp"

namespace heddle::transport::ofi {

// The contents of a packed region.
struct KeyBytes {
  std::uint32_t magic = kMagic;
  std::uint32_t rank = 0;
  std::uint64_t address = 0;  // in its owner
  std::uint64_t bytes = 0;
  std::uint64_t key = 0;  // libfabric's, one in all domains of the owner
  std::uint64_t seal = 0;
  std::uint64_t zero = 0;
  static constexpr std::uint32_t kMagic = 0x31464f48;  // "HOF1"
  static constexpr std::uint32_t kUsed = 40;           // bytes
};
static_assert(sizeof(KeyBytes) == kKeyBytes && offsetof(KeyBytes, zero) == KeyBytes::kUsed);

}  // namespace heddle::transport::ofi
