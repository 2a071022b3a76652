#include "openshmem/heap.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>

#include "openshmem/checks.hpp"
#include "openshmem/contexts.hpp"
#include "openshmem/groups.hpp"
#include "openshmem/memory/allocator.hpp"
#include "openshmem/memory/segments.hpp"
#include "openshmem/teams.hpp"

namespace heddle::shmem {
namespace {

constexpr std::size_t kDefaultBytes = std::size_t{512} << 20U;
// Blocks of a line or more begin at one, against false sharing.
constexpr std::size_t kAlignedFromBytes = 64;

// The lock serializes threads of a program that allocate.
struct Heap {
  std::mutex mutex;
  std::unique_ptr<memory::SymmetricAllocator> allocator;
  // Number of releases. Written under the lock. Readers use acquire, and either take the lock after
  // that or skip the lookup.
  std::atomic<std::uint64_t> generation{0};
};
Heap g_heap;

std::byte* base() {
  return reinterpret_cast<std::byte*>(g_state.heap.base);  // NOLINT(performance-no-int-to-ptr): segments are numbers
}

void* take(Call call, std::size_t bytes, std::size_t alignment) {
  const std::lock_guard lock(g_heap.mutex);
  const auto offset = g_heap.allocator->allocate(bytes, alignment);
  if (offset) return base() + *offset;
  if (g_state.my_pe == 0) {  // all PEs fail the same way; one message is enough
    std::fprintf(stderr,
                 "%s: the symmetric heap has no room for %zu bytes: %zu of %zu are free, %zu in one piece; set "
                 "SHMEM_SYMMETRIC_SIZE to more\n",
                 call, bytes, g_heap.allocator->free_bytes(), g_state.heap.bytes - kReservedBytes,
                 g_heap.allocator->largest_free());
  }
  return nullptr;
}

std::size_t checked_block(Call call, const void* ptr) {
  const std::lock_guard lock(g_heap.mutex);
  const std::size_t offset = reinterpret_cast<std::uintptr_t>(ptr) - g_state.heap.base;
  const auto bytes = g_heap.allocator->bytes_at(offset);
  if (!bytes) fail(call, "ptr %p is not the beginning of a block of the symmetric heap, or was freed before", ptr);
  return *bytes;
}

void give_back(const void* ptr) {
  const std::lock_guard lock(g_heap.mutex);
  g_heap.allocator->release(reinterpret_cast<std::uintptr_t>(ptr) - g_state.heap.base);
  g_heap.generation.fetch_add(1, std::memory_order_release);
}

// The barrier of a call that changes the allocator. The allocators stay equal only if all PEs make
// the same calls with the same values; checking this costs no more than a barrier.
void meet(Call call, std::initializer_list<AgreedArgument> values) {
  if (!checks_collectives()) return barrier_all(call);
  quiet(call, World{});
  meet_alike(call, world_team(), call, values);
}

void* allocate(Call call, std::size_t size, std::size_t alignment) {
  check_initialized(call);
  if (size == 0) return nullptr;
  void* block = take(call, size, alignment);
  meet(call, {given("size", size), given("alignment", alignment)});
  return block;
}

AgreedArgument given_block(const void* ptr) {
  return given("the offset of ptr in the symmetric heap", reinterpret_cast<std::uintptr_t>(ptr) - g_state.heap.base);
}

}  // namespace

std::size_t heap_bytes_wanted(Call call) {
  const char* name = "SHMEM_SYMMETRIC_SIZE";
  const char* text = std::getenv(name);
  if (text == nullptr) {
    name = "SMA_SYMMETRIC_SIZE";
    text = std::getenv(name);
  }
  std::size_t bytes = kDefaultBytes;
  if (text != nullptr) {
    char* end = nullptr;
    const double number = std::strtod(text, &end);
    static constexpr char kUnits[] = "kKmMgGtT";
    const char* unit = *end == '\0' ? nullptr : std::strchr(kUnits, *end);
    const int power = unit == nullptr ? 0 : static_cast<int>((unit - kUnits) / 2 + 1) * 10;
    const double wanted = std::ceil(std::ldexp(number, power));
    // Text after the unit is ignored, as the standard says.
    if (end == text || (unit == nullptr && *end != '\0') || !(wanted >= 0)) {
      fail(call, "%s is \"%s\": a size is a number, with K, M, G or T behind it or nothing", name, text);
    }
    if (wanted > 0x1p46) fail(call, "%s is \"%s\": a heap has at most 64 T", name, text);
    bytes = static_cast<std::size_t>(wanted);
  }
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return (std::max<std::size_t>(bytes, 1) + kReservedBytes + page - 1) / page * page;
}

void open_heap_books() {
  const std::lock_guard lock(g_heap.mutex);
  g_heap.allocator = std::make_unique<memory::SymmetricAllocator>(kReservedBytes, g_state.heap.bytes);
  g_state.reserved = base();
}

memory::SymmetricAllocator::Extent block_around(std::size_t offset) {
  const std::lock_guard lock(g_heap.mutex);
  return g_heap.allocator->block_around(offset);
}

std::uint64_t heap_generation() {
  return g_heap.generation.load(std::memory_order_acquire);
}

void close_heap_books() {
  const std::lock_guard lock(g_heap.mutex);
  g_heap.allocator.reset();
  g_heap.generation.fetch_add(1, std::memory_order_release);
  g_state.reserved = nullptr;
}

void* malloc(Call call, std::size_t size) {
  return allocate(call, size, size >= kAlignedFromBytes ? kAlignedFromBytes : 1);
}

void* malloc_with_hints(Call call, std::size_t size, long hints) {
  check_initialized(call);
  // Unknown hints belong to other libraries or later versions; they may be ignored.
  return allocate(call, size, hints != 0 ? kAlignedFromBytes : size >= kAlignedFromBytes ? kAlignedFromBytes : 1);
}

void* align(Call call, std::size_t alignment, std::size_t size) {
  check_initialized(call);
  if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
    fail(call, "alignment %zu is no power of two", alignment);
  }
  if (alignment > memory::kHeapAlignment) {
    if (g_state.my_pe == 0) {
      std::fprintf(stderr, "%s: alignment %zu: at most %zu\n", call, alignment, memory::kHeapAlignment);
    }
    return nullptr;
  }
  return allocate(call, size, alignment);
}

