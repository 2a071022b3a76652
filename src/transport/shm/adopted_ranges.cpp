#include "transport/shm/adopted_ranges.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <new>

namespace heddle::transport::shm {
namespace {

// Handlers of a child run in the order in which they were registered: at load, so that hardly any
// other runs, and writes to adopted memory, before ours.
[[gnu::constructor]] void register_handlers() {
  AdoptedRanges::of_process();
}

}  // namespace

SegmentFile::~SegmentFile() {
  if (fd >= 0) close(fd);
}

AdoptedRange::Part AdoptedRange::part_in(const base::MappedRange& mapped) const {
  if (mapped.inode != file->inode || mapped.device != file->device) return {};
  const std::uint64_t begin = std::max(offset, mapped.offset);
  const std::uint64_t end = std::min(offset + bytes, mapped.offset + (mapped.end - mapped.begin));
  if (begin >= end) return {};
  const std::uint64_t address = mapped.begin + (begin - mapped.offset);
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  return {reinterpret_cast<std::byte*>(address), begin - offset, end - begin, mapped.protection};
}

std::uint64_t AdoptedRange::bytes_in_place(const std::vector<base::MappedRange>& all) const {
  std::uint64_t found = 0;
  for (const base::MappedRange& mapped : all) {
    const Part part = part_in(mapped);
    if (in_place(part)) found += part.bytes;
  }
  return found;
}

AdoptedRanges& AdoptedRanges::of_process() {
  static AdoptedRanges* const ranges = [] {
    auto* made = new AdoptedRanges;  // fork() may run at the very end of the process
    pthread_atfork([] { of_process().before_fork(); }, [] { of_process().mutex_.unlock(); },
                   [] { of_process().in_child(); });
    return made;
  }();
  return *ranges;
}

base::Status AdoptedRanges::open() {
  if (maps_ < 0) maps_ = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (maps_ >= 0) return HEDDLE_DONE;
  return base::fail_errno(HEDDLE_ERR_SYSTEM, "/proc/self/maps, without which no memory can be adopted");
}

base::Result<std::shared_ptr<const SegmentFile>> AdoptedRanges::file_of(Segment& segment) const {
  const int fd = segment.mapping().fd();
  struct stat status{};
  if (fstat(fd, &status) != 0) return base::fail_errno(HEDDLE_ERR_SYSTEM, "fstat of the shared segment");
  for (const AdoptedRange& range : ranges_) {
    if (range.file->inode == status.st_ino && range.file->device == status.st_dev) return range.file;
  }
  const auto file = std::make_shared<SegmentFile>();
  file->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (file->fd < 0) return base::fail_errno(HEDDLE_ERR_SYSTEM, "a descriptor to adopt memory");
  file->device = status.st_dev;
  file->inode = status.st_ino;
  return std::shared_ptr<const SegmentFile>(file);
}

bool AdoptedRanges::take(const Segment& segment, std::uint64_t offset, AdoptedRange* range) {
  const auto found = std::find_if(ranges_.begin(), ranges_.end(), [&](const AdoptedRange& each) {
    return each.segment == &segment && each.offset == offset;
  });
  if (found == ranges_.end()) return false;
  *range = std::move(*found);
  ranges_.erase(found);
  return true;
}

void AdoptedRanges::before_fork() {
  mutex_.lock();
  copies_.clear();
  listed_ = false;
  if (ranges_.empty()) return;
  try {
    list_copies();
  } catch (const std::bad_alloc&) {  // in_child() takes the ranges as they were adopted
    copies_.clear();
  }
}

void AdoptedRanges::list_copies() {
  const std::vector<base::MappedRange> all = mappings();
  if (all.empty()) return;  // they cannot be read
  for (const base::MappedRange& mapped : all) {
    if (mapped.inode == 0) continue;
    for (const AdoptedRange& range : ranges_) {
      const AdoptedRange::Part part = range.part_in(mapped);
      if (range.in_place(part)) copies_.push_back({part, range.file->fd, range.offset + part.at});
    }
  }
  listed_ = true;
}

// The child keeps the memory almost like other private memory: pages that it does not write show
// the segment's contents. If mapping a part fails, the child does not have that part.
void AdoptedRanges::in_child() {
  const auto own = [](const AdoptedRange::Part& part, int fd, std::uint64_t offset) {
    const void* const at = mmap(part.address, part.bytes, part.protection, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, fd,
                                static_cast<off_t>(offset));
    if (at == MAP_FAILED) munmap(part.address, part.bytes);
  };
  if (listed_) {
    for (const Copy& copy : copies_) own(copy.part, copy.fd, copy.offset);
  } else {
    for (const AdoptedRange& range : ranges_) {
      own({range.first, 0, range.bytes, PROT_READ | PROT_WRITE}, range.file->fd, range.offset);
    }
  }
  copies_.clear();
  ranges_.clear();
  if (maps_ >= 0) close(maps_);  // it is the parent's
  maps_ = -1;
  mutex_.unlock();
}

}  // namespace heddle::transport::shm
