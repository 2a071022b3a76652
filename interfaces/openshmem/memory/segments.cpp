#include "openshmem/memory/segments.hpp"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "openshmem/checks.hpp"

namespace heddle::shmem::memory {

namespace {

// A segment's data that operations do not need.
struct Backing {
  heddle_region region{};
  std::vector<heddle_remote_region> remotes;
  std::vector<std::byte*> mapped;
  std::vector<std::byte*> none;  // nulls, one per PE: what operations find under HEDDLE_CHECK=full
  std::vector<std::size_t> skews;
  std::unique_ptr<std::atomic<bool>[]> met;  // [PE]; release when set, after mapped
};
Backing g_heap;
Backing g_statics;
std::vector<bool> g_near;  // [PE]

// The values that must be equal on all PEs.
struct Agreement {
  std::uint64_t heap_bytes;
  std::uint64_t static_bytes;
  std::uint64_t static_identity;
};

// PEs up to which all are met at the beginning. Up to as many the engine has met them anyway.
constexpr std::size_t kMeetAtOnce = 64;

// The machine on which this process runs, as far as shared memory is concerned.
std::uint64_t this_machine() {
  char seen[128] = {};
  std::size_t used = 0;
  if (const int file = ::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC); file >= 0) {
    used = static_cast<std::size_t>(std::max<ssize_t>(::read(file, seen, 64), 0));
    ::close(file);
  }
  const bool known = used > 0;
  for (const char* space : {"/proc/self/ns/net", "/proc/self/ns/pid"}) {
    struct stat about{};
    if (::stat(space, &about) != 0) continue;
    std::memcpy(seen + used, &about.st_ino, sizeof about.st_ino);
    used += sizeof about.st_ino;
  }
  // If it is not known, no other PE counts as being on this machine before it was met.
  if (!known) return ~static_cast<std::uint64_t>(g_state.my_pe);
  return std::hash<std::string_view>()({seen, used});
}

// Whether that PE's heap can be mapped. All PEs must get the same answer: after an error that
// passes, PEs would otherwise make different teams.
void learn_one(Call call, std::size_t pe) {
  const heddle_status status = meet(g_state.heap, static_cast<int>(pe));
  if (status != HEDDLE_ERR_UNSUPPORTED && status != HEDDLE_ERR_PEER_FAILED) must(call, status);
  g_near[pe] = g_heap.mapped[pe] != nullptr;
}

// Finds out what is known of the PEs of a large job before they are met. PEs of other machines need
// not be met: the engine knows at once how they are reached. One PE of this machine stands for all
// of them.
void learn_near(Call call) {
  const auto n = static_cast<std::size_t>(g_state.n_pes);
  const auto me = static_cast<std::size_t>(g_state.my_pe);
  // nodes that are parts of a machine, for tests: no PE stands for another
  const char* parts = std::getenv("HEDDLE_NODE_RANKS");
  const bool divided = parts != nullptr && std::strtoull(parts, nullptr, 10) != 0;
  g_near.assign(n, false);
  for (std::size_t pe = 0; (n <= kMeetAtOnce || divided) && pe < n; ++pe) {
    learn_one(call, pe);
  }
  if (n <= kMeetAtOnce || divided) return;
  const std::uint64_t mine = this_machine();
  std::vector<std::uint64_t> machines(n);
  must(call, heddle_context_exchange(g_state.job, &mine, sizeof mine, machines.data()));
  bool first = true;
  bool of_first = false;
  for (std::size_t i = 1; i <= n; ++i) {
    const std::size_t pe = (me + i) % n;  // the next ones first, so that not all ask for PE 0
    const bool here = machines[pe] == mine;
    if (pe != me && here && !first) {
      g_near[pe] = of_first;
      continue;
    }
    learn_one(call, pe);
    if (pe != me && here && std::exchange(first, false)) of_first = g_near[pe];
  }
}

// Collective: exchanges the region, in which the segment begins at `skew`, and fills in `segment`.
void share(Call call, Backing& backing, SymmetricSegment& segment, std::size_t skew, void* base, std::size_t bytes) {
  const auto n = static_cast<std::size_t>(g_state.n_pes);
  backing.remotes.resize(n);
  backing.mapped.assign(n, nullptr);
  backing.none.assign(n, nullptr);
  backing.skews.resize(n);
  must(call, heddle_context_exchange(g_state.job, &skew, sizeof skew, backing.skews.data()));
  must(call, heddle_region_exchange(g_state.job, backing.region, backing.remotes.data()));
  backing.met = std::make_unique<std::atomic<bool>[]>(n);
  segment.base = reinterpret_cast<std::uintptr_t>(base);
  segment.bytes = bytes;
  segment.mapped = backing.mapped.data();
  segment.direct = checks_everything() ? backing.none.data() : backing.mapped.data();
  segment.remotes = backing.remotes.data();
  segment.skews = backing.skews.data();
  if (n > kMeetAtOnce) return;
  for (std::size_t pe = 0; pe < n; ++pe) static_cast<void>(meet(segment, static_cast<int>(pe)));
}

void open_heap(Call call, std::size_t bytes) {
  must(call, heddle_region_alloc(g_state.job, bytes + kHeapAlignment, &g_heap.region));
  void* address = nullptr;
  must(call, heddle_region_address(g_heap.region, &address, nullptr));
  const std::size_t skew = -reinterpret_cast<std::uintptr_t>(address) & (kHeapAlignment - 1);
  share(call, g_heap, g_state.heap, skew, static_cast<std::byte*>(address) + skew, bytes);
}

// A region for the executable's data: mapped over it where possible, else registered.
void open_statics(Call call, const StaticData& data) {
  heddle_region region{};
  void* pages = nullptr;
  if (heddle_region_alloc(g_state.job, data.bytes, &region) == HEDDLE_DONE) {
    must(call, heddle_region_address(region, &pages, nullptr));
    if (!move_to(static_cast<std::byte*>(pages), data)) {
      must(call, heddle_region_release(region));
      pages = nullptr;
    }
  }
  if (pages == nullptr) must(call, heddle_region_register(g_state.job, data.begin, data.bytes, &region));
  g_statics.region = region;
  share(call, g_statics, g_state.statics, 0, data.begin, data.bytes);
}

void close_one(Call call, Backing& backing, SymmetricSegment& segment) {
  if (backing.region.id == 0) return;
  for (const heddle_remote_region& remote : backing.remotes) must(call, heddle_remote_region_release(remote));
  must(call, heddle_region_release(backing.region));
  backing = {};
  segment = SymmetricSegment{.name = segment.name};
}

}  // namespace

