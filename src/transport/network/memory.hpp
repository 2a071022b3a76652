// The memory of regions that the library of a network registers and does not allocate.
#pragma once

#include <cstdint>

#include "base/error.hpp"
#include "transport/transport.hpp"

namespace heddle::transport::network {

// Whole pages of zeros, at least `bytes`. ARGUMENT: 0 bytes. NO_MEMORY.
[[nodiscard]] base::Result<void*> map_memory(std::uint64_t bytes);
void unmap_memory(void* address, std::uint64_t bytes);

// The same, registered with the regions of a transport. It adds the errors of register_memory().
template <class Regions>
[[nodiscard]] base::Result<LocalMemory> map_region(Regions& regions, std::uint64_t bytes) {
  const auto address = map_memory(bytes);
  if (!address) return address.status();
  auto memory = regions.register_memory(*address, bytes);
  if (!memory) unmap_memory(*address, bytes);
  return memory;
}

// ARGUMENT: no memory that could be registered.
[[nodiscard]] base::Status check_memory(const void* address, std::uint64_t bytes);

}  // namespace heddle::transport::network
