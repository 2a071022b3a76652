// Cross-memory attach: the kernel copies between this process's memory and a peer's in one go, if
// it permits that.
#pragma once

#include <cstdint>

#include "transport/shm/home.hpp"

namespace heddle::transport::shm {

enum class Direction : std::uint8_t { put, get };

// Copies `bytes` between `local` and `remote` (an address in the peer). UNSUPPORTED: the kernel
// forbids it for this peer, which is then remembered. PEER_FAILED: no such process any more. RANGE:
// the peer has no memory there.
base::Status cma_copy(Peer& peer, Direction direction, void* local, std::uint64_t remote, std::uint64_t bytes);

}  // namespace heddle::transport::shm
