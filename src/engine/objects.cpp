#include "engine/objects.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include "engine/handles.hpp"
#include "engine/job.hpp"

namespace heddle::engine {

static_assert(wire::kTransportKeyBytes == transport::kKeyBytes &&
              wire::kTransportKeysBytes == transport::kWideKeyBytes);

namespace {

base::Status fail_owner(std::uint32_t rank) {
  return base::fail(HEDDLE_ERR_PEER_FAILED, "rank %u, the owner of this region, has failed", rank);
}

base::Status fail_released() {
  return base::fail(HEDDLE_ERR_HANDLE, "the remote region was released while another thread accessed it");
}

}  // namespace

base::Result<Region*> Objects::open_region(void* address, std::uint64_t bytes) {
  auto memory =
      address == nullptr ? job_.transport().allocate(bytes) : job_.transport().register_memory(address, bytes);
  if (!memory) return memory.status();
  return add_region(*memory, address == nullptr);
}

// The pages move: a network interface that knows the old ones would go on using them.
base::Result<Region*> Objects::adopt_region(void* address, std::uint64_t bytes, std::uint64_t moved) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  bool free = true;
  owned_regions_.for_each([&](const Region& region) {
    const auto first = reinterpret_cast<std::uintptr_t>(region.memory.address);
    if (begin < first + region.memory.bytes && first < begin + moved) free = false;
  });
  if (!free) {
    return base::fail(HEDDLE_ERR_ARGUMENT,
                      "memory at %p of %llu bytes overlaps a region of this context; adopt it first, or release that",
                      address, static_cast<unsigned long long>(bytes));
  }
  auto memory = job_.transport().adopt(address, moved);
  if (!memory) return memory.status();
  memory->bytes = bytes;  // peers reach no more
  return add_region(*memory, false);
}

void Objects::warn_edge(const RemoteRegion& remote, std::uint64_t offset) {
  if (remote.rank == job_.rank() || !job_.tells_edge()) return;
  const std::uint64_t before = remote.memory.edge_before;
  job_.environment().log.line(
      base::Level::warn,
      "an atomic or signal at offset %llu of the region of rank %u waits until that rank makes progress on its worker "
      "0: of its %llu bytes of adopted memory only those from %llu to %llu are whole pages, which are mapped. Use "
      "memory of whole pages: heddle_region_alloc, or `whole_pages` (heddle::Allocator; Python: context.zeros). This "
      "is said once",
      static_cast<unsigned long long>(offset), remote.rank, static_cast<unsigned long long>(remote.bytes),
      static_cast<unsigned long long>(before),
      static_cast<unsigned long long>(remote.memory.bytes - remote.memory.edge_after));
}

base::Result<Region*> Objects::add_region(const transport::LocalMemory& memory, bool allocated) {
  Region undo{this, memory, 0, allocated};
  try {
    undo.number = regions_.add(memory.address, memory.bytes);
    auto added = undo.number != 0
                     ? owned_regions_.add(std::make_unique<Region>(undo))
                     : base::Result<Region*>(base::fail(HEDDLE_ERR_NO_MEMORY, "a context has at most %zu regions",
                                                        memory::RegionTable::kChunk * memory::RegionTable::kChunks));
    if (!added) free_region(undo);
    return added;
  } catch (...) {
    free_region(undo);
    throw;
  }
}

base::Result<LentMemory> Objects::lend(std::uint32_t rank, void* address, std::uint64_t bytes) {
  LentMemory lent;
  if (bytes == 0) return lent;
  try {
    auto memory = job_.transport().register_for(rank, address, bytes);
    if (!memory) return memory.status();
    lent.memory = *memory;
    lent.number = regions_.add(address, bytes);
    if (lent.number != 0) return lent;
  } catch (const std::bad_alloc&) {
    lent.number = 0;
  }
  if (lent.memory.address != nullptr) job_.transport().deregister(lent.memory);
  return base::fail(HEDDLE_ERR_NO_MEMORY, "there is no room for one more region; the message was not sent");
}

void Objects::take_back(const LentMemory& lent) {
  if (lent.number == 0) return;
  regions_.remove(lent.number);
  job_.transport().deregister(lent.memory);
}