void open_segments(Call call, std::size_t heap_bytes) {
  const auto n = static_cast<std::size_t>(g_state.n_pes);
  const StaticData data = find_static_data();
  const Agreement mine{heap_bytes, data.bytes, data.identity};
  std::vector<Agreement> all(n);
  must(call, heddle_context_exchange(g_state.job, &mine, sizeof mine, all.data()));
  bool same_executable = data.bytes > 0;
  for (std::size_t pe = 0; pe < n; ++pe) {
    if (all[pe].heap_bytes != heap_bytes) {
      fail(call, "SHMEM_SYMMETRIC_SIZE makes a heap of %zu bytes here and of %zu bytes on PE %zu: set it alike",
           heap_bytes, static_cast<std::size_t>(all[pe].heap_bytes), pe);
    }
    same_executable &= all[pe].static_bytes == mine.static_bytes && all[pe].static_identity == mine.static_identity;
  }
  open_heap(call, heap_bytes);
  learn_near(call);
  if (same_executable) {
    open_statics(call, data);
  } else {
    g_statics.none.assign(n, nullptr);  // static data of different programs is not symmetric
    g_state.statics.direct = g_state.statics.mapped = g_statics.none.data();
  }
}

heddle_status meet(const SymmetricSegment& segment, int world) {
  Backing& backing = &segment == &g_state.heap ? g_heap : g_statics;
  const auto pe = static_cast<std::size_t>(world);
  if (backing.met == nullptr || backing.met[pe].load(std::memory_order_acquire)) {
    return HEDDLE_DONE;
  }
  void* address = nullptr;
  const heddle_status status = heddle_remote_pointer({backing.remotes[pe], backing.skews[pe]}, &address);
  if (status == HEDDLE_DONE) {
    __atomic_store_n(&backing.mapped[pe], static_cast<std::byte*>(address), __ATOMIC_RELAXED);
  }
  // Another error may pass. The operation that follows reports it, or the PE's death.
  if (status == HEDDLE_DONE || status == HEDDLE_ERR_UNSUPPORTED) {
    backing.met[pe].store(true, std::memory_order_release);
  }
  return status;
}

