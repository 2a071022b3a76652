#include "openshmem/memory/statics.hpp"

#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace heddle::shmem::memory {
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
