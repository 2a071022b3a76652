// Which parts of a process's segment are in use: page-granular, first fit. Bookkeeping only; not
// thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace heddle::transport::shm {

class Extents {
 public:
  // The file space [begin, end), `end` being the most that the file may ever grow to; multiples of
  // `page`.
  Extents(std::uint64_t begin, std::uint64_t end, std::uint64_t page);

  // The lowest place with room for `bytes` (rounded up to pages) at a multiple of `alignment` (a
  // power of two, at least a page). Empty: there is none. Throws std::bad_alloc; nothing has
  // changed then.
  [[nodiscard]] std::optional<std::uint64_t> take(std::uint64_t bytes, std::uint64_t alignment);
  // The same, where nothing has lain before: what writes by a name of something that was given back
  // does not reach it.
  [[nodiscard]] std::optional<std::uint64_t> take_fresh(std::uint64_t bytes, std::uint64_t alignment);
  // What take() gave, with the same bytes. With no memory to note it the place is given up: of a
  // file that can have terabytes, so nothing that anybody would miss.
  void give(std::uint64_t offset, std::uint64_t bytes) noexcept;

  // Rounded up to pages; 0 if that does not fit into 64 bits.
  [[nodiscard]] std::uint64_t rounded(std::uint64_t bytes) const;
  [[nodiscard]] std::size_t holes() const { return free_.size(); }

 private:
  std::optional<std::uint64_t> take_from(std::uint64_t least, std::uint64_t bytes, std::uint64_t alignment);

  std::uint64_t page_;
  std::uint64_t fresh_ = 0;                      // nothing has lain from here on
  std::map<std::uint64_t, std::uint64_t> free_;  // offset -> bytes; neighbours are always merged
};

}  // namespace heddle::transport::shm
