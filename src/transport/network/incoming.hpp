// Messages of a port on their way in.
//
// A message that the library delivers is handed out at once if a poll runs that has room for it and
// no message of its sender waits; else it is queued. If it is long and the library allows it, its
// bytes stay in the library's buffer, which the poll after the one that hands it out gives back;
// else they are copied into the ring of their sender, of a window's size. Each message has its
// record in the ring in either case, so the window also bounds what the library has to keep.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

#include "base/copy.hpp"
#include "base/log.hpp"
#include "transport/network/completions.hpp"
#include "transport/network/credits.hpp"
#include "transport/network/peers.hpp"
#include "transport/network/undelivered.hpp"

namespace heddle::transport::network {

class Device;
class StreamPort;

class Incoming {
 public:
  // A message as it arrives.
  struct Arrival {
    const std::byte* data;  // its packet
    std::uint32_t bytes;
    std::uint32_t immediate;
    // Not null: the library keeps its buffer until StreamPort::give_back() of this, where the head
    // is; the packet follows it.
    void* keep = nullptr;
  };

  // The other parts of the port exist already.
  Incoming(StreamPort& port, Device& device, Completions& completions);
  void make_room_for(std::size_t peers) {
    make_room(&queued_, peers);
    make_room(&lending_, peers);
  }

  // The messages that the last poll has handed out are not used any more.
  void release_lent() {
    if (!lending_.empty()) release_all_lent();
  }
  // Hands out queued messages, as many as the running poll has room for. Senders take turns, so
  // that one that sends much does not keep the others waiting.
  void hand_out() {
    if (!queued_.empty()) [[unlikely]]
      hand_out_queued();
  }
  [[nodiscard]] bool empty() const { return queued_.empty() && lending_.empty(); }
  [[nodiscard]] bool has_queued() const { return !queued_.empty(); }
  // Nobody polls any more: all that is here is consumed.
  void drop_all();
  // From now on all that arrives is consumed at once.
  void close() { limit_ = 0; }
  [[nodiscard]] bool closed() const { return limit_ == 0; }
  // How many arrivals were invalid.
  [[nodiscard]] std::uint64_t malformed() const { return malformed_; }

  // ---- within the library's progress
  // The sender of a message with this head, after taking what the head says of the other direction.
  // Null: it is malformed, which was noted. `what`: for the log, such as "a message".
  [[nodiscard]] StreamPeer* hear(const Head& head, const char* what);
  // A message from that sender. False: it is not the next message of its stream, exceeds the
  // window, or there is no memory for it: the caller calls wrong().
  [[nodiscard]] bool take(StreamPeer& peer, std::uint32_t position, const Arrival& arrival);
  // The parts of a bundle, likewise.
  [[nodiscard]] bool take_bundle(StreamPeer& peer, std::uint32_t position, const std::byte* data, std::uint32_t bytes);
  // The bytes that have arrived are no message of this job.
  void malformed(const char* what, const char* why);
  // The stream has a gap from now on.
  void wrong(StreamPeer& peer, const char* what);

  // The usual short message, for a transport that wants to save the other work of take(). Its peer
  // state has lent a message to this poll, so it was heard and has a ring; and the head says
  // nothing new of the other direction. Writes the record for the poll, and returns where the
  // caller copies the packet to. Null: take() does it. `completions`: the port's; a caller that has
  // the port knows where they are.
  [[nodiscard]] std::byte* take_next(Completions& completions, StreamPeer& peer, const void* head,
                                     std::uint32_t packet_bytes) {
    const std::uint32_t cost = cost_of(packet_bytes);
    if (peer.lent == 0 || !peer.telling || peer.pass != read_word(head, offsetof(Head, pass)) ||
        !peer.knows(read_word(head, offsetof(Head, consumed)), read_word(head, offsetof(Head, arrived))) ||
        !is_next(peer, read_word(head, offsetof(Head, position)), cost) || !completions.has_room()) [[unlikely]]
      return nullptr;
    std::byte* at = make_record(peer, cost) + kRecordHead;
    hand_out(completions, peer, at, packet_bytes, read_word(head, offsetof(Head, immediate)));
    peer.lent += cost;
    return at;
  }
  [[nodiscard]] std::byte* take_next(StreamPeer& peer, const void* head, std::uint32_t packet_bytes) {
    return take_next(completions_, peer, head, packet_bytes);
  }

