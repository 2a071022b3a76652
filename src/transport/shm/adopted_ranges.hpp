// The memory that is adopted in this process (adoption.hpp), for the way back and for the children
// of fork(). The list is for the whole process, as fork() is.
//
// Invariants
//   mutex() is held while pages move, and by fork(), so a child finds each page moved or not.
//   A range that could not be put back stays here for ever, without its segment.
//   The way back and fork() need a descriptor of the segment's file and one of /proc/self/maps.
//   Both are open from the adoption on, so neither step fails when descriptors are used up.
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

}  // namespace heddle::transport::shm
