#include "transport/shm/adoption.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bitset>
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

namespace {

// The bytes that are moved in one step. During a step twice this memory is needed, and a thread
// that breaks the promise after the comparison is not noticed.
constexpr std::uint64_t kStep = std::uint64_t{2} << 20;
// The pages of a step, by number, that copy_pages() has left out.
using LeftOut = std::bitset<kStep / 4096>;

std::uint64_t number(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address);
}

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
const char* rejection(const base::MappedRange& mapped) {
  if (mapped.shared) return "is shared";
  if (mapped.inode != 0) return "is of a file or of reserved huge pages";
  if (mapped.protection != (PROT_READ | PROT_WRITE)) return "cannot be both read and written, or can be executed";
  if (mapped.name.rfind("[stack", 0) == 0) return "is the stack of a thread";
  return nullptr;
}

[[gnu::cold]] base::Status reject(std::uint64_t begin, std::uint64_t end, const char* why) {
  return base::fail(HEDDLE_ERR_UNSUPPORTED,
                    "memory at %llx to %llx %s: only private anonymous memory can be adopted; register it without "
                    "`adopt`, or use heddle_region_alloc",
                    static_cast<unsigned long long>(begin), static_cast<unsigned long long>(end), why);
}

// The kernel does not name the stacks of other threads than the first.
bool on_own_stack(std::uint64_t begin, std::uint64_t end) {
  pthread_attr_t attributes;
  if (gettid() == getpid() || pthread_getattr_np(pthread_self(), &attributes) != 0) return false;
  void* stack = nullptr;
  std::size_t bytes = 0;
  pthread_attr_getstack(&attributes, &stack, &bytes);
  pthread_attr_destroy(&attributes);
  return begin < number(stack) + bytes && number(stack) < end;
}

base::Status check_kind(const WholePages& pages, const std::vector<base::MappedRange>& all) {
  const std::uint64_t begin = number(pages.first);
  const std::uint64_t end = begin + pages.bytes;
  std::uint64_t known = begin;  // everything before may be adopted
  if (all.empty())
    return base::fail(HEDDLE_ERR_UNSUPPORTED, "/proc/self/maps cannot be read; register without `adopt`");
  for (const base::MappedRange& mapped : all) {
    if (mapped.end <= begin || mapped.begin >= end) continue;
    if (mapped.begin > known) break;
    if (const char* why = rejection(mapped)) return reject(mapped.begin, mapped.end, why);
    known = mapped.end;
  }
  if (known < end) return reject(known, end, "is not mapped");
  if (on_own_stack(begin, end)) return reject(begin, end, "is on the stack of this thread");
  if (locked(begin, end)) return reject(begin, end, "is locked (mlock)");
  return HEDDLE_DONE;
}

// ---- moving -------------------------------------------------------------------------------------

bool is_zero(const std::byte* page, std::uint64_t bytes) {
  return page[0] == std::byte{0} && std::memcmp(page, page + 1, bytes - 1) == 0;
}

// Copies to memory of zeros. Pages of zeros are left out, so memory that was never touched needs
// none; `left_out` says which, if it is not null.
void copy_pages(std::byte* to, const std::byte* from, std::uint64_t bytes, LeftOut* left_out = nullptr) {
  const std::uint64_t page = page_bytes();
  for (std::uint64_t at = 0; at < bytes; at += page) {
    if (!is_zero(from + at, page)) {
      std::memcpy(to + at, from + at, page);
    } else if (left_out != nullptr) {
      (*left_out)[at / page] = true;
    }
  }
}

// True: the pages are as they were when copy_pages() copied them. A page of `to` that was left out
// is not read, since reading it would give it memory.
bool same_pages(const std::byte* to, const std::byte* from, std::uint64_t bytes, const LeftOut& left_out) {
  const std::uint64_t page = page_bytes();
  for (std::uint64_t at = 0; at < bytes; at += page) {
    const bool same = left_out[at / page] ? is_zero(from + at, page) : std::memcmp(to + at, from + at, page) == 0;
    if (!same) return false;
  }
  return true;
}

// Replaces private pages by a copy of themselves in the segment.
base::Status move_step(std::byte* pages, std::uint64_t bytes, std::byte* window, int fd, std::uint64_t offset) {
  LeftOut left_out;
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
  if (errno != ENOMEM) return base::fail_errno(HEDDLE_ERR_SYSTEM, "mmap to adopt %p", static_cast<void*>(pages));
  return base::fail(HEDDLE_ERR_NO_MEMORY,
                    "the memory at %p to %p cannot be adopted: the system allows this process no more mappings "
                    "(vm.max_map_count) or no more memory; register it without `adopt`",
                    static_cast<void*>(pages), static_cast<void*>(pages + bytes));
}

