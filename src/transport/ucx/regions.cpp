#include "transport/ucx/regions.hpp"

#include <unistd.h>

#include <mutex>
#include <new>
#include <utility>

#include "transport/network/transport.hpp"
#include "transport/ucx/device.hpp"

namespace heddle::transport::ucx {

base::Result<LocalMemory> Regions::allocate(std::uint64_t bytes) {
  if (bytes == 0) return base::fail(HEDDLE_ERR_ARGUMENT, "a region of 0 bytes; at least 1 is needed");
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  constexpr std::uint64_t kMost = std::uint64_t{1} << 46;
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
  params.length = (bytes + page - 1) / page * page;
  params.flags = UCP_MEM_MAP_ALLOCATE;
  ucp_mem_h memory = nullptr;
  const ucs_status_t status = bytes > kMost ? UCS_ERR_NO_MEMORY : call_.mem_map(device_.context(), &params, &memory);
  if (status != UCS_OK) {
    return base::fail(HEDDLE_ERR_NO_MEMORY, "no memory for a region of %llu bytes: %s",
                      static_cast<unsigned long long>(bytes), call_.status_string(status));
  }
  ucp_mem_attr_t attributes{};
  attributes.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
  if (call_.mem_query(memory, &attributes) != UCS_OK) {
    call_.mem_unmap(device_.context(), memory);
    return base::fail(HEDDLE_ERR_SYSTEM, "UCX does not say where it has allocated memory");
  }
  return enter(memory, attributes.address, bytes);
}

base::Result<LocalMemory> Regions::register_memory(void* address, std::uint64_t bytes) {
  if (const base::Status status = network::check_memory(address, bytes); status != HEDDLE_DONE) return status;
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  params.address = address;
  params.length = bytes;
  ucp_mem_h memory = nullptr;
  if (const ucs_status_t status = call_.mem_map(device_.context(), &params, &memory); status != UCS_OK) {
    return base::fail(status == UCS_ERR_NO_MEMORY ? HEDDLE_ERR_NO_MEMORY : HEDDLE_ERR_ARGUMENT,
                      "%llu bytes at %p cannot be registered with UCX: %s", static_cast<unsigned long long>(bytes),
                      address, call_.status_string(status));
  }
  return enter(memory, address, bytes);
}

base::Result<LocalMemory> Regions::enter(ucp_mem_h memory, void* address, std::uint64_t bytes) {
  void* packed = nullptr;
  std::size_t packed_bytes = 0;
  if (const ucs_status_t status = call_.rkey_pack(device_.context(), memory, &packed, &packed_bytes);
      status != UCS_OK) {
    call_.mem_unmap(device_.context(), memory);
    return base::fail(HEDDLE_ERR_SYSTEM, "UCX gives no key for a region: %s", call_.status_string(status));
  }
  const std::lock_guard lock(device_.mutex());
  KeyBytes key;
  key.id = next_region_;
  try {
    const auto* begin = static_cast<const std::byte*>(packed);
    regions_.emplace(key.id, Region{memory, Bytes(begin, begin + packed_bytes)});
  } catch (const std::bad_alloc&) {
    call_.rkey_buffer_release(packed);
    call_.mem_unmap(device_.context(), memory);
    return base::fail(HEDDLE_ERR_NO_MEMORY, "no memory for one region more");
  }
  call_.rkey_buffer_release(packed);
  ++next_region_;
  return network::describe_region(device_, address, bytes, key.id, key);
}

void Regions::deregister(std::uint64_t id) {
  const std::lock_guard lock(device_.mutex());
  const auto found = regions_.find(id);
  if (found == regions_.end()) return;
  call_.mem_unmap(device_.context(), found->second.memory);
  regions_.erase(found);
}

void Regions::deregister_all(ucp_context_h context) {
  for (const auto& [id, region] : regions_) call_.mem_unmap(context, region.memory);
  regions_.clear();
}

const Bytes* Regions::packed(std::uint64_t id) const {
  const auto found = regions_.find(id);
  return found == regions_.end() ? nullptr : &found->second.packed;
}

// ---- of peers -----------------------------------------------------------------------------------

base::Result<RemoteMemory> Regions::import(std::uint32_t rank, const MemoryKey& packed_key) {
  const auto key = network::read_key<KeyBytes>(device_, rank, packed_key);
  if (!key) return key.status();
  const std::lock_guard lock(device_.mutex());
  std::uint64_t number = imports_.size();
  if (const auto known = import_of_.find({rank, key->id}); known != import_of_.end()) {
    number = known->second;
  } else {
    if (free_imports_.empty()) {
      imports_.emplace_back();
      free_imports_.push_back(number);
    }
    number = free_imports_.back();
    // if there is no memory, the number is still free
    import_of_.emplace(std::pair{rank, key->id}, number);
    free_imports_.pop_back();
    imports_[number].generation = next_generation_++;
    imports_[number].rank = rank;
    imports_[number].id = key->id;
  }
  Import& import = imports_[number];
  ++import.uses;
  RemoteMemory memory;
  memory.rank = rank;
  memory.bytes = key->bytes;
  memory.opcodes = device_.memory_opcodes();
  memory.handle = {number, import.generation, key->address, 0};
  return memory;
}

void Regions::release(const RemoteMemory& memory) {
  const std::lock_guard lock(device_.mutex());
  const std::uint64_t number = memory.handle[0];
  if (number >= imports_.size() || imports_[number].generation != memory.handle[1]) return;
  if (--imports_[number].uses != 0) return;
  import_of_.erase({imports_[number].rank, imports_[number].id});
  imports_[number] = Import{};
  free_imports_.push_back(number);
  releases_.fetch_add(1, std::memory_order_relaxed);
}

bool Regions::import_is(std::uint64_t import, std::uint64_t generation) {
  return import < imports_.size() && imports_[import].generation == generation;
}

base::Result<Bytes> Regions::key(std::uint64_t import, std::uint64_t generation) try {
  const std::unique_lock lock(device_.mutex(), std::try_to_lock);
  if (!lock) return HEDDLE_AGAIN;
  if (import >= imports_.size() || imports_[import].generation != generation) return HEDDLE_ERR_RANGE;
  Import& wanted = imports_[import];
  if (wanted.rank == device_.rank()) {
    const Bytes* own = packed(wanted.id);
    return own != nullptr ? base::Result<Bytes>(*own) : HEDDLE_ERR_RANGE;
  }
  // UCX 1.13 may crash on a key whose owner is gone
  if (device_.failed(wanted.rank)) return HEDDLE_ERR_PEER_FAILED;
  if (wanted.known == Known::there) return wanted.packed;
  if (wanted.known == Known::gone) return HEDDLE_ERR_RANGE;
  if (wanted.known == Known::nothing) {
    if (const base::Status status = device_.directory().ask_key(wanted.rank, wanted.id); status != HEDDLE_DONE)
      return status;
    wanted.known = Known::asked;
  }
  return HEDDLE_AGAIN;
} catch (const std::bad_alloc&) {
  return HEDDLE_AGAIN;
}

Regions::Import* Regions::asked(std::uint32_t rank, std::uint64_t id) {
  const auto found = import_of_.find({rank, id});
  if (found == import_of_.end()) return nullptr;
  Import& import = imports_[found->second];
  return import.known == Known::asked ? &import : nullptr;
}

void Regions::learn(std::uint32_t rank, std::uint64_t id, const std::byte* key, std::uint32_t bytes) {
  Import* import = asked(rank, id);
  if (import == nullptr) return;
  if (key != nullptr) import->packed.assign(key, key + bytes);
  import->known = key != nullptr ? Known::there : Known::gone;
}

void Regions::ask_again(std::uint32_t rank, std::uint64_t id) {
  if (Import* import = asked(rank, id); import != nullptr) import->known = Known::nothing;
}

const Key* Keys::unpack(const Command& command, PeerState& peer, base::Status* why) try {
  const std::uint64_t number = command.remote->handle[0];
  const std::uint64_t generation = command.remote->handle[1];
  const auto packed = device_.regions().key(number, generation);
  if (!packed) {
    *why = packed.status();
    return nullptr;
  }
  if (number >= keys_.size()) keys_.resize(number + 1);
  count_ = keys_.size();
  Key& entry = keys_[number];
  if (entry.key != nullptr) drop(&entry);
  const ucs_status_t status = call_.ep_rkey_unpack(peer.endpoint, packed->data(), &entry.key);
  if (status == UCS_OK) {
    entry.generation = generation;
    entry.peer = &peer;
    return &entry;
  }
  entry.key = nullptr;
  *why = base::fail(status == UCS_ERR_NO_MEMORY ? HEDDLE_ERR_NO_MEMORY : HEDDLE_ERR_SYSTEM,
                    "UCX cannot use the key of a region of rank %u: %s", command.rank, call_.status_string(status));
  return nullptr;
} catch (const std::bad_alloc&) {
  *why = HEDDLE_AGAIN;
  return nullptr;
}

void Keys::forget_releases(bool used) {
  const std::uint64_t releases = device_.regions().releases();
  if (releases != releases_seen_) drop_released(releases);
  if (!used && !dropped_.empty()) destroy_dropped();
}

// The next time, if another thread has the mutex.
void Keys::drop_released(std::uint64_t releases) {
  const std::unique_lock lock(device_.mutex(), std::try_to_lock);
  if (!lock) return;
  releases_seen_ = releases;
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    if (keys_[i].key != nullptr && !device_.regions().import_is(i, keys_[i].generation)) drop(&keys_[i]);
  }
}

// UCX needs the key until the commands that use it have ended.
void Keys::drop(Key* entry) {
  try {
    dropped_.push_back(entry->key);
  } catch (const std::bad_alloc&) {
    entry->key = nullptr;  // UCX keeps it until the worker ends
  }
  *entry = Key{};
}

void Keys::destroy_dropped() {
  for (ucp_rkey_h key : dropped_) call_.rkey_destroy(key);
  dropped_.clear();
}

void Keys::destroy() {
  for (const Key& entry : keys_) {
    if (entry.key != nullptr) call_.rkey_destroy(entry.key);
  }
  destroy_dropped();
}

}  // namespace heddle::transport::ucx
