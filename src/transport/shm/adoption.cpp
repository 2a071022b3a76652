#include "transport/shm/adoption.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "base/mappings.hpp"
#include "transport/shm/layout.hpp"

namespace heddle::transport::shm {
namespace {

constexpr std::uint64_t kHugePage = std::uint64_t{2} << 20;
// What is moved in one step: while it is, twice its memory is needed, and a thread that breaks the
// promise is not noticed behind the comparison.
constexpr std::uint64_t kStepIn = std::uint64_t{2} << 20;
// Each step leaves a mapping of its own, of which a process may have 65530.
constexpr std::uint64_t kStepOut = std::uint64_t{64} << 20;

std::uint64_t number(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address);
}

// ---- what is adopted in this process ------------------------------------------------------------

struct Range {
  std::byte* first = nullptr;
  std::uint64_t bytes = 0;
  int fd = -1;
  std::uint64_t offset = 0;
  dev_t device = 0;
  ino_t inode = 0;
  bool there = true;  // at the latest fork

  // The part of the range that `mapped` has; 0 bytes: none.
  struct Part {
    std::byte* address = nullptr;
    std::uint64_t at = 0;  // in the range
    std::uint64_t bytes = 0;
  };
  [[nodiscard]] Part part_in(const base::MappedRange& mapped) const {
    if (mapped.inode != inode || mapped.device != device) return {};
    const std::uint64_t begin = std::max(offset, mapped.offset);
    const std::uint64_t end = std::min(offset + bytes, mapped.offset + (mapped.end - mapped.begin));
    if (begin >= end) return {};
    const std::uint64_t address = mapped.begin + (begin - mapped.offset);
    return {reinterpret_cast<std::byte*>(address), begin - offset, end - begin};  // NOLINT(performance-no-int-to-ptr)
  }
  [[nodiscard]] bool in_place(const Part& part) const { return part.bytes != 0 && part.address == first + part.at; }
  [[nodiscard]] std::uint64_t bytes_in_place(const std::vector<base::MappedRange>& all) const {
    std::uint64_t found = 0;
    for (const base::MappedRange& mapped : all) {
      const Part part = part_in(mapped);
      if (in_place(part)) found += part.bytes;
    }
    return found;
  }
};

// Of the whole process, since fork() is. mutex_ is held while pages move, so a child finds each
// range moved or not.
class Registry {
 public:
  static Registry& of_process() {
    static Registry* const registry = [] {
      auto* made = new Registry;  // fork() may run at the very end of the process
      pthread_atfork([] { of_process().before_fork(); }, [] { of_process().mutex_.unlock(); },
                     [] { of_process().in_child(); });
      return made;
    }();
    return *registry;
  }

  std::mutex& mutex() { return mutex_; }
  std::vector<Range>& ranges() { return ranges_; }
  // A range that cannot be put back, after its region, for children; there is room for it.
  void keep(Range range) {
    range.fd = fcntl(range.fd, F_DUPFD_CLOEXEC, 0);
    if (range.fd >= 0) ranges_.push_back(range);
  }

 private:
  void before_fork() {
    mutex_.lock();
    if (ranges_.empty()) return;
    const std::vector<base::MappedRange> all = base::read_mappings();
    for (Range& range : ranges_) range.there = all.empty() || range.bytes_in_place(all) == range.bytes;
  }

  // The child keeps the memory as any other private memory, though not quite: pages that it does
  // not write show what the parent has in them. Where that fails, the child has none.
  void in_child() {
    for (const Range& range : ranges_) {
      if (!range.there) continue;
      const void* own = mmap(range.first, range.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE,
                             range.fd, static_cast<off_t>(range.offset));
      if (own == MAP_FAILED) munmap(range.first, range.bytes);
    }
    ranges_.clear();
    mutex_.unlock();
  }

