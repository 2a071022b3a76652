#include "transport/verbs/port.hpp"

#include <array>
#include <cstring>
#include <utility>

#include "transport/verbs/adapter.hpp"

namespace heddle::transport::verbs {

Stripes::Stripes(Port& port) : port_(port), split_(kSplit) {}

base::Status Stripes::open(const Adapter& adapter) {
  const CompletionChannel none;
  if (const base::Status status = queue_.open(adapter, none, kSplit, &port_); status != HEDDLE_DONE) return status;
  memory_.open(adapter, port_.device().environment());
  adapter_ = &adapter;
  return HEDDLE_DONE;
}

void Stripes::close() {
  memory_.close();
  queue_.close();
  adapter_ = nullptr;
}

// ---- the second pair of a peer ------------------------------------------------------------------

void Stripes::make_pair(PeerState& peer) {
  if (adapter_ == nullptr || adapter_->failed()) return;
  ibv_qp_init_attr make{};
  make.qp_type = IBV_QPT_RC;
  make.send_cq = make.recv_cq = queue_.get();
  make.cap.max_send_wr = kDepth;
  make.cap.max_send_sge = 1;
  peer.stripe = adapter_->call().create_qp(adapter_->domain(), &make);
  if (peer.stripe != nullptr && !prepare_pair(*adapter_, peer.stripe)) destroy_pair(peer);
}

base::Status Stripes::connect(PeerState& peer) {
  if (peer.stripe == nullptr || peer.stripe_connected) return HEDDLE_DONE;
  if (peer.theirs.stripe_pair == 0) {  // it has one adapter, or no memory
    destroy_pair(peer);
    return HEDDLE_DONE;
  }
  const base::Status status = connect_pair(*adapter_, peer.stripe, peer.theirs.stripe_pair, peer.theirs.stripe_address);
  if (status == HEDDLE_AGAIN) return status;
  peer.stripe_connected = status == HEDDLE_DONE;
  if (!peer.stripe_connected) {  // the adapter may fail just now
    port_.device().log().line(base::Level::warn, "transfers to worker %u of rank %u go over one adapter: %s",
                              peer.worker, peer.rank, base::last_message());
    destroy_pair(peer);
  }
  return HEDDLE_DONE;
}

void Stripes::stop_pair(const PeerState& peer) {
  if (peer.stripe != nullptr) verbs::stop_pair(*adapter_, peer.stripe);
}

void Stripes::destroy_pair(PeerState& peer) {
  if (peer.stripe == nullptr) return;
  stop_pair(peer);
  adapter_->call().destroy_qp(std::exchange(peer.stripe, nullptr));
  peer.stripe_connected = false;
}

// ---- transfers ----------------------------------------------------------------------------------

base::Status Stripes::begin(PeerState& peer, const Command& command, std::uint64_t from, std::uint16_t* number) {
  const bool puts = command.opcode == Opcode::put;
  auto* const local = static_cast<std::byte*>(command.local) + from;
  memory::RegistrationCache::Lease lease;
  const base::Status status =
      memory_.cache().acquire(local, command.bytes - from, puts ? memory::Access::read : memory::Access::write, &lease);
  if (status != HEDDLE_DONE) return status;
  Split& split = *split_.take();
  split.peer = &peer;
  split.token = command.token;
  split.lease = lease.entry;
  split.status = HEDDLE_DONE;
  split.halves = 2;
  split.owes_source = puts && command.wants_source_free;
  *number = number_of(split);
  ibv_sge part{reinterpret_cast<std::uintptr_t>(local), static_cast<std::uint32_t>(command.bytes - from),
               CallersMemory::registration(lease.handle)->lkey};
  ibv_send_wr work{};
  work.wr_id = *number;
  work.sg_list = &part;
  work.num_sge = 1;
  work.opcode = puts ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
  work.send_flags = IBV_SEND_SIGNALED;
  work.wr.rdma.remote_addr = command.remote->handle[1] + command.offset + from;
  work.wr.rdma.rkey = static_cast<std::uint32_t>(command.remote->handle[0] >> peer.stripe_rkey_at());
  ++peer.stripes_under_way;
  ++under_way_;
  ibv_send_wr* bad = nullptr;
  if (const int error = ibv_post_send(peer.stripe, &work, &bad); error != 0)
    port_.note_lost(peer, std::strerror(error));
  return HEDDLE_DONE;
}

void Stripes::end_half(std::uint16_t number, base::Status status) {
  Split& split = split_.all()[number - 1U];
  if (status != HEDDLE_DONE) split.status = status;
  if (--split.halves != 0) return;
  network::Completions& completions = port_.completions();
  completions.transfers().give(1);
  if (split.owes_source) completions.source_free(split.token);
  completions.done(split.token, split.status, 1);
  split_.give_back(&split);
}

void Stripes::end_second(Split& split, base::Status status) {
  --std::exchange(split.peer, nullptr)->stripes_under_way;
  --under_way_;
  memory_.cache().release(split.lease);
  end_half(number_of(split), status);
}

bool Stripes::progress() {
  std::array<ibv_wc, 16> entries;
  const std::size_t count = queue_.poll(entries);
  for (std::size_t i = 0; i < count; ++i) take(entries[i]);
  return count != 0;
}

void Stripes::take(const ibv_wc& entry) {
  Split& split = split_.all()[entry.wr_id - 1];
  PeerState* const peer = split.peer;
  // of a pair that was destroyed
  if (peer == nullptr || peer->stripe == nullptr || entry.qp_num != peer->stripe->qp_num) return;
  if (entry.status == IBV_WC_SUCCESS) return end_second(split, HEDDLE_DONE);
  if (port_.has_closed(*peer)) return end_second(split, HEDDLE_ERR_PEER_FAILED);
  port_.note_lost(*peer, adapter_->call().wc_status_str(entry.status));
}

void Stripes::fail(PeerState& peer, base::Status status) {
  if (peer.stripes_under_way == 0) return;
  while (progress()) {
  }
  for (Split& split : split_.all()) {
    if (split.peer == &peer) end_second(split, status);
  }
}

// ---- of the port -------------------------------------------------------------------------------

// Opens the stripes with the other adapter, if there is one that works.
base::Status Port::open_stripes() {
  const auto& adapters = device_.adapters();
  if (adapters.size() < kMostAdapters || sending_.most_whole(true) == sending_.most_whole(false)) return HEDDLE_DONE;
  const Adapter& other = *adapters[1 - device_.adapter_index(index())];
  return other.failed() ? HEDDLE_DONE : stripes_.open(other);
}

// Peers to which something is under way over the other adapter are lost; the others are told.
void Port::end_stripes() {
  for (const auto& each : peers().all()) {
    PeerState& peer = state(*each);
    if (peer.stripes_under_way != 0) {
      note_lost(peer, "the other adapter has failed");
    } else if (peer.stripe != nullptr && peer.said_up && !peer.over()) {
      owe(peer, Handshake::is_up);
    }
    end_stripe(peer);
  }
}

// Requests under way over the second pair end by themselves.
void Port::end_stripe(PeerState& peer) {
  if (peer.stripes_under_way == 0) stripes_.destroy_pair(peer);
  peer.most_whole = sending_.most_whole(false);
}

}  // namespace heddle::transport::verbs
