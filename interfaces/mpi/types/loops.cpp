#include "mpi/types/loops.hpp"

#include <utility>

namespace heddle::mpi {
namespace {

// Lists that are no longer than this are kept as one level.
constexpr std::size_t kShort = 64;
constexpr MPI_Count kFewBlocks = 8;

Loop with_offset(const Loop& loop, MPI_Count offset) {
  Loop moved = loop;
  moved.offset += offset;
  return moved;
}

PlacedLoop placed(Loop loop) {
  const MPI_Count bytes = loop.bytes;
  return {std::make_shared<const Loop>(std::move(loop)), 0, bytes};
}

PlacedLoop evenly(MPI_Count offset, MPI_Count count, MPI_Count stride, MPI_Count block) {
  if (count == 1 || stride == block) return {nullptr, offset, count * block};
  Loop loop;
  loop.kind = Loop::Kind::blocks;
  loop.offset = offset;
  loop.count = count;
  loop.block = block;
  loop.stride = stride;
  loop.bytes = count * block;
  return placed(std::move(loop));
}

Loop as_loop(const PlacedLoop& entry) {
  if (entry.loop != nullptr) return with_offset(*entry.loop, entry.offset);
  Loop loop;
  loop.offset = entry.offset;
  loop.block = loop.bytes = entry.bytes;
  return loop;
}

bool has_few(const Loop& loop) {
  switch (loop.kind) {
    case Loop::Kind::block:
      return true;
    case Loop::Kind::blocks:
    case Loop::Kind::scattered:
      return loop.count <= kFewBlocks;
    case Loop::Kind::pieces:
      return loop.pieces->size() <= kShort;
    case Loop::Kind::repeat:
      return false;
    case Loop::Kind::list:
      return loop.parts->size() <= kShort;
  }
  return false;
}

}  // namespace

PlacedLoop repeated(const PlacedLoop& of, MPI_Count count, MPI_Count stride) {
  if (count == 1 || of.bytes == 0) return of;
  if (of.loop == nullptr) return evenly(of.offset, count, stride, of.bytes);
  const Loop& loop = *of.loop;
  const bool even = loop.kind == Loop::Kind::blocks || loop.kind == Loop::Kind::repeat;
  MPI_Count next = 0;
  if (even && !__builtin_mul_overflow(loop.count, loop.stride, &next) &&
      stride == next) {  // it goes on in the same steps
    Loop longer = with_offset(loop, of.offset);
    longer.count *= count;
    longer.bytes *= count;
    return placed(std::move(longer));
  }
  Loop outer;
  outer.kind = Loop::Kind::repeat;
  outer.offset = of.offset;
  outer.count = count;
  outer.stride = stride;
  outer.child = of.loop;
  outer.bytes = count * loop.bytes;
  return placed(std::move(outer));
}

void LoopList::add(PlacedLoop loop) {
  if (loop.bytes == 0) return;
  if (loop.loop == nullptr && !entries_.empty()) {
    PlacedLoop& last = entries_.back();
    if (last.loop == nullptr && last.offset + last.bytes == loop.offset) {
      last.bytes += loop.bytes;
      return;
    }
  }
  entries_.push_back(std::move(loop));
}

// Puts the parts of short lists in their place.
void LoopList::flatten() {
  LoopList flat;
  for (const PlacedLoop& entry : entries_) {
    if (entry.loop == nullptr || !has_few(*entry.loop)) {
      flat.add(entry);
      continue;
    }
    const Loop& loop = *entry.loop;
    const MPI_Count base = entry.offset + loop.offset;
    if (loop.kind == Loop::Kind::list) {
      for (const Loop::WindowPart& part : *loop.parts) {
        const bool block = part.loop->kind == Loop::Kind::block;
        const MPI_Count offset = base + part.offset;
        flat.add(block ? PlacedLoop{nullptr, offset + part.loop->offset, part.loop->bytes}
                       : PlacedLoop{part.loop, offset, part.loop->bytes});
      }
    } else if (loop.kind == Loop::Kind::pieces) {
      for (const Loop::Piece& piece : *loop.pieces) flat.add({nullptr, base + piece.offset, piece.bytes});
    } else {
      for (MPI_Count i = 0; i < loop.count; ++i) {
        const MPI_Count step =
            loop.kind == Loop::Kind::scattered ? (*loop.offsets)[static_cast<std::size_t>(i)] : i * loop.stride;
        flat.add({nullptr, base + step, loop.block});
      }
    }
    if (flat.entries_.size() > kShort) return;  // too many: as it was
  }
  entries_ = std::move(flat.entries_);
}

bool LoopList::evenly_spaced() const {
  const PlacedLoop& first = entries_.front();
  // The distance of blocks far apart may not fit in 64 bits.
  MPI_Count stride = 0;
  if (__builtin_sub_overflow(entries_[1].offset, first.offset, &stride)) return false;
  for (std::size_t i = 1; i < entries_.size(); ++i) {
    const PlacedLoop& entry = entries_[i];
    MPI_Count step = 0;
    if (entry.loop != first.loop || entry.bytes != first.bytes) return false;
    if (__builtin_sub_overflow(entry.offset, entries_[i - 1].offset, &step) || step != stride) return false;
  }
  return true;
}

PlacedLoop LoopList::of_blocks() const {
  Loop loop;
  loop.count = static_cast<MPI_Count>(entries_.size());
  const MPI_Count bytes = entries_.front().bytes;
  if (std::ranges::all_of(entries_, [bytes](const PlacedLoop& entry) { return entry.bytes == bytes; })) {
    auto offsets = std::make_shared<std::vector<MPI_Count>>();
    offsets->reserve(entries_.size());
    for (const PlacedLoop& entry : entries_) offsets->push_back(entry.offset);
    loop.kind = Loop::Kind::scattered;
    loop.block = bytes;
    loop.bytes = loop.count * bytes;
    loop.offsets = std::move(offsets);
    return placed(std::move(loop));
  }
  auto pieces = std::make_shared<std::vector<Loop::Piece>>();
  pieces->reserve(entries_.size());
  for (const PlacedLoop& entry : entries_) {
    pieces->push_back({entry.offset, entry.bytes, loop.bytes});
    loop.bytes += entry.bytes;
  }
  loop.kind = Loop::Kind::pieces;
  loop.pieces = std::move(pieces);
  return placed(std::move(loop));
}

PlacedLoop LoopList::of_parts() const {
  Loop loop;
  loop.kind = Loop::Kind::list;
  loop.count = static_cast<MPI_Count>(entries_.size());
  auto parts = std::make_shared<std::vector<Loop::WindowPart>>();
  parts->reserve(entries_.size());
  for (const PlacedLoop& entry : entries_) {
    if (entry.loop != nullptr)
      parts->push_back({entry.offset, loop.bytes, entry.loop});
    else
      parts->push_back({0, loop.bytes, std::make_shared<const Loop>(as_loop(entry))});
    loop.bytes += entry.bytes;
  }
  loop.parts = std::move(parts);
  return placed(std::move(loop));
}

PlacedLoop LoopList::take() {
  const auto is_block = [](const PlacedLoop& entry) { return entry.loop == nullptr; };
  PlacedLoop taken;
  if (entries_.size() > 1 && entries_.size() <= kShort && !std::ranges::all_of(entries_, is_block) && !evenly_spaced())
    flatten();
  if (entries_.size() == 1) {
    taken = entries_.front();
  } else if (entries_.size() > 1) {
    if (evenly_spaced()) {
      taken =
          repeated(entries_.front(), static_cast<MPI_Count>(entries_.size()), entries_[1].offset - entries_[0].offset);
    } else {
      taken = std::ranges::all_of(entries_, is_block) ? of_blocks() : of_parts();
    }
  }
  entries_.clear();
  return taken;
}

}  // namespace heddle::mpi
