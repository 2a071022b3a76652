// How requests complete, and those that no command has asked for: credit, and flushes.
#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "transport/verbs/port.hpp"

namespace heddle::transport::verbs {
namespace {

constexpr std::uint32_t kNoSpare = 0;  // a flush takes the last room

}  // namespace

// ---- credit and flushes -------------------------------------------------------------------------

// The adapter reads the count when it sends it, perhaps a newer one: that is true too. A worker
// that was closed may still send messages, for which it needs credit.
bool SendQueue::send_credit(PeerState& peer) {
  if (peer.pair == nullptr || !peer.connected || !peer.is_up || room(peer, PeerState::kSpareForFlush) == 0)
    return false;
  ibv_send_wr& work = next(peer, {});
  peer.mine.mailbox->consumed = peer.consumed;
  work.opcode = IBV_WR_RDMA_WRITE;
  work.send_flags = inline_bytes_ >= sizeof(std::uint32_t) ? IBV_SEND_INLINE : 0;
  work.wr.rdma.remote_addr = peer.theirs.mailbox + offsetof(MailboxHead, credit);
  work.wr.rdma.rkey = peer.theirs.rkey;
  *work.sg_list = {reinterpret_cast<std::uintptr_t>(&peer.mine.mailbox->consumed), sizeof(std::uint32_t),
                   peer.mine.lkey};
  ring(peer);
  return true;
}

// Posts a write of nothing, which is signalled.
void SendQueue::flush(PeerState& peer) {
  ibv_send_wr& work = next(peer, {});
  work.opcode = IBV_WR_RDMA_WRITE;
  work.send_flags = 0;
  work.num_sge = 0;
  work.wr.rdma.remote_addr = peer.theirs.mailbox;
  work.wr.rdma.rkey = peer.theirs.rkey;
  ring(peer);
}

// Without a flush no completion would report the requests behind the last signalled one.
void SendQueue::send_due_flushes() {
  std::erase_if(flushes_due_, [this](PeerState* peer) {
    const bool due = peer->pair != nullptr && peer->signalled == peer->completed && peer->posted != peer->completed;
    if (due && room(*peer, kNoSpare) == 0) return false;
    if (due) flush(*peer);
    peer->flush_due = false;
    return true;
  });
}

// ---- completing ---------------------------------------------------------------------------------

bool SendQueue::progress() {
  if (!stuck_.empty()) [[unlikely]]
    push_all();
  if (under_way_ == 0) return false;
  std::array<ibv_wc, 16> entries;
  const std::size_t count = queue_.poll(entries);
  for (std::size_t i = 0; i < count; ++i) take(entries[i]);
  if (!flushes_due_.empty()) send_due_flushes();
  return count != 0;
}

inline void SendQueue::take(const ibv_wc& entry) {
  auto& peer = state(*port_.peers().all()[entry.wr_id >> 32]);
  if (peer.pair == nullptr || entry.qp_num != peer.pair_number) [[unlikely]]
    return;  // of a pair that was destroyed
  const auto up_to = static_cast<std::uint32_t>(entry.wr_id);
  if (entry.status == IBV_WC_SUCCESS) [[likely]]
    return complete(peer, up_to, HEDDLE_DONE);
  // The requests before it went well: requests complete in their order.
  if (entry.status != IBV_WC_WR_FLUSH_ERR && static_cast<std::int32_t>(up_to - peer.completed) > 0)
    complete(peer, up_to - 1, HEDDLE_DONE);
  if (port_.has_closed(peer)) return end_closed(peer, up_to);
  port_.note_lost(peer, port_.adapter().call().wc_status_str(entry.status));
}

void SendQueue::complete(PeerState& peer, std::uint32_t up_to, base::Status status) {
  network::Completions& completions = port_.completions();
  std::uint32_t messages = 0;
  std::uint32_t transfers = 0;
  under_way_ -= up_to - peer.completed;
  for (std::uint32_t at = std::exchange(peer.completed, up_to); at != up_to; ++at) {
    const WorkRequest& request = peer.request(at);
    if (request.is_plain(WorkRequest::Kind::transfer)) {
      if (request.lease != WorkRequest::kNoLease) memory_.cache().release(request.lease - 1);
      ++transfers;
    } else if (request.is_plain(WorkRequest::Kind::message)) {
      ++messages;
    } else {
      end_otherwise(request, status);
      continue;
    }
    completions.done(request.token, status, 1);
  }
  messages_.give(messages);
  transfers_.give(transfers);
  const bool all_told = peer.signalled == up_to;
  if (all_told || peer.under_way() < PeerState::kPeriod) peer.signal_at = peer.posted + 1;
  if (!all_told || peer.posted == up_to || std::exchange(peer.flush_due, true)) return;
  flushes_due_.push_back(&peer);  // it has room for all
}

// Ends the requests to a worker that was closed. A message is lost, which is no error.
void SendQueue::end_closed(PeerState& peer, std::uint32_t up_to) {
  while (peer.completed != up_to) {
    const bool message = peer.request(peer.completed).shape.kind == WorkRequest::Kind::message;
    complete(peer, peer.completed + 1, message ? HEDDLE_DONE : HEDDLE_ERR_PEER_FAILED);
  }
}

[[gnu::noinline]] void SendQueue::end_otherwise(const WorkRequest& request, base::Status status) {
  const WorkRequest::Shape& shape = request.shape;
  if (shape.kind == WorkRequest::Kind::half) {
    memory_.cache().release(request.lease - 1);
    return port_.stripes().end_half(shape.packet, status);
  }
  if (shape.packet != 0) packets_.give_back(&packets_.all()[shape.packet - 1U]);
  if (request.lease != WorkRequest::kNoLease) memory_.cache().release(request.lease - 1);
  if (shape.kind == WorkRequest::Kind::silent) return;
  (shape.kind == WorkRequest::Kind::message ? messages_ : transfers_).give(1);
  if (shape.owes_source) port_.completions().source_free(request.token);
  port_.completions().done(request.token, status, 1);
}

// Not all drivers take a pair's completions out of the queue when it is destroyed. They would take
// the room of others, so they are read. No more of them come.
void SendQueue::fail(PeerState& peer, base::Status status) {
  std::array<ibv_wc, 16> entries;
  for (std::size_t count = entries.size(); count == entries.size();) {
    count = queue_.poll(entries);
    for (std::size_t i = 0; i < count; ++i) take(entries[i]);
  }
  peer.signalled = peer.posted;
  if (peer.stage == network::Peer::Stage::closed) end_closed(peer, peer.posted);
  complete(peer, peer.posted, status);
  peer.flush_due = false;
  std::erase(flushes_due_, &peer);
}

}  // namespace heddle::transport::verbs
