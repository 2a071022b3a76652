// Memory that is registered with adapters: the transport's own, the caller's, mailboxes, regions.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/config.hpp"
#include "memory/registration_cache.hpp"
#include "transport/verbs/adapter.hpp"

namespace heddle::transport::verbs {

// Memory of this transport's own that the adapter reads or writes. It has its pages for itself. If
// the kernel does not copy such pages at a fork, libibverbs leaves them out of the child, and the
// child must not miss other data on them.
class OwnMemory {
 public:
  OwnMemory() = default;
  ~OwnMemory() { close(); }
  OwnMemory(const OwnMemory&) = delete;
  OwnMemory& operator=(const OwnMemory&) = delete;

  // Zeros. NO_MEMORY.
  base::Status open(const Adapter& adapter, std::size_t bytes, int rights);
  // The adapter uses it no more.
  void close();
  [[nodiscard]] std::byte* begin() const { return begin_; }
  [[nodiscard]] std::uint32_t lkey() const { return registered_->lkey; }

 private:
  const Adapter* adapter_ = nullptr;
  std::byte* begin_ = nullptr;
  std::size_t bytes_ = 0;
  ibv_mr* registered_ = nullptr;
};

// The caller's memory that puts and gets use, registered with one adapter. The cache keeps
// registrations for the next use.
class CallersMemory final : private memory::Registrar {
 public:
  CallersMemory() = default;
  ~CallersMemory() override { close(); }
  CallersMemory(const CallersMemory&) = delete;
  CallersMemory& operator=(const CallersMemory&) = delete;

  void open(const Adapter& adapter, const base::Environment& environment);
  // Deregisters all. The caller knows that the adapter does not use it any more.
  void close() { cache_.reset(); }

  [[nodiscard]] memory::RegistrationCache& cache() { return *cache_; }
  // The registration of the memory that a lease names by its handle.
  static ibv_mr* registration(std::uint64_t handle) {
    return reinterpret_cast<ibv_mr*>(handle);  // NOLINT(performance-no-int-to-ptr): made from it
  }

 private:
  // ---- Registrar
  [[nodiscard]] base::Status register_memory(std::byte* begin, std::uint64_t bytes, memory::Access access,
                                             std::uint64_t* handle) override;
  void deregister(std::uint64_t handle) override;

  const Adapter* adapter_ = nullptr;
  std::optional<memory::RegistrationCache> cache_;
};

// The ring follows it.
struct MailboxHead {
  // Up to where the peer has consumed the stream towards it, in bytes by cost_of(), modulo 2^32.
  // Its adapter writes it, after the peer has consumed; read with acquire, so that the next sends
  // come after it.
  std::atomic<std::uint32_t> credit;
  // The value that the own adapter writes into the peer's `credit`.
  std::uint32_t consumed;
  std::byte unused[56];

  [[nodiscard]] std::byte* ring() { return reinterpret_cast<std::byte*>(this + 1); }
};
static_assert(sizeof(MailboxHead) == 64 && std::atomic<std::uint32_t>::is_always_lock_free);

// The memory that peers write to: a mailbox for each peer, in registered memory. Mailboxes are made
// by the chunk, and stay until the port ends.
class Mailboxes {
 public:
  // `ring_bytes`: of each, a multiple of 64.
  explicit Mailboxes(std::uint32_t ring_bytes) : stride_(sizeof(MailboxHead) + ring_bytes) {}
  ~Mailboxes() { close(); }
  Mailboxes(const Mailboxes&) = delete;
  Mailboxes& operator=(const Mailboxes&) = delete;

  void open(const Adapter& adapter) { adapter_ = &adapter; }
  // The caller knows that no adapter writes into them any more.
  void close();

  struct Slot {
    MailboxHead* mailbox = nullptr;  // null: there is no memory
    std::uint32_t lkey = 0;
    std::uint32_t rkey = 0;
  };
  // A mailbox for one more peer; it is not given back.
  [[nodiscard]] Slot take();

 private:
  static constexpr std::size_t kChunk = 8;
  struct Chunk {
    std::byte* memory;
    ibv_mr* registered;
  };
  bool add_chunk();

  const std::size_t stride_;
  const Adapter* adapter_ = nullptr;
  std::vector<Chunk> chunks_;
  std::size_t used_ = kChunk;  // of the last chunk
};

class Device;

// The regions of a rank. Each is registered with every adapter of the rank that works.
//
// Any thread.
class Regions {
 public:
  explicit Regions(Device& device) : device_(device) {}

  [[nodiscard]] base::Result<LocalMemory> allocate(std::uint64_t bytes);
  void free(const LocalMemory& memory);
  [[nodiscard]] base::Result<LocalMemory> register_memory(void* address, std::uint64_t bytes);
  void deregister(std::uint64_t id);
  // At the end, before the adapters are closed.
  void deregister_all();

  // The key comes from the network. PROTOCOL: it is no key of that rank.
  // handle: [0] rkeys, that of the owner's first adapter in the lower half; [1] address in the
  // owner.
  [[nodiscard]] base::Result<RemoteMemory> import(std::uint32_t rank, const MemoryKey& key) const;

 private:
  using Registered = std::array<ibv_mr*, kMostAdapters>;  // with each adapter; null: there is none

  void deregister(const Registered& registered) const;

  Device& device_;
  std::mutex mutex_;  // guards what follows; taken with no other
  std::unordered_map<std::uint64_t, Registered> regions_;
  std::uint64_t next_ = 1;
};

}  // namespace heddle::transport::verbs
