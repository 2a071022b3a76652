// The workers of peers, as a port knows them: the state of each (Peer, StreamPeer), the steps to
// its connection (Peers), and what a transport does in them (Connections).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transport/network/lists.hpp"
#include "transport/network/wire.hpp"

namespace heddle::transport::network {

// Sent messages whose arrival the peer has not told yet: one after the other in their stream, with
// one token and of one length.
struct Sending {
  Sending* next = nullptr;
  Token token = 0;
  std::uint32_t end = 0;   // where the first of them ends in the stream
  std::uint32_t cost = 0;  // of each
  std::uint32_t count = 0;
};

// A message that goes by value: `packet` is its packet.
struct ShortMessage : Head {
  alignas(8) std::byte packet[Command::kInlineBytes];  // NOLINT(cppcoreguidelines-pro-type-member-init)
};
static_assert(sizeof(ShortMessage) <= 104);  // what networks take by value

// What a port knows of one worker of a peer, besides messages: how far its connection is.
// Transports add what they know of their connection, and of transfers.
struct Peer {
  Peer() = default;
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  virtual ~Peer() = default;

  enum class Stage : std::uint8_t {
    unopened,
    connecting,  // its address is asked for
    handshake,   // both ends make sure of their connection, where a transport wants that
    ready,
    closed,  // the peer has closed that worker
    broken
  };
  std::uint32_t rank = 0;  // and the worker behind it, as in Completion
  std::uint32_t worker = 0;
  Stage stage = Stage::unopened;
  base::Status status = HEDDLE_DONE;  // broken: with which everything sent fails
  bool heard = false;                 // the peer has sent something: its connection is made
  std::uint32_t waiting = 0;          // messages that were accepted before there was a connection

  [[nodiscard]] bool ready() const { return stage == Stage::ready; }
  [[nodiscard]] bool over() const { return stage == Stage::broken || stage == Stage::closed; }
};

// The same with both directions of a stream of messages.
//
// Invariants of a stream, in bytes by cost_of(), modulo 2^32:
//   sender:   sent - acked <= window;  receiver: told <= consumed <= arrived <= consumed + window
//   acked (here) <= told (there) and arrived (there) <= sent (here)
//   acked <= delivered <= sent; messages before `delivered` are in the receiver's memory, and
//   completed
//   A record begins at the end of the one before it, or at 0 if that end is at a window or beyond;
//   the ring is longer than a window by one record, so a record never overlaps one that is not
//   consumed.
//
// sent (as `position`), consumed and arrived are in `next`: a message carries their values at the
// time it leaves.
struct StreamPeer : Peer {
  // More of the stream than this makes a peer busy: 20 messages of 8 bytes. A peer is never busy on
  // a kernel without membarrier, where the helper cannot send gathered messages.
  static constexpr std::uint32_t kBusyBytes = 512;
  static constexpr std::uint32_t kNeverBusy = UINT32_MAX;
  std::uint32_t busy_above = kBusyBytes;

  // The stream has a gap: disconnected by us, not by the library.
  bool has_gap = false;

  // Towards the peer.
  ShortMessage next;  // its head is the next message's: where the streams are
  std::uint32_t acked = 0;
  std::uint32_t delivered = 0;
  List<Sending> undelivered;

  // From the peer.
  std::unique_ptr<std::byte[]> ring;  // null: nothing has arrived yet
  std::uint32_t pass = 0;             // that its messages must carry
  std::uint32_t told = 0;             // `consumed`, as the peer knows it
  std::uint32_t told_arrived = 0;
  std::uint32_t write_at = 0;
  std::uint32_t read_at = 0;
  std::uint32_t records = 0;  // queued, not handed out yet
  std::uint32_t lent = 0;     // cost of the messages that the last poll has handed out
  bool queued = false;        // there is something to hand out
  bool owing = false;         // the peer must be told of credit
  bool telling = false;       // the peer may not know of arrivals

  // At the last look of ask_silent(), if there was something that the peer had to tell.
  bool owes_news = false;
  bool to_be_asked = false;  // in any case: a connection of this port was ended
  // It was asked, and has said nothing since. The question may be lost: libfabric takes it for a
  // connection that has ended already.
  bool unanswered = false;
  std::uint32_t seen_arrived = 0;  // next.arrived then
  std::uint32_t seen_acked = 0;
  std::uint32_t seen_delivered = 0;

