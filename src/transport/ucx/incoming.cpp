#include "transport/ucx/incoming.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "transport/ucx/port.hpp"

namespace heddle::transport::ucx {

// A message in a ring: this, then its bytes, unless UCX has them.
struct Incoming::Record {
  std::uint32_t bytes = 0;
  std::uint32_t immediate = 0;
  void* kept = nullptr;  // as UCX gave it, head first; null: the bytes follow
};

// A message as it arrives.
struct Incoming::Arrival {
  const std::byte* data;
  std::uint32_t bytes;
  void* keep;  // not null: UCX may keep it
};

namespace {

// Takes the place of a record whose bytes UCX has, while they are lent.
struct LentKept {
  std::byte* next;
  void* kept;
};

}  // namespace

Incoming::Incoming(Port& port, Device& device) : port_(port), device_(device), window_(device.window()) {}

void Incoming::make_room_for(std::size_t peers) {
  make_room(&queued_, peers);
  make_room(&lending_, peers);
}

base::Status Incoming::listen() {
  static_assert(sizeof(Record) == kRecordHead && sizeof(LentKept) <= kRecordHead);
  const auto listen = [this](unsigned id, Receive* receive) {
    return ucx::listen(port_.call(), port_.worker(), id, receive, this);
  };
  base::Status status = listen(kMessageId, on_message);
  if (status == HEDDLE_DONE) status = listen(kBundleId, on_bundle);
  if (status == HEDDLE_DONE) status = listen(kCreditId, on_credit);
  return status;
}

// ---- what is wrong ------------------------------------------------------------------------------

[[gnu::cold]] void Incoming::malformed(const char* what) {
  if (malformed_++ == 0) device_.log().line(base::Level::error, "worker %u ignores %s", port_.index(), what);
}

[[gnu::cold]] void Incoming::wrong(PeerState& peer, const char* what) {
  malformed(what);
  port_.endpoints().disconnect_gap(peer);
}

// The sender of a head, after taking what the head says of the other direction. Null: there is no
// such sender, or the head is impossible.
inline PeerState* Incoming::hear(const Head& head, const char* nobody, const char* wrong) {
  PeerState* peer = port_.endpoints().sender(head);
  if (peer == nullptr) [[unlikely]] {
    malformed(nobody);
    return nullptr;
  }
  if (port_.outgoing().hear(*peer, head)) [[likely]]
    return peer;
  this->wrong(*peer, wrong);
  return nullptr;
}

// ---- what UCX calls -----------------------------------------------------------------------------

ucs_status_t Incoming::on_credit(void* arg, const void*, std::size_t, void* data, std::size_t bytes,
                                 const ucp_am_recv_param_t* param) {
  Incoming& self = *static_cast<Incoming*>(arg);
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0 || bytes != sizeof(Head)) {
    self.malformed("a credit that is none");
    return UCS_OK;
  }
  const Head head = read_head(data);
  static_cast<void>(self.hear(head, "a credit of nobody in this job", "a credit for what was not sent"));
  return UCS_OK;
}

ucs_status_t Incoming::on_message(void* arg, const void*, std::size_t header_bytes, void* data, std::size_t bytes,
                                  const ucp_am_recv_param_t* param) {
  Incoming& self = *static_cast<Incoming*>(arg);
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0 || header_bytes != 0 || bytes < sizeof(Head) ||
      bytes - sizeof(Head) > kMostMessage) [[unlikely]] {
    self.malformed("a message that is none");
    return UCS_OK;
  }
  const Head head = read_head(data);
  PeerState* peer = self.hear(head, "a message of nobody in this job", "a message out of its turn");
  if (peer == nullptr) [[unlikely]]
    return UCS_OK;
  const auto* packet = static_cast<const std::byte*>(data) + sizeof head;
  const bool keeps = bytes >= sizeof head + kLeastKept && (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA) != 0 &&
                     reinterpret_cast<std::uintptr_t>(packet) % 8 == 0 && !self.port_.closed();
  const Arrival arrival{packet, static_cast<std::uint32_t>(bytes - sizeof head), keeps ? data : nullptr};
  if (!self.take(*peer, head, arrival)) [[unlikely]] {
    self.wrong(*peer, "a message out of its turn");
    return UCS_OK;
  }
  return keeps ? UCS_INPROGRESS : UCS_OK;
}

ucs_status_t Incoming::on_bundle(void* arg, const void*, std::size_t header_bytes, void* data, std::size_t bytes,
                                 const ucp_am_recv_param_t* param) {
  Incoming& self = *static_cast<Incoming*>(arg);
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0 || header_bytes != 0 || bytes < sizeof(Head) ||
      bytes > kMostBundle) [[unlikely]] {
    self.malformed("a bundle of messages that is none");
    return UCS_OK;
  }
  const Head head = read_head(data);
  PeerState* peer = self.hear(head, "messages of nobody in this job", "messages out of their turn");
  if (peer != nullptr && !self.take_bundle(*peer, head, static_cast<const std::byte*>(data) + sizeof head,
                                           static_cast<std::uint32_t>(bytes - sizeof head))) [[unlikely]] {
    self.wrong(*peer, "messages out of their turn");
  }
  return UCS_OK;
}

bool Incoming::take_bundle(PeerState& peer, const Head& head, const std::byte* data, std::uint32_t bytes) {
  Head one = head;
  Part part;
  for (std::uint32_t at = 0; at < bytes; at += part_bytes(part.bytes)) {
    if (!read_part(data + at, bytes - at, &part)) return false;
    one.immediate = part.immediate;
    if (!take(peer, one, {data + at + sizeof part, part.bytes, nullptr})) return false;
    one.position += cost_of(part.bytes);
  }
  return true;
}