void Objects::close_region(Region* region) {
  if (const auto taken = owned_regions_.remove(region)) free_region(*taken);
}

void Objects::free_region(const Region& region) {
  if (region.number != 0) regions_.remove(region.number);
  region.allocated ? job_.transport().free(region.memory) : job_.transport().deregister(region.memory);
}

Region* Objects::region_around(const void* address, std::uint64_t bytes) {
  Region* found = nullptr;
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  owned_regions_.for_each([&](Region& region) {
    const auto first = reinterpret_cast<std::uintptr_t>(region.memory.address);
    if (begin >= first && begin - first <= region.memory.bytes && bytes <= region.memory.bytes - (begin - first)) {
      found = &region;
    }
  });
  return found;
}

std::array<std::byte, wire::kPackedRegionBytes> Objects::pack(const Region& region) const {
  return wire::encode({job_.digest(), job_.rank(), region.number, region.memory.bytes, region.memory.key.bytes});
}

std::size_t Objects::packed_bytes(const Region& region) const {
  return wire::packed_bytes({job_.digest(), job_.rank(), region.number, region.memory.bytes, region.memory.key.bytes});
}

std::array<std::byte, wire::kNarrowRegionBytes> Objects::pack_for(std::uint32_t rank, const Region& region) const {
  const transport::WideKey key = job_.transport().key_for(rank, region.memory.key);
  return wire::encode_narrow({job_.digest(), job_.rank(), region.number, region.memory.bytes, key.bytes});
}

base::Result<Objects::Named> Objects::decode(std::span<const std::byte> packed) const {
  const auto name = wire::decode_region(packed);
  if (!name) return name.status();
  if (name->job != job_.digest()) return base::fail(HEDDLE_ERR_PROTOCOL, "this packed region is of another job");
  if (name->rank >= job_.size()) {
    return base::fail(HEDDLE_ERR_RANK, "this packed region is of rank %u, the job has %u ranks", name->rank,
                      job_.size());
  }
  transport::WideKey key;
  key.bytes = name->key;
  return Named{*name, name->narrow ? key.front() : job_.transport().key_for(name->rank, key)};
}

base::Result<RemoteRegion*> Objects::import(std::span<const std::byte> packed) {
  const auto named = decode(packed);
  return named ? import_named(*named) : named.status();
}

base::Result<RemoteRegion*> Objects::import_named(const Named& named) {
  auto memory = job_.transport().import(named.name.rank, named.key);
  if (!memory) return memory.status();
  try {
    auto added = add_remote(named.name, *memory);
    if (!added) job_.transport().release(*memory);
    return added;
  } catch (...) {
    job_.transport().release(*memory);
    throw;
  }
}

base::Result<RemoteRegion*> Objects::import_late(std::span<const std::byte> packed) {
  const auto named = decode(packed);
  if (!named) return named.status();
  const std::uint32_t rank = named->name.rank;
  if (rank == job_.rank() || !job_.transport().imports_late(rank)) return import_named(*named);
  if (job_.failed(rank)) return fail_owner(rank);
  auto added = add_without_memory(*named, RemoteRegion::Barred::unmet);
  // the owner may have died between the check and the entry in the list
  if (added && job_.failed(rank)) note_failures();
  return added;
}

base::Result<RemoteRegion*> Objects::import_failed(std::span<const std::byte> packed) {
  const auto named = decode(packed);
  return named ? add_without_memory(*named, RemoteRegion::Barred::failed) : named.status();
}

base::Result<RemoteRegion*> Objects::add_without_memory(const Named& named, RemoteRegion::Barred barred) {
  auto remote = std::make_unique<RemoteRegion>();
  remote->barred = barred;
  remote->bytes = named.name.bytes;
  remote->rank = named.name.rank;
  remote->owner = this;
  remote->number = named.name.region;
  auto added = remotes_.add(std::move(remote));
  if (!added) return added;
  // nobody else has the handle yet
  try {
    note_late(**added, named.key);
  } catch (...) {
    static_cast<void>(remotes_.remove(*added));
    throw;
  }
  return added;
}

