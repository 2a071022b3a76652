#include "transport/shm/cells.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "base/copy.hpp"

namespace heddle::transport::shm {

namespace {

// Messages begin at a multiple of 8 in their cell, and their data, if possible, at the same byte of
// a line as its source; never 1 to 63 bytes behind it, modulo 4096.
std::uint32_t offset_in(const std::byte* cell, const Command& message) {
  constexpr std::uintptr_t kLineBytes = 64;
  constexpr std::uintptr_t kAlias = 4096;
  const auto source = reinterpret_cast<std::uintptr_t>(message.local);
  const std::uintptr_t data = reinterpret_cast<std::uintptr_t>(cell) + wire::pad8(message.header_bytes);
  const std::uintptr_t same = (source - data) % kLineBytes & ~std::uintptr_t{7};
  const std::uintptr_t after = data + same - source;
  return static_cast<std::uint32_t>(after % kAlias - 1 < kLineBytes - 1 ? same + kLineBytes : same);
}

}  // namespace

bool Cells::make() {
  const auto extent = device_.segment().allocate(kCellPoolBytes, Segment::Use::own);
  if (!extent) return false;
  base_ = extent->address;
  for (std::uint32_t i = 0; i < kCells; ++i) free_[i] = static_cast<std::uint8_t>(i);
  count_ = kCells;
  // Partner: locate().
  device_.control().worker(worker_).cells_at.store(extent->offset, std::memory_order_release);
  return true;
}

void Cells::free(OutgoingRing& to) {
  const auto cell = static_cast<std::uint8_t>(to.cells[to.first_cell].cell);
  to.first_cell = (to.first_cell + 1) % kCells;
  --to.cell_count;
  free_[(first_ + count_++) % kCells] = cell;
}

// Takes back what the receiver has freed: all, if it has closed its worker.
void Cells::collect(OutgoingRing& to) {
  if (to.cell_count == 0) return;
  const std::uint64_t freed = to.is_closed() ? ~std::uint64_t{0} : to.ring.freed();
  while (to.cell_count != 0 && to.cells[to.first_cell].end <= freed) free(to);
}

// Whether a peer gets one more: twice as many as are left for others.
bool Cells::may_lend(const OutgoingRing& to) const {
  return to.cell_count < 2 * count_;
}

bool Cells::find_free(OutgoingRing& to) {
  if (may_lend(to)) return true;
  collect(to);
  if (may_lend(to)) return true;
  std::erase_if(lenders_, [this, &to](OutgoingRing* lender) {
    collect(*lender);
    return lender != &to && lender->cell_count == 0;
  });
  return may_lend(to);
}

// Everything that may throw comes before any change.
void Cells::note_lender(OutgoingRing& to) {
  if (to.cells == nullptr) to.cells = std::make_unique<OutgoingRing::LentCell[]>(kCells);
  if (std::ranges::find(lenders_, &to) == lenders_.end()) lenders_.push_back(&to);
}

bool Cells::begin(OutgoingRing& to, const Command& message) noexcept {
  try {
    if (base_ == nullptr && !make()) return false;
    if (to.cell_count == 0) note_lender(to);
  } catch (const std::bad_alloc&) {
    return false;
  }
  if (!find_free(to)) return false;
  std::byte* const room = to.ring.begin(kCellType, message.immediate, sizeof(CellRecord));
  if (room == nullptr) return false;
  CellRecord record;
  record.cell = free_[first_];
  first_ = (first_ + 1) % kCells;
  --count_;
  to.cells[(to.first_cell + to.cell_count++) % kCells] = {to.ring.index(), record.cell};
  std::byte* const place = base_ + record.cell * kCellStride;
  record.offset = offset_in(place, message);
  record.bytes = static_cast<std::uint32_t>(message.packet_bytes());
  write_packet(message, place + record.offset);
  std::memcpy(room, &record, sizeof record);
  return true;
}

void Cells::note_failed(OutgoingRing& to) {
  std::erase(lenders_, &to);
  // A thread of a rank that was only declared dead may still read them: those are not used again.
  const bool same_process = to.peer->pid == static_cast<std::int32_t>(getpid());
  if (same_process || !device_.failed(to.peer->rank)) return;
  while (to.cell_count != 0) free(to);
}

Served locate(const Layout& layout, IncomingRing& from, const queue::Record& record, const std::byte** data,
              std::uint32_t* bytes) noexcept {
  CellRecord found;
  if (record.bytes != sizeof found) return Served::malformed;
  std::memcpy(&found, record.data, sizeof found);
  if (found.cell >= kCells || found.offset % sizeof(std::uint64_t) != 0 || found.bytes > kCellBytes ||
      found.offset > kCellStride - found.bytes) {
    return Served::malformed;
  }
  if (from.cells == nullptr) {
    // Partner: Cells::make().
    const std::uint64_t at = from.peer->control.worker(from.worker).cells_at.load(std::memory_order_acquire);
    if (at < layout.control_bytes) return Served::malformed;
    try {
      const std::uint64_t page = page_bytes();
      const auto mapped = from.peer->mapping->map(at, (kCellPoolBytes + page - 1) / page * page);
      if (!mapped) return mapped.status() == HEDDLE_ERR_NO_MEMORY ? Served::no_memory : Served::malformed;
      from.cells = *mapped;
    } catch (const std::bad_alloc&) {
      return Served::no_memory;
    }
  }
  *data = from.cells + found.cell * kCellStride + found.offset;
  *bytes = found.bytes;
  return Served::done;
}

}  // namespace heddle::transport::shm
