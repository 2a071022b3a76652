#include "transport/verbs/regions.hpp"

#include <cerrno>

#include "transport/network/memory.hpp"
#include "transport/network/packed_keys.hpp"
#include "transport/verbs/device.hpp"

namespace heddle::transport::verbs {
namespace {

constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

}  // namespace

base::Result<LocalMemory> Regions::allocate(std::uint64_t bytes) {
  return network::map_region(*this, bytes);
}

void Regions::free(const LocalMemory& memory) {
  deregister(memory.id);
  network::unmap_memory(memory.address, memory.bytes);
}

base::Result<LocalMemory> Regions::register_memory(void* address, std::uint64_t bytes) {
  if (const base::Status status = network::check_memory(address, bytes); status != HEDDLE_DONE) return status;
  const std::lock_guard lock(mutex_);
  Registered& registered = regions_[next_];  // its memory first
  for (std::size_t i = 0; i < device_.adapters().size(); ++i) {
    const Adapter& adapter = *device_.adapters()[i];
    if (device_.goes_on_without(adapter)) continue;
    registered[i] = (adapter.call().reg_mr)(adapter.domain(), address, bytes, kAccess);
    if (registered[i] != nullptr) continue;
    const int why = errno;
    deregister(registered);
    regions_.erase(next_);
    errno = why;
    return base::fail_errno(why == ENOMEM ? HEDDLE_ERR_NO_MEMORY : HEDDLE_ERR_ARGUMENT,
                            "%llu bytes at %p cannot be registered with %s (ulimit -l says how much may be)",
                            static_cast<unsigned long long>(bytes), address, adapter.name().c_str());
  }
  KeyBytes key;
  for (std::size_t i = 0; i < device_.adapters().size(); ++i)
    key.rkeys[i] = registered[i] != nullptr ? registered[i]->rkey : 0;
  return network::describe_region(device_, address, bytes, next_++, key);
}

void Regions::deregister(const Registered& registered) const {
  for (ibv_mr* mr : registered) {
    if (mr != nullptr) device_.adapter().call().dereg_mr(mr);
  }
}

void Regions::deregister(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find(id);
  if (found == regions_.end()) return;
  deregister(found->second);
  regions_.erase(found);
}

void Regions::deregister_all() {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, registered] : regions_) deregister(registered);
  regions_.clear();
}

base::Result<RemoteMemory> Regions::import(std::uint32_t rank, const MemoryKey& packed) const {
  const auto key = network::read_key<KeyBytes>(device_, rank, packed);
  if (!key) return key.status();
  RemoteMemory memory;
  memory.rank = rank;
  memory.bytes = key->bytes;
  memory.opcodes = bit(Opcode::put) | bit(Opcode::get);
  memory.handle = {std::uint64_t{key->rkeys[1]} << 32 | key->rkeys[0], key->address, 0, 0};
  return memory;
}

}  // namespace heddle::transport::verbs
