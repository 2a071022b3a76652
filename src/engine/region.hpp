// Regions as the engine knows them.
#pragma once

#include <algorithm>
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
  std::uint64_t number = 0;  // 0: no memory
};

// One peer's region, ready for use, or to be met at the first access. The first line is all that a
// direct operation reads.
struct RemoteRegion {
  static constexpr HandleType kType = HandleType::remote_region;

  // Where offset 0 is, or would be: direct memory begins at direct_begin. Both are written once,
  // before direct_bytes.
  std::byte* direct = nullptr;
  std::uint64_t direct_begin = 0;
  // Bytes that direct operations may touch: 0 where there is no direct memory, before the peer has
  // been met, and from the moment the peer is known to be dead, so that the one range check also
  // keeps operations away from the dead. Release when it becomes known; partner: the acquire load
  // in direct_range().
  std::atomic<std::uint64_t> direct_bytes{0};
  // At how many offsets from direct_begin on a word of 8 bytes may begin; as direct_bytes.
  std::atomic<std::uint64_t> direct_words{0};
  std::uint64_t bytes = 0;
  std::uint32_t rank = 0;
  // Why no command reaches the region. It belongs to direct_bytes; only the cold path looks at the
  // reason. Release when it becomes `no`, after `memory`; partner: the acquire load in
  // api::accessible().
  enum class Barred : std::uint8_t {
    no,
    unmet,  // Objects::meet() comes first
    failed  // its owner has died or left
  };
  std::atomic<Barred> barred{Barred::no};
  // True: the region was released, and lives only for the operations that name it (see MarkTable):
  // nothing more is posted to it. Relaxed: a thread that misses it posts one more piece to memory
  // that is still there.
  std::atomic<bool> closed{false};
  Objects* owner = nullptr;
  std::uint64_t number = 0;  // the owner's region number
  std::uint32_t server = 0;  // the owner's worker that serves what the transport cannot do alone
  // Those of memory.opcodes that take any range whole. None if the memory is direct only in part: a
  // long transfer is cut there.
  std::uint32_t one_command = 0;
  transport::RemoteMemory memory;

  // True: [offset, offset + count) may be accessed through `direct`.
  [[nodiscard]] bool direct_range(std::uint64_t offset, std::uint64_t count) const {
    const std::uint64_t limit = direct_bytes.load(std::memory_order_acquire);
    const std::uint64_t from = offset - direct_begin;  // a smaller offset wraps, beyond any limit
    return from <= limit && count <= limit - from;
  }
  // direct_range(offset, 8), in fewer instructions.
  [[nodiscard]] bool direct_word(std::uint64_t offset) const {
    const std::uint64_t words = direct_words.load(std::memory_order_acquire);
    return offset - direct_begin < words;
  }
  void close_direct() {
    direct_bytes.store(0, std::memory_order_relaxed);
    direct_words.store(0, std::memory_order_relaxed);
  }
  // `memory` is there: direct operations on its first `of` bytes may begin.
  void open_direct(std::uint64_t of) {
    one_command = memory.all_direct() || memory.direct == nullptr ? memory.opcodes : 0;
    if (memory.direct == nullptr) return;
    direct = memory.direct;
    direct_begin = memory.edge_before;
    const std::uint64_t end = std::min(of, memory.bytes - memory.edge_after);
    const std::uint64_t count = end > direct_begin ? end - direct_begin : 0;
    direct_words.store(count < 8 ? 0 : count - 7, std::memory_order_release);
    direct_bytes.store(count, std::memory_order_release);
  }
  // How many of the bytes at `offset`, which are in the region, are all direct or all not direct.
  // In this sense direct memory stays direct when the owner has died.
  [[nodiscard]] std::uint64_t alike(std::uint64_t offset, std::uint64_t count) const {
    if (one_command != 0 || memory.edge_before + memory.edge_after == 0) return count;
    for (const std::uint64_t edge : {std::uint64_t{memory.edge_before}, memory.bytes - memory.edge_after}) {
      if (offset < edge) return std::min(count, edge - offset);
    }
    return count;
  }
  // True: the byte is not direct, in memory whose other bytes are: adopted memory that does not
  // begin, or end, at a page.
  [[nodiscard]] bool on_edge(std::uint64_t offset) const {
    return direct_bytes.load(std::memory_order_acquire) != 0 && !direct_range(offset, 1);
  }
  // The address by which direct operations reach it; null: there is none.
  [[nodiscard]] std::byte* mapped() const {
    return direct_bytes.load(std::memory_order_acquire) != 0 ? direct : nullptr;
  }
  [[nodiscard]] bool is(Barred why) const { return barred.load(std::memory_order_acquire) == why; }
  [[nodiscard]] bool range(std::uint64_t offset, std::uint64_t count) const {
    return offset <= bytes && count <= bytes - offset;
  }
  // The region whose memory a command names.
  [[nodiscard]] static RemoteRegion* of(const transport::RemoteMemory* memory);
};
static_assert(std::is_standard_layout_v<RemoteRegion>);

inline RemoteRegion* RemoteRegion::of(const transport::RemoteMemory* memory) {
  const auto* region = reinterpret_cast<const std::byte*>(memory) - offsetof(RemoteRegion, memory);
  return reinterpret_cast<RemoteRegion*>(const_cast<std::byte*>(region));
}

}  // namespace heddle::engine
