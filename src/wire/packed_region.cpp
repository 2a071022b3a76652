#include "wire/packed_region.hpp"

#include <cstring>

namespace heddle::wire {
namespace {

constexpr std::uint32_t kMagic = 0x6C646568;  // "hedl", and so a check of the byte order
constexpr std::uint32_t kLayout = 1;

struct Layout {
  std::uint32_t magic;
  std::uint32_t layout;
  std::uint64_t job;
  std::uint64_t region;
  std::uint64_t bytes;
  std::uint32_t rank;
  std::uint32_t reserved;
  std::array<std::byte, kTransportKeyBytes> key;
  std::uint64_t checksum;  // of everything before it
};
static_assert(sizeof(Layout) == kPackedRegionBytes && offsetof(Layout, checksum) == kPackedRegionBytes - 8);

}  // namespace

std::uint64_t digest(std::span<const std::byte> bytes) {
  std::uint64_t hash = 0xCBF29CE484222325ULL;
  for (const std::byte byte : bytes) hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001B3ULL;
  return hash;
}

std::array<std::byte, kPackedRegionBytes> encode(const PackedRegion& region) {
  Layout layout{kMagic, kLayout, region.job, region.region, region.bytes, region.rank, 0, region.key, 0};
  std::array<std::byte, kPackedRegionBytes> bytes;
  std::memcpy(bytes.data(), &layout, sizeof layout);
  layout.checksum = digest(std::span(bytes).first(offsetof(Layout, checksum)));
  std::memcpy(bytes.data(), &layout, sizeof layout);
  return bytes;
}

base::Result<PackedRegion> decode_region(std::span<const std::byte> bytes) {
  if (bytes.size() < kPackedRegionBytes) {
    return base::fail(HEDDLE_ERR_PROTOCOL, "a packed region has %zu bytes, these are %zu", kPackedRegionBytes,
                      bytes.size());
  }
  Layout layout;
  std::memcpy(&layout, bytes.data(), sizeof layout);
  if (layout.magic != kMagic) return base::fail(HEDDLE_ERR_PROTOCOL, "these bytes are not a packed region");
  if (layout.layout != kLayout) {
    return base::fail(HEDDLE_ERR_VERSION,
                      "packed region of layout %u, this library reads layout %u: use one version of "
                      "Heddle in all ranks",
                      layout.layout, kLayout);
  }
  if (layout.checksum != digest(bytes.first(offsetof(Layout, checksum)))) {
    return base::fail(HEDDLE_ERR_PROTOCOL, "the bytes of this packed region are damaged (checksum)");
  }
  return PackedRegion{layout.job, layout.rank, layout.region, layout.bytes, layout.key};
}

}  // namespace heddle::wire