  std::mutex mutex_;
  std::vector<Range> ranges_;  // guarded by mutex_
};

// ---- what may be adopted ------------------------------------------------------------------------

// "VmLck: 12 kB" in /proc/self/status, and the flag "lo" of a mapping in /proc/self/smaps, which is
// slow to make.
bool locked(std::uint64_t begin, std::uint64_t end) {
  std::ifstream status("/proc/self/status");
  bool any = false;
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmLck:", 0) == 0) any = line.find_first_of("123456789") != std::string::npos;
  }
  if (!any) return false;
  std::ifstream smaps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    unsigned long long from = 0;
    unsigned long long to = 0;
    if (std::sscanf(line.c_str(), "%llx-%llx ", &from, &to) == 2) inside = from < end && begin < to;
    if (inside && line.rfind("VmFlags:", 0) == 0 && line.find(" lo") != std::string::npos) return true;
  }
  return false;
}

// Why this mapping cannot be adopted; null: it can.
const char* refusal(const base::MappedRange& mapped) {
  if (mapped.shared) return "is shared";
  if (mapped.inode != 0) return "is of a file or of reserved huge pages";
  if (mapped.protection != (PROT_READ | PROT_WRITE)) return "cannot be both read and written, or can be executed";
  if (mapped.name.rfind("[stack", 0) == 0) return "is the stack of a thread";
  return nullptr;
}

[[gnu::cold]] base::Status refuse(std::uint64_t begin, std::uint64_t end, const char* why) {
  return base::fail(HEDDLE_ERR_UNSUPPORTED,
                    "memory at %llx to %llx %s: only private anonymous memory can be adopted; register it without "
                    "`adopt`, or use heddle_region_alloc",
                    static_cast<unsigned long long>(begin), static_cast<unsigned long long>(end), why);
}

base::Status check_kind(const WholePages& pages) {
  const std::uint64_t begin = number(pages.first);
  const std::uint64_t end = begin + pages.bytes;
  const std::uint64_t here = number(__builtin_frame_address(0));
  std::uint64_t known = begin;  // everything before may be adopted
  const std::vector<base::MappedRange> all = base::read_mappings();
  if (all.empty())
    return base::fail(HEDDLE_ERR_UNSUPPORTED, "/proc/self/maps cannot be read; register without `adopt`");
  for (const base::MappedRange& mapped : all) {
    if (mapped.end <= begin || mapped.begin >= end) continue;
    if (mapped.begin > known) break;
    if (const char* why = refusal(mapped)) return refuse(mapped.begin, mapped.end, why);
    known = mapped.end;
  }
  if (known < end) return refuse(known, end, "is not mapped");
  if (here >= begin && here < end) return refuse(begin, end, "is the stack of this thread");
  if (locked(begin, end)) return refuse(begin, end, "is locked (mlock)");
  return HEDDLE_DONE;
}

// ---- moving -------------------------------------------------------------------------------------

bool is_zero(const std::byte* page, std::uint64_t bytes) {
  return page[0] == std::byte{0} && std::memcmp(page, page + 1, bytes - 1) == 0;
}

// Copies to memory of zeros. Pages of zeros are left out, so memory that was never touched needs
// none; `left_out` says which, if it is not null.
void copy_pages(std::byte* to, const std::byte* from, std::uint64_t bytes, std::vector<bool>* left_out = nullptr) {
  const std::uint64_t page = page_bytes();
  if (left_out != nullptr) left_out->assign(bytes / page, false);
  for (std::uint64_t at = 0; at < bytes; at += page) {
    if (!is_zero(from + at, page)) {
      std::memcpy(to + at, from + at, page);
    } else if (left_out != nullptr) {
      (*left_out)[at / page] = true;
    }
  }
}

// True: the pages are as they were when copy_pages() copied them. To look at a page of `to` that
// was left out would give it memory.
bool same_pages(const std::byte* to, const std::byte* from, std::uint64_t bytes, const std::vector<bool>& left_out) {
  const std::uint64_t page = page_bytes();
  for (std::uint64_t at = 0; at < bytes; at += page) {
    const bool same = left_out[at / page] ? is_zero(from + at, page) : std::memcmp(to + at, from + at, page) == 0;
    if (!same) return false;
  }
  return true;
}

