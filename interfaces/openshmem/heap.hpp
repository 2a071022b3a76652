// The symmetric heap. Each call is collective, and every PE does the same with its own books
// (memory/allocator.hpp), so the blocks lie at the same offsets everywhere without a message.
#pragma once

#include <cstddef>
#include <cstdint>

#include "openshmem/memory/allocator.hpp"
#include "openshmem/state.hpp"

namespace heddle::shmem {

// How large SHMEM_SYMMETRIC_SIZE (or SMA_SYMMETRIC_SIZE) makes the heap, what the library keeps for
// itself included; a multiple of the page. Ends the process if it is no size.
std::size_t heap_bytes_wanted(Call call);
// At the start, over the segment, and at the end.
void open_heap_books();
void close_heap_books();

void* malloc(Call call, std::size_t size);
void* calloc(Call call, std::size_t count, std::size_t size);
void* align(Call call, std::size_t alignment, std::size_t size);
void* realloc(Call call, void* ptr, std::size_t size);
void* malloc_with_hints(Call call, std::size_t size, long hints);
void free(Call call, void* ptr);

// The block that `offset` in the heap is in; empty: it is in none. It is so as long as
// heap_generation() is what it was before.
memory::Allocator::Extent block_around(std::size_t offset);
std::uint64_t heap_generation();

}  // namespace heddle::shmem
