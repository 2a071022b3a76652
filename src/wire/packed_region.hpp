// A region's name as bytes, for any rank of the same job.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.hpp"

namespace heddle::wire {

inline constexpr std::size_t kTransportKeyBytes = 48;   // what one rank needs
inline constexpr std::size_t kTransportKeysBytes = 80;  // what any rank needs

struct PackedRegion {
  std::uint64_t job = 0;  // digest of the job's secret, so that a region of another job is refused
  std::uint32_t rank = 0;
  std::uint64_t region = 0;  // the owner's region number
  std::uint64_t bytes = 0;
  std::array<std::byte, kTransportKeysBytes> key{};
  bool narrow = false;  // read from a narrow one: the key is what one rank needs
};

// for a key of at most kTransportKeyBytes
inline constexpr std::size_t kNarrowRegionBytes = 96;
inline constexpr std::size_t kPackedRegionBytes = 128;
static_assert(kPackedRegionBytes <= HEDDLE_PACKED_REGION_BYTES);

// A narrow region is followed by zeros.
std::array<std::byte, kPackedRegionBytes> encode(const PackedRegion& region);
// For a key of at most kTransportKeyBytes; the bytes after these are left out.
std::array<std::byte, kNarrowRegionBytes> encode_narrow(const PackedRegion& region);
// How many bytes of encode()'s result count.
std::size_t packed_bytes(const PackedRegion& region);

// PROTOCOL: wrong length, magic or checksum. VERSION: another layout. The caller checks ranges.
base::Result<PackedRegion> decode_region(std::span<const std::byte> bytes);

// FNV-1a, for checksums against accidents and for digests; no protection against forgery.
std::uint64_t digest(std::span<const std::byte> bytes);

}  // namespace heddle::wire