bool is_near(int world) {
  return g_near[static_cast<std::size_t>(world)];
}

void close_segments(Call call) {
  move_back();
  close_one(call, g_statics, g_state.statics);
  close_one(call, g_heap, g_state.heap);
}

namespace {

struct Moved {
  std::byte* begin = nullptr;  // null: the data has not moved
  std::size_t bytes = 0;
  std::byte* snapshot = nullptr;  // during fork()
};
Moved g_moved;

std::size_t page_bytes() {
  static const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

// Program variables are read as raw pages. The sanitizers must not check this: between variables
// lies memory that they forbid to read.
#if defined(__clang__)
#define HEDDLE_SHMEM_RAW [[gnu::noinline, clang::no_sanitize("address", "thread", "undefined")]]
#else
#define HEDDLE_SHMEM_RAW [[gnu::noinline, gnu::no_sanitize("address", "thread", "undefined")]]
#endif

// Copies page by page. It does not write pages of zeros, so that pages that the program never
// touched take no memory.
HEDDLE_SHMEM_RAW void copy_pages(std::byte* to, const std::byte* from, std::size_t bytes) {
  const std::size_t words_in_page = page_bytes() / sizeof(std::uint64_t);
  const auto* source = reinterpret_cast<const volatile std::uint64_t*>(from);
  auto* target = reinterpret_cast<volatile std::uint64_t*>(to);
  for (std::size_t page = 0; page < bytes / sizeof(std::uint64_t); page += words_in_page) {
    std::uint64_t any = 0;
    for (std::size_t i = 0; i < words_in_page; ++i) any |= source[page + i];
    for (std::size_t i = 0; any != 0 && i < words_in_page; ++i) target[page + i] = source[page + i];
  }
}

std::byte* private_copy(const Moved& moved) {
  void* memory = ::mmap(nullptr, moved.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  copy_pages(static_cast<std::byte*>(memory), moved.begin, moved.bytes);
  return static_cast<std::byte*>(memory);
}

// The kernel's mremap: UCX replaces the C library's mremap in the whole process and loses the last
// argument (as of 1.13).
std::byte* move_mapping(std::byte* from, std::size_t bytes_now, std::size_t bytes, int flags, std::byte* to) {
  const long at = ::syscall(SYS_mremap, from, bytes_now, bytes, flags, to);
  return at == -1 ? nullptr
                  : reinterpret_cast<std::byte*>(at);  // NOLINT(performance-no-int-to-ptr): the kernel returns a number
}

// Both mappings have `bytes` bytes; the mapping at `from` is removed.
bool map_over(std::byte* begin, std::byte* from, std::size_t bytes) {
  return move_mapping(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, begin) == begin;
}

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "heddle shmem: no memory to %s the %zu bytes of static data\n", what, g_moved.bytes);
  std::abort();
}

void before_fork() {
  if (g_moved.begin == nullptr) return;
  g_moved.snapshot = private_copy(g_moved);
  if (g_moved.snapshot == nullptr) die("copy for a child");
}
void after_fork_in_parent() {
  if (g_moved.snapshot == nullptr) return;
  ::munmap(g_moved.snapshot, g_moved.bytes);
  g_moved.snapshot = nullptr;
}
void after_fork_in_child() {
  if (g_moved.snapshot == nullptr) return;
  if (!map_over(g_moved.begin, g_moved.snapshot, g_moved.bytes)) die("give a child");
  g_moved = {};
}

struct Search {
  StaticData found;
  bool first = true;
};

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  return (hash ^ value) * 0x9e3779b97f4a7c15ULL + (hash >> 29U);
}

