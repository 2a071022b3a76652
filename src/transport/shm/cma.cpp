#include "transport/shm/cma.hpp"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

namespace heddle::transport::shm {
namespace {

// the kernel stops a little below 2 GiB
constexpr std::uint64_t kMostAtOnce = std::uint64_t{1} << 30;

}  // namespace

base::Status cma_copy(Peer& peer, Direction direction, void* local, std::uint64_t remote, std::uint64_t bytes) {
  std::uint64_t moved = 0;
  while (moved < bytes) {
    const std::uint64_t step = std::min(bytes - moved, kMostAtOnce);
    const iovec here{static_cast<std::byte*>(local) + moved, step};
    const iovec there{reinterpret_cast<void*>(remote + moved), step};  // NOLINT(performance-no-int-to-ptr)
    const ssize_t result = direction == Direction::put ? process_vm_writev(peer.pid, &here, 1, &there, 1, 0)
                                                       : process_vm_readv(peer.pid, &here, 1, &there, 1, 0);
    if (result > 0) {
      moved += static_cast<std::uint64_t>(result);
      continue;
    }
    if (result == 0 || errno == EFAULT) {
      return base::fail(HEDDLE_ERR_RANGE,
                        "rank %u has no accessible memory at %llx; was it unmapped before the region "
                        "was released?",
                        peer.rank, static_cast<unsigned long long>(remote + moved));
    }
    if (errno == EINTR || errno == EAGAIN) continue;
    if (errno == ESRCH) return HEDDLE_ERR_PEER_FAILED;
    if (errno == EPERM || errno == ENOSYS || errno == EACCES) {
      peer.cma.store(Cma::forbidden, std::memory_order_relaxed);
      return HEDDLE_ERR_UNSUPPORTED;
    }
    return base::fail_errno(HEDDLE_ERR_SYSTEM, "process_vm access to rank %u", peer.rank);
  }
  // Told once: all ports read this line, and a store at each copy would take it from them.
  if (peer.cma.load(std::memory_order_relaxed) != Cma::allowed) {
    peer.cma.store(Cma::allowed, std::memory_order_relaxed);
  }
  return HEDDLE_DONE;
}

bool cma_works(const Device& device, Peer& peer, std::uint64_t remote) {
  const Cma known = device.cma_enabled() ? peer.cma.load(std::memory_order_relaxed) : Cma::forbidden;
  if (known != Cma::untried) return known == Cma::allowed;
  std::byte probe{};
  return cma_copy(peer, Direction::get, &probe, remote, 1) == HEDDLE_DONE;
}

}  // namespace heddle::transport::shm
