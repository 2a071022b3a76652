// The keys of imported regions as UCX has unpacked them for a port: on first use, one for each
// region. Keys of imports that were released are destroyed when no transfer of the port can use
// them any more.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/ucx/peer_state.hpp"

namespace heddle::transport::ucx {

class Device;

// A key for the endpoint of a peer state.
struct alignas(32) Key {
  static constexpr std::uint64_t kNone = UINT64_MAX;
  std::uint64_t generation = kNone;  // of the import
  PeerState* peer = nullptr;
  ucp_rkey_h key = nullptr;
};

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
