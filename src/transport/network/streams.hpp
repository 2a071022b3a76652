// A port whose messages are streams between two workers, with windows of credit. It is for
// libraries that deliver messages in their order, but do not tell when they have arrived, nor how
// many may wait at the receiver. Its parts: messages on their way out (Undelivered, bundles,
// Gathering), credit (Credits), messages on their way in (Incoming).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "base/copy.hpp"
#include "base/error.hpp"
#include "transport/network/losses.hpp"
#include "transport/network/peers.hpp"
#include "transport/network/port.hpp"

namespace heddle::transport::network {

// Messages that were sent and may not have arrived: a message is complete when its receiver tells
// that it has arrived, with the head of any message of its own.
class Undelivered {
 public:
  // `slots`: messages that may not have arrived; as many as `completions` has room for.
  Undelivered(Completions& completions, std::uint32_t slots)
      : completions_(completions), room_(completions.messages()), sendings_(slots) {}

  // True: one message more may be sent. Not while too many completions are kept.
  [[nodiscard]] bool has_room(std::uint32_t count = 1) const { return room_.has(count); }
  [[nodiscard]] std::uint32_t count() const { return room_.taken(); }

  // A message was sent, the last of its stream: peer.next.position is where it ends.
  void remember(StreamPeer& peer, Token token, std::uint32_t cost) { remember(room_, peer, token, cost); }
  // The same. `room`: Completions::messages(); a caller that has the port knows where that is.
  void remember(Room& room, StreamPeer& peer, Token token, std::uint32_t cost) {
    room.take();
    Sending* last = peer.undelivered.last;
    if (last == nullptr || last->token != token || last->cost != cost) [[unlikely]]
      return remember_anew(peer, token, cost);
    ++last->count;
  }

  // A message of the peer tells up to where it has consumed the stream towards it, and up to where
  // that has arrived. False: that is impossible.
  [[nodiscard]] bool hear(StreamPeer& peer, const Head& head) {
    if (peer.knows(head.consumed, head.arrived)) return true;
    return learn(peer, head.consumed, head.arrived);
  }

  // The peer will not tell any more which messages have arrived: completes all that were sent to
  // it.
  void end_all(StreamPeer& peer, base::Status status) { end(peer, peer.next.position, status); }

 private:
  void remember_anew(StreamPeer& peer, Token token, std::uint32_t cost);
  bool learn(StreamPeer& peer, std::uint32_t consumed, std::uint32_t arrived);
  void end(StreamPeer& peer, std::uint32_t delivered, base::Status status);

  Completions& completions_;
  Room& room_;
  Pool<Sending> sendings_;
};

// Several short messages of one stream that leave together: the library and the kernel are called
// once.

// How many messages from the front of the batch, all to `peer`, fit into one bundle. Fewer than 2:
// it is better done one by one.
std::size_t bundle_of(std::span<const Command> batch, const StreamPeer& peer, std::uint32_t window,
                      const Undelivered& undelivered);
// Writes them as parts to `to`, which has room for kMostBundle less a head, and remembers them as
// sent. Returns how many bytes it has written. Their sources are free.
std::uint32_t write_bundle(std::span<Command> batch, StreamPeer& peer, Undelivered& undelivered, std::byte* to);

// Posts a batch from its front. `bundle` posts short messages to one worker together, if it takes
// any; `one` posts each other command. Both return how many they have accepted, and so does this
// function.
template <class One, class Bundle>
std::size_t post_several(std::span<Command> batch, One one, Bundle bundle) {
  std::size_t accepted = 0;
  try {
    while (accepted < batch.size()) {
      const bool several = batch[accepted].opcode == Opcode::message && batch.size() - accepted > 1;
      const std::size_t bundled = several ? bundle(batch.subspan(accepted)) : 0;
      if (bundled == 0 && one(batch[accepted]) == 0) break;
      accepted += std::max<std::size_t>(bundled, 1);
    }
  } catch (const std::bad_alloc&) {  // the first use of a worker connects to it
    if (accepted == 0) throw;
  }
  return accepted;
}

// Short messages to a peer that is busy: they are gathered in a packet, a bundle, and leave
// together, with one call of the library and of the kernel. A peer is busy while much of what was
// sent to it has not arrived, as far as is known; so the first messages of a burst leave at once. A
// bundle leaves when it is full, before any other message to the peer, and with the next poll, also
// one by the helper in its owner's place. So it waits for 10 ms at most, and only if its owner does
// not poll. While the helper may not serve the port (Port::owners_only()), it waits for its owner.
//
// Invariant: `peer.gathered` is not null exactly for the peers in the list; those are ready, and no
// message goes to them by value.
//
// PeerState: a StreamPeer with `Packet* gathered` and update_by_value(), which decides whether
// messages go by value. Outgoing: begin_bundle(peer), null if no packet is free, and send(peer,
// packet).
template <class PeerState, class Outgoing>
class Gathering {
 public:
  Gathering(Outgoing& outgoing, Undelivered& undelivered) : outgoing_(outgoing), undelivered_(undelivered) {}
  void make_room_for(std::size_t peers) { make_room(&gathering_, peers); }

