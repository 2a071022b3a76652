#include "transport/shm/device.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/fence.hpp"

namespace heddle::transport::shm {

namespace {

base::Status read_settings(const base::Config& config, Agreement* agreement) {
  agreement->max_workers = static_cast<std::uint32_t>(config.number(base::Var::max_workers));
  const std::uint64_t ring = config.number(base::Var::shm_ring_bytes);
  agreement->ring_bytes = ring != 0 ? ring : ring_bytes_for(agreement->size);
  const std::uint64_t pool = config.number(base::Var::shm_bounce_pool_bytes);
  const std::uint64_t chunk = config.number(base::Var::shm_bounce_chunk_bytes);
  if (pool != 0 && (pool < chunk || pool / chunk > kMaxBounceChunks)) {
    return base::fail(HEDDLE_ERR_CONFIG, "HEDDLE_SHM_BOUNCE: pool is %llu; it must be 0, or 1 to %llu chunks of %llu",
                      static_cast<unsigned long long>(pool), static_cast<unsigned long long>(kMaxBounceChunks),
                      static_cast<unsigned long long>(chunk));
  }
  agreement->bounce_chunks = pool / chunk;
  agreement->bounce_chunk_bytes = chunk;
  agreement->agreed = agreed_of(config);
  return HEDDLE_DONE;
}

}  // namespace

Device::Device(bootstrap::Bootstrap& bootstrap, const base::Environment& environment, const Agreement& agreement)
    : bootstrap_(bootstrap),
      environment_(environment),
      agreement_(agreement),
      layout_(agreement),
      rank_(bootstrap.rank()),
      bounce_(agreement.bounce_chunks, agreement.bounce_chunk_bytes),
      cma_enabled_(environment.config.flag(base::Var::shm_cma)),
      peers_(bootstrap.size()) {}

base::Result<std::unique_ptr<Device>> Device::create(bootstrap::Bootstrap& bootstrap,
                                                     const base::Environment& environment) {
  Agreement agreement;
  agreement.size = bootstrap.size();
  if (const base::Status status = read_settings(environment.config, &agreement); status != HEDDLE_DONE) return status;
  agreement.membarrier = environment.config.flag(base::Var::shm_membarrier) && base::membarrier_shared_ready() ? 1 : 0;
  std::unique_ptr<Device> device(new Device(bootstrap, environment, agreement));
  auto segment = Segment::create(device->layout_.control_bytes);
  if (!segment) return segment.status();
  device->segment_ = std::move(*segment);
  const auto control = device->segment_->mapping().map(0, device->layout_.control_bytes);
  if (!control) return control.status();
  device->control_ = ControlView(*control, &device->layout_);
  device->bell_ = queue::Bell<>(&device->control_.header().bell);
  device->stores_arming_.emplace(device->control_.header().stores_armed);

  bootstrap::Card card;
  card.fd = device->segment_->mapping().fd();
  card.pid = static_cast<std::int32_t>(getpid());
  card.bytes = encode_card(agreement);
  if (const base::Status status = bootstrap.publish(card); status != HEDDLE_DONE) return status;
  bootstrap.set_bell(&device->bell_);
  return device;
}

Device::~Device() {
  bootstrap_.set_bell(nullptr);
}

base::Result<PeerProcess*> Device::peer(std::uint32_t rank) {
  PeerProcess* known = peers_[rank].load(std::memory_order_acquire);
  return known != nullptr ? known : meet(rank);
}

[[gnu::cold]] base::Result<PeerProcess*> Device::meet(std::uint32_t rank) {
  const std::unique_lock lock(meeting_, std::try_to_lock);
  if (!lock) return HEDDLE_AGAIN;  // another thread sets a peer up
  if (PeerProcess* known = peers_[rank].load(std::memory_order_relaxed)) return known;
  auto peer = std::make_unique<PeerProcess>();
  peer->rank = rank;
  if (rank == rank_) {
    peer->pid = static_cast<std::int32_t>(getpid());
    peer->mapping = &segment_->mapping();
    peer->control = control_;
    peer->agreement = agreement_;
  } else if (const base::Status status = introduce(*peer); status != HEDDLE_DONE) {
    // Operations fail with VERSION; only the caller that posts the first one would learn which
    // setting it is.
    if (status == HEDDLE_ERR_VERSION && !std::exchange(version_told_, true)) {
      environment_.log.line(base::Level::error, "rank %u cannot be met: %s", rank, base::last_message());
    }
    return status;
  }
  owned_peers_.push_back(std::move(peer));
  environment_.log.line(base::Level::debug, "first contact with rank %u, process %d", rank, owned_peers_.back()->pid);
  peers_[rank].store(owned_peers_.back().get(), std::memory_order_release);
  return owned_peers_.back().get();
}

base::Status Device::check_peer(std::uint32_t rank) {
  if (rank == rank_) return HEDDLE_DONE;
  const auto card = bootstrap_.fetch_bytes(rank);
  return card ? decode_card(card->bytes, agreement_, rank).status() : card.status();
}

// Fills in `peer` from the card of another process.
base::Status Device::introduce(PeerProcess& peer) {
  const auto card = bootstrap_.fetch(peer.rank);
  if (!card) return card.status();
  if (card->fd < 0) {
    const bool here = bootstrap_.host(peer.rank) == bootstrap_.host(rank_);
    return base::fail(HEDDLE_ERR_PROTOCOL, "rank %u shows no segment; %s", peer.rank,
                      here ? "is it of another transport?" : "it is on another machine, where shm does not reach");
  }
  peer.owned_mapping = std::make_unique<Mapping>(card->fd);
  peer.mapping = peer.owned_mapping.get();
  peer.pid = card->pid;
  const auto agreement = decode_card(card->bytes, agreement_, peer.rank);
  if (!agreement) return agreement.status();
  peer.agreement = *agreement;
  if (const base::Status status = check_seals(card->fd, peer.rank); status != HEDDLE_DONE) return status;
  const auto control = peer.mapping->map(0, layout_.control_bytes);
  if (!control) return control.status();
  peer.control = ControlView(*control, &layout_);
  return HEDDLE_DONE;
}

base::Result<std::byte*> Device::open_ring(std::uint32_t source_worker, PeerProcess& target,
                                           std::uint32_t target_worker) {
  const auto extent = segment_->allocate(layout_.ring_bytes, Segment::Use::own);
  if (!extent) return extent.status();
  {
    const std::lock_guard lock(ring_list_);
    std::atomic<std::uint64_t>& count = control_.header().ring_count;
    const std::uint64_t index = count.load(std::memory_order_relaxed);
    control_.ring(index) = {target.rank, static_cast<std::uint16_t>(target_worker),
                            static_cast<std::uint16_t>(source_worker), extent->offset};
    count.store(index + 1, std::memory_order_release);
  }
  environment_.log.line(base::Level::debug, "worker %u opens a ring of %llu bytes to rank %u worker %u", source_worker,
                        static_cast<unsigned long long>(layout_.ring_bytes), target.rank, target_worker);
  // From here on the receiver may find the ring. If we die in between, it never learns of the ring.
  target.control.senders(target_worker, rank_ / 64)
      .fetch_or(std::uint64_t{1} << (rank_ % 64), std::memory_order_release);
  target.control.worker(target_worker).attention.announce();
  return extent->address;
}

queue::BellPull Device::pull_of(const PeerProcess& peer, std::atomic<std::uint32_t>& armed, queue::Places place) {
  const bool free = membarrier() && peer.agreement.membarrier != 0;
  return {free ? &armed : &always_, &armed, queue::Bell<>(&peer.control.header().bell), place};
}

std::optional<queue::BellPull> Device::stores_bell(std::uint32_t rank) {
  const PeerProcess* peer = peers_[rank].load(std::memory_order_acquire);
  if (peer == nullptr) return std::nullopt;
  return pull_of(*peer, peer->control.header().stores_armed, queue::kStoresPlace);
}

void Device::arm_stores() {
  const std::lock_guard lock(stores_mutex_);
  if (!membarrier()) {
    control_.header().stores_armed.store(queue::kArmed, std::memory_order_relaxed);
  } else if (stores_arming_->arm(environment_.clock->now_ns(), [] { return heavy_fence(); })) {
    want_heavy_fence();
  }
}

namespace {
// Of the calling thread: workers that it has armed since its last heavy fence need one. It covers
// all of them, whichever devices they belong to.
thread_local bool t_wants_heavy_fence = false;
}  // namespace

void Device::want_heavy_fence() {
  t_wants_heavy_fence = true;
}

void Device::heavy_fence_if_wanted() {
  if (std::exchange(t_wants_heavy_fence, false)) static_cast<void>(heavy_fence());
}

namespace {

// the kernel stops a little below 2 GiB
constexpr std::uint64_t kMostAtOnce = std::uint64_t{1} << 30;

}  // namespace

base::Status cma_copy(PeerProcess& peer, Direction direction, void* local, std::uint64_t remote, std::uint64_t bytes) {
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

bool cma_works(const Device& device, PeerProcess& peer, std::uint64_t remote) {
  const Cma known = device.cma_enabled() ? peer.cma.load(std::memory_order_relaxed) : Cma::forbidden;
  if (known != Cma::untried) return known == Cma::allowed;
  std::byte probe{};
  return cma_copy(peer, Direction::get, &probe, remote, 1) == HEDDLE_DONE;
}

}  // namespace heddle::transport::shm
