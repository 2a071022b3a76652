// Regions as the engine knows them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "engine/handles.hpp"
#include "transport/transport.hpp"

namespace heddle::engine {

class Objects;

struct Region {
  static constexpr HandleType kType = HandleType::region;
  Objects* owner;
  transport::LocalMemory memory;
  std::uint64_t number;  // in the context's RegionTable; peers name it in requests
  bool allocated;        // else registered
};

// Memory of the caller's that one operation lends to a peer: a region without a handle.
struct LentMemory {
  transport::LocalMemory memory;
  std::uint64_t number = 0;
};

// One peer's region, ready for use, or to be met at the first access. The first line is all that a
// direct operation reads.
struct RemoteRegion {
  static constexpr HandleType kType = HandleType::remote_region;

  std::byte* direct = nullptr;  // written once, before direct_bytes
  // Bytes that direct operations may touch: 0 where there is no direct memory, before the peer has
  // been met, and from the moment the peer is known to be dead, so that the one range check also
  // keeps operations away from the dead. Release when it becomes known; partner: the acquire load
  // in direct_range().
  std::atomic<std::uint64_t> direct_bytes{0};
  std::uint64_t bytes = 0;
  std::uint32_t rank = 0;
  // Why no command reaches it; partner of direct_bytes: told apart on the cold path only. Release
  // when it becomes `no`, after `memory`; partner: the acquire load in api::accessible().
  enum class Barred : std::uint8_t {
    no,
    unmet,  // Objects::meet() comes first
    failed  // its owner has died or left
  };
  std::atomic<Barred> barred{Barred::no};
  // Released, and alive only for the operations that name it (see MarkTable): nothing more is
  // posted to it. Relaxed: who misses it posts one more piece to memory that is still there.
  std::atomic<bool> closed{false};
  Objects* owner = nullptr;
  std::uint64_t number = 0;  // the owner's region number
  std::uint32_t server = 0;  // the owner's worker that serves what the transport cannot do alone
  transport::RemoteMemory memory;

  // True: [offset, offset + count) may be accessed through `direct`.
  [[nodiscard]] bool direct_range(std::uint64_t offset, std::uint64_t count) const {
    const std::uint64_t limit = direct_bytes.load(std::memory_order_acquire);
    return offset <= limit && count <= limit - offset;
  }
  // Where direct operations find it; null: nowhere.
  [[nodiscard]] std::byte* mapped() const {
    return direct_bytes.load(std::memory_order_acquire) != 0 ? direct : nullptr;
  }
  [[nodiscard]] bool is(Barred why) const { return barred.load(std::memory_order_acquire) == why; }
  [[nodiscard]] bool range(std::uint64_t offset, std::uint64_t count) const {
    return offset <= bytes && count <= bytes - offset;
  }
  // The one whose memory a command names.
  [[nodiscard]] static RemoteRegion* of(const transport::RemoteMemory* memory);
};
static_assert(std::is_standard_layout_v<RemoteRegion>);

inline RemoteRegion* RemoteRegion::of(const transport::RemoteMemory* memory) {
  const auto* region = reinterpret_cast<const std::byte*>(memory) - offsetof(RemoteRegion, memory);
  return reinterpret_cast<RemoteRegion*>(const_cast<std::byte*>(region));
}

}  // namespace heddle::engine