// False: it is not the next message of its stream, exceeds the window, or there is no memory for
// it.
inline bool Incoming::take(PeerState& peer, const Head& head, const Arrival& arrival) {
  const std::uint32_t cost = cost_of(arrival.bytes);
  if (head.position != peer.next.arrived || peer.next.arrived - peer.next.consumed + cost > window_) [[unlikely]]
    return false;
  if (peer.ring == nullptr && !open_ring(peer)) [[unlikely]]
    return false;
  peer.next.arrived += cost;
  port_.credits().note_arrival(peer);
  if (port_.closed()) [[unlikely]] {
    peer.next.consumed += cost;
    port_.credits().owe(peer);
    return true;
  }
  std::byte* place = peer.ring.get() + peer.write_at;
  if (arrival.bytes == 8) {  // a call of memcpy costs more than that
    std::memcpy(place + sizeof(Record), arrival.data, 8);
  } else if (arrival.keep == nullptr && arrival.bytes != 0) {
    std::memcpy(place + sizeof(Record), arrival.data, arrival.bytes);
  }
  peer.write_at += cost;
  if (peer.write_at >= window_) peer.write_at = 0;
  const Record record{arrival.bytes, head.immediate, arrival.keep};
  if (peer.records != 0 || !port_.completions().has_room()) [[unlikely]] {
    put_into_ring(peer, place, record);
  } else {
    peer.read_at = peer.write_at;
    lend(peer, place, record, port_.completions().place());
  }
  return true;
}

[[gnu::noinline]] void Incoming::put_into_ring(PeerState& peer, std::byte* place, const Record& record) {
  std::memcpy(place, &record, sizeof record);
  ++peer.records;
  if (std::exchange(peer.queued, true)) return;
  queued_.push_back(&peer);
}

[[gnu::cold]] bool Incoming::open_ring(PeerState& peer) {
  peer.ring.reset(new (std::nothrow) std::byte[std::size_t{window_} + cost_of(kMostMessage)]);
  if (peer.ring != nullptr) return true;
  device_.log().line(base::Level::error, "no memory for messages of worker %u of rank %u", peer.worker, peer.rank);
  return false;
}

// ---- handing out --------------------------------------------------------------------------------

inline void Incoming::lend(PeerState& peer, std::byte* place, const Record& record, Completion* to) {
  to->event = Event::message;
  to->status = HEDDLE_DONE;
  to->token = 0;
  to->data = place + sizeof record;
  to->bytes = record.bytes;
  to->immediate = record.immediate;
  to->rank = peer.rank;
  to->worker = peer.worker;
  if (record.kept != nullptr) [[unlikely]]
    to->data = lend_kept(place, record.kept);
  if (peer.lent == 0) note_lent(peer);
  peer.lent += cost_of(record.bytes);
}

[[gnu::noinline]] const std::byte* Incoming::lend_kept(std::byte* place, void* kept) {
  const LentKept lent{std::exchange(lent_kept_, place), kept};
  std::memcpy(place, &lent, sizeof lent);
  return static_cast<const std::byte*>(kept) + sizeof(Head);
}

[[gnu::noinline]] void Incoming::note_lent(PeerState& peer) {
  lending_.push_back(&peer);
}

void Incoming::hand_out_queued() {
  std::size_t served = 0;
  while (served < queued_.size() && port_.completions().has_room()) {
    PeerState& peer = *queued_[served++];
    hand_out_of(peer);
    peer.queued = peer.records != 0;
  }
  // Those that were not served come first next time, then those with something left.
  std::rotate(queued_.begin(), queued_.begin() + static_cast<std::ptrdiff_t>(served), queued_.end());
  std::erase_if(queued_, [](const PeerState* peer) { return !peer->queued; });
}

void Incoming::hand_out_of(PeerState& peer) {
  for (; peer.records != 0; --peer.records) {
    if (!port_.completions().has_room()) return;
    std::byte* place = peer.ring.get() + peer.read_at;
    Record record;
    std::memcpy(&record, place, sizeof record);
    peer.read_at += cost_of(record.bytes);
    if (peer.read_at >= window_) peer.read_at = 0;
    lend(peer, place, record, port_.completions().place());
  }
}

void Incoming::release_all_lent() {
  while (lent_kept_ != nullptr) {
    LentKept lent;
    std::memcpy(&lent, lent_kept_, sizeof lent);
    lent_kept_ = lent.next;
    give_back(lent.kept);
  }
  for (PeerState* peer : lending_) {
    peer->next.consumed += std::exchange(peer->lent, 0U);
    port_.credits().owe(*peer);
  }
  lending_.clear();
  if (port_.credits().owes()) port_.credits().send_owed();
}

void Incoming::give_back(void* kept) {
  port_.call().am_data_release(port_.worker(), kept);
}

void Incoming::drop_all() {
  release_lent();
  for (PeerState* peer : queued_) {
    for (; peer->records != 0; --peer->records) {
      Record record;
      std::memcpy(&record, peer->ring.get() + peer->read_at, sizeof record);
      if (record.kept != nullptr) give_back(record.kept);
      peer->read_at += cost_of(record.bytes);
      if (peer->read_at >= window_) peer->read_at = 0;
    }
    peer->next.consumed = peer->next.arrived;
    peer->queued = false;
    port_.credits().owe(*peer);
  }
  queued_.clear();
}

}  // namespace heddle::transport::ucx