  [[nodiscard]] bool empty() const { return gathering_.empty(); }
  // A message that may leave: the peer is ready, and there is credit and room for it.
  [[nodiscard]] static bool is_for(const PeerState& peer, std::uint32_t packet_bytes) {
    return packet_bytes <= kMostPart && peer.busy() && peer.ready();
  }
  // False: no packet is free.
  [[nodiscard]] bool add(PeerState& peer, Command& command) {
    const std::uint32_t bytes = part_bytes(static_cast<std::uint32_t>(command.packet_bytes()));
    if (peer.gathered != nullptr && peer.gathered->bytes + bytes > kMostBundle) leave(peer);
    if (peer.gathered == nullptr && !begin(peer)) return false;
    auto* packet = peer.gathered;
    packet->bytes += write_bundle(std::span(&command, 1), peer, undelivered_, packet->data + packet->bytes);
    return true;
  }
  // Before another message to the peer.
  void leave(PeerState& peer) {
    if (auto* packet = drop(peer); packet != nullptr) static_cast<void>(outgoing_.send(peer, packet));
  }
  void leave_all() {
    while (!gathering_.empty()) leave(*gathering_.back());
  }
  // Returns the packet, or null. The packet does not leave.
  auto* drop(PeerState& peer) {
    auto* packet = std::exchange(peer.gathered, nullptr);
    if (packet != nullptr) std::erase(gathering_, &peer);
    peer.update_by_value();
    return packet;
  }

 private:
  bool begin(PeerState& peer) {
    peer.gathered = outgoing_.begin_bundle(peer);
    if (peer.gathered == nullptr) return false;
    gathering_.push_back(&peer);
    peer.update_by_value();
    return true;
  }

  Outgoing& outgoing_;
  Undelivered& undelivered_;
  std::vector<PeerState*> gathering_;
};

class StreamPort;

// A port's reports to its senders: up to where it has consumed their messages (credit), and up to
// where they have arrived, which completes a message. Every message to a sender carries the report.
// If no message goes there, the report has a message of its own: when credit of half a window is
// owed, and a few polls after an arrival.
class Credits {
 public:
  Credits(StreamPort& port, const Losses& losses, std::uint32_t window)
      : port_(port), losses_(losses), half_window_(window / 2) {}
  void make_room_for(std::size_t peers) {
    make_room(&owing_, peers);
    make_room(&telling_, peers);
  }

  // To be called whenever something was consumed.
  void owe(StreamPeer& peer) {
    if (peer.next.consumed - peer.told >= half_window_ && !peer.owing) [[unlikely]]
      promise(peer);
  }
  // The peer is told with the next credits, even if it is owed less than half a window.
  void promise(StreamPeer& peer);
  // The same, even if the peer was told everything: the report may have been lost.
  void tell_again(StreamPeer& peer) {
    peer.told_arrived = peer.next.arrived - 1;
    promise(peer);
  }
  // A message has arrived from it.
  void note_arrival(StreamPeer& peer) {
    if (!peer.telling) [[unlikely]]
      note_first_arrival(peer);
  }

  [[nodiscard]] bool owes() const { return !owing_.empty(); }
  // The same, to ranks that live.
  [[nodiscard]] bool owes_the_living() const;
  void send_owed();
  [[nodiscard]] bool has_to_tell() const { return !telling_.empty(); }
  // By every poll, if has_to_tell(); `idle`: the poll has brought nothing. True: arrivals were not
  // told for long.
  [[nodiscard]] bool is_due(bool idle) {
    if (idle) return ++idle_ >= kIdlePolls;
    idle_ = 0;
    return ++waited_ >= kTellPolls;
  }
  // Tells each sender that its messages have arrived, if no message of ours has done so.
  void tell_all();

