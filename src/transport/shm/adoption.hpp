// Adoption: the program's own memory, moved into the segment of its process (AdoptedSpace), and the
// list of it (AdoptedRanges).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/error.hpp"
#include "base/mappings.hpp"
#include "transport/shm/segment.hpp"

namespace heddle::transport::shm {

// A descriptor of its own, which outlives the segment.
struct SegmentFile {
  int fd = -1;
  dev_t device = 0;
  ino_t inode = 0;

  SegmentFile() = default;
  SegmentFile(const SegmentFile&) = delete;
  SegmentFile& operator=(const SegmentFile&) = delete;
  ~SegmentFile();
};

// Pages of the program at `first`, which lie in the file at `offset`.
struct AdoptedRange {
  const Segment* segment = nullptr;  // null: it has been left
  std::shared_ptr<const SegmentFile> file;
  std::uint64_t offset = 0;
  std::byte* first = nullptr;
  std::uint64_t bytes = 0;

  struct Part {
    std::byte* address = nullptr;
    std::uint64_t at = 0;  // in the range
    std::uint64_t bytes = 0;
    int protection = 0;
  };
  // The part of the range that the mapping has; 0 bytes: none.
  [[nodiscard]] Part part_in(const base::MappedRange& mapped) const;
  // The part is where the program had it when it was adopted.
  [[nodiscard]] bool in_place(const Part& part) const { return part.bytes != 0 && part.address == first + part.at; }
  [[nodiscard]] std::uint64_t bytes_in_place(const std::vector<base::MappedRange>& all) const;
};

// The memory that is adopted in this process, for the way back and for the children of fork(). The
// list is for the whole process, as fork() is.
//
// Invariants
//   mutex() is held while pages move, and by fork(), so a child finds each page moved or not.
//   A range that could not be put back stays here for ever, without its segment.
//   The way back and fork() need a descriptor of the segment's file and one of /proc/self/maps.
//   Both are open from the adoption on, so neither step fails when descriptors are used up.
class AdoptedRanges {
 public:
  static AdoptedRanges& of_process();
  AdoptedRanges(const AdoptedRanges&) = delete;
  AdoptedRanges& operator=(const AdoptedRanges&) = delete;

  std::mutex& mutex() { return mutex_; }

  // ---- with mutex() held
  // Before the first adoption of this process. SYSTEM: there is no descriptor, or no /proc.
  [[nodiscard]] base::Status open();
  // As base::read_mappings(); after open().
  [[nodiscard]] std::vector<base::MappedRange> mappings() const { return base::read_mappings(maps_); }
  [[nodiscard]] base::Result<std::shared_ptr<const SegmentFile>> file_of(Segment& segment) const;
  // Room for one more add(). Throws std::bad_alloc.
  void reserve() { ranges_.reserve(ranges_.size() + 1); }
  void add(AdoptedRange range) { ranges_.push_back(std::move(range)); }
  // Without its segment.
  void keep(AdoptedRange range) {
    range.segment = nullptr;
    add(std::move(range));
  }
  // Takes it out. False: there is none.
  [[nodiscard]] bool take(const Segment& segment, std::uint64_t offset, AdoptedRange* range);

 private:
  // For the child of the fork() that is under way.
  struct Copy {
    AdoptedRange::Part part;
    int fd;
    std::uint64_t offset;
  };

  AdoptedRanges() = default;
  void before_fork();
  void in_child();
  void list_copies();

  std::mutex mutex_;
  std::vector<AdoptedRange> ranges_;
  std::vector<Copy> copies_;
  bool listed_ = false;  // copies_ is all that is in place, which may be nothing
  int maps_ = -1;        // /proc/self/maps
};

// Adopted memory: the program's own, whose whole pages lie in this process's segment as long as it
// is registered, at the addresses where the program has them. So peers map it like allocated
// memory. The parts of pages at its two ends stay where they are.
//
// Nobody may touch the memory while it moves. A thread that does so may lose what it writes, or is
// noticed; other memory is never touched, since only whole pages of the caller's range are moved.
//
// Invariants
//   On its way into the segment a page is replaced by a copy of itself in one step of the kernel
//   (mmap over it). On its way back it is empty for a moment.
//   Pages are put back only where /proc/self/maps shows the segment's pages of this very range.
//   Memory that the program has mapped there since, or has moved away, is left alone.
//   Space of the segment is free again only when nothing of this process maps it but the segment.
//   A child of fork() gets all adopted pages as private ones, at the same addresses
//   (AdoptedRanges).

// The whole pages of some memory.
struct WholePages {
  std::byte* first = nullptr;
  std::uint64_t bytes = 0;        // 0: there are none
  std::uint32_t edge_before = 0;  // bytes of the memory before and behind them
  std::uint32_t edge_after = 0;

  static WholePages of(std::uint64_t address, std::uint64_t bytes);
};

// Space of the segment for these pages.
class AdoptedSpace {
 public:
  AdoptedSpace(Segment& segment, const WholePages& pages);
  [[nodiscard]] base::Status allocate();
  // The space that was allocated for the same pages; offset() was this. Until close().
  [[nodiscard]] base::Status open(std::uint64_t offset);
  // Removes bytes that a peer wrote there after a release, against its promise.
  [[nodiscard]] base::Status clear();
  // To be called before the pages there, from `at` on, are touched. NO_MEMORY: there is none for
  // them.
  [[nodiscard]] base::Status secure(std::uint64_t at, std::uint64_t bytes) const {
    return segment_.secure(offset() + at, bytes);
  }
  void close() { segment_.mapping().unmap(offset_, skip_ + bytes_); }
  void free() { segment_.free(offset_, skip_ + bytes_); }
  [[nodiscard]] int fd() const { return segment_.mapping().fd(); }
  // Where the first page lies in the segment's file, and in the segment's own mapping.
  [[nodiscard]] std::uint64_t offset() const { return offset_ + skip_; }
  [[nodiscard]] std::byte* window() const { return address_ + skip_; }
  [[nodiscard]] bool is_open() const { return address_ != nullptr; }

 private:
  Segment& segment_;
  std::uint64_t bytes_;
  std::uint64_t skip_;  // unused, so that huge pages fit the program's addresses
  std::uint64_t offset_ = 0;
  std::byte* address_ = nullptr;
};

// Moves the pages into new space of the segment, and says where it begins. On an error nothing has
// changed, unless the system has no memory even for the way back: UNSUPPORTED (the memory is of
// another kind), STATE (a thread wrote to it meanwhile), NO_MEMORY, SYSTEM.
[[nodiscard]] base::Result<std::uint64_t> move_in(Segment& segment, const WholePages& pages);

// Puts them back into private memory, and frees the space. False: the space is never used again,
// since a part of it is still mapped (no memory to put it back, or the program has moved it).
bool move_out(Segment& segment, std::uint64_t offset, const WholePages& pages);

}  // namespace heddle::transport::shm