 private:
  // The sender that the head names. Null: there is no such worker, its pass is wrong, or there is
  // no memory.
  [[nodiscard]] StreamPeer* sender(const Head& head) {
    auto* peer = static_cast<StreamPeer*>(peers_.known(head.rank, head.worker));
    if (peer != nullptr && peer->heard && peer->pass == head.pass) [[likely]]
      return peer;
    return new_sender(head);
  }
  StreamPeer* new_sender(const Head& head);
  // A message in a ring: this, then its bytes, unless the library has them.
  struct Record {
    std::uint32_t bytes = 0;
    std::uint32_t immediate = 0;
    void* kept = nullptr;  // Arrival::keep; null: the bytes follow
  };
  static_assert(sizeof(Record) == kRecordHead);
  [[nodiscard]] bool take_unread(StreamPeer& peer, std::uint32_t position, std::uint32_t cost);
  [[nodiscard]] bool is_next(const StreamPeer& peer, std::uint32_t position, std::uint32_t cost) const {
    return position == peer.next.arrived && position - peer.next.consumed + cost <= limit_;
  }
  // In the ring, of a message that has arrived.
  std::byte* make_record(StreamPeer& peer, std::uint32_t cost) {
    peer.next.arrived += cost;
    std::byte* at = peer.ring.get() + peer.write_at;
    const std::uint32_t behind = peer.write_at + cost;
    peer.write_at = behind < window_ ? behind : 0;
    return at;
  }
  static void hand_out(Completions& completions, const StreamPeer& peer, const std::byte* at, std::uint32_t bytes,
                       std::uint32_t immediate) {
    static_assert(offsetof(Completion, worker) == offsetof(Completion, rank) + sizeof(std::uint32_t));
    Completion* to = completions.slot();
    to->event = Event::message;
    to->status = HEDDLE_DONE;
    to->token = 0;
    to->data = at;
    to->bytes = bytes;
    to->immediate = immediate;
    std::memcpy(&to->rank, &peer.rank, 2 * sizeof to->rank);  // and the worker, which follows
  }
  void queue(StreamPeer& peer, const std::byte* at);
  void lend(StreamPeer& peer, Record record, std::byte* at);
  const std::byte* lend_kept(std::byte* at, void* kept);
  void note_lent(StreamPeer& peer);
  bool open_ring(StreamPeer& peer);
  void hand_out_queued();
  void hand_out_of(StreamPeer& peer);
  Record unqueue(StreamPeer& peer);
  void release_all_lent();

  StreamPort& port_;
  Completions& completions_;
  Peers& peers_;
  Credits& credits_;
  Undelivered& undelivered_;
  const bootstrap::JobSecret& secret_;
  const base::Log& log_;
  const std::uint32_t window_;
  std::uint32_t limit_;               // of what may wait: a window; 0: nobody polls any more
  std::vector<StreamPeer*> queued_;   // with messages to hand out
  std::vector<StreamPeer*> lending_;  // with messages that the last poll has handed out
  // list of the records of lent messages whose bytes the library has
  std::byte* lent_kept_ = nullptr;
  std::uint64_t malformed_ = 0;
};

inline StreamPeer* Incoming::hear(const Head& head, const char* what) {
  StreamPeer* peer = sender(head);
  if (peer == nullptr) [[unlikely]] {
    malformed(what, "of nobody in this job");
    return nullptr;
  }
  if (undelivered_.hear(*peer, head)) [[likely]]
    return peer;
  wrong(*peer, what);
  return nullptr;
}

inline bool Incoming::take(StreamPeer& peer, std::uint32_t position, const Arrival& arrival) {
  const std::uint32_t cost = cost_of(arrival.bytes);
  if (!is_next(peer, position, cost)) [[unlikely]]
    return take_unread(peer, position, cost);
  if (peer.ring == nullptr && !open_ring(peer)) [[unlikely]]
    return false;
  credits_.note_arrival(peer);
  std::byte* at = make_record(peer, cost);
  const auto* record = new (at) Record{arrival.bytes, arrival.immediate, arrival.keep};
  at += sizeof *record;
  if (arrival.bytes == 8) {  // a call of memcpy costs more than that
    std::memcpy(at, arrival.data, 8);
  } else if (arrival.keep == nullptr) {
    base::copy_data(at, arrival.data, arrival.bytes);
  }
  // If a poll has room left, it has handed out all that was queued.
  if (!completions_.has_room()) [[unlikely]] {
    queue(peer, at - sizeof *record);
  } else {
    lend(peer, *record, at);
  }
  return true;
}

// `record`: by value, since the ring may be overwritten there. `at`: its bytes.
inline void Incoming::lend(StreamPeer& peer, Record record, std::byte* at) {
  const std::byte* data = record.kept == nullptr ? at : lend_kept(at - sizeof record, record.kept);
  hand_out(completions_, peer, data, record.bytes, record.immediate);
  if (peer.lent == 0) note_lent(peer);
  peer.lent += cost_of(record.bytes);
}

}  // namespace heddle::transport::network
