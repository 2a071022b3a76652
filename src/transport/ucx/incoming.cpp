#include "transport/ucx/incoming.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/copy.hpp"
#include "transport/ucx/port.hpp"

namespace heddle::transport::ucx {

// A message in a ring: this, then its bytes, unless UCX has them.
struct Incoming::Record {
  std::uint32_t bytes = 0;
  std::uint32_t immediate = 0;
  void* kept = nullptr;  // as UCX gave it, head first; null: the bytes follow
};

// What UCX brings.
struct Came {
  std::size_t header_bytes;
  const void* data;
  std::size_t bytes;
  const ucp_am_recv_param_t* param;
};

namespace {

// It has a head, of which at most `most` bytes follow.
bool is_ours(const Came& came, std::size_t most) {
  return (came.param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0 && came.header_bytes == 0 &&
         came.bytes - sizeof(Head) <= most;  // too few wrap
}

[[gnu::noinline]] ucs_status_t copy(std::byte* place, const std::byte* packet, std::size_t bytes) {
  base::copy_data(place, packet, bytes);
  return UCS_OK;
}

}  // namespace

// A message as it arrives.
struct Incoming::Arrival {
  const std::byte* data;
  std::uint32_t bytes;
  std::uint32_t immediate;
  void* keep;  // not null: UCX may keep it
};

namespace {

// Takes the place of a record whose bytes UCX has, while they are lent.
struct LentKept {
  std::byte* next;
  void* kept;
};

}  // namespace

Incoming::Incoming(Port& port, Device& device)
    : port_(port), device_(device), window_(device.window()), limit_(window_) {}

void Incoming::make_room_for(std::size_t peers) {
  make_room(&queued_, peers);
  make_room(&lending_, peers);
}

base::Status Incoming::listen() {
  static_assert(offsetof(Completion, worker) == offsetof(Completion, rank) + sizeof(std::uint32_t));
  static_assert(sizeof(Record) == kRecordHead && sizeof(LentKept) <= kRecordHead);
  const auto listen = [this](unsigned id, Receive* receive) {
    return ucx::listen(port_.call(), port_.worker(), id, receive, &port_);
  };
  base::Status status = listen(kMessageId, on_message);
  if (status == HEDDLE_DONE) status = listen(kBundleId, on_bundle);
  if (status == HEDDLE_DONE) status = listen(kCreditId, on_credit);
  return status;
}

// ---- what is wrong ------------------------------------------------------------------------------

[[gnu::cold]] void Incoming::malformed(const char* what, const char* why) {
  if (malformed_++ == 0) device_.log().line(base::Level::error, "worker %u ignores %s %s", port_.index(), what, why);
}

[[gnu::cold]] void Incoming::wrong(PeerState& peer, const char* what) {
  malformed(what, "out of turn");
  port_.endpoints().disconnect_gap(peer);
}

// ---- what UCX calls -----------------------------------------------------------------------------

// Reads the head, of which at most `most` bytes follow. The sender, after taking what the head says
// of the other direction; null: it is malformed.
inline PeerState* Incoming::hear(const Came& came, std::size_t most, const char* what, Head* head) {
  if (!is_ours(came, most)) [[unlikely]] {
    malformed(what, "that is none");
    return nullptr;
  }
  *head = read_head(came.data);
  PeerState* peer = port_.endpoints().sender(*head);
  if (peer == nullptr) [[unlikely]] {
    malformed(what, "of nobody in this job");
    return nullptr;
  }
  if (port_.outgoing().hear(*peer, *head)) [[likely]]
    return peer;
  wrong(*peer, what);
  return nullptr;
}

ucs_status_t Incoming::on_credit(void* arg, const void*, std::size_t header_bytes, void* data, std::size_t bytes,
                                 const ucp_am_recv_param_t* param) {
  Head head;
  static_cast<void>(static_cast<Port*>(arg)->incoming().hear({header_bytes, data, bytes, param}, 0, "a credit", &head));
  return UCS_OK;
}

// A short message of a peer state that has lent a message to this poll, so that it was heard and
// has a ring, is handed out here. This calls nothing, and so saves no registers.
ucs_status_t Incoming::on_message(void* arg, const void* header, std::size_t header_bytes, void* data,
                                  std::size_t bytes, const ucp_am_recv_param_t* param) {
  Port& port = *static_cast<Port*>(arg);
  if (!is_ours({header_bytes, data, bytes, param}, kLeastKept - 1)) [[unlikely]]
    return on_other_message(arg, header, header_bytes, data, bytes, param);
  // Each word is read where it is needed, so that no register must be saved.
  const auto head = [data](std::size_t offset) { return read_word(data, offset); };
  PeerState* peer = port.endpoints().known(head(offsetof(Head, rank)), head(offsetof(Head, worker)));
  const auto packet_bytes = static_cast<std::uint32_t>(bytes - sizeof(Head));
  const std::uint32_t cost = cost_of(packet_bytes);
  if (peer == nullptr || peer->lent == 0 || !peer->telling || peer->pass != head(offsetof(Head, pass)) ||
      !peer->knows(head(offsetof(Head, consumed)), head(offsetof(Head, arrived))) ||
      !port.incoming().is_next(*peer, head(offsetof(Head, position)), cost) || !port.completions().has_room())
      [[unlikely]]
    return on_other_message(arg, header, header_bytes, data, bytes, param);
  std::byte* place = port.incoming().make_place(*peer, cost) + sizeof(Record);
  hand_out(port, *peer, place, packet_bytes, head(offsetof(Head, immediate)));
  peer->lent += cost;
  const auto* packet = static_cast<const std::byte*>(data) + sizeof(Head);
  if (packet_bytes != 8) return copy(place, packet, packet_bytes);
  std::memcpy(place, packet, 8);
  return UCS_OK;
}

[[gnu::noinline]] ucs_status_t Incoming::on_other_message(void* arg, const void*, std::size_t header_bytes, void* data,
                                                          std::size_t bytes, const ucp_am_recv_param_t* param) {
  Incoming& self = static_cast<Port*>(arg)->incoming();
  Head head;
  PeerState* peer = self.hear({header_bytes, data, bytes, param}, kMostMessage, "a message", &head);
  if (peer == nullptr) [[unlikely]]
    return UCS_OK;
  const auto* packet = static_cast<const std::byte*>(data) + sizeof head;
  const auto packet_bytes = static_cast<std::uint32_t>(bytes - sizeof head);
  if (packet_bytes >= kLeastKept) [[unlikely]]
    return self.take_long(*peer, head.position, {packet, packet_bytes, head.immediate, nullptr}, param);
  if (!self.take(*peer, head.position, {packet, packet_bytes, head.immediate, nullptr})) [[unlikely]]
    self.wrong(*peer, "a message");
  return UCS_OK;
}

// Keeps UCX's buffer if it can.
[[gnu::noinline]] ucs_status_t Incoming::take_long(PeerState& peer, std::uint32_t position, Arrival arrival,
                                                   const ucp_am_recv_param_t* param) {
  const bool keeps = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA) != 0 && limit_ != 0 &&
                     reinterpret_cast<std::uintptr_t>(arrival.data) % 8 == 0;
  if (keeps) arrival.keep = const_cast<std::byte*>(arrival.data) - sizeof(Head);
  if (take(peer, position, arrival)) return keeps ? UCS_INPROGRESS : UCS_OK;
  wrong(peer, "a message");
  return UCS_OK;
}

ucs_status_t Incoming::on_bundle(void* arg, const void*, std::size_t header_bytes, void* data, std::size_t bytes,
                                 const ucp_am_recv_param_t* param) {
  Incoming& self = static_cast<Port*>(arg)->incoming();
  Head head;
  PeerState* peer = self.hear({header_bytes, data, bytes, param}, kMostBundle - sizeof head, "a bundle", &head);
  if (peer != nullptr && !self.take_bundle(*peer, head.position, static_cast<const std::byte*>(data) + sizeof head,
                                           static_cast<std::uint32_t>(bytes - sizeof head))) [[unlikely]] {
    self.wrong(*peer, "a bundle");
  }
  return UCS_OK;
}

bool Incoming::take_bundle(PeerState& peer, std::uint32_t position, const std::byte* data, std::uint32_t bytes) {
  Part part;
  for (std::uint32_t at = 0; at < bytes; at += part_bytes(part.bytes)) {
    if (!read_part(data + at, bytes - at, &part)) return false;
    if (!take(peer, position, {data + at + sizeof part, part.bytes, part.immediate, nullptr})) return false;
    position += cost_of(part.bytes);
  }
  return true;
}

inline bool Incoming::is_next(const PeerState& peer, std::uint32_t position, std::uint32_t cost) const {
  return position == peer.next.arrived && position - peer.next.consumed + cost <= limit_;
}

// In the ring, of a message that has arrived.
inline std::byte* Incoming::make_place(PeerState& peer, std::uint32_t cost) {
  peer.next.arrived += cost;
  std::byte* place = peer.ring.get() + peer.write_at;
  const std::uint32_t behind = peer.write_at + cost;
  peer.write_at = behind < window_ ? behind : 0;
  return place;
}

// False: it is not the next message of its stream, exceeds the window, or there is no memory for
// it.
inline bool Incoming::take(PeerState& peer, std::uint32_t position, const Arrival& arrival) {
  const std::uint32_t cost = cost_of(arrival.bytes);
  if (!is_next(peer, position, cost)) [[unlikely]]
    return take_unread(peer, position, cost);
  if (peer.ring == nullptr && !open_ring(peer)) [[unlikely]]
    return false;
  port_.credits().note_arrival(peer);
  std::byte* place = make_place(peer, cost);
  const auto* record = new (place) Record{arrival.bytes, arrival.immediate, arrival.keep};
  place += sizeof *record;
  if (arrival.bytes == 8) {  // a call of memcpy costs more than that
    std::memcpy(place, arrival.data, 8);
  } else if (arrival.keep == nullptr) {
    base::copy_data(place, arrival.data, arrival.bytes);
  }
  // If a poll has room left, it has handed out all that was queued.
  if (!port_.completions().has_room()) [[unlikely]] {
    queue(peer, place - sizeof *record);
  } else {
    lend(peer, *record, place);
  }
  return true;
}

// Nobody polls any more: the message is consumed unread. False: it is wrong.
[[gnu::cold]] bool Incoming::take_unread(PeerState& peer, std::uint32_t position, std::uint32_t cost) {
  if (limit_ != 0 || position != peer.next.arrived || position - peer.next.consumed + cost > window_) return false;
  peer.next.arrived += cost;
  peer.next.consumed += cost;
  port_.credits().note_arrival(peer);
  port_.credits().owe(peer);
  return true;
}

[[gnu::noinline]] void Incoming::queue(PeerState& peer, const std::byte* place) {
  if (peer.records++ == 0) peer.read_at = static_cast<std::uint32_t>(place - peer.ring.get());
  if (!std::exchange(peer.queued, true)) queued_.push_back(&peer);
}

[[gnu::cold]] bool Incoming::open_ring(PeerState& peer) {
  peer.ring.reset(new (std::nothrow) std::byte[std::size_t{window_} + cost_of(kMostMessage)]);
  if (peer.ring != nullptr) return true;
  device_.log().line(base::Level::error, "no memory for messages of worker %u of rank %u", peer.worker, peer.rank);
  return false;
}

// ---- handing out --------------------------------------------------------------------------------

inline void Incoming::hand_out(Port& port, PeerState& peer, const std::byte* place, std::uint32_t bytes,
                               std::uint32_t immediate) {
  Completion* to = port.completions().place();
  to->event = Event::message;
  to->status = HEDDLE_DONE;
  to->token = 0;
  to->data = place;
  to->bytes = bytes;
  to->immediate = immediate;
  std::memcpy(&to->rank, &peer.rank, 2 * sizeof to->rank);  // and the worker, which follows
}

// `record`: by value, since its place may be overwritten. `place`: of its bytes.
inline void Incoming::lend(PeerState& peer, Record record, std::byte* place) {
  const std::byte* data = record.kept == nullptr ? place : lend_kept(place - sizeof record, record.kept);
  hand_out(port_, peer, data, record.bytes, record.immediate);
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
  while (peer.records != 0 && port_.completions().has_room()) {
    std::byte* place = peer.ring.get() + peer.read_at;
    lend(peer, unqueue(peer), place + sizeof(Record));
  }
}

// The first of its queued messages, which leaves the queue.
Incoming::Record Incoming::unqueue(PeerState& peer) {
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
    while (peer->records != 0) {
      if (void* kept = unqueue(*peer).kept; kept != nullptr) give_back(kept);
    }
    peer->next.consumed = peer->next.arrived;
    peer->queued = false;
    port_.credits().owe(*peer);
  }
  queued_.clear();
}

}  // namespace heddle::transport::ucx
