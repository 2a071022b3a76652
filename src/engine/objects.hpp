// The objects that operations name: counters, and how the end of an operation is told; regions of
// this rank and of its peers; memory that is lent for one operation. Objects owns those of a
// context.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <forward_list>
#include <memory>
#include <mutex>
#include <span>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "base/error.hpp"
#include "base/fence.hpp"
#include "engine/handles.hpp"
#include "heddle/heddle.h"
#include "memory/regions.hpp"
#include "queue/locks.hpp"
#include "tap/debug_view.hpp"
#include "transport/transport.hpp"
#include "wire/packet.hpp"

namespace heddle::engine {

// The actions at the end of an operation.

class Objects;

// Raised by one for each operation that finished. If it belongs to one exclusive worker it has one
// writer and needs no read-modify-write; its readers may be anywhere.
class OperationCounter {
 public:
  static constexpr HandleType kType = HandleType::counter;
  OperationCounter(Objects& owner, std::uint64_t only, bool counts_done)
      : owner_(owner), only_(only), counts_done_(counts_done) {}

  [[nodiscard]] Objects& owner() const { return owner_; }
  // True: the program has freed the counter, and it lives only for the operations that name it (see
  // MarkTable). Relaxed: it orders nothing.
  [[nodiscard]] bool closed() const { return closed_.load(std::memory_order_relaxed); }
  void close() { closed_.store(true, std::memory_order_relaxed); }
  // The handle of the only worker that may raise it; 0: any worker may. Not the worker's address,
  // which a later worker may get.
  [[nodiscard]] std::uint64_t only() const { return only_; }
  // Operations that are done at once raise it as well: the posting code does that.
  [[nodiscard]] bool counts_done() const { return counts_done_; }

