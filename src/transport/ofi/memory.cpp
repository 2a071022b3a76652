#include "transport/ofi/memory.hpp"

#include <algorithm>
#include <new>

#include "transport/network/transport.hpp"
#include "transport/ofi/device.hpp"

namespace heddle::transport::ofi {

CallersMemory::CallersMemory(Fabric& fabric, const Scope& scope, const base::Config& config, const base::Log& log)
    : registrar_(fabric, scope),
      cache_(registrar_, memory::RegistrationCache::watch_for(memory::RegistrationCache::Options::from(config), log),
             memory::RegistrationCache::Options::from(config)) {}

base::Status CallersMemory::Registrar::register_memory(std::byte* begin, std::uint64_t bytes, memory::Access access,
                                                       std::uint64_t* handle) {
  // Read: by puts. Written: by gets.
  const std::uint64_t uses = access == memory::Access::read ? FI_WRITE : FI_WRITE | FI_READ;
  fid_mr* mr = nullptr;
  const int answer = fabric.add(scope, {begin, bytes, uses, fabric.new_key()}, &mr);
  if (answer == 0) {
    *handle = reinterpret_cast<std::uint64_t>(mr);
    return HEDDLE_DONE;
  }
  const bool room = answer == -FI_ENOMEM || answer == -FI_ENOSPC;
  return base::fail(room ? HEDDLE_ERR_NO_MEMORY : HEDDLE_ERR_ARGUMENT,
                    "%llu bytes at %p cannot be registered with libfabric: %s", static_cast<unsigned long long>(bytes),
                    static_cast<void*>(begin), fabric.library().why(answer));
}

void CallersMemory::Registrar::deregister(std::uint64_t handle) {
  if (!keeps)
    static_cast<void>(fi_close(&reinterpret_cast<fid_mr*>(handle)->fid));  // NOLINT(performance-no-int-to-ptr)
}

Regions::Regions(Device& device) : device_(device) {}

base::Result<LocalMemory> Regions::allocate(std::uint64_t bytes) {
  return network::map_region(*this, bytes);
}

void Regions::free(const LocalMemory& memory) {
  if (deregister(memory.id)) network::unmap_memory(memory.address, memory.bytes);
}

base::Status Regions::register_in_scope(std::uint64_t number, Region* region, const Scope& scope) {
  fid_mr*& mr = region->in[scope.domain];  // its memory first
  const Fabric::Memory memory{region->address, region->bytes, FI_REMOTE_READ | FI_REMOTE_WRITE, number};
  const int answer = device_.fabric().add(scope, memory, &mr);
  if (answer != 0) {
    region->in.erase(scope.domain);
    return base::fail(answer == -FI_ENOMEM ? HEDDLE_ERR_NO_MEMORY : HEDDLE_ERR_ARGUMENT,
                      "%llu bytes at %p cannot be registered with libfabric: %s",
                      static_cast<unsigned long long>(region->bytes), region->address, device_.library().why(answer));
  }
  return HEDDLE_DONE;
}

bool Regions::deregister_all(Region* region) {
  bool all = true;
  for (const auto& [domain, mr] : region->in) all = fi_close(&mr->fid) == 0 && all;
  region->in.clear();
  return all;
}

base::Result<LocalMemory> Regions::register_memory(void* address, std::uint64_t bytes) {
  if (const base::Status status = network::check_memory(address, bytes); status != HEDDLE_DONE) return status;
  const std::lock_guard lock(mutex_);
  const std::uint64_t number = device_.fabric().new_key();
  Region& region = regions_.emplace(number, Region{address, bytes, {}}).first->second;
  for (const Scope& scope : scopes_) {
    if (const base::Status status = register_in_scope(number, &region, scope); status != HEDDLE_DONE) {
      static_cast<void>(deregister_all(&region));
      regions_.erase(number);
      return status;
    }
  }
  return describe(number, region);
}

LocalMemory Regions::describe(std::uint64_t number, const Region& region) const {
  KeyBytes key;
  // There is one registration where the provider chooses the key.
  key.key = device_.plan().provider_keys ? fi_mr_key(region.in.begin()->second) : number;
  return network::describe_region(device_, region.address, region.bytes, number, key);
}

bool Regions::deregister(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find(id);
  if (found == regions_.end()) return true;
  const bool gone = deregister_all(&found->second);
  if (!gone) {
    device_.log().line(base::Level::error,
                       "libfabric does not deregister %llu bytes at %p: peers may still write there",
                       static_cast<unsigned long long>(found->second.bytes), found->second.address);
  }
  regions_.erase(found);
  return gone;
}

base::Status Regions::add(const Scope& scope) {
  const std::lock_guard lock(mutex_);
  scopes_.push_back(scope);
  for (auto& [number, region] : regions_) {
    if (const base::Status status = register_in_scope(number, &region, scope); status != HEDDLE_DONE) return status;
  }
  return HEDDLE_DONE;
}

void Regions::remove(fid_domain* domain) {
  const std::lock_guard lock(mutex_);
  std::erase_if(scopes_, [domain](const Scope& scope) { return scope.domain == domain; });
  for (auto& [number, region] : regions_) {
    const auto found = region.in.find(domain);
    if (found == region.in.end()) continue;
    fi_close(&found->second->fid);
    region.in.erase(found);
  }
}

void Regions::close() {
  const std::lock_guard lock(mutex_);
  for (auto& [number, region] : regions_) static_cast<void>(deregister_all(&region));
  scopes_.clear();
}

base::Result<RemoteMemory> Regions::import(std::uint32_t rank, const MemoryKey& packed) const {
  const auto key = network::read_key<KeyBytes>(device_, rank, packed);
  if (!key) return key.status();
  RemoteMemory memory;
  memory.rank = rank;
  memory.bytes = key->bytes;
  memory.opcodes = device_.memory_opcodes();
  memory.handle = {key->key, device_.plan().by_address ? key->address : 0, key->address, 0};
  return memory;
}

}  // namespace heddle::transport::ofi
