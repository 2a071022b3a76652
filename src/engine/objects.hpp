// The objects that operations of a context name: its regions, the remote regions that it has
// imported, and its counters. If the program releases an object while operations name it, the
// object is destroyed when these have ended.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <forward_list>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/error.hpp"
#include "engine/completion.hpp"
#include "engine/owned.hpp"
#include "engine/region.hpp"
#include "memory/regions.hpp"
#include "queue/locks.hpp"
#include "wire/packet.hpp"

namespace heddle::engine {

class Job;

// Something that starts operations: a worker. Any thread.
class NamesObjects {
 public:
  // True: an operation that has not ended names the object, or may name it.
  [[nodiscard]] virtual bool names_remote(const RemoteRegion* remote) const = 0;
  [[nodiscard]] virtual bool names_counter(const Counter* counter) const = 0;

 protected:
  ~NamesObjects() = default;
};

// Any thread, but for clear().
class Objects {
 public:
  explicit Objects(Job& job) : job_(job) {}
  Objects(const Objects&) = delete;
  Objects& operator=(const Objects&) = delete;
  [[nodiscard]] Job& job() const { return job_; }

  // ---- regions ----
  base::Result<Region*> open_region(void* address, std::uint64_t bytes);  // null address: allocate
  // `moved`: at least `bytes`; the memory after the first `bytes` is the caller's, too, and may
  // move with them.
  base::Result<Region*> adopt_region(void* address, std::uint64_t bytes, std::uint64_t moved);
  void close_region(Region* region);
  // Called when an atomic or a signal goes to a word that is not mapped, in memory that is mapped
  // otherwise. The first such word is reported, since programs that adopt memory seldom expect
  // this. In memory of this rank the posting worker executes it itself.
  void tell_edge(const RemoteRegion& remote, std::uint64_t offset) {
    if (remote.on_edge(offset)) [[unlikely]]
      warn_edge(remote, offset);
  }
  // The open region in which all of [address, address + bytes) lies; null: there is none. It stays
  // as long as the program lets it.
  [[nodiscard]] Region* region_around(const void* address, std::uint64_t bytes);
  // Lends memory of the caller for one operation with that rank. If it has 0 bytes, nothing is
  // lent.
  base::Result<LentMemory> lend(std::uint32_t rank, void* address, std::uint64_t bytes);
  void take_back(const LentMemory& lent);
  // By the numbers that peers name.
  [[nodiscard]] const memory::RegionTable& regions() const { return regions_; }
  // For any rank, and how many bytes of that matter; for one rank.
  [[nodiscard]] std::array<std::byte, wire::kPackedRegionBytes> pack(const Region& region) const;
  [[nodiscard]] std::size_t packed_bytes(const Region& region) const;
  [[nodiscard]] std::array<std::byte, wire::kNarrowRegionBytes> pack_for(std::uint32_t rank,
                                                                         const Region& region) const;

  // ---- remote regions ----
  base::Result<RemoteRegion*> import(std::span<const std::byte> packed);
  // The same, but where the transport can, the owner is met by meet(), before the first access.
  base::Result<RemoteRegion*> import_late(std::span<const std::byte> packed);
  // For an owner that has died: a region that no operation reaches; operations on it return an
  // error. So a collective gives each rank the same result, whether it knew of the death or not.
  base::Result<RemoteRegion*> import_failed(std::span<const std::byte> packed);
  // Makes a region usable that import_late() has returned. Returns at once. DONE: its owner has
  // been met; AGAIN: its owner's card is under way; HANDLE: the handle is not open; otherwise as
  // import(). Other threads may release the region meanwhile: the caller may look at it only after
  // DONE.
  base::Status meet(std::uint64_t handle);
  base::Status meet(RemoteRegion& remote);
  // The same, but waits for the card.
  base::Status meet_wait(std::uint64_t handle);
  void close_remote(RemoteRegion* remote);
  // The failure epoch has moved: closes the regions of the dead for direct access.
  void note_failures();

  // ---- counters ----
  base::Result<Counter*> open_counter(std::uint64_t only, bool counts_done);
  void close_counter(Counter* counter);

  [[nodiscard]] std::uint64_t handle_of(const Region* object) const { return owned_regions_.handle(object); }
  [[nodiscard]] std::uint64_t handle_of(const RemoteRegion* object) const { return remotes_.handle(object); }
  [[nodiscard]] std::uint64_t handle_of(const Counter* object) const { return counters_.handle(object); }

  // ---- released ----
  void add(const NamesObjects& who);
  void remove(const NamesObjects& who);
  // Runs function() while no worker is asked which objects it names.
  template <class Function>
  void without_reclaim(Function&& function) {
    const std::lock_guard lock(retired_mutex_);
    function();
  }
  // True while something that was released has not been destroyed.
  [[nodiscard]] bool retired() const { return retired_.load(std::memory_order_relaxed) > 0; }
  // Destroys the released objects that nothing names any more.
  void reclaim() noexcept;
  // Destroys all regions and remote regions, and all released objects. Nothing that names objects
  // is left.
  void clear();

 private:
  struct Named {
    wire::PackedRegion name;
    transport::MemoryKey key;
  };
  base::Result<Named> decode(std::span<const std::byte> packed) const;
  base::Result<RemoteRegion*> import_named(const Named& named);
  // A late region's way to its owner. Threads that import share it, so that they need not look at
  // the region, which may be released meanwhile. meeting_ guards `state`; the region lives as long
  // as that is not `released`.
  struct Meeting {
    enum class State : std::uint8_t { unmet, met, released };
    const std::uint32_t rank;
    const std::uint64_t bytes;
    const transport::MemoryKey key;
    RemoteRegion& region;
    State state = State::unmet;
  };
  void note_late(RemoteRegion& remote, const transport::MemoryKey& key);
  bool forget_late(std::uint64_t handle);
  base::Status conclude(Meeting& meeting, const transport::RemoteMemory& memory);
  void free_region(const Region& region);
  [[gnu::cold]] void warn_edge(const RemoteRegion& remote, std::uint64_t offset);
  base::Result<Region*> add_region(const transport::LocalMemory& memory, bool allocated);
  base::Result<RemoteRegion*> add_without_memory(const Named& named, RemoteRegion::Barred barred);
  base::Result<RemoteRegion*> add_remote(const wire::PackedRegion& name, const transport::RemoteMemory& memory);

  Job& job_;
  memory::RegionTable regions_;
  Owned<Region> owned_regions_;
  Owned<RemoteRegion> remotes_;
  Owned<Counter> counters_;

  // Guards late_, and the members of a region that meet() and note_failures() write; taken after
  // the mutex of remotes_.
  queue::FetchingMutex meeting_;
  // by handle: of import_late(), met or not, and import_failed(), until they are released
  std::unordered_map<std::uint64_t, std::shared_ptr<Meeting>> late_;

  // guards the three lists; taken before the mutexes of the Owned lists
  queue::FetchingMutex retired_mutex_;
  // nodes: a vector would move its elements by memmove(), which ThreadSanitizer in a program sees
  // without the lock (base/fence.hpp)
  std::forward_list<const NamesObjects*> namers_;
  std::vector<std::unique_ptr<RemoteRegion>> retired_remotes_;
  std::vector<std::unique_ptr<Counter>> retired_counters_;
  // entries of both; relaxed: a thread that misses one leaves it to the next look
  std::atomic<std::size_t> retired_{0};
};

}  // namespace heddle::engine
