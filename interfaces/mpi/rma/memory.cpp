#include "mpi/rma/memory.hpp"

#include <bit>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <string>

#include <units/windows.hpp>
#include "mpi/core/job.hpp"

namespace heddle::mpi {
namespace {

constexpr std::size_t kLeastAlignment = 64;

struct Allocation {
  std::size_t bytes = 0;
  heddle_region region{};  // {0}: of the C library
};
std::mutex g_allocations_mutex;  // guards the map
std::map<std::uintptr_t, Allocation> g_allocations;

// Null: there is no such memory.
void* allocate(std::size_t bytes, std::size_t alignment, Allocation* made) {
  made->bytes = bytes;
  void* address = nullptr;
  if (bytes >= kPageBytes && alignment <= kPageBytes && heddle_region_alloc(g_job.context, bytes, &made->region) >= 0) {
    if (heddle_region_address(made->region, &address, nullptr) >= 0) return address;
    heddle_region_release(made->region);
  }
  made->region = {};
  const std::size_t whole = (bytes / alignment + 1) * alignment;
  return whole > bytes ? std::aligned_alloc(alignment, whole) : nullptr;
}

int give_memory(void* address, const Allocation& allocation) {
  if (allocation.region.id != 0) return code_of(heddle_region_release(allocation.region));
  std::free(address);
  return MPI_SUCCESS;
}

int alloc(MPI_Aint size, MPI_Info handle, void* baseptr) {
  if (size < 0) return error(MPI_ERR_ARG, "size %lld: it must not be negative", static_cast<long long>(size));
  if (baseptr == nullptr) return null_argument("baseptr");
  Info info;
  if (const int code = read_info(handle, &info); code != MPI_SUCCESS) return code;
  Allocation made;
  void* const address = allocate(static_cast<std::size_t>(size), wanted_alignment(info, kLeastAlignment), &made);
  if (address == nullptr) return error(MPI_ERR_NO_MEM, "no memory for %lld bytes", static_cast<long long>(size));
  try {
    const std::scoped_lock lock(g_allocations_mutex);
    g_allocations[reinterpret_cast<std::uintptr_t>(address)] = made;
  } catch (const std::bad_alloc&) {
    give_memory(address, made);
    return error(MPI_ERR_NO_MEM, "no memory to note an allocation");
  }
  *static_cast<void**>(baseptr) = address;
  return MPI_SUCCESS;
}

int free_memory(void* base) {
  Allocation allocation;
  {
    const std::scoped_lock lock(g_allocations_mutex);
    const auto found = g_allocations.find(reinterpret_cast<std::uintptr_t>(base));
    if (found == g_allocations.end())
      return error(MPI_ERR_BASE, "%p: not what MPI_Alloc_mem returned, or it was freed already", base);
    allocation = found->second;
    g_allocations.erase(found);
  }
  return give_memory(base, allocation);
}

}  // namespace

bool find_allocated(const void* base, std::size_t bytes, heddle_region* region, std::uint64_t* offset) {
  const auto address = reinterpret_cast<std::uintptr_t>(base);
  const std::scoped_lock lock(g_allocations_mutex);
  auto after = g_allocations.upper_bound(address);
  if (after == g_allocations.begin()) return false;
  --after;
  *offset = address - after->first;
  if (*offset > after->second.bytes || bytes > after->second.bytes - *offset) return false;
  *region = after->second.region;
  return region->id != 0;
}

std::size_t wanted_alignment(const Info& info, std::size_t least) {
  constexpr std::size_t kMost = std::size_t{1} << 30;
  const std::string* const value = info.find("mpi_minimum_memory_alignment");
  const std::size_t wanted = value != nullptr ? std::strtoull(value->c_str(), nullptr, 10) : 0;
  return std::has_single_bit(wanted) && wanted > least && wanted <= kMost ? wanted : least;
}

int alloc_mem(Call call, MPI_Aint size, MPI_Info info, void* baseptr) {
  if (const int code = check_running(); code != MPI_SUCCESS) return told(call, code);
  return told(call, alloc(size, info, baseptr));
}

int free_mem(Call call, void* base) {
  if (const int code = check_running(); code != MPI_SUCCESS) return told(call, code);
  return told(call, free_memory(base));
}

}  // namespace heddle::mpi