  // A message of that cost exceeds what the peer may have to keep.
  [[nodiscard]] bool is_full(std::uint32_t cost, std::uint32_t window) const {
    return next.position - acked + cost > window;
  }
  // The peer now knows this of the stream from it.
  void has_told(std::uint32_t consumed, std::uint32_t arrived) {
    told = consumed;
    told_arrived = arrived;
  }
  // A head that says this of the stream to the peer says nothing new.
  [[nodiscard]] bool knows(std::uint32_t consumed, std::uint32_t arrived) const {
    return (std::uint64_t{arrived} << 32 | consumed) == (std::uint64_t{delivered} << 32 | acked);
  }
  // So much is under way to it that one short message more need not leave at once.
  [[nodiscard]] bool busy() const { return next.position - delivered > busy_above; }
  [[nodiscard]] bool all_told() const { return told == next.consumed && told_arrived == next.arrived; }
};

// The connections of a transport's port, as the parts of this room use them. A thread that has the
// port calls these functions.
class Connections {
 public:
  // A peer state of the transport's own kind, and room in all lists for so many of them, so that
  // nothing needs memory later. They throw std::bad_alloc.
  [[nodiscard]] virtual std::unique_ptr<Peer> make_peer() = 0;
  virtual void make_room_for(std::size_t peers) = 0;

  // Begins to connect to a peer that is unopened.
  virtual void connect(Peer& peer) = 0;
  // Connects to the worker with this address. The peer is then in its handshake, ready or broken:
  // set by open() itself, or by Peers::end(). False: not now, for want of memory; it is called
  // again.
  [[nodiscard]] virtual bool open(Peer& peer, const Bytes& address) = 0;
  // Continues the handshake of a peer. True: the peer is not in its handshake any more.
  [[nodiscard]] virtual bool go_on_with_handshake(Peer& peer) {
    static_cast<void>(peer);
    return true;
  }
  // The peer was closed, or is broken: drops everything that waits for it, and ends its messages.
  virtual void on_end(Peer& peer) = 0;

 protected:
  Connections() = default;
  ~Connections() = default;
  Connections(const Connections&) = default;
  Connections& operator=(const Connections&) = default;
};

class Port;
class Device;

// The peer states of a port: made on first use, or when a message has come from a worker; and their
// steps from the first use to a connection.
//
// Nothing waits: a connection is made in steps, by polls (advance()). How connections end is each
// transport's own.
class Peers {
 public:
  Peers(Port& port, Device& device);

  // Null: nothing is known, or there can be no such worker.
  [[nodiscard]] Peer* known(std::uint32_t rank, std::uint32_t worker) const {
    if (rank >= size_ || worker >= max_workers_) [[unlikely]]
      return nullptr;
    return by_worker_[std::size_t{rank} * max_workers_ + worker];
  }
  // Begins to connect. Null: `why` says why not; AGAIN: there is no memory. The peer state may not
  // be ready yet.
  [[nodiscard]] Peer* use(std::uint32_t rank, std::uint32_t worker, base::Status* why);
  // The peer state of an existing rank and worker, without connecting. Null: there is no memory.
  [[nodiscard]] Peer* find_or_make(std::uint32_t rank, std::uint32_t worker) {
    Peer* peer = slot(rank, worker);
    return peer != nullptr ? peer : new_peer(rank, worker);
  }
  [[nodiscard]] const std::vector<std::unique_ptr<Peer>>& all() const { return all_; }
  // See TransportWorker::closed().
  [[nodiscard]] bool closed(TransportWorker::Target target) const;
  // See TransportWorker::unopened().
  [[nodiscard]] std::size_t unopened(std::span<TransportWorker::Unopened> found) const;
  // peer_failed() was called for it.
  [[nodiscard]] bool failed(std::uint32_t rank) const { return failed_[rank] != 0; }
  // There can be such a worker.
  [[nodiscard]] bool can_be(std::uint32_t rank, std::uint32_t worker) const {
    return rank < size_ && worker < max_workers_;
  }
  // False: it was known, or there is no such rank.
  [[nodiscard]] bool note_failed(std::uint32_t rank);

  void connect(Peer& peer);
  // The same for a peer whose handshake the transport has begun itself, since it knows the address.
  void go_on_connecting(Peer& peer);
  [[nodiscard]] bool connecting() const { return !connecting_.empty(); }
  // By polls.
  void advance();
  // Messages wait for a connection to a rank that lives.
  [[nodiscard]] bool has_waiting() const;
  // It is not ready any more, and never will be. `stage`: closed or broken, with that status.
  void end(Peer& peer, Peer::Stage stage, base::Status status);
  // Its worker is known to be closed: messages to it are lost, which is no error.
  void note_closed(Peer& peer) { peer.stage = Peer::Stage::closed; }

 private:
  [[nodiscard]] Peer*& slot(std::uint32_t rank, std::uint32_t worker) {
    return by_worker_[std::size_t{rank} * max_workers_ + worker];
  }
  Peer* new_peer(std::uint32_t rank, std::uint32_t worker);
  bool advance(Peer& peer);

  Port& port_;
  Device& device_;
  const std::uint32_t size_;
  const std::uint32_t max_workers_;
  std::vector<Peer*> by_worker_;  // by rank and worker
  std::vector<std::unique_ptr<Peer>> all_;
  std::vector<std::uint8_t> failed_;  // by rank
  std::vector<Peer*> connecting_;
};

}  // namespace heddle::transport::network
