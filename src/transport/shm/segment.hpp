// A process's segment: the memfd with its mappings, and which parts of it are in use.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/error.hpp"

namespace heddle::transport::shm {

inline constexpr std::uint64_t kHugePage = std::uint64_t{2} << 20;  // bytes

// Which parts of a process's segment are in use: whole pages, first fit. Bookkeeping only; not
// thread-safe.
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

inline constexpr std::uint64_t kWindowBytes = std::uint64_t{64} << 20;

// Returns pages of a segment, by a mapping of it, to the system; later reads there find zeros.
// They are locked no more. False: the system does not take them.
[[nodiscard]] bool remove_pages(std::byte* address, std::uint64_t bytes);
// The system promises no more memory than it has (vm.overcommit_memory is 2).
[[nodiscard]] bool strict_overcommit();

// Segments: the anonymous shared file of each process, and the mappings of this process's file and
// of the peers' files.
//
// A file is mapped in windows of 64 MiB made on first use, so that thousands of extents cost one
// mapping; an extent that crosses a window's edge gets a mapping of its own. A window may reach
// beyond the end of the file. The file only grows: it is sealed against shrinking, so that a peer
// cannot remove memory while others read it.
//
// Any thread may call these. Nothing here is on the path of an operation.
class Mapping {
 public:
  explicit Mapping(int fd) : fd_(fd) {}  // owns the descriptor
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  [[nodiscard]] int fd() const { return fd_; }

  // Maps [offset, offset + bytes); offset a multiple of the page. RANGE if it leaves the file,
  // SYSTEM or NO_MEMORY, with last_message(). The same extent has the same address until it is
  // unmapped as often as mapped.
  [[nodiscard]] base::Result<std::byte*> map(std::uint64_t offset, std::uint64_t bytes);
  void unmap(std::uint64_t offset, std::uint64_t bytes);
  // As remove_pages(), of an extent that is mapped here.
  [[nodiscard]] bool remove(std::uint64_t offset, std::uint64_t bytes);

  [[nodiscard]] std::size_t mappings();  // number of mappings, for tests

 private:
  struct Own {
    std::byte* address = nullptr;
    std::uint64_t uses = 0;
  };
  using Extent = std::pair<std::uint64_t, std::uint64_t>;

  int fd_;
  std::mutex mutex_;
  std::uint64_t known_bytes_ = 0;                // the file has at least these
  std::map<std::uint64_t, std::byte*> windows_;  // by number
  std::map<Extent, Own> own_;                    // extents that cross windows
};

// This process's own segment.
class Segment {
 public:
  // control_bytes: reserved at the beginning. `strict`: see secure().
  static base::Result<std::unique_ptr<Segment>> create(std::uint64_t control_bytes, bool strict = strict_overcommit());

  struct Extent {
    std::uint64_t offset = 0;
    std::byte* address = nullptr;
  };
  // `own`: memory that the library itself uses. It never lies where a region was: a program that
  // still writes through the key of a released region may harm other regions, but no ring.
  enum class Use : std::uint8_t { region, own };
  // Zeroed.
  [[nodiscard]] base::Result<Extent> allocate(std::uint64_t bytes, Use use = Use::region);
  void free(std::uint64_t offset, std::uint64_t bytes);
  // If the system is strict and has no memory left, a thread that touches memory of the segment
  // gets SIGBUS. So on a strict system secure() gives these bytes their memory before that;
  // elsewhere it does nothing. NO_MEMORY: there is none.
  [[nodiscard]] base::Status secure(std::uint64_t offset, std::uint64_t bytes) const;

  [[nodiscard]] Mapping& mapping() { return *mapping_; }
  // memory that the file really occupies, for tests
  [[nodiscard]] std::uint64_t bytes_in_use() const;

 private:
  // Pages that were freed one by one and lie ready, zeroed. Giving a page back interrupts all cores
  // that have used it, and the next page costs each process a fault. That would cost microseconds
  // for a region that comes and goes with an operation.
  static constexpr std::size_t kMostKept = 64;

  Segment(int fd, std::uint64_t control_bytes, bool strict);
  base::Status grow(std::uint64_t end);
  base::Result<std::uint64_t> take(std::uint64_t bytes, Use use);
  bool keep(std::uint64_t offset);

  std::unique_ptr<Mapping> mapping_;
  const bool strict_;
  std::mutex mutex_;
  Extents extents_;
  std::uint64_t file_bytes_ = 0;
  std::vector<std::uint64_t> kept_;  // their offsets
};

// PROTOCOL: the file is not sealed, so the peer could shrink it while we use it.
base::Status check_seals(int fd, std::uint32_t rank);

}  // namespace heddle::transport::shm
