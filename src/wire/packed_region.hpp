// A region's name as bytes, for any rank of the same job.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.hpp"

namespace heddle::wire {

inline constexpr std::size_t kTransportKeyBytes = 48;

struct PackedRegion {
  std::uint64_t job = 0;  // digest of the job's secret, so that a region of another job is refused
  std::uint32_t rank = 0;
  std::uint64_t region = 0;  // the owner's region number
  std::uint64_t bytes = 0;
  std::array<std::byte, kTransportKeyBytes> key{};
};

inline constexpr std::size_t kPackedRegionBytes = 96;
static_assert(kPackedRegionBytes <= HEDDLE_PACKED_REGION_BYTES);

std::array<std::byte, kPackedRegionBytes> encode(const PackedRegion& region);

// PROTOCOL: wrong length, magic or checksum. VERSION: another layout. Ranges are for the caller to judge.
base::Result<PackedRegion> decode_region(std::span<const std::byte> bytes);

// FNV-1a, for checksums against accidents and for digests; no protection against forgery.
std::uint64_t digest(std::span<const std::byte> bytes);

}  // namespace heddle::wire
