// Cross-memory attach: the kernel copies directly between this process's memory and a peer's, if it
// permits that.
#pragma once

#include <cstdint>

#include "transport/shm/device.hpp"

namespace heddle::transport::shm {

enum class Direction : std::uint8_t { put, get };

// Copies `bytes` between `local` and `remote` (an address in the peer). UNSUPPORTED: the kernel
// forbids it for this peer; peer.cma records that. PEER_FAILED: the process is gone. RANGE: the
// peer has no memory there.
base::Status cma_copy(Peer& peer, Direction direction, void* local, std::uint64_t remote, std::uint64_t bytes);

// Whether the kernel permits it for this peer. The first call tries, with a byte at `remote`.
bool cma_works(const Device& device, Peer& peer, std::uint64_t remote);

}  // namespace heddle::transport::shm