void Objects::note_late(RemoteRegion& remote, const transport::MemoryKey& key) {
  auto meeting = std::make_shared<Meeting>(Meeting{remote.rank, remote.bytes, key, remote});
  const std::uint64_t handle = remotes_.handle(&remote);
  const std::lock_guard lock(meeting_);
  late_.emplace(handle, std::move(meeting));
}

// Called before the region is destroyed. True: no thread has met its owner, and none will.
bool Objects::forget_late(std::uint64_t handle) {
  const std::lock_guard lock(meeting_);
  const auto entry = late_.find(handle);
  if (entry == late_.end()) return false;
  const bool unmet = std::exchange(entry->second->state, Meeting::State::released) == Meeting::State::unmet;
  late_.erase(entry);
  return unmet;
}

base::Status Objects::meet_wait(std::uint64_t handle) {
  bootstrap::CardWait wait(job_.transport().card_bell());
  for (;;) {
    const base::Status status = meet(handle);
    if (status != HEDDLE_AGAIN) return status;
    wait.take();
  }
}

base::Status Objects::meet(RemoteRegion& remote) {
  return meet(remotes_.handle(&remote));
}

base::Status Objects::meet(std::uint64_t handle) {
  std::shared_ptr<Meeting> meeting;
  {
    const std::lock_guard lock(meeting_);
    const auto entry = late_.find(handle);
    if (entry != late_.end() && entry->second->state == Meeting::State::met) return HEDDLE_DONE;
    if (entry != late_.end()) meeting = entry->second;
  }
  if (meeting == nullptr) return find_handle<RemoteRegion>(handle) != nullptr ? HEDDLE_DONE : fail_released();
  const auto memory = job_.transport().try_import(meeting->rank, meeting->key);
  if (!memory) return memory.status();
  base::Status status = HEDDLE_DONE;
  if (memory->bytes < meeting->bytes) {
    status = base::fail(HEDDLE_ERR_PROTOCOL, "the key of a region of rank %u is for %llu bytes, its name for %llu",
                        meeting->rank, static_cast<unsigned long long>(memory->bytes),
                        static_cast<unsigned long long>(meeting->bytes));
  } else {
    status = finish_meeting(*meeting, *memory);
    if (status == HEDDLE_DONE) return status;
  }
  job_.transport().release(*memory);
  return status == HEDDLE_POSTED ? HEDDLE_DONE : status;
}

// DONE: the region has this memory. POSTED: it has the memory that another thread has brought
// first.
base::Status Objects::finish_meeting(Meeting& meeting, const transport::RemoteMemory& memory) {
  const std::lock_guard lock(meeting_);
  if (meeting.state == Meeting::State::released) return fail_released();
  if (std::exchange(meeting.state, Meeting::State::met) == Meeting::State::met) return HEDDLE_POSTED;
  RemoteRegion& remote = meeting.region;
  remote.memory = memory;
  // not for an owner that has died since: a thread that finds it failed may look at `direct` at any
  // time
  if (!remote.is(RemoteRegion::Barred::unmet)) return HEDDLE_DONE;
  remote.open_direct(remote.bytes);
  remote.barred.store(RemoteRegion::Barred::no, std::memory_order_release);
  return HEDDLE_DONE;
}

base::Result<RemoteRegion*> Objects::add_remote(const wire::PackedRegion& name, const transport::RemoteMemory& memory) {
  auto remote = std::make_unique<RemoteRegion>();
  remote->bytes = std::min(memory.bytes, name.bytes);
  remote->rank = name.rank;
  remote->owner = this;
  remote->number = name.region;
  remote->memory = memory;
  remote->open_direct(remote->bytes);
  if (name.rank != job_.rank() && job_.failed(name.rank)) return fail_owner(name.rank);
  auto added = remotes_.add(std::move(remote));
  // the owner may have died between the check and the entry in the list
  if (job_.failed(name.rank)) note_failures();
  return added;
}

void Objects::close_remote(RemoteRegion* remote) {
  {
    const std::lock_guard lock(retired_mutex_);
    retired_remotes_.reserve(retired_remotes_.size() + 1);  // before anything has happened
    const std::uint64_t handle = remotes_.handle(remote);
    auto taken = remotes_.remove(remote);
    if (taken == nullptr) return;
    if (forget_late(handle)) return;  // no operation names it, nothing to release
    taken->closed.store(true, std::memory_order_relaxed);
    retired_remotes_.push_back(std::move(taken));
    retired_.fetch_add(1, std::memory_order_relaxed);
  }
  reclaim();
}