  void raise(heddle_status status) {
    if (status != HEDDLE_DONE) [[unlikely]] {
      base::show_release(this);
      heddle_status none = HEDDLE_DONE;
      // Partner: status()'s acquire load.
      first_error_.compare_exchange_strong(none, status, std::memory_order_release, std::memory_order_relaxed);
      return;
    }
    base::show_release(this);
    // Release: a thread that sees the count sees what the operation brought. Partner: value()'s
    // acquire load.
    if (only_ != 0) {
      value_.store(value_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    } else {
      value_.fetch_add(1, std::memory_order_release);
    }
  }
  [[nodiscard]] std::uint64_t value() const { return value_.load(std::memory_order_acquire); }
  [[nodiscard]] heddle_status status() const { return first_error_.load(std::memory_order_acquire); }
  // Call it after value() has shown that the wait is over.
  void learnt() const { base::show_acquire(const_cast<OperationCounter*>(this)); }
  // For a debugger.
  [[nodiscard]] std::array<tap::DebugField, 2> fields() const {
    return {tap::debug_field("value", *this, value_), tap::debug_field("first error", *this, first_error_)};
  }
  void reset() {
    value_.store(0, std::memory_order_relaxed);
    first_error_.store(HEDDLE_DONE, std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint64_t> value_{0};
  std::atomic<heddle_status> first_error_{HEDDLE_DONE};
  std::atomic<bool> closed_{false};
  Objects& owner_;
  const std::uint64_t only_;
  const bool counts_done_;
};

// A resolved heddle_completion.
struct CallersCompletion {
  heddle_callback fn = nullptr;
  void* arg = nullptr;
  OperationCounter* counter = nullptr;
  heddle_when when = HEDDLE_WHEN_REMOTE;

  [[nodiscard]] bool empty() const { return fn == nullptr && counter == nullptr; }
  // False also if the counter was freed meanwhile: flush and quiet tell the errors then.
  [[nodiscard]] bool notifies() const { return fn != nullptr || (counter != nullptr && !counter->closed()); }
  // For a message whose source is free as soon as it is accepted: DONE tells that.
  [[nodiscard]] bool told_when_accepted(bool inlined) const { return inlined && when == HEDDLE_WHEN_LOCAL; }
  // An exception of fn ends the process, see handlers.hpp.
  void fire(heddle_status status) const noexcept {
    if (counter != nullptr) counter->raise(status);
    if (fn != nullptr) fn(arg, status);
  }
};

// No completion is to be told.
inline constexpr CallersCompletion kNoCompletion{};

// Regions as the engine knows them.

class Objects;

struct Region {
  static constexpr HandleType kType = HandleType::region;
  Objects* owner;
  transport::LocalMemory memory;
  std::uint64_t number;  // in the context's RegionTable; peers name it in requests
  bool allocated;        // else registered
};

// Memory of the caller's that one operation lends to a peer: a region without a handle.
struct LentMemory {
  transport::LocalMemory memory;
  std::uint64_t number = 0;  // 0: no memory
};

// One peer's region, ready for use, or to be met at the first access. The first line is all that a
// direct operation reads.
struct RemoteRegion {
  static constexpr HandleType kType = HandleType::remote_region;

  // Where offset 0 is, or would be: direct memory begins at direct_begin. Both are written once,
  // before direct_bytes.
  std::byte* direct = nullptr;
  std::uint64_t direct_begin = 0;
  // Bytes that direct operations may touch: 0 where there is no direct memory, before the peer has
  // been met, and from the moment the peer is known to be dead, so that the one range check also
  // keeps operations away from the dead. Release when it becomes known; partner: the acquire load
  // in direct_range().
  std::atomic<std::uint64_t> direct_bytes{0};
  // At how many offsets from direct_begin on a word of 8 bytes may begin; as direct_bytes.
  std::atomic<std::uint64_t> direct_words{0};
  std::uint64_t bytes = 0;
  std::uint32_t rank = 0;
  // Why no command reaches the region. It belongs to direct_bytes; only the cold path looks at the
  // reason. Release when it becomes `no`, after `memory`; partner: the acquire load in
  // api::accessible().
  enum class Barred : std::uint8_t {
    no,
    unmet,  // Objects::meet() comes first
    failed  // its owner has died or left
  };
  std::atomic<Barred> barred{Barred::no};
  // True: the region was released, and lives only for the operations that name it (see MarkTable):
  // nothing more is posted to it. Relaxed: a thread that misses it posts one more piece to memory
  // that is still there.
  std::atomic<bool> closed{false};
  Objects* owner = nullptr;
  std::uint64_t number = 0;  // the owner's region number
  std::uint32_t server = 0;  // the owner's worker that serves what the transport cannot do alone
  // Those of memory.opcodes that take any range whole. None if the memory is direct only in part: a
  // long transfer is cut there.
  std::uint32_t one_command = 0;
  transport::RemoteMemory memory;

  // True: [offset, offset + count) may be accessed through `direct`.
  [[nodiscard]] bool direct_range(std::uint64_t offset, std::uint64_t count) const {
    const std::uint64_t limit = direct_bytes.load(std::memory_order_acquire);
    const std::uint64_t from = offset - direct_begin;  // a smaller offset wraps, beyond any limit
    return from <= limit && count <= limit - from;
  }
  // direct_range(offset, 8), in fewer instructions.
  [[nodiscard]] bool direct_word(std::uint64_t offset) const {
    const std::uint64_t words = direct_words.load(std::memory_order_acquire);
    return offset - direct_begin < words;
  }
  void close_direct() {
    direct_bytes.store(0, std::memory_order_relaxed);
    direct_words.store(0, std::memory_order_relaxed);
  }
  // `memory` is there: direct operations on its first `of` bytes may begin.
  void open_direct(std::uint64_t of) {
    one_command = memory.all_direct() || memory.direct == nullptr ? memory.opcodes : 0;
    if (memory.direct == nullptr) return;
    direct = memory.direct;
    direct_begin = memory.edge_before;
    const std::uint64_t end = std::min(of, memory.bytes - memory.edge_after);
    const std::uint64_t count = end > direct_begin ? end - direct_begin : 0;
    direct_words.store(count < 8 ? 0 : count - 7, std::memory_order_release);
    direct_bytes.store(count, std::memory_order_release);
  }
  // How many of the bytes at `offset`, which are in the region, are all direct or all not direct.
  // In this sense direct memory stays direct when the owner has died.
  [[nodiscard]] std::uint64_t alike(std::uint64_t offset, std::uint64_t count) const {
    if (one_command != 0 || memory.edge_before + memory.edge_after == 0) return count;
    for (const std::uint64_t edge : {std::uint64_t{memory.edge_before}, memory.bytes - memory.edge_after}) {
      if (offset < edge) return std::min(count, edge - offset);
    }
    return count;
  }
  // True: the byte is not direct, in memory whose other bytes are: adopted memory that does not
  // begin, or end, at a page.
  [[nodiscard]] bool on_edge(std::uint64_t offset) const {
    return direct_bytes.load(std::memory_order_acquire) != 0 && !direct_range(offset, 1);
  }
  // The address by which direct operations reach it; null: there is none.
  [[nodiscard]] std::byte* mapped() const {
    return direct_bytes.load(std::memory_order_acquire) != 0 ? direct : nullptr;
  }
  [[nodiscard]] bool is(Barred why) const { return barred.load(std::memory_order_acquire) == why; }
  [[nodiscard]] bool range(std::uint64_t offset, std::uint64_t count) const {
    return offset <= bytes && count <= bytes - offset;
  }
  // The region whose memory a command names.
  [[nodiscard]] static RemoteRegion* of(const transport::RemoteMemory* memory);
};
static_assert(std::is_standard_layout_v<RemoteRegion>);

inline RemoteRegion* RemoteRegion::of(const transport::RemoteMemory* memory) {
  const auto* region = reinterpret_cast<const std::byte*>(memory) - offsetof(RemoteRegion, memory);
  return reinterpret_cast<RemoteRegion*>(const_cast<std::byte*>(region));
}

class Job;

// Something that starts operations: a worker. Any thread.
class NamesObjects {
 public:
  // True: an operation that has not ended names the object, or may name it.
  [[nodiscard]] virtual bool names_remote(const RemoteRegion* remote) const = 0;
  [[nodiscard]] virtual bool names_counter(const OperationCounter* counter) const = 0;

 protected:
  ~NamesObjects() = default;
};

// The objects that operations of a context name: its regions, the remote regions that it has
// imported, and its counters. If the program releases an object while operations name it, the
// object is destroyed when these have ended.
//
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
  base::Result<OperationCounter*> open_counter(std::uint64_t only, bool counts_done);
  void close_counter(OperationCounter* counter);

  [[nodiscard]] std::uint64_t handle_of(const Region* object) const { return owned_regions_.handle(object); }
  [[nodiscard]] std::uint64_t handle_of(const RemoteRegion* object) const { return remotes_.handle(object); }
  [[nodiscard]] std::uint64_t handle_of(const OperationCounter* object) const { return counters_.handle(object); }

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
  base::Status finish_meeting(Meeting& meeting, const transport::RemoteMemory& memory);
  void free_region(const Region& region);
  [[gnu::cold]] void warn_edge(const RemoteRegion& remote, std::uint64_t offset);
  base::Result<Region*> add_region(const transport::LocalMemory& memory, bool allocated);
  base::Result<RemoteRegion*> add_without_memory(const Named& named, RemoteRegion::Barred barred);
  base::Result<RemoteRegion*> add_remote(const wire::PackedRegion& name, const transport::RemoteMemory& memory);

  Job& job_;
  memory::RegionTable regions_;
  Owned<Region> owned_regions_;
  Owned<RemoteRegion> remotes_;
  Owned<OperationCounter> counters_;

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
  std::vector<std::unique_ptr<OperationCounter>> retired_counters_;
  // entries of both; relaxed: a thread that misses one leaves it to the next look
  std::atomic<std::size_t> retired_{0};
};

// The receiver's side of memory that a peer lends for one operation (Objects::lend, take_back): how
// it is reached, for as long as that operation lasts. What the peer says about it comes from the
// network and is not trusted.
struct LentName {
  heddle_peer owner{};       // the worker that lends it; exists
  std::uint64_t region = 0;  // the owner's number
  std::uint64_t bytes = 0;
  std::span<const std::uint8_t, transport::kKeyBytes> key;
};

// On DONE *remote is ready for gets of [0, bytes), until let_go(). AGAIN: the owner's card is not
// here yet; call again. PROTOCOL: it is no memory, or not as long; else what the transport says. It
// never waits, and nothing throws.
base::Status reach_lent(Objects& objects, const LentName& name, RemoteRegion* remote) noexcept;
void let_go(const RemoteRegion& remote);

}  // namespace heddle::engine
