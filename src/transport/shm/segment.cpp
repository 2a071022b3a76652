#include "transport/shm/segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <new>
#include <tuple>

#include "transport/shm/layout.hpp"

namespace heddle::transport::shm {

Extents::Extents(std::uint64_t begin, std::uint64_t end, std::uint64_t page) : page_(page) {
  if (end > begin) free_.emplace(begin, end - begin);
}

std::uint64_t Extents::rounded(std::uint64_t bytes) const {
  const std::uint64_t up = bytes + (page_ - 1);
  return up < bytes ? 0 : up / page_ * page_;
}

std::optional<std::uint64_t> Extents::take(std::uint64_t bytes, std::uint64_t alignment) {
  return take_from(0, bytes, alignment);
}

std::optional<std::uint64_t> Extents::take_fresh(std::uint64_t bytes, std::uint64_t alignment) {
  return take_from(fresh_, bytes, alignment);
}

std::optional<std::uint64_t> Extents::take_from(std::uint64_t least, std::uint64_t bytes, std::uint64_t alignment) {
  const std::uint64_t need = rounded(bytes);
  if (need == 0) return std::nullopt;
  for (auto hole = free_.begin(); hole != free_.end(); ++hole) {
    const auto [begin, room] = *hole;
    const std::uint64_t at = (std::max(begin, least) + alignment - 1) & ~(alignment - 1);
    if (at < begin || at - begin > room || room - (at - begin) < need) continue;
    const std::uint64_t behind = room - (at - begin) - need;
    // may throw, so it comes before the hole changes
    if (behind != 0) free_.emplace(at + need, behind);
    if (at == begin) {
      free_.erase(hole);
    } else {
      hole->second = at - begin;
    }
    fresh_ = std::max(fresh_, at + need);
    return at;
  }
  return std::nullopt;
}

void Extents::give(std::uint64_t offset, std::uint64_t bytes) noexcept {
  std::map<std::uint64_t, std::uint64_t>::iterator hole;
  try {
    bool added = false;
    std::tie(hole, added) = free_.emplace(offset, rounded(bytes));
    if (!added) return;
  } catch (const std::bad_alloc&) {
    return;
  }
  const auto next = std::next(hole);
  if (next != free_.end() && hole->first + hole->second == next->first) {
    hole->second += next->second;
    free_.erase(next);
  }
  if (hole == free_.begin()) return;
  const auto previous = std::prev(hole);
  if (previous->first + previous->second == hole->first) {
    previous->second += hole->second;
    free_.erase(hole);
  }
}

namespace {

// half of what x86-64 can map; aarch64 with 48-bit addresses can map more
constexpr std::uint64_t kMaxFileBytes = std::uint64_t{1} << 46;

base::Result<std::byte*> map_file(int fd, std::uint64_t offset, std::uint64_t bytes) {
  void* address =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, static_cast<off_t>(offset));
  if (address == MAP_FAILED) {
    return base::fail_errno(errno == ENOMEM ? HEDDLE_ERR_NO_MEMORY : HEDDLE_ERR_SYSTEM,
                            "mmap of %llu bytes of a shared segment", static_cast<unsigned long long>(bytes));
  }
  // A child of fork() is no member of the job (heddle.h); it must not keep peers' memory alive or
  // touch it either.
  madvise(address, bytes, MADV_DONTFORK);
  return static_cast<std::byte*>(address);
}

}  // namespace

bool remove_pages(std::byte* address, std::uint64_t bytes) {
  if (madvise(address, bytes, MADV_REMOVE) == 0) return true;
  // EINVAL: the program has locked them (mlockall)
  return errno == EINVAL && munlock(address, bytes) == 0 && madvise(address, bytes, MADV_REMOVE) == 0;
}

bool strict_overcommit() {
  char mode = '0';
  std::ifstream("/proc/sys/vm/overcommit_memory") >> mode;
  return mode == '2';
}