void* calloc(Call call, std::size_t count, std::size_t size) {
  check_initialized(call);
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(count, size, &bytes)) bytes = SIZE_MAX;
  if (bytes == 0) return nullptr;
  void* block = take(call, bytes, bytes >= kAlignedFromBytes ? kAlignedFromBytes : 1);
  // before the barrier: nobody has put anything there yet
  if (block != nullptr) std::memset(block, 0, bytes);
  meet(call, {given("count", count), given("size", size)});
  return block;
}

void* realloc(Call call, void* ptr, std::size_t size) {
  check_initialized(call);
  if (ptr == nullptr) return malloc(call, size);
  const std::size_t old_bytes = checked_block(call, ptr);
  if (size == 0) {
    free(call, ptr);
    return nullptr;
  }
  // Puts that are in flight to the old block arrive before it is copied.
  meet(call, {given_block(ptr), given("size", size)});
  void* block = take(call, size, size >= kAlignedFromBytes ? kAlignedFromBytes : 1);
  if (block != nullptr) {
    std::memcpy(block, ptr, std::min(old_bytes, size));
    give_back(ptr);
  }
  barrier_all(call);
  return block;
}

void free(Call call, void* ptr) {
  check_initialized(call);
  if (ptr == nullptr) return;
  checked_block(call, ptr);
  meet(call, {given_block(ptr)});
  give_back(ptr);
}

}  // namespace heddle::shmem