base::Result<OperationCounter*> Objects::open_counter(std::uint64_t only, bool counts_done) {
  auto counter = std::make_unique<OperationCounter>(*this, only, counts_done);
  static const std::array fields = counter->fields();  // all counters are alike
  static const bool shown = (show_type(HandleType::counter, fields), true);
  static_cast<void>(shown);
  return counters_.add(std::move(counter));
}

void Objects::close_counter(OperationCounter* counter) {
  {
    const std::lock_guard lock(retired_mutex_);
    retired_counters_.reserve(retired_counters_.size() + 1);
    auto taken = counters_.remove(counter);
    if (taken == nullptr) return;
    taken->close();
    retired_counters_.push_back(std::move(taken));
    retired_.fetch_add(1, std::memory_order_relaxed);
  }
  reclaim();
}

void Objects::add(const NamesObjects& who) {
  const std::lock_guard lock(retired_mutex_);
  namers_.push_front(&who);
}

void Objects::remove(const NamesObjects& who) {
  const std::lock_guard lock(retired_mutex_);
  namers_.remove(&who);
}

void Objects::reclaim() noexcept {
  const std::lock_guard lock(retired_mutex_);
  std::erase_if(retired_remotes_, [&](const auto& remote) {
    const auto names = [&](const NamesObjects* who) { return who->names_remote(remote.get()); };
    if (std::any_of(namers_.begin(), namers_.end(), names)) return false;
    job_.transport().release(remote->memory);
    return true;
  });
  std::erase_if(retired_counters_, [&](const auto& counter) {
    const auto names = [&](const NamesObjects* who) { return who->names_counter(counter.get()); };
    return std::none_of(namers_.begin(), namers_.end(), names);
  });
  retired_.store(retired_remotes_.size() + retired_counters_.size(), std::memory_order_relaxed);
}

void Objects::clear() {
  reclaim();
  while (const RemoteRegion* any = remotes_.any()) {
    const std::uint64_t handle = remotes_.handle(any);
    const auto remote = remotes_.remove(any);
    if (!forget_late(handle)) job_.transport().release(remote->memory);
  }
  while (const auto region = owned_regions_.remove_any()) free_region(*region);
}

void Objects::note_failures() {
  for (std::uint32_t rank = 0; rank < job_.size(); ++rank) {
    if (!job_.failed(rank)) continue;
    if (rank != job_.rank()) {
      remotes_.for_each([&](RemoteRegion& remote) {
        if (remote.rank != rank) return;
        const std::lock_guard lock(meeting_);
        // release: what another thread that met it has written is seen with it
        remote.barred.store(RemoteRegion::Barred::failed, std::memory_order_release);
        remote.close_direct();
      });
    }
    job_.report_failure(rank);
  }
}

base::Status reach_lent(Objects& objects, const LentName& name, RemoteRegion* remote) noexcept {
  transport::MemoryKey key;
  static_assert(sizeof key.bytes == decltype(name.key)::extent);
  std::memcpy(key.bytes.data(), name.key.data(), sizeof key.bytes);
  try {
    const auto memory = objects.job().transport().try_import(name.owner.rank, key);
    if (!memory) return memory.status();
    remote->memory = *memory;
  } catch (const std::bad_alloc&) {
    return HEDDLE_ERR_NO_MEMORY;
  }
  if (remote->memory.bytes < name.bytes) {
    objects.job().transport().release(remote->memory);
    return HEDDLE_ERR_PROTOCOL;
  }
  remote->bytes = name.bytes;
  remote->open_direct(name.bytes);
  remote->rank = name.owner.rank;
  remote->server = name.owner.worker;
  remote->owner = &objects;
  remote->number = name.region;
  return HEDDLE_DONE;
}

void let_go(const RemoteRegion& remote) {
  remote.owner->job().transport().release(remote.memory);
}

}  // namespace heddle::engine