Mapping::~Mapping() {
  for (const auto& [number, address] : windows_) munmap(address, kWindowBytes);
  for (const auto& [extent, own] : own_) munmap(own.address, extent.second);
  if (fd_ >= 0) close(fd_);
}

base::Result<std::byte*> Mapping::map(std::uint64_t offset, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes == 0 || offset % page_bytes() != 0 || offset > kMaxFileBytes || bytes > kMaxFileBytes) {
    return base::fail(HEDDLE_ERR_RANGE, "extent %llu + %llu is not one of a shared segment",
                      static_cast<unsigned long long>(offset), static_cast<unsigned long long>(bytes));
  }
  if (offset + bytes > known_bytes_) {
    struct stat status{};
    if (fstat(fd_, &status) != 0) return base::fail_errno(HEDDLE_ERR_SYSTEM, "fstat of a shared segment");
    known_bytes_ = static_cast<std::uint64_t>(status.st_size);
    if (offset + bytes > known_bytes_) {
      return base::fail(HEDDLE_ERR_RANGE, "extent %llu + %llu leaves the shared segment of %llu bytes",
                        static_cast<unsigned long long>(offset), static_cast<unsigned long long>(bytes),
                        static_cast<unsigned long long>(known_bytes_));
    }
  }
  const std::uint64_t number = offset / kWindowBytes;
  if ((offset + bytes - 1) / kWindowBytes == number) {
    // may throw, so it comes before the mapping
    const auto [window, added] = windows_.try_emplace(number, nullptr);
    if (added) {
      const auto mapped = map_file(fd_, number * kWindowBytes, kWindowBytes);
      if (!mapped) {
        windows_.erase(window);
        return mapped;
      }
      window->second = *mapped;
    }
    return window->second + offset % kWindowBytes;
  }
  Own& own = own_[{offset, bytes}];
  if (own.uses == 0) {
    const auto mapped = map_file(fd_, offset, bytes);
    if (!mapped) {
      own_.erase({offset, bytes});
      return mapped;
    }
    own.address = *mapped;
  }
  ++own.uses;
  return own.address;
}

void Mapping::unmap(std::uint64_t offset, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = own_.find({offset, bytes});
  if (found == own_.end() || --found->second.uses != 0) return;
  munmap(found->second.address, bytes);
  own_.erase(found);
}

bool Mapping::remove(std::uint64_t offset, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  std::byte* address = nullptr;
  if (const auto own = own_.find({offset, bytes}); own != own_.end()) {
    address = own->second.address;
  } else if (const auto window = windows_.find(offset / kWindowBytes); window != windows_.end()) {
    address = window->second + offset % kWindowBytes;
  }
  return address != nullptr && remove_pages(address, bytes);
}

std::size_t Mapping::mappings() {
  const std::lock_guard lock(mutex_);
  return windows_.size() + own_.size();
}

Segment::Segment(int fd, std::uint64_t control_bytes, bool strict)
    : mapping_(std::make_unique<Mapping>(fd)), strict_(strict), extents_(control_bytes, kMaxFileBytes, page_bytes()) {
  kept_.reserve(kMostKept);
}

