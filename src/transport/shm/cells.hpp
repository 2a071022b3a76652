// Cells: where the data of long messages lies on its way. A message of more than a page is copied
// into a cell of its sender's segment, and its record in the ring says which one.
//
// Why not in the ring: a lap of the cells is longer than an L2 cache. When a cell is used again its
// lines have left the caches of both sides, and a line from the shared L3 costs less than one from
// the other core's L2 (docs/decisions/0075). A ring of that length for each pair would take too
// much memory; the cells of one worker serve all its peers.
//
// Whose a cell is: the sender's until the record is published in the ring; the receiver's until the
// ring's head has passed the record; then the sender's again. So the ring's tail and head order all
// accesses, and the cells need no words of their own. When the receiver has closed its worker, or
// died (note_failed()), they are all the sender's.
//
// One per worker; one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/cache_line.hpp"
#include "transport/shm/device.hpp"

namespace heddle::transport::shm {

// The payload of a record of kCellType.
struct CellRecord {
  std::uint32_t cell = 0;
  std::uint32_t offset = 0;  // of the message in the cell
  std::uint32_t bytes = 0;
  std::uint32_t zero = 0;
};
static_assert(sizeof(CellRecord) == 16);

inline constexpr std::uint64_t kCells = 128;
// The longest message in a cell: 32 KiB with a header, a part of a long message.
inline constexpr std::uint32_t kCellBytes = (std::uint32_t{32} << 10) + 64;
// A message lies in its cell as its data lies in the lines of its source: see copy_data() for why.
inline constexpr std::uint64_t kCellStride = kCellBytes + 128;
inline constexpr std::uint64_t kCellPoolBytes = kCells * kCellStride;
// Shorter messages lie in the ring.
inline constexpr std::uint32_t kLeastInCell = (std::uint32_t{4} << 10) + 128;

class Cells {
 public:
  Cells(Device& device, std::uint32_t worker) : device_(device), worker_(worker) {}

  // Begins a record of the message, whose packet has kLeastInCell to kCellBytes bytes, and copies
  // it into a cell. False: no cell is free for this peer, there is no memory for cells, or the ring
  // is full: nothing happened.
  [[nodiscard]] bool begin(OutgoingRing& to, const Command& message) noexcept;
  // The peer has failed.
  void note_failed(OutgoingRing& to);

 private:
  [[nodiscard]] bool make();
  [[nodiscard]] bool may_lend(const OutgoingRing& to) const;
  [[nodiscard]] bool find_free(OutgoingRing& to);
  void note_lender(OutgoingRing& to);
  void collect(OutgoingRing& to);
  void free(OutgoingRing& to);

  Device& device_;
  const std::uint32_t worker_;
  std::byte* base_ = nullptr;  // null: not made yet
  // The free ones, the one that was freed first next.
  std::array<std::uint8_t, kCells> free_{};
  std::uint32_t first_ = 0;
  std::uint32_t count_ = 0;
  std::vector<OutgoingRing*> lenders_;  // rings that have cells, or had some
};

// Where a message of a peer's worker lies. DONE, malformed, or no_memory: it cannot be mapped now.
[[nodiscard]] Served locate(const Layout& layout, IncomingRing& from, const queue::Record& record,
                            const std::byte** data, std::uint32_t* bytes) noexcept;

}  // namespace heddle::transport::shm