 private:
  // Polls with arrivals until the report gets a message of its own; or polls in a row that bring
  // nothing: then no answer carries the report, and the sender may wait for it.
  static constexpr std::uint32_t kTellPolls = 64;
  static constexpr std::uint32_t kIdlePolls = 2;

  void note_first_arrival(StreamPeer& peer);
  void send_if_ready(StreamPeer& peer);

  StreamPort& port_;
  const Losses& losses_;
  const std::uint32_t half_window_;
  std::vector<StreamPeer*> owing_;
  std::vector<StreamPeer*> telling_;  // that may not know of arrivals
  std::uint32_t waited_ = 0;          // polls since the first of these
  std::uint32_t idle_ = 0;            // that brought nothing, since the last that brought something
};

class Device;
class StreamPort;

// Messages of a port on their way in.
//
// A message that the library delivers is handed out at once if a poll runs that has room for it and
// no message of its sender waits; else it is queued. If it is long and the library allows it, its
// bytes stay in the library's buffer, which the poll after the one that hands it out gives back;
// else they are copied into the ring of their sender, of a window's size. Each message has its
// record in the ring in either case, so the window also bounds what the library has to keep.
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

// A port whose messages are streams between two workers, with windows of credit. It is for
// libraries that deliver messages in their order, but do not tell when they have arrived, nor how
// many may wait at the receiver.
class StreamPort : public Port {
 public:
  // For the parts: the objects that they share.
  [[nodiscard]] Credits& credits() { return credits_; }
  [[nodiscard]] Undelivered& undelivered() { return undelivered_; }
  [[nodiscard]] Incoming& incoming() { return incoming_; }

  // Tells the peer where the stream from it is, with a message of its own. Only if it is ready.
  // False: not now; nothing happened, and it is called again in a later poll.
  [[nodiscard]] virtual bool send_credit(StreamPeer& peer) = 0;
  // The stream has a gap, and no message behind the gap can be accepted. A lost connection is
  // better than a silent one: if the library watches connections, the other end is told of the
  // loss. Called within the library's progress.
  void disconnect_gap(StreamPeer& peer);
  // Gives a buffer of the library back, in which a message has arrived (Incoming::Arrival::keep).
  virtual void give_back(void* kept) = 0;

  void begin_stream(Peer& peer) final;
  void end_messages(Peer& peer, base::Status status) final {
    undelivered_.end_all(static_cast<StreamPeer&>(peer), status);
  }
  [[nodiscard]] bool all_arrived() const final;

  // ---- any thread
  // Messages have come that its owner has not taken.
  [[nodiscard]] bool has_untaken() const { return incoming_.has_queued(); }
  // Arrivals that were invalid.
  [[nodiscard]] std::uint64_t malformed() const { return incoming_.malformed(); }

 protected:
  StreamPort(Device& device, std::uint32_t index, std::uint32_t slots);

  // The connection is lost. Called within the library's progress: so it is only noted, and ended by
  // a later step.
  virtual void note_lost(StreamPeer& peer) = 0;
  // A transport's own calls this too.
  void make_room_for(std::size_t peers) override;
  // The peer has told nothing for long of messages that were sent, or its connection may be gone:
  // asks it for a credit. When that arrives, the transport clears StreamPeer::unanswered. For a
  // library that may lose messages, or credits, and not tell: others need no question. later: the
  // question has not left, and this is called again.
  enum class Asked : std::uint8_t { needless, asked, later };
  virtual Asked ask(StreamPeer& peer) {
    static_cast<void>(peer);
    return Asked::needless;
  }
  // Nobody else notices that a connection with nothing under way is cut: a peer that has told
  // nothing since the last round is asked, whether it had to or not.
  [[nodiscard]] virtual bool asks_idle() const { return false; }

 private:
  void tell_all() final {
    if (credits_.has_to_tell()) credits_.tell_all();
  }
  [[nodiscard]] bool owes() const final { return credits_.owes(); }
  [[nodiscard]] bool messages_at_rest() const final { return undelivered_.count() == 0 && incoming_.empty(); }
  void stop_taking() final { incoming_.close(); }
  bool drop_arrivals() final;
  void ask_silent() final;

  Credits credits_;
  Undelivered undelivered_;
  Incoming incoming_;
};

}  // namespace heddle::transport::network
