#include "transport/network/memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

namespace heddle::transport::network {
namespace {

std::uint64_t whole_pages(std::uint64_t bytes) {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

}  // namespace

base::Result<void*> map_memory(std::uint64_t bytes) {
  if (bytes == 0) return base::fail(HEDDLE_ERR_ARGUMENT, "a region of 0 bytes; at least 1 is needed");
  constexpr std::uint64_t kMost = std::uint64_t{1} << 46;
  void* address = MAP_FAILED;
  if (bytes <= kMost)
    address = ::mmap(nullptr, whole_pages(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) {
    return base::fail(HEDDLE_ERR_NO_MEMORY, "no memory for a region of %llu bytes",
                      static_cast<unsigned long long>(bytes));
  }
  return address;
}

void unmap_memory(void* address, std::uint64_t bytes) {
  ::munmap(address, whole_pages(bytes));
}

base::Status check_memory(const void* address, std::uint64_t bytes) {
  if (address != nullptr && bytes != 0) return HEDDLE_DONE;
  return base::fail(HEDDLE_ERR_ARGUMENT, "a region of %llu bytes at %p; give memory of at least 1 byte",
                    static_cast<unsigned long long>(bytes), address);
}

}  // namespace heddle::transport::network
