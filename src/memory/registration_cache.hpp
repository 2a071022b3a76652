// Registrations of the caller's memory, kept for the next operation on it.
//
// A transport whose hardware works on registered memory only asks the cache for a registration that
// covers a range, uses it for an operation, and releases it. A registration that no operation uses
// stays until room is wanted (least recently used first) or until the memory is unmapped
// (unmap_watch.hpp). One cache per queue, used by one thread at a time: a hit takes no lock, no
// atomic read-modify-write and no system call, except for ranges of Options::check_bytes or more
// (one system call, see UnmapWatch).
//
// Invariants
//   Entries that are `kept` are disjoint, in index_ by address and in a list by when they were last
//   asked for. latest_ is the newest of that list, or covers nothing; so a caller that uses one
//   buffer again and again changes nothing but two counts.
//   An entry that is `retired` (evicted by overlap, unmapped) covers nothing, and the last
//   release() deregisters it.
//   front_ is a guess: every use checks whether the entry that it names covers the range.
//   A registration is used only if the generation of the watch's log was the one up to which this
//   cache has read it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/error.hpp"
#include "memory/unmap_watch.hpp"

namespace heddle::memory {

// How the hardware uses the memory: it reads it (source of a put), or also writes it.
enum class Access : std::uint8_t { read = 0, write = 1 };

// Makes memory known to a transport's hardware, and unknown again. Called from inside the cache's
// calls, never on a hit.
class Registrar {
 public:
  Registrar() = default;
  Registrar(const Registrar&) = delete;
  Registrar& operator=(const Registrar&) = delete;
  virtual ~Registrar() = default;
  // Registers whole pages. DONE and the handle; NO_MEMORY: the hardware has no room (the cache
  // deregisters what is idle and asks again); AGAIN: not now, another thread is registering (then
  // acquire() says so too); else the reason. The cache asks for `write` first, and for `read` if
  // that fails and reading suffices.
  [[nodiscard]] virtual base::Status register_memory(std::byte* begin, std::uint64_t bytes, Access access,
                                                     std::uint64_t* handle) = 0;
  // Deregisters memory that no operation uses. The memory may be gone, and something else may be in
  // its place.
  virtual void deregister(std::uint64_t handle) = 0;
};

class RegistrationCache {
 public:
  struct Options {
    bool keep = true;  // false: every operation registers and deregisters
    std::uint32_t entries = 1024;
    // most that is kept; a larger range is registered for its operation only
    std::uint64_t bytes = std::uint64_t{4} << 30;
    // ranges of this size and more cost a system call; ~0: none does
    std::uint64_t check_bytes = 65536;
    // false: the kernel is not asked about unmapped memory; only UnmapWatch::forget() reports it
    bool watch = true;
    static Options from(const base::Config& config);
  };
  // The registration that acquire() gives an operation until release().
  struct Lease {
    std::uint64_t handle;  // of the registration
    std::uint64_t offset;  // of the range's first byte in it
    std::uint32_t entry;   // for release()
  };
  struct Counters {
    std::uint64_t hits = 0;
    std::uint64_t misses = 0;  // registered, and kept
    // registered for one operation: the cache is off, or this memory cannot be kept
    std::uint64_t passing = 0;
    std::uint64_t evictions = 0;      // deregistered to make room
    std::uint64_t invalidations = 0;  // of memory that has gone
  };

  // The watch of the process, if `options` keeps registrations and the watch is available;
  // otherwise null. If the watch is not available, one line at level info says so, once per
  // process.
  static std::shared_ptr<UnmapWatch> watch_for(const Options& options, const base::Log& log);

  // Without a watch nothing is kept. `registrar` outlives the cache.
  RegistrationCache(Registrar& registrar, std::shared_ptr<UnmapWatch> watch, const Options& options);
  RegistrationCache(const RegistrationCache&) = delete;
  RegistrationCache& operator=(const RegistrationCache&) = delete;
  ~RegistrationCache();  // deregisters everything; no lease may be out

  // acquire() in two steps, if the registration is the one of the last acquire(). latest() tells by
  // not being null that it is; then use_latest() takes it and gives the handle with the offset
  // added; latest_entry() is for release().
  [[nodiscard]] const void* latest(const void* address, std::uint64_t bytes, Access access) const {
    const Entry& entry = entries_[latest_];
    const std::uint64_t offset = reinterpret_cast<std::uint64_t>(address) - entry.begin;
    const std::uint64_t limit = entry.limit[static_cast<std::size_t>(access)];
    const bool covers =
        log_->generation() == seen_ && offset < limit && bytes <= limit - offset && bytes < check_bytes_;
    return covers ? &entry : nullptr;
  }
  std::uint64_t use_latest(const void* address) {
    Entry& entry = entries_[latest_];
    ++entry.users;
    ++counters_.hits;
    return entry.handle + (reinterpret_cast<std::uint64_t>(address) - entry.begin);
  }
  // Likewise, and gives the handle alone.
  std::uint64_t take_latest() {
    Entry& entry = entries_[latest_];
    ++entry.users;
    ++counters_.hits;
    return entry.handle;
  }
  [[nodiscard]] std::uint32_t latest_entry() const { return latest_; }

