// Which parts of a process's segment are in use: whole pages, first fit. Bookkeeping only; not
// thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace heddle::transport::shm {

class Extents {
 public:
  // The file space [begin, end), both multiples of `page`. The file never grows beyond `end`.
  Extents(std::uint64_t begin, std::uint64_t end, std::uint64_t page);

  // The lowest offset with room for `bytes` (rounded up to pages) at a multiple of `alignment` (a
  // power of two, at least a page). Empty: there is none. Throws std::bad_alloc; then nothing has
  // changed.
  [[nodiscard]] std::optional<std::uint64_t> take(std::uint64_t bytes, std::uint64_t alignment);
  // The same, but only space that was never used before: a write through the key of a released
  // region cannot reach it.
  [[nodiscard]] std::optional<std::uint64_t> take_fresh(std::uint64_t bytes, std::uint64_t alignment);
  // Gives back what take() returned; `bytes` as then. If there is no memory for the bookkeeping,
  // the space stays unused; this does no harm, since the file can have terabytes.
  void give(std::uint64_t offset, std::uint64_t bytes) noexcept;

  // `bytes` rounded up to pages; 0 if that does not fit into 64 bits.
  [[nodiscard]] std::uint64_t rounded(std::uint64_t bytes) const;
  [[nodiscard]] std::size_t holes() const { return free_.size(); }

 private:
  std::optional<std::uint64_t> take_from(std::uint64_t least, std::uint64_t bytes, std::uint64_t alignment);

  std::uint64_t page_;
  std::uint64_t fresh_ = 0;                      // nothing was ever used from here on
  std::map<std::uint64_t, std::uint64_t> free_;  // offset -> bytes; neighbours are always merged
};

}  // namespace heddle::transport::shm