std::uint64_t hash_note(const dl_phdr_info& info, const ElfW(Phdr) & header, std::uint64_t hash) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the loader gives numbers
  const auto* bytes = reinterpret_cast<const unsigned char*>(info.dlpi_addr + header.p_vaddr);
  for (std::size_t i = 0; i < header.p_memsz; ++i) hash = mix(hash, bytes[i]);
  return hash;
}

// dl_iterate_phdr reports the executable first.
int look_at(dl_phdr_info* info, std::size_t /*size*/, void* argument) {
  Search& search = *static_cast<Search*>(argument);
  if (!search.first) return 1;
  search.first = false;
  const std::uintptr_t page = page_bytes();
  std::uintptr_t relro_begin = 0;
  std::uintptr_t relro_end = 0;
  std::uint64_t identity = info->dlpi_phnum;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    if (header.p_type == PT_GNU_RELRO) {
      relro_begin = (info->dlpi_addr + header.p_vaddr) & ~(page - 1);
      // as the loader rounds it
      relro_end = (info->dlpi_addr + header.p_vaddr + header.p_memsz) & ~(page - 1);
    }
    if (header.p_type == PT_NOTE) identity = hash_note(*info, header, identity);
  }
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    if (header.p_type != PT_LOAD || (header.p_flags & PF_W) == 0) continue;
    std::uintptr_t begin = (info->dlpi_addr + header.p_vaddr) & ~(page - 1);
    const std::uintptr_t end = (info->dlpi_addr + header.p_vaddr + header.p_memsz + page - 1) & ~(page - 1);
    if (relro_begin <= begin && begin < relro_end) begin = std::min(relro_end, end);
    // Linkers that make several writable segments put RELRO into its own segment; the data is the
    // larger one.
    if (end - begin <= search.found.bytes) continue;
    search.found = {reinterpret_cast<std::byte*>(begin), end - begin, 0};  // NOLINT(performance-no-int-to-ptr)
  }
  const std::uintptr_t offset = reinterpret_cast<std::uintptr_t>(search.found.begin) - info->dlpi_addr;
  search.found.identity = mix(mix(identity, offset), search.found.bytes);
  return 1;
}

}  // namespace

StaticData find_static_data() {
  Search search;
  ::dl_iterate_phdr(look_at, &search);
  return search.found;
}

bool move_to(std::byte* region, const StaticData& data) {
  // Makes a second mapping of the same pages at any address. This works only with shared mappings,
  // which is checked here. The data is replaced only after that, in one step that cannot fail
  // half-way.
  std::byte* second = move_mapping(region, 0, data.bytes, MREMAP_MAYMOVE, nullptr);
  if (second == nullptr) return false;
  static const int handlers = ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  if (handlers != 0) {
    ::munmap(second, data.bytes);
    return false;
  }
  copy_pages(region, data.begin, data.bytes);
  // Heddle's memory is not inherited by children, but a child's variables must be there before the
  // handlers have run: the C library or another handler may read one of them first.
  if (::madvise(second, data.bytes, MADV_DOFORK) != 0 || !map_over(data.begin, second, data.bytes)) {
    ::munmap(second, data.bytes);
    return false;
  }
  g_moved = {data.begin, data.bytes, nullptr};
  return true;
}

void move_back() {
  if (g_moved.begin == nullptr) return;
  std::byte* copy = private_copy(g_moved);
  if (copy == nullptr || !map_over(g_moved.begin, copy, g_moved.bytes)) die("keep");
  g_moved = {};
}

}  // namespace heddle::shmem::memory
