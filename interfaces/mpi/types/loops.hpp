// How the data of a datatype lies in memory, as few and as long loops as possible. Copying runs
// over these loops. Neighbouring blocks are joined and equal ones at equal distances are one loop,
// so that memory and steps do not grow with the counts that the program gave.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "mpi/types/type.hpp"

namespace heddle::mpi {

// All offsets are in bytes from the place of the loop that contains it.
struct Loop {
  enum class Kind : std::uint8_t {
    block,      // `block` bytes
    blocks,     // `count` blocks of `block` bytes, `stride` apart
    scattered,  // `count` blocks of `block` bytes at `offsets`
    pieces,     // blocks of different lengths
    repeat,     // `count` times `child`, `stride` apart
    list,       // different loops at different places
  };
  struct Piece {
    MPI_Count offset;
    MPI_Count bytes;
    MPI_Count before;  // bytes in the pieces before it
  };
  struct WindowPart {
    MPI_Count offset;
    MPI_Count before;
    std::shared_ptr<const Loop> loop;
  };

  Kind kind = Kind::block;
  MPI_Count bytes = 0;   // of data
  MPI_Count offset = 0;  // of what it contains
  MPI_Count count = 1;
  MPI_Count block = 0;
  MPI_Count stride = 0;
  std::shared_ptr<const Loop> child;
  std::shared_ptr<const std::vector<MPI_Count>> offsets;
  std::shared_ptr<const std::vector<Piece>> pieces;
  std::shared_ptr<const std::vector<WindowPart>> parts;
};

// ---- making -------------------------------------------------------------------------------------

// Null stands for a block of `bytes` bytes at `offset` in what follows.
struct PlacedLoop {
  std::shared_ptr<const Loop> loop;
  MPI_Count offset = 0;
  MPI_Count bytes = 0;
};
// A loop of `count` > 0 of them, `stride` apart.
PlacedLoop repeated(const PlacedLoop& loop, MPI_Count count, MPI_Count stride);

// A sequence of loops.
class LoopList {
 public:
  void reserve(std::size_t count) { entries_.reserve(count); }
  void add(PlacedLoop loop);
  // Returns all added loops as one, and empties the list.
  PlacedLoop take();

 private:
  void flatten();
  [[nodiscard]] bool evenly_spaced() const;
  PlacedLoop of_blocks() const;
  PlacedLoop of_parts() const;