// Copies the file's contents there, without giving memory to its holes.
void copy_file(std::byte* to, const std::byte* window, int fd, std::uint64_t offset, std::uint64_t bytes) {
  const std::uint64_t end = offset + bytes;
  for (std::uint64_t at = offset; at < end;) {
    const off_t data = lseek(fd, static_cast<off_t>(at), SEEK_DATA);
    if (data < 0 && errno == ENXIO) return;  // a hole up to the end of the file
    const std::uint64_t from = data < 0 ? at : static_cast<std::uint64_t>(data);
    if (from >= end) return;
    const off_t hole = data < 0 ? -1 : lseek(fd, data, SEEK_HOLE);
    at = hole < 0 ? end : std::min(end, static_cast<std::uint64_t>(hole));
    copy_pages(to + (from - offset), window + (from - offset), at - from);
  }
}

// The part of the range is in place now.
bool is_in_place(const AdoptedRange& range, const AdoptedRange::Part& part) {
  try {
    for (const base::MappedRange& mapped : AdoptedRanges::of_process().mappings()) {
      const AdoptedRange::Part found = range.part_in(mapped);
      if (found.address == part.address && found.bytes >= part.bytes) return true;
    }
    return false;
  } catch (const std::bad_alloc&) {
    return false;  // nobody knows
  }
}

// Maps fresh private memory over a part that is in place. False: there is none, and the part stays.
// The program may once have reserved more memory than there is. If the system does not reserve it
// again, the mapping is made without reserving. Before Linux 6.12 the kernel unmaps first and looks
// for memory then, so another thread may map something there in between.
bool map_private(const AdoptedRange& range, const AdoptedRange::Part& part) {
  const auto map = [&part](int protection, int flags, int fd, std::uint64_t offset) {
    void* const at = mmap(part.address, part.bytes, protection, flags, fd, static_cast<off_t>(offset));
    if (at != MAP_FAILED && at != part.address) munmap(at, part.bytes);
    return at == part.address;
  };
  const auto fresh = [&map](int flags) {
    return map(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  };
  if (fresh(MAP_FIXED) || fresh(MAP_FIXED_NOREPLACE | MAP_NORESERVE)) return true;
  if (is_in_place(range, part) && fresh(MAP_FIXED | MAP_NORESERVE)) return true;
  map(part.protection, MAP_SHARED | MAP_FIXED_NOREPLACE | MAP_NORESERVE, range.file->fd, range.offset + part.at);
  return false;
}

// Puts a part that is in place back into private memory; the segment's own mapping has it at
// `window`. It makes a fresh mapping in the place of the part, instead of moving a copy there: the
// kernel merges a fresh mapping with its neighbours. So there are no more mappings than before,
// however often memory is adopted.
bool put_back(const AdoptedRange& range, const AdoptedRange::Part& part, std::byte* window) {
  if (!map_private(range, part)) return false;
  const std::uint64_t offset = range.offset + part.at;
  for (std::uint64_t at = 0; at < part.bytes;) {
    const std::uint64_t bytes = std::min(kStep - (offset + at) % kStep, part.bytes - at);
    std::byte* const from = window + part.at + at;
    copy_file(part.address + at, from, range.file->fd, offset + at, bytes);
    // So the way back, too, needs no more additional memory than that of one step. If it fails,
    // free() tries again.
    static_cast<void>(remove_pages(from, bytes));
    at += bytes;
  }
  if (part.protection != (PROT_READ | PROT_WRITE)) mprotect(part.address, part.bytes, part.protection);
  return true;
}

// Puts back the parts that are in place. False: a part of the space is, or may be, still mapped.
bool put_all_back(const AdoptedRange& range, std::byte* window, const std::vector<base::MappedRange>& all) {
  std::uint64_t gone = 0;
  bool elsewhere = all.empty();
  for (const base::MappedRange& mapped : all) {
    const AdoptedRange::Part part = range.part_in(mapped);
    if (part.bytes == 0 || part.address == window + part.at) continue;
    if (!range.in_place(part)) {
      elsewhere = true;  // moved by the program; or a peer in this process maps it: nobody can tell
    } else if (put_back(range, part, window)) {
      gone += part.bytes;
    } else {
      return false;
    }
  }
  return gone == range.bytes || !elsewhere;
}

// Checks that /proc/self/maps shows the range, which the way back and fork() will look for.
base::Status check_shown(const AdoptedRange& range, const AdoptedRanges& known) {
  try {
    if (range.bytes_in_place(known.mappings()) == range.bytes) return HEDDLE_DONE;
  } catch (const std::bad_alloc&) {
    return base::fail(HEDDLE_ERR_NO_MEMORY, "no memory to read /proc/self/maps");
  }
  return base::fail(HEDDLE_ERR_UNSUPPORTED, "/proc/self/maps does not show adopted memory; register without `adopt`");
}

// All of `pages`, in steps; range->bytes says how far it came.
base::Status move_steps(const WholePages& pages, const AdoptedSpace& space, AdoptedRange* range) {
  while (range->bytes < pages.bytes) {
    const std::uint64_t at = range->bytes;
    const std::uint64_t bytes = std::min(kStep, pages.bytes - at);
    base::Status status = space.secure(at, bytes);
    if (status != HEDDLE_DONE) return status;
    status = move_step(pages.first + at, bytes, space.window() + at, range->file->fd, range->offset + at);
    if (status != HEDDLE_DONE) return status;
    range->bytes += bytes;
  }
  return HEDDLE_DONE;
}

}  // namespace

