#include "transport/network/transport.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <limits>

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

namespace {

// Data that does not fit into a few messages is better fetched by its receiver.
constexpr std::uint64_t kFetchBytes = std::uint64_t{32} << 10;

}  // namespace

NetworkTransport::NetworkTransport(std::unique_ptr<Device> owned, std::uint32_t opcodes, std::uint32_t key_bytes)
    : bootstrap_(owned->bootstrap()), device_(std::move(owned)) {
  Device& device = *device_;
  bootstrap_.set_bell(&device.helper().bell());
  // a wake-up of the library costs its senders nothing more
  capabilities_.sleeping = Sleeping::free;
  capabilities_.name = device.names().transport;
  capabilities_.opcodes = bit(Opcode::message) | opcodes;
  capabilities_.copies_messages = true;
  capabilities_.ordered_messages = true;
  capabilities_.max_message = kMostMessage;
  capabilities_.max_transfer = std::numeric_limits<std::int64_t>::max();
  capabilities_.fetch_bytes = kFetchBytes;
  capabilities_.max_workers = device.max_workers();
  capabilities_.memory_per_peer = std::uint64_t{device.window()} + cost_of(kMostMessage);
  capabilities_.key_bytes = key_bytes;
}

}  // namespace heddle::transport::network
