// The symmetric heap. Each call is collective. Every PE makes the same changes to its own allocator
// (memory/allocator.hpp), so blocks have the same offsets on all PEs without a message.
#pragma once

#include <cstddef>
#include <cstdint>

#include "openshmem/memory/allocator.hpp"
#include "openshmem/state.hpp"

namespace heddle::shmem {

// The size of the heap from SHMEM_SYMMETRIC_SIZE (or SMA_SYMMETRIC_SIZE) plus the library's
// reserved memory; a multiple of the page. Ends the process if the variable is not a size.
std::size_t heap_bytes_wanted(Call call);
// Called at the start, when the segment exists, and at the end.
void open_heap_books();
void close_heap_books();

void* malloc(Call call, std::size_t size);
void* calloc(Call call, std::size_t count, std::size_t size);
void* align(Call call, std::size_t alignment, std::size_t size);
void* realloc(Call call, void* ptr, std::size_t size);
void* malloc_with_hints(Call call, std::size_t size, long hints);
void free(Call call, void* ptr);

// The block that contains `offset`; empty: there is none. The answer is valid as long as
// heap_generation() does not change.
memory::SymmetricAllocator::Extent block_around(std::size_t offset);
std::uint64_t heap_generation();

}  // namespace heddle::shmem