base::Result<std::unique_ptr<Segment>> Segment::create(std::uint64_t control_bytes, bool strict) {
  const int fd = memfd_create("heddle", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return base::fail_errno(HEDDLE_ERR_SYSTEM, "memfd_create for the shared segment");
  std::unique_ptr<Segment> segment(new Segment(fd, control_bytes, strict));
  if (fchmod(fd, S_IRUSR | S_IWUSR) != 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
    return base::fail_errno(HEDDLE_ERR_SYSTEM, "setting up the shared segment");
  }
  if (const base::Status status = segment->grow(control_bytes); status != HEDDLE_DONE) return status;
  return segment;
}

base::Status Segment::grow(std::uint64_t end) {
  if (end <= file_bytes_) return HEDDLE_DONE;
  if (ftruncate(mapping_->fd(), static_cast<off_t>(end)) != 0) {
    return base::fail_errno(HEDDLE_ERR_NO_MEMORY, "growing the shared segment to %llu bytes",
                            static_cast<unsigned long long>(end));
  }
  file_bytes_ = end;
  return HEDDLE_DONE;
}

base::Result<std::uint64_t> Segment::take(std::uint64_t bytes, Use use) {
  const std::lock_guard lock(mutex_);
  if (use == Use::region && !kept_.empty() && extents_.rounded(bytes) == page_bytes()) {
    const std::uint64_t offset = kept_.back();
    kept_.pop_back();
    return offset;
  }
  const std::uint64_t alignment = bytes >= kHugePage ? kHugePage : page_bytes();
  const auto at = use == Use::own ? extents_.take_fresh(bytes, alignment) : extents_.take(bytes, alignment);
  if (!at) {
    return base::fail(
        HEDDLE_ERR_NO_MEMORY,
        "no room for %llu bytes in the shared segment, which can hold %llu in all; release regions, or ask "
        "for less",
        static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(kMaxFileBytes));
  }
  const base::Status status = grow(*at + extents_.rounded(bytes));
  if (status != HEDDLE_DONE) {
    extents_.give(*at, bytes);
    return status;
  }
  return *at;
}

base::Result<Segment::Extent> Segment::allocate(std::uint64_t bytes, Use use) {
  const auto taken = take(bytes, use);
  if (!taken) return taken.status();
  Extent extent;
  extent.offset = *taken;
  const auto mapped = mapping_->map(extent.offset, extents_.rounded(bytes));
  if (!mapped) {
    const std::lock_guard lock(mutex_);
    extents_.give(extent.offset, bytes);
    return mapped.status();
  }
  extent.address = *mapped;
  // only a hint
  if (bytes >= kHugePage) madvise(extent.address, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  return extent;
}

// False: there are enough kept pages; or the page has no memory. Writing zeros would give it
// memory, or fail.
bool Segment::keep(std::uint64_t offset) {
  const auto here = static_cast<off_t>(offset);
  if (::lseek(mapping_->fd(), here, SEEK_DATA) != here) return false;
  const std::lock_guard lock(mutex_);
  if (kept_.size() == kMostKept) return false;
  const auto mapped = mapping_->map(offset, page_bytes());  // in a window: it is there already
  if (!mapped) return false;
  std::memset(*mapped, 0, page_bytes());
  kept_.push_back(offset);
  return true;
}

void Segment::free(std::uint64_t offset, std::uint64_t bytes) {
  const std::uint64_t rounded = extents_.rounded(bytes);
  if (rounded == page_bytes() && keep(offset)) return;
  // Returns the memory to the system, so that the next extent there is zero. By address, not by
  // file offset: libraries that cache registrations by address, such as UCX, watch madvise. If the
  // kernel fails, the extent must not be reused, since its pages keep their contents.
  const bool removed = mapping_->remove(offset, rounded);
  mapping_->unmap(offset, rounded);
  const std::lock_guard lock(mutex_);
  if (removed) extents_.give(offset, bytes);
}

base::Status Segment::secure(std::uint64_t offset, std::uint64_t bytes) const {
  if (!strict_) return HEDDLE_DONE;
  int failed = 0;
  do {
    failed = fallocate(mapping_->fd(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  } while (failed != 0 && errno == EINTR);
  if (failed == 0) return HEDDLE_DONE;
  return base::fail_errno(HEDDLE_ERR_NO_MEMORY, "the system has no %llu bytes for the shared segment",
                          static_cast<unsigned long long>(bytes));
}

std::uint64_t Segment::bytes_in_use() const {
  struct stat status{};
  if (fstat(mapping_->fd(), &status) != 0) return 0;
  return static_cast<std::uint64_t>(status.st_blocks) * 512;
}

base::Status check_seals(int fd, std::uint32_t rank) {
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return base::fail(HEDDLE_ERR_PROTOCOL, "the segment of rank %u is not sealed against shrinking", rank);
  }
  return HEDDLE_DONE;
}

}  // namespace heddle::transport::shm