WholePages WholePages::of(std::uint64_t address, std::uint64_t bytes) {
  const std::uint64_t page = page_bytes();
  const std::uint64_t begin = (address + page - 1) / page * page;
  const std::uint64_t end = (address + bytes) / page * page;
  WholePages pages;
  // beyond the last page of all addresses, or none
  if (begin < address || begin >= end) return pages;
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

base::Status AdoptedSpace::clear() {
  const off_t data = lseek(fd(), static_cast<off_t>(offset()), SEEK_DATA);
  if (data < 0 || static_cast<std::uint64_t>(data) >= offset() + bytes_) return HEDDLE_DONE;
  if (segment_.mapping().remove(offset_, skip_ + bytes_)) return HEDDLE_DONE;
  return base::fail_errno(HEDDLE_ERR_SYSTEM, "clearing %llu bytes of the shared segment",
                          static_cast<unsigned long long>(bytes_));
}

base::Result<std::uint64_t> move_in(Segment& segment, const WholePages& pages) {
  AdoptedRanges& known = AdoptedRanges::of_process();
  const std::lock_guard lock(known.mutex());
  if (const base::Status status = known.open(); status != HEDDLE_DONE) return status;
  if (const base::Status status = check_kind(pages, known.mappings()); status != HEDDLE_DONE) return status;
  const auto file = known.file_of(segment);
  if (!file) return file.status();
  known.reserve();
  AdoptedSpace space(segment, pages);
  if (const base::Status status = space.allocate(); status != HEDDLE_DONE) return status;
  // From here on nothing throws.
  AdoptedRange range{&segment, *file, space.offset(), pages.first, 0};
  base::Status status = space.clear();
  if (status == HEDDLE_DONE) status = move_steps(pages, space, &range);
  if (status == HEDDLE_DONE) status = check_shown(range, known);
  if (status != HEDDLE_DONE) {
    const AdoptedRange::Part moved{pages.first, 0, range.bytes, PROT_READ | PROT_WRITE};
    if (moved.bytes == 0 || put_back(range, moved, space.window())) {
      space.free();
    } else {
      known.keep(range);
    }
    return status;
  }
  if (pages.bytes >= kHugePage) madvise(pages.first, pages.bytes, MADV_HUGEPAGE);  // only a hint
  // A mapping of its own for the last page: so the kernel rejects an mremap() that would let the
  // range grow over what follows in the segment.
  if (pages.bytes > page_bytes()) madvise(pages.first + pages.bytes - page_bytes(), page_bytes(), MADV_RANDOM);
  known.add(range);
  return space.offset();
}

bool move_out(Segment& segment, std::uint64_t offset, const WholePages& pages) {
  AdoptedRanges& known = AdoptedRanges::of_process();
  const std::lock_guard lock(known.mutex());
  AdoptedRange range;
  if (!known.take(segment, offset, &range)) return false;
  AdoptedSpace space(segment, pages);
  bool back = false;
  try {
    back = space.open(offset) == HEDDLE_DONE;
    if (back) back = put_all_back(range, space.window(), known.mappings());
    if (space.is_open()) space.close();
  } catch (const std::bad_alloc&) {  // it stays where it is
    back = false;
  }
  if (back) {
    space.free();
  } else {
    known.keep(std::move(range));
  }
  return back;
}

}  // namespace heddle::transport::shm