// Replaces private pages by a copy of themselves in the segment.
base::Status move_step(std::byte* pages, std::uint64_t bytes, std::byte* window, int fd, std::uint64_t offset) {
  std::vector<bool> left_out;
  copy_pages(window, pages, bytes, &left_out);
  if (!same_pages(window, pages, bytes, left_out)) {
    return base::fail(HEDDLE_ERR_STATE,
                      "a thread wrote to the memory at %p to %p while it was adopted; leave it alone until the call "
                      "returns",
                      static_cast<void*>(pages), static_cast<void*>(pages + bytes));
  }
  const void* there = mmap(pages, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd,
                           static_cast<off_t>(offset));
  if (there != MAP_FAILED) return HEDDLE_DONE;
  return base::fail_errno(errno == ENOMEM ? HEDDLE_ERR_NO_MEMORY : HEDDLE_ERR_SYSTEM, "mmap of %llu bytes to adopt",
                          static_cast<unsigned long long>(bytes));
}

// Copies what the file has there, without giving memory to its holes.
void copy_file(std::byte* to, const std::byte* window, int fd, std::uint64_t offset, std::uint64_t bytes) {
  const std::uint64_t end = offset + bytes;
  for (std::uint64_t at = offset; at < end;) {
    const off_t data = lseek(fd, static_cast<off_t>(at), SEEK_DATA);
    if (data < 0 || static_cast<std::uint64_t>(data) >= end) return;
    const off_t hole = lseek(fd, data, SEEK_HOLE);
    const auto from = static_cast<std::uint64_t>(data);
    at = hole < 0 ? end : std::min(end, static_cast<std::uint64_t>(hole));
    copy_pages(to + (from - offset), window + (from - offset), at - from);
  }
}

// Puts a part that is in place back into private memory; the segment's own mapping has it at
// `window`.
bool put_back(const Range& range, const Range::Part& part, const std::byte* window, int protection) {
  for (std::uint64_t at = 0; at < part.bytes; at += kStepOut) {
    const std::uint64_t bytes = std::min(kStepOut, part.bytes - at);
    void* own = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (own == MAP_FAILED) return false;
    const std::uint64_t begin = part.at + at;
    copy_file(static_cast<std::byte*>(own), window + begin, range.fd, range.offset + begin, bytes);
    if (protection != (PROT_READ | PROT_WRITE)) mprotect(own, bytes, protection);
    if (mremap(own, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, part.address + at) == MAP_FAILED) {
      munmap(own, bytes);
      return false;
    }
  }
  return true;
}

// Puts back what is in place. False: a part of the space is still mapped.
bool put_all_back(const Range& range, const std::byte* window) {
  const std::vector<base::MappedRange> all = base::read_mappings();
  std::uint64_t gone = 0;
  bool elsewhere = all.empty();
  for (const base::MappedRange& mapped : all) {
    const Range::Part part = range.part_in(mapped);
    if (part.bytes == 0 || part.address == window + part.at) continue;
    if (!range.in_place(part)) {
      elsewhere = true;  // moved by the program; or a peer in this process maps it: nobody can tell
    } else if (put_back(range, part, window, mapped.protection)) {
      gone += part.bytes;
    } else {
      return false;
    }
  }
  return gone == range.bytes || !elsewhere;
}

}  // namespace

WholePages WholePages::of(std::uint64_t address, std::uint64_t bytes) {
  const std::uint64_t page = page_bytes();
  const std::uint64_t begin = (address + page - 1) / page * page;
  const std::uint64_t end = (address + bytes) / page * page;
  WholePages pages;
  if (begin >= end) return pages;
  pages.first = reinterpret_cast<std::byte*>(begin);  // NOLINT(performance-no-int-to-ptr)
  pages.bytes = end - begin;
  pages.edge_before = static_cast<std::uint32_t>(begin - address);
  pages.edge_after = static_cast<std::uint32_t>(address + bytes - end);
  return pages;
}

