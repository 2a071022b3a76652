// The memory of regions that the library of a network registers and does not allocate.
#pragma once

#include <cstdint>

#include "base/error.hpp"

namespace heddle::transport::network {

// Whole pages of zeros, at least `bytes`. ARGUMENT: 0 bytes. NO_MEMORY.
[[nodiscard]] base::Result<void*> map_memory(std::uint64_t bytes);
void unmap_memory(void* address, std::uint64_t bytes);

// ARGUMENT: no memory that could be registered.
[[nodiscard]] base::Status check_memory(const void* address, std::uint64_t bytes);

}  // namespace heddle::transport::network
