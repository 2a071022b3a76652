#include "transport/shm/region_key.hpp"

#include <algorithm>
#include <cstring>

#include "transport/shm/layout.hpp"

namespace heddle::transport::shm {
namespace {

std::uint32_t checksum(const RegionKey& key) {
  std::uint64_t sum = 0x9E3779B97F4A7C15ULL;
  for (const std::uint64_t part : {std::uint64_t{key.magic}, std::uint64_t{static_cast<std::uint16_t>(key.kind)},
                                   key.id, key.address, key.bytes, key.offset}) {
    sum = (sum ^ part) * 0xBF58476D1CE4E5B9ULL;
    sum ^= sum >> 29;
  }
  return static_cast<std::uint32_t>(sum >> 32);
}

// no machine's user space is larger
constexpr std::uint64_t kMaxAddress = std::uint64_t{1} << 57;

}  // namespace

MemoryKey encode(RegionKey key) {
  key.check = checksum(key);
  MemoryKey out;
  std::memcpy(out.bytes.data(), &key, sizeof key);
  return out;
}

base::Result<RegionKey> decode(const MemoryKey& bytes) {
  RegionKey key;
  std::memcpy(&key, bytes.bytes.data(), sizeof key);
  const bool kind_known =
      key.kind == RegionKind::allocated || key.kind == RegionKind::registered || key.kind == RegionKind::adopted;
  const bool ends = std::all_of(bytes.bytes.begin() + sizeof key, bytes.bytes.end(),
                                [](std::byte byte) { return byte == std::byte{0}; });
  if (key.magic != RegionKey::kMagic || !kind_known || key.check != checksum(key) || !ends) {
    return base::fail(HEDDLE_ERR_PROTOCOL,
                      "these bytes are not the key of a region of the shm transport; give all ranks the same "
                      "HEDDLE_TRANSPORT, HEDDLE_TRANSPORTS and HEDDLE_NODE_RANKS");
  }
  const bool possible = key.bytes != 0 && key.bytes < kMaxAddress && key.address < kMaxAddress &&
                        key.address + key.bytes <= kMaxAddress && key.offset < kMaxAddress &&
                        (key.kind == RegionKind::registered || key.offset % page_bytes() == 0);
  if (!possible) {
    return base::fail(HEDDLE_ERR_PROTOCOL, "a key of %llu bytes at offset %llu does not describe memory",
                      static_cast<unsigned long long>(key.bytes), static_cast<unsigned long long>(key.offset));
  }
  return key;
}

std::uint64_t SegmentRegions::add(const Region& region) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t id = places_.add(region.address, region.bytes);
  if (id == 0) return 0;
  const std::size_t slot = memory::RegionTable::slot_of(id);
  try {
    if (slot >= regions_.size()) regions_.resize(slot + 1);
  } catch (...) {
    places_.remove(id);
    throw;
  }
  regions_[slot] = {id, region};
  return id;
}

SegmentRegions::Kept* SegmentRegions::kept(std::uint64_t id) {
  const std::size_t slot = memory::RegionTable::slot_of(id);
  return id != 0 && slot < regions_.size() && regions_[slot].id == id ? &regions_[slot] : nullptr;
}

std::optional<SegmentRegions::Region> SegmentRegions::find(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  const Kept* found = kept(id);
  return found == nullptr ? std::nullopt : std::optional<Region>(found->region);
}

std::uint64_t SegmentRegions::any(RegionKind kind) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(regions_.begin(), regions_.end(),
                                  [&](const Kept& kept) { return kept.id != 0 && kept.region.kind == kind; });
  return found == regions_.end() ? 0 : found->id;
}

std::optional<SegmentRegions::Region> SegmentRegions::remove(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  Kept* found = kept(id);
  if (found == nullptr) return std::nullopt;
  found->id = 0;
  places_.remove(id);
  return found->region;
}

}  // namespace heddle::transport::shm
