#include "transport/verbs/regions.hpp"

#include <cerrno>
#include <cstring>

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
  const Adapter& adapter = device_.adapter();
  const std::lock_guard lock(mutex_);
  ibv_mr*& slot = regions_[next_];  // its memory first
  ibv_mr* mr = (adapter.call().reg_mr)(adapter.domain(), address, bytes, kAccess);
  if (mr == nullptr) {
    const int why = errno;
    regions_.erase(next_);
    errno = why;
    return base::fail_errno(why == ENOMEM ? HEDDLE_ERR_NO_MEMORY : HEDDLE_ERR_ARGUMENT,
                            "%llu bytes at %p cannot be registered with %s (ulimit -l says how much may be)",
                            static_cast<unsigned long long>(bytes), address, adapter.name().c_str());
  }
  slot = mr;
  LocalMemory local;
  local.address = address;
  local.bytes = bytes;
  local.id = next_++;
  KeyBytes key;
  key.rank = device_.rank();
  key.address = reinterpret_cast<std::uintptr_t>(address);
  key.bytes = bytes;
  key.rkey = mr->rkey;
  network::seal(&key, device_.secret());
  std::memcpy(local.key.bytes.data(), &key, sizeof key);
  return local;
}

void Regions::deregister(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find(id);
  if (found == regions_.end()) return;
  device_.adapter().call().dereg_mr(found->second);
  regions_.erase(found);
}

void Regions::deregister_all() {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, mr] : regions_) device_.adapter().call().dereg_mr(mr);
  regions_.clear();
}

base::Result<RemoteMemory> Regions::import(std::uint32_t rank, const MemoryKey& bytes) const {
  KeyBytes key;
  std::memcpy(&key, bytes.bytes.data(), sizeof key);
  if (key.magic != KeyBytes::kMagic || !network::sealed(key, device_.secret()) || key.rank != rank || key.zero != 0) {
    return base::fail(HEDDLE_ERR_PROTOCOL, "the bytes are not the key of a verbs region of rank %u", rank);
  }
  if (device_.failed(rank)) return base::fail(HEDDLE_ERR_PEER_FAILED, "rank %u has died or left the job", rank);
  RemoteMemory memory;
  memory.rank = rank;
  memory.bytes = key.bytes;
  memory.opcodes = bit(Opcode::put) | bit(Opcode::get);
  memory.handle = {key.rkey, key.address, 0, 0};
  return memory;
}

}  // namespace heddle::transport::verbs