AdoptedSpace::AdoptedSpace(Segment& segment, const WholePages& pages)
    : segment_(segment), bytes_(pages.bytes), skip_(pages.bytes >= kHugePage ? number(pages.first) % kHugePage : 0) {}

base::Status AdoptedSpace::allocate() {
  const auto extent = segment_.allocate(skip_ + bytes_);
  if (!extent) return extent.status();
  offset_ = extent->offset;
  address_ = extent->address;
  return HEDDLE_DONE;
}

base::Status AdoptedSpace::open(std::uint64_t offset) {
  offset_ = offset - skip_;
  const auto mapped = segment_.mapping().map(offset_, skip_ + bytes_);
  if (!mapped) return mapped.status();
  address_ = *mapped;
  return HEDDLE_DONE;
}

base::Result<std::uint64_t> move_in(Segment& segment, const WholePages& pages) {
  Registry& registry = Registry::of_process();
  const std::lock_guard lock(registry.mutex());
  if (const base::Status status = check_kind(pages); status != HEDDLE_DONE) return status;
  registry.ranges().reserve(registry.ranges().size() + 1);  // before anything has happened
  AdoptedSpace space(segment, pages);
  if (const base::Status status = space.allocate(); status != HEDDLE_DONE) return status;
  Range range{pages.first, 0, space.fd(), space.offset()};
  struct stat file{};
  base::Status status = HEDDLE_DONE;
  if (fstat(range.fd, &file) != 0) status = base::fail_errno(HEDDLE_ERR_SYSTEM, "fstat of the shared segment");
  range.device = file.st_dev;
  range.inode = file.st_ino;
  while (range.bytes < pages.bytes && status == HEDDLE_DONE) {
    const std::uint64_t bytes = std::min(kStepIn, pages.bytes - range.bytes);
    status =
        move_step(pages.first + range.bytes, bytes, space.window() + range.bytes, range.fd, range.offset + range.bytes);
    if (status == HEDDLE_DONE) range.bytes += bytes;
  }
  if (status != HEDDLE_DONE) {
    if (put_back(range, {pages.first, 0, range.bytes}, space.window(), PROT_READ | PROT_WRITE)) {
      space.free();
    } else {
      registry.keep(range);
    }
    return status;
  }
  if (pages.bytes >= kHugePage) madvise(pages.first, pages.bytes, MADV_HUGEPAGE);  // only a hint
  // A mapping of its own for the last page: so the kernel refuses an mremap() that would let the
  // range grow over what follows in the segment.
  if (pages.bytes > page_bytes()) madvise(pages.first + pages.bytes - page_bytes(), page_bytes(), MADV_RANDOM);
  registry.ranges().push_back(range);
  return space.offset();
}

bool move_out(Segment& segment, std::uint64_t offset, const WholePages& pages) {
  Registry& registry = Registry::of_process();
  const std::lock_guard lock(registry.mutex());
  const int fd = segment.mapping().fd();
  std::vector<Range>& ranges = registry.ranges();
  const auto found = std::find_if(ranges.begin(), ranges.end(),
                                  [&](const Range& range) { return range.fd == fd && range.offset == offset; });
  if (found == ranges.end()) return false;
  const Range range = *found;
  ranges.erase(found);
  AdoptedSpace space(segment, pages);
  bool back = false;
  try {
    back = space.open(offset) == HEDDLE_DONE;
    if (back) back = put_all_back(range, space.window());
    if (space.is_open()) space.close();
  } catch (const std::bad_alloc&) {  // it stays where it is
    back = false;
  }
  if (back) {
    space.free();
  } else {
    registry.keep(range);
  }
  return back;
}

}  // namespace heddle::transport::shm
