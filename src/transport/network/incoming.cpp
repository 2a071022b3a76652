#include "transport/network/streams.hpp"

#include <algorithm>
#include <utility>

#include "transport/network/device.hpp"

namespace heddle::transport::network {
namespace {

// Stands in the ring instead of a record whose bytes the library has, while they are lent.
struct LentKept {
  std::byte* next;
  void* kept;
};
static_assert(sizeof(LentKept) <= kRecordHead);

}  // namespace

Incoming::Incoming(StreamPort& port, Device& device, Completions& completions)
    : port_(port),
      completions_(completions),
      peers_(port.peers()),
      credits_(port.credits()),
      undelivered_(port.undelivered()),
      secret_(device.secret()),
      log_(device.log()),
      window_(device.window()),
      limit_(window_) {}

// ---- what is wrong ------------------------------------------------------------------------------

[[gnu::cold]] void Incoming::malformed(const char* what, const char* why) {
  if (malformed_++ == 0) log_.line(base::Level::error, "worker %u ignores %s %s", port_.index(), what, why);
}

[[gnu::cold]] void Incoming::wrong(StreamPeer& peer, const char* what) {
  malformed(what, "out of turn");
  port_.disconnect_gap(peer);
}

// Nothing has arrived from it yet, or its pass is wrong.
[[gnu::cold]] StreamPeer* Incoming::new_sender(const Head& head) {
  if (!peers_.can_be(head.rank, head.worker) || head.pass != pass_of(head.rank, head.worker, secret_)) return nullptr;
  auto* peer = static_cast<StreamPeer*>(peers_.find_or_make(head.rank, head.worker));
  if (peer == nullptr) {
    log_.line(base::Level::error, "no memory to hear worker %u of rank %u", head.worker, head.rank);
    return nullptr;
  }
  if (!std::exchange(peer->heard, true) && peer->stage == Peer::Stage::unopened) {
    credits_.promise(*peer);  // it may wait for our handshake
  }
  return peer;
}

// ---- what arrives -------------------------------------------------------------------------------

bool Incoming::take_bundle(StreamPeer& peer, std::uint32_t position, const std::byte* data, std::uint32_t bytes) {
  Part part;
  for (std::uint32_t at = 0; at < bytes; at += part_bytes(part.bytes)) {
    if (!read_part(data + at, bytes - at, &part)) return false;
    if (!take(peer, position, {data + at + sizeof part, part.bytes, part.immediate, nullptr})) return false;
    position += cost_of(part.bytes);
  }
  return true;
}

// Nobody polls any more: the message is consumed unread. False: it is wrong.
[[gnu::cold]] bool Incoming::take_unread(StreamPeer& peer, std::uint32_t position, std::uint32_t cost) {
  if (limit_ != 0 || position != peer.next.arrived || position - peer.next.consumed + cost > window_) return false;
  peer.next.arrived += cost;
  peer.next.consumed += cost;
  credits_.note_arrival(peer);
  credits_.owe(peer);
  return true;
}

[[gnu::noinline]] void Incoming::queue(StreamPeer& peer, const std::byte* at) {
  if (peer.records++ == 0) peer.read_at = static_cast<std::uint32_t>(at - peer.ring.get());
  if (!std::exchange(peer.queued, true)) queued_.push_back(&peer);
}

[[gnu::cold]] bool Incoming::open_ring(StreamPeer& peer) {
  peer.ring.reset(new (std::nothrow) std::byte[std::size_t{window_} + cost_of(kMostMessage)]);
  if (peer.ring != nullptr) return true;
  log_.line(base::Level::error, "no memory for messages of worker %u of rank %u", peer.worker, peer.rank);
  return false;
}

// ---- handing out --------------------------------------------------------------------------------

[[gnu::noinline]] const std::byte* Incoming::lend_kept(std::byte* at, void* kept) {
  const LentKept lent{std::exchange(lent_kept_, at), kept};
  std::memcpy(at, &lent, sizeof lent);
  return static_cast<const std::byte*>(kept) + sizeof(Head);
}

[[gnu::noinline]] void Incoming::note_lent(StreamPeer& peer) {
  lending_.push_back(&peer);
}

void Incoming::hand_out_queued() {
  std::size_t served = 0;
  while (served < queued_.size() && completions_.has_room()) {
    StreamPeer& peer = *queued_[served++];
    hand_out_of(peer);
    peer.queued = peer.records != 0;
  }
  // Those that were not served come first next time, then those with something left.
  std::rotate(queued_.begin(), queued_.begin() + static_cast<std::ptrdiff_t>(served), queued_.end());
  std::erase_if(queued_, [](const StreamPeer* peer) { return !peer->queued; });
}

void Incoming::hand_out_of(StreamPeer& peer) {
  while (peer.records != 0 && completions_.has_room()) {
    std::byte* at = peer.ring.get() + peer.read_at;
    lend(peer, unqueue(peer), at + sizeof(Record));
  }
}

// The first of its queued messages, which leaves the queue.
Incoming::Record Incoming::unqueue(StreamPeer& peer) {
  Record record;
  std::memcpy(&record, peer.ring.get() + peer.read_at, sizeof record);
  const std::uint32_t behind = peer.read_at + cost_of(record.bytes);
  peer.read_at = behind < window_ ? behind : 0;
  --peer.records;
  return record;
}

void Incoming::release_all_lent() {
  while (lent_kept_ != nullptr) {
    LentKept lent;
    std::memcpy(&lent, lent_kept_, sizeof lent);
    lent_kept_ = lent.next;
    port_.give_back(lent.kept);
  }
  for (StreamPeer* peer : lending_) {
    peer->next.consumed += std::exchange(peer->lent, 0U);
    credits_.owe(*peer);
  }
  lending_.clear();
  if (credits_.owes()) credits_.send_owed();
}

void Incoming::drop_all() {
  release_lent();
  for (StreamPeer* peer : queued_) {
    while (peer->records != 0) {
      if (void* kept = unqueue(*peer).kept; kept != nullptr) port_.give_back(kept);
    }
    peer->next.consumed = peer->next.arrived;
    peer->queued = false;
    credits_.owe(*peer);
  }
  queued_.clear();
}

}  // namespace heddle::transport::network