  // A registration of [address, address + bytes), bytes > 0. DONE: *lease, until release(). AGAIN:
  // operations under way use all the room, or the registrar returned it. Otherwise the registrar's
  // result. The caller keeps the memory mapped until release().
  [[nodiscard]] base::Status acquire(const void* address, std::uint64_t bytes, Access access, Lease* lease) {
    if (latest(address, bytes, access) != nullptr) [[likely]] {
      const std::uint64_t handle = entries_[latest_].handle;
      *lease = {handle, use_latest(address) - handle, latest_};
      return HEDDLE_DONE;
    }
    return acquire_another(reinterpret_cast<std::uint64_t>(address), bytes, access, lease);
  }
  void release(std::uint32_t at) {
    Entry& entry = entries_[at];
    if (--entry.users == 0 && entry.state != State::kept) [[unlikely]] {
      end_retired(at);
    }
  }

  // The caller knows that this memory goes away, and nobody else would report it; see also
  // UnmapWatch::forget(), for all caches.
  void forget(const void* address, std::uint64_t bytes);
  // Deregisters all that no operation uses.
  void drop_idle();

  [[nodiscard]] const Counters& counters() const { return counters_; }
  // The counters in words, for HEDDLE_STATS; empty: acquire() was never called.
  [[nodiscard]] std::string describe() const;
  [[nodiscard]] bool keeps() const { return keep_; }
  [[nodiscard]] std::uint32_t kept_entries() const { return static_cast<std::uint32_t>(index_.size()); }
  [[nodiscard]] std::uint64_t kept_bytes() const { return kept_bytes_; }

 private:
  enum class State : std::uint8_t { free, kept, retired };
  struct alignas(64) Entry {
    std::uint64_t begin = 0;
    std::array<std::uint64_t, 2> limit{};  // by Access: bytes that are covered; 0: none (not kept)
    std::uint64_t handle = 0;
    std::uint64_t bytes = 0;  // from `begin`
    std::uint32_t users = 0;
    std::uint32_t newer = 0;  // in the list; free entries: the next one
    std::uint32_t older = 0;
    State state = State::free;
    bool watched = false;
  };
  struct Range {
    std::uint64_t begin;
    std::uint64_t end;
  };
  static constexpr std::uint32_t kNone = 0;  // entry 0 covers nothing, and is both ends of the list
  static constexpr std::uint32_t kSpare = 64;

  [[nodiscard]] std::size_t front_of(std::uint64_t place) const {
    return ((place >> page_shift_) * 0x9e3779b97f4a7c15u) >> front_shift_;
  }
  void leave_list(const Entry& entry) {
    entries_[entry.newer].older = entry.older;
    entries_[entry.older].newer = entry.newer;
  }
  void join_list(std::uint32_t at) {
    Entry& head = entries_[kNone];
    entries_[at].newer = kNone;
    entries_[at].older = head.older;
    entries_[head.older].newer = at;
    head.older = at;
    latest_ = at;
  }
  void use_kept(std::uint32_t at) {
    leave_list(entries_[at]);
    join_list(at);
    ++entries_[at].users;
    ++counters_.hits;
  }

  base::Status acquire_another(std::uint64_t place, std::uint64_t bytes, Access access, Lease* lease);
  base::Status acquire_slowly(std::uint64_t place, std::uint64_t bytes, Access access, Lease* lease);
  void lend(std::uint32_t at, std::uint64_t place, Lease* lease);
  void catch_up();
  void abandon();
  [[nodiscard]] std::size_t first_after(std::uint64_t place) const;
  [[nodiscard]] std::uint32_t find(std::uint64_t place, std::uint64_t bytes, Access access) const;

  base::Status register_anew(std::uint64_t place, std::uint64_t bytes, Access access, Lease* lease);
  base::Status register_kept(Range range, Access access, std::uint32_t* at);
  base::Status register_passing(Range range, Access access, std::uint32_t* at);
  base::Status register_memory(Range range, Access wanted, Access* got, std::uint64_t* handle);
  [[nodiscard]] Range join_overlapping(Range range) const;
  [[nodiscard]] std::uint32_t take_entry(Range range, std::uint64_t handle);
  [[nodiscard]] bool leases_out() const;

  void retire_overlapping(Range range, std::uint64_t* counter);
  void retire(std::size_t index);
  void end_retired(std::uint32_t at);
  bool evict_one();

  // The members that a hit reads lie in one line.
  const UnmapWatch::Log* log_;
  std::uint64_t seen_ = UnmapWatch::Log::kNobody;
  std::uint64_t check_bytes_;
  Entry* entries_;
  std::uint32_t latest_ = kNone;
  std::uint32_t front_shift_;
  std::uint32_t page_shift_;
  Counters counters_;
  std::uint32_t* front_;

  Registrar& registrar_;
  std::shared_ptr<UnmapWatch> watch_;
  std::uint64_t most_bytes_;
  std::uint64_t kept_bytes_ = 0;
  std::uint32_t most_entries_;
  std::uint32_t free_ = kNone;
  bool keep_;
  std::unique_ptr<Entry[]> entry_memory_;
  std::unique_ptr<std::uint32_t[]> front_memory_;
  // kept entries by `begin`; never grows beyond what was reserved
  std::vector<std::uint32_t> index_;
};

}  // namespace heddle::memory
