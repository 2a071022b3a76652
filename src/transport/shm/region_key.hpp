// The table of this process's own regions, and the keys that name them to peers.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "memory/regions.hpp"
#include "transport/transport.hpp"

namespace heddle::transport::shm {

enum class RegionKind : std::uint16_t { allocated = 1, registered = 2, adopted = 3 };

// The contents of a MemoryKey of this transport.
struct RegionKey {
  std::uint16_t magic = kMagic;
  RegionKind kind = RegionKind::registered;
  // checksum of the other fields: detects bytes that are no key; no protection against attacks
  std::uint32_t check = 0;
  std::uint64_t id = 0;       // index and generation in the owner's table
  std::uint64_t address = 0;  // in the owner
  std::uint64_t bytes = 0;
  // in the owner's segment; adopted: of its first whole page
  std::uint64_t offset = 0;

  static constexpr std::uint16_t kMagic = 0x4B53;  // "SK"
};
static_assert(sizeof(RegionKey) == 40);

MemoryKey encode(RegionKey key);
// PROTOCOL if the bytes are no key or name an impossible range. Whether the range lies in the
// owner's segment is checked when it is mapped.
base::Result<RegionKey> decode(const MemoryKey& bytes);

// Any thread.
class SegmentRegions {
 public:
  struct Region {
    std::byte* address = nullptr;
    std::uint64_t bytes = 0;
    std::uint64_t offset = 0;
    RegionKind kind = RegionKind::registered;
  };

  // 0: the table is full.
  std::uint64_t add(const Region& region);
  // Empty: not the id of a living region.
  [[nodiscard]] std::optional<Region> find(std::uint64_t id);
  std::optional<Region> remove(std::uint64_t id);
  // The id of a living region of that kind; 0: there is none.
  [[nodiscard]] std::uint64_t any(RegionKind kind);
  // Where [offset, offset + bytes) of the region lies; empty: no such region, or the range leaves
  // it. Takes no lock, since it is called for every served chunk.
  [[nodiscard]] std::optional<memory::Span> locate(std::uint64_t id, std::uint64_t offset, std::uint64_t bytes) const {
    return places_.find(id, offset, bytes);
  }

 private:
  memory::RegionTable places_;
  struct Kept {
    std::uint64_t id = 0;  // 0: no living region
    Region region;
  };
  Kept* kept(std::uint64_t id);

  queue::FetchingMutex mutex_;  // guards what follows
  std::vector<Kept> regions_;   // by slot of places_
};

}  // namespace heddle::transport::shm
