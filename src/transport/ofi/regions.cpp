#include "transport/ofi/regions.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "transport/common/checks.hpp"
#include "transport/network/memory.hpp"
#include "transport/ofi/device.hpp"

namespace heddle::transport::ofi {
Regions::Regions(Device& device) : device_(device) {}

base::Result<LocalMemory> Regions::allocate(std::uint64_t bytes) {
  const auto address = network::map_memory(bytes);
  if (!address) return address.status();
  auto memory = register_memory(*address, bytes);
  if (!memory) network::unmap_memory(*address, bytes);
  return memory;
}

void Regions::free(const LocalMemory& memory) {
  if (deregister(memory.id)) network::unmap_memory(memory.address, memory.bytes);
}

base::Status Regions::enter(std::uint64_t number, Region* region, const Place& place) {
  fid_mr*& mr = region->in[place.domain];  // its memory first
  const Fabric::Memory memory{region->address, region->bytes, FI_REMOTE_READ | FI_REMOTE_WRITE, number};
  const int answer = device_.fabric().add(place, memory, &mr);
  if (answer != 0) {
    region->in.erase(place.domain);
    return base::fail(answer == -FI_ENOMEM ? HEDDLE_ERR_NO_MEMORY : HEDDLE_ERR_ARGUMENT,
                      "%llu bytes at %p cannot be registered with libfabric: %s",
                      static_cast<unsigned long long>(region->bytes), region->address, device_.library().why(answer));
  }
  return HEDDLE_DONE;
}

bool Regions::leave(Region* region) {
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
  for (const Place& place : places_) {
    if (const base::Status status = enter(number, &region, place); status != HEDDLE_DONE) {
      static_cast<void>(leave(&region));
      regions_.erase(number);
      return status;
    }
  }
  return describe(number, region);
}

LocalMemory Regions::describe(std::uint64_t number, const Region& region) const {
  LocalMemory local;
  local.address = region.address;
  local.bytes = region.bytes;
  local.id = number;
  KeyBytes key;
  key.rank = device_.rank();
  key.address = reinterpret_cast<std::uintptr_t>(region.address);
  key.bytes = region.bytes;
  // There is one registration where the provider chooses the key.
  key.key = device_.plan().provider_keys ? fi_mr_key(region.in.begin()->second) : number;
  network::seal(&key, device_.secret());
  std::memcpy(local.key.bytes.data(), &key, sizeof key);
  return local;
}

bool Regions::deregister(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find(id);
  if (found == regions_.end()) return true;
  const bool left = leave(&found->second);
  if (!left) {
    device_.log().line(base::Level::error,
                       "libfabric does not deregister %llu bytes at %p: peers may still write there",
                       static_cast<unsigned long long>(found->second.bytes), found->second.address);
  }
  regions_.erase(found);
  return left;
}

base::Status Regions::add(const Place& place) {
  const std::lock_guard lock(mutex_);
  places_.push_back(place);
  for (auto& [number, region] : regions_) {
    if (const base::Status status = enter(number, &region, place); status != HEDDLE_DONE) return status;
  }
  return HEDDLE_DONE;
}

void Regions::remove(fid_domain* domain) {
  const std::lock_guard lock(mutex_);
  std::erase_if(places_, [domain](const Place& place) { return place.domain == domain; });
  for (auto& [number, region] : regions_) {
    const auto found = region.in.find(domain);
    if (found == region.in.end()) continue;
    fi_close(&found->second->fid);
    region.in.erase(found);
  }
}

void Regions::close() {
  const std::lock_guard lock(mutex_);
  for (auto& [number, region] : regions_) static_cast<void>(leave(&region));
  places_.clear();
}

base::Result<RemoteMemory> Regions::import(std::uint32_t rank, const MemoryKey& bytes) const {
  KeyBytes key;
  std::memcpy(&key, bytes.bytes.data(), sizeof key);
  if (key.magic != KeyBytes::kMagic || !network::sealed(key, device_.secret()) || key.rank != rank || key.zero != 0) {
    return fail_key("ofi", rank);
  }
  if (device_.failed(rank)) return base::fail(HEDDLE_ERR_PEER_FAILED, "rank %u has died or left the job", rank);
  RemoteMemory memory;
  memory.rank = rank;
  memory.bytes = key.bytes;
  memory.opcodes = device_.memory_opcodes();
  memory.handle = {key.key, device_.plan().by_address ? key.address : 0, key.address, 0};
  return memory;
}

}  // namespace heddle::transport::ofi
