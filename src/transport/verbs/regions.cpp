#include "transport/verbs/regions.hpp"

#include <cerrno>
#include <cstring>

#include "transport/common/checks.hpp"
#include "transport/network/memory.hpp"
#include "transport/verbs/device.hpp"

namespace heddle::transport::verbs {
namespace {

constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

}  // namespace

base::Result<LocalMemory> Regions::allocate(std::uint64_t bytes) {
  const auto address = network::map_memory(bytes);
  if (!address) return address.status();
  auto memory = register_memory(*address, bytes);
  if (!memory) network::unmap_memory(*address, bytes);
  return memory;
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
    registered[i] = (adapter.call().reg_mr)(adapter.domain(), address, bytes, kAccess);
    if (registered[i] != nullptr) continue;
    const int why = errno;
    leave(registered);
    regions_.erase(next_);
    errno = why;
    return base::fail_errno(why == ENOMEM ? HEDDLE_ERR_NO_MEMORY : HEDDLE_ERR_ARGUMENT,
                            "%llu bytes at %p cannot be registered with %s (ulimit -l says how much may be)",
                            static_cast<unsigned long long>(bytes), address, adapter.name().c_str());
  }
  LocalMemory local;
  local.address = address;
  local.bytes = bytes;
  local.id = next_++;
  KeyBytes key;
  key.rank = device_.rank();
  key.address = reinterpret_cast<std::uintptr_t>(address);
  key.bytes = bytes;
  for (std::size_t i = 0; i < device_.adapters().size(); ++i) key.rkeys[i] = registered[i]->rkey;
  network::seal(&key, device_.secret());
  std::memcpy(local.key.bytes.data(), &key, sizeof key);
  return local;
}

void Regions::leave(const Registered& registered) const {
  for (ibv_mr* mr : registered) {
    if (mr != nullptr) device_.adapter().call().dereg_mr(mr);
  }
}

void Regions::deregister(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find(id);
  if (found == regions_.end()) return;
  leave(found->second);
  regions_.erase(found);
}

void Regions::deregister_all() {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, registered] : regions_) leave(registered);
  regions_.clear();
}

base::Result<RemoteMemory> Regions::import(std::uint32_t rank, const MemoryKey& bytes) const {
  KeyBytes key;
  std::memcpy(&key, bytes.bytes.data(), sizeof key);
  if (key.magic != KeyBytes::kMagic || !network::sealed(key, device_.secret()) || key.rank != rank || key.zero != 0) {
    return fail_key("verbs", rank);
  }
  if (device_.failed(rank)) return base::fail(HEDDLE_ERR_PEER_FAILED, "rank %u has died or left the job", rank);
  RemoteMemory memory;
  memory.rank = rank;
  memory.bytes = key.bytes;
  memory.opcodes = bit(Opcode::put) | bit(Opcode::get);
  memory.handle = {std::uint64_t{key.rkeys[1]} << 32 | key.rkeys[0], key.address, 0, 0};
  return memory;
}

}  // namespace heddle::transport::verbs