  std::vector<PlacedLoop> entries_;
};

// ---- walking ------------------------------------------------------------------------------------

// Calls, in order of the data, for all of it:
//   act.block(offset, bytes)
//   act.blocks(offset, count, stride, bytes)           `count` blocks, `stride` apart
//   act.scattered(offset, offsets, count, bytes)       `count` blocks at offset + offsets[i]
template <class Act>
void walk(const Loop& loop, MPI_Count base, Act& act) {
  base += loop.offset;
  switch (loop.kind) {
    case Loop::Kind::block:
      act.block(base, loop.block);
      break;
    case Loop::Kind::blocks:
      act.blocks(base, loop.count, loop.stride, loop.block);
      break;
    case Loop::Kind::scattered:
      act.scattered(base, loop.offsets->data(), loop.count, loop.block);
      break;
    case Loop::Kind::pieces:
      for (const Loop::Piece& piece : *loop.pieces) act.block(base + piece.offset, piece.bytes);
      break;
    case Loop::Kind::repeat:
      for (MPI_Count i = 0; i < loop.count; ++i) walk(*loop.child, base + i * loop.stride, act);
      break;
    case Loop::Kind::list:
      for (const Loop::WindowPart& part : *loop.parts) walk(*part.loop, base + part.offset, act);
      break;
  }
}

// Divides the bytes `from` to `to` (not empty) of the data of equal items of `each` bytes: calls
// part(item, from, to) for items of which only a part is wanted, and whole(first item, number) for
// those between.
template <class WindowPart, class Whole>
inline void split(MPI_Count from, MPI_Count to, MPI_Count each, WindowPart&& part, Whole&& whole) {
  MPI_Count first = from / each;
  const MPI_Count skipped = from - first * each;
  const MPI_Count last = to / each;
  const MPI_Count rest = to - last * each;
  if (first == last) {
    part(first, skipped, rest);
    return;
  }
  if (skipped != 0) part(first++, skipped, each);
  if (last > first) whole(first, last - first);
  if (rest != 0) part(last, MPI_Count{0}, rest);
}

template <class Act>
void walk_part(const Loop& loop, MPI_Count base, MPI_Count from, MPI_Count to, Act& act);

// The entry in which byte `from` lies, of entries with a `before`.
template <class Entry>
inline const Entry* entry_with(const std::vector<Entry>& entries, MPI_Count from) {
  const auto after = std::upper_bound(entries.begin(), entries.end(), from,
                                      [](MPI_Count value, const Entry& entry) { return value < entry.before; });
  return &*after - 1;
}

template <class Act>
void walk_part_of_list(const Loop& loop, MPI_Count base, MPI_Count from, MPI_Count to, Act& act) {
  if (loop.kind == Loop::Kind::pieces) {
    const Loop::Piece* piece = entry_with(*loop.pieces, from);
    for (; from < to; ++piece) {
      const MPI_Count end = std::min(to, piece->before + piece->bytes);
      act.block(base + piece->offset + (from - piece->before), end - from);
      from = end;
    }
    return;
  }
  const Loop::WindowPart* part = entry_with(*loop.parts, from);
  for (; from < to; ++part) {
    const MPI_Count end = std::min(to, part->before + part->loop->bytes);
    walk_part(*part->loop, base + part->offset, from - part->before, end - part->before, act);
    from = end;
  }
}

// As walk(), for the data from byte `from` to byte `to`.
template <class Act>
void walk_part(const Loop& loop, MPI_Count base, MPI_Count from, MPI_Count to, Act& act) {
  if (from >= to) return;
  if (from == 0 && to == loop.bytes) return walk(loop, base, act);
  base += loop.offset;
  switch (loop.kind) {
    case Loop::Kind::block:
      act.block(base + from, to - from);
      break;
    case Loop::Kind::blocks:
      split(
          from, to, loop.block,
          [&](MPI_Count i, MPI_Count begin, MPI_Count end) { act.block(base + i * loop.stride + begin, end - begin); },
          [&](MPI_Count i, MPI_Count n) { act.blocks(base + i * loop.stride, n, loop.stride, loop.block); });
      break;
    case Loop::Kind::scattered: {
      const MPI_Count* const offsets = loop.offsets->data();
      split(
          from, to, loop.block,
          [&](MPI_Count i, MPI_Count begin, MPI_Count end) { act.block(base + offsets[i] + begin, end - begin); },
          [&](MPI_Count i, MPI_Count n) { act.scattered(base, offsets + i, n, loop.block); });
      break;
    }
    case Loop::Kind::repeat:
      split(
          from, to, loop.child->bytes,
          [&](MPI_Count i, MPI_Count begin, MPI_Count end) {
            walk_part(*loop.child, base + i * loop.stride, begin, end, act);
          },
          [&](MPI_Count i, MPI_Count n) {
            for (const MPI_Count end = i + n; i < end; ++i) walk(*loop.child, base + i * loop.stride, act);
          });
      break;
    case Loop::Kind::pieces:
    case Loop::Kind::list:
      walk_part_of_list(loop, base, from, to, act);
      break;
  }
}

// The data of `count` elements of a layout.
template <class Act>
void walk(MPI_Count count, const TypeLayout& layout, Act& act) {
  if (count <= 0 || layout.size == 0) return;
  if (layout.contiguous) return act.block(layout.true_lb, count * layout.size);
  if (layout.loop == nullptr) return act.blocks(layout.true_lb, count, layout.extent, layout.size);
  for (MPI_Count i = 0; i < count; ++i) walk(*layout.loop, i * layout.extent, act);
}

// From byte `from` to byte `to` of them: within what they have.
template <class Act>
void walk_part(const TypeLayout& layout, MPI_Count from, MPI_Count to, Act& act) {
  if (from >= to || layout.size == 0) return;
  if (layout.contiguous) return act.block(layout.true_lb + from, to - from);
  split(
      from, to, layout.size,
      [&](MPI_Count i, MPI_Count begin, MPI_Count end) {
        const MPI_Count base = i * layout.extent;
        if (layout.loop == nullptr)
          act.block(base + layout.true_lb + begin, end - begin);
        else
          walk_part(*layout.loop, base, begin, end, act);
      },
      [&](MPI_Count i, MPI_Count n) {
        if (layout.loop == nullptr)
          return act.blocks(layout.true_lb + i * layout.extent, n, layout.extent, layout.size);
        for (const MPI_Count end = i + n; i < end; ++i) walk(*layout.loop, i * layout.extent, act);
      });
}

// Joins blocks that touch.
template <class Visit>
class BlockJoiner {
 public:
  explicit BlockJoiner(Visit& visit) : visit_(visit) {}
  void block(MPI_Count offset, MPI_Count bytes) {
    if (offset == end_ && bytes_ != 0) {
      bytes_ += bytes;
    } else {
      flush();
      bytes_ = bytes;
    }
    end_ = offset + bytes;
  }
  void blocks(MPI_Count offset, MPI_Count count, MPI_Count stride, MPI_Count bytes) {
    for (MPI_Count i = 0; i < count; ++i) block(offset + i * stride, bytes);
  }
  void scattered(MPI_Count offset, const MPI_Count* offsets, MPI_Count count, MPI_Count bytes) {
    for (MPI_Count i = 0; i < count; ++i) block(offset + offsets[i], bytes);
  }
  void flush() {
    if (bytes_ != 0) visit_(end_ - bytes_, bytes_);
    bytes_ = 0;
  }

 private:
  Visit& visit_;
  MPI_Count end_ = 0;
  MPI_Count bytes_ = 0;
};

template <class Visit>
void each_block(MPI_Count count, const Type& type, Visit&& visit) {
  BlockJoiner<std::remove_reference_t<Visit>> joiner(visit);
  walk(count, static_cast<const TypeLayout&>(type), joiner);
  joiner.flush();
}

}  // namespace heddle::mpi
