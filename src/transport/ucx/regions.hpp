// The regions of a rank, those that it has imported, and the keys that a port has unpacked for
// them.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/network/directory.hpp"
#include "transport/ucx/library.hpp"
#include "transport/ucx/peer_state.hpp"

namespace heddle::transport::ucx {

class Device;

// The regions of a rank, and those of its peers that it has imported. UCX's own keys are longer
// than a packed region may be: so a packed region carries a number, and its key is asked for on
// first use (network::Directory).
class Regions final : public network::KeyShelf {
 public:
  // `device`: not used before it is complete.
  Regions(Device& device, const Functions& call) : device_(device), call_(call) {}

  [[nodiscard]] base::Result<LocalMemory> allocate(std::uint64_t bytes);
  [[nodiscard]] base::Result<LocalMemory> register_memory(void* address, std::uint64_t bytes);
  void free(const LocalMemory& memory) { deregister(memory.id); }  // UCX has allocated it
  void deregister(std::uint64_t id);
  // At the end.
  void deregister_all(ucp_context_h context);

  // The key comes from the network. PROTOCOL: it is no key of that rank.
  // handle: [0] number of the import, [1] its generation, [2] address in the owner. Imports of one
  // region share the first two, so that its key is unpacked once.
  [[nodiscard]] base::Result<RemoteMemory> import(std::uint32_t rank, const MemoryKey& key);
  void release(const RemoteMemory& memory);
  // With the device's mutex. False: it was released.
  [[nodiscard]] bool import_is(std::uint64_t import, std::uint64_t generation);
  // Changes whenever an import is released. Relaxed: a late look does no harm.
  [[nodiscard]] std::uint64_t releases() const { return releases_.load(std::memory_order_relaxed); }
  // The packed key of an imported region. AGAIN. RANGE: its owner has deregistered it, or it was
  // released here.
  [[nodiscard]] base::Result<Bytes> key(std::uint64_t import, std::uint64_t generation);

  // ---- for the directory, with the device's mutex
  [[nodiscard]] const Bytes* packed(std::uint64_t id) const override;
  void learn(std::uint32_t rank, std::uint64_t id, const std::byte* key, std::uint32_t bytes) override;
  void ask_again(std::uint32_t rank, std::uint64_t id) override;

 private:
  enum class Known : std::uint8_t { nothing, asked, there, gone };
  struct Region {
    ucp_mem_h memory = nullptr;
    Bytes packed;
  };
  struct Import {
    std::uint64_t generation = 0;
    std::uint64_t uses = 0;  // imports of the same region
    std::uint32_t rank = 0;
    std::uint64_t id = 0;
    Known known = Known::nothing;
    Bytes packed;
  };
  // The import that waits for this key. Null: there is none.
  Import* asked(std::uint32_t rank, std::uint64_t id);
  base::Result<LocalMemory> enter(ucp_mem_h memory, void* address, std::uint64_t bytes);

  Device& device_;
  const Functions& call_;
  // The device's mutex guards what follows.
  std::unordered_map<std::uint64_t, Region> regions_;
  std::uint64_t next_region_ = 1;
  std::vector<Import> imports_;
  std::vector<std::uint64_t> free_imports_;
  // by rank and region
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::uint64_t> import_of_;
  std::uint64_t next_generation_ = 1;
  std::atomic<std::uint64_t> releases_{0};
};

class Device;

// A key for the endpoint of a peer state.
struct alignas(32) Key {
  static constexpr std::uint64_t kNone = UINT64_MAX;
  std::uint64_t generation = kNone;  // of the import
  PeerState* peer = nullptr;
  ucp_rkey_h key = nullptr;
};

// The keys of imported regions as UCX has unpacked them for a port: on first use, one for each
// region. Keys of imports that were released are destroyed when no transfer of the port can use
// them any more.
class Keys {
 public:
  Keys(const Functions& call, Device& device) : call_(call), device_(device) {}

  // The key that a put, get or atomic uses. Null: it is not unpacked yet.
  [[nodiscard]] const Key* find(const Command& command) const {
    const std::uint64_t number = command.remote->handle[0];
    if (number >= count_) return nullptr;
    const Key& known = keys_[number];
    const bool fits = known.generation == command.remote->handle[1] && known.peer->rank == command.rank &&
                      known.peer->worker == command.worker;
    return fits ? &known : nullptr;
  }
  // The same, for a peer state that is ready: unpacks it. Null: `why`; AGAIN: the peer was asked,
  // or there is no memory.
  const Key* unpack(const Command& command, PeerState& peer, base::Status* why);

  // Called from time to time: otherwise the keys of released imports would keep the peers' memory
  // mapped. `used`: transfers under way may use them.
  void forget_releases(bool used);
  // At the end.
  void destroy();

 private:
  void drop_released(std::uint64_t releases);
  void drop(Key* entry);
  void destroy_dropped();

  const Functions& call_;
  Device& device_;
  std::vector<Key> keys_;            // by import
  std::uint64_t count_ = 0;          // of them
  std::vector<ucp_rkey_h> dropped_;  // that transfers under way may still use
  std::uint64_t releases_seen_ = 0;
};

}  // namespace heddle::transport::ucx
