// Cutting bytes into pieces.
#pragma once

#include <algorithm>
#include <cstdint>

#include "collective/schedule.hpp"

namespace heddle::collective {

// `bytes` from `begin` on, in pieces of at most segment_bytes; at least one piece, which may be
// empty.
struct Pieces {
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;
  std::uint64_t segment = 0;

  Pieces(std::uint64_t begin_at, std::uint64_t all, std::uint64_t segment_bytes)
      : begin(begin_at),
        bytes(all),
        segment(segment_bytes == 0 || segment_bytes > all ? std::max<std::uint64_t>(all, 1) : segment_bytes) {}

  [[nodiscard]] std::uint32_t count() const {
    return bytes == 0 ? 1 : static_cast<std::uint32_t>((bytes + segment - 1) / segment);
  }
  [[nodiscard]] Block at(Place place, std::uint32_t i) const {
    const std::uint64_t offset = std::min(bytes, i * segment);
    return {place, begin + offset, std::min(segment, bytes - offset)};
  }
};

// Part `i` when `bytes` are cut, between elements, into `parts` nearly equal parts.
inline Block part(Place place, std::uint64_t bytes, std::uint64_t element_bytes, std::uint64_t parts, std::uint64_t i) {
  const std::uint64_t elements = bytes / element_bytes;
  const std::uint64_t begin = elements * i / parts;
  const std::uint64_t end = elements * (i + 1) / parts;
  return {place, begin * element_bytes, (end - begin) * element_bytes};
}

}  // namespace heddle::collective
