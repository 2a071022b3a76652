// This transport's part of a worker: its peer states, messages in and out, puts and gets, also over
// both adapters, and the Port.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "transport/network/lists.hpp"
#include "transport/network/losses.hpp"
#include "transport/network/peers.hpp"
#include "transport/network/port.hpp"
#include "transport/verbs/adapter.hpp"
#include "transport/verbs/device.hpp"
#include "transport/verbs/memory.hpp"
#include "transport/verbs/wire.hpp"

namespace heddle::transport::verbs {

// A message that is copied: it waits for a connection, or the adapter reads it. Its bytes are at
// `data`.
struct Packet {
  Packet* next = nullptr;
  std::byte* data = nullptr;
  std::uint32_t bytes = 0;
  std::uint32_t immediate = 0;
  Token token = 0;
};

// A work request that was posted, and is not known to be complete.
struct WorkRequest {
  enum class Kind : std::uint8_t {
    silent,  // nobody is told of its end: credit, a flush
    message,
    transfer,
    half  // the first one of a transfer that is split: see Stripes
  };
  struct Shape {
    // The number, from 1, of the packet that it reads; 0: it reads none. half: of the transfer.
    std::uint16_t packet = 0;
    Kind kind = Kind::silent;
    bool owes_source = false;  // source_free was asked for and not reported yet
  };
  static constexpr std::uint32_t kNoLease = 0;
  Token token = 0;
  std::uint32_t lease = kNoLease;  // of the registration cache, plus one
  Shape shape;

  // At its end there is nothing to do but to report it, and to release its lease.
  [[nodiscard]] bool is_plain(Kind kind) const {
    return std::bit_cast<std::uint32_t>(shape) == std::bit_cast<std::uint32_t>(Shape{.kind = kind});
  }
};
static_assert(sizeof(WorkRequest) == 16);

// What a port knows of one worker of a peer: a queue pair, and both directions of the stream of
// messages.
//
// Invariants of a stream, in bytes by cost_of(), modulo 2^32:
//   sender:   sent - credit <= window
//   receiver: told_consumed <= consumed <= arrived <= told_consumed + window
//   A peer that sends more is disconnected, when the message that exceeds the window is taken.
//   A message begins at the end of the one before it, or at 0 if that end is at a window or beyond;
//   the ring is longer than a window by one message. Both ends count in the same way, so no
//   position is sent.
// Invariants of the queue pair:
//   completed <= signalled <= posted <= completed + kDepth; requests complete in the order of
//   posting, so the completion of one that is signalled tells of all before it
//   signalled < signal_at; if all that were signalled are complete, the next request is signalled,
//   or a flush is due
struct PeerState final : network::Peer {
  // Requests under way: as many as an executor takes out of its queue at once, and those that
  // credits and flushes need.
  static constexpr std::uint32_t kSpare = 2;
  static constexpr std::uint32_t kSpareForFlush = 1;  // of these
  static constexpr std::uint32_t kDepth = 64 + kSpare;
  static constexpr std::uint32_t kRequests = 128;  // a power of two
  // While kPeriod requests or more are under way, one in kPeriod is signalled. With fewer, each one
  // is: otherwise only a flush would tell of the last ones, a round trip later.
  static constexpr std::uint32_t kPeriod = 8;

  // The connection.
  ibv_qp* pair = nullptr;
  std::uint32_t pair_number = 0;
  std::uint64_t number_above = 0;  // the peer's number in the port, in the upper half of a wr_id
  PortAddress address;
  Mailboxes::Slot mine;
  Handshake theirs;          // its `opens`; kind 0: that has not come yet
  ibv_qp* stripe = nullptr;  // the second queue pair: see Stripes. Null: there is none
  bool stripe_connected = false;
  bool said_open = false;
  bool said_up = false;
  bool connected = false;        // the pair can send and receive
  bool is_up = false;            // so can the peer's
  network::Patience patience;    // with its handshake
  std::uint64_t connect_at = 0;  // ns; not before
  // The peer must still be told that the connection has ended, or that there is no second pair any
  // more, by a note of this kind. 0: nothing is to be told.
  Handshake::Kind owes{};
  bool told_end = false;  // the peer has told that the connection has ended
  // Their values in the last round: see Port::ask_silent().
  std::uint32_t seen_completed = 0;
  std::uint32_t seen_consumed = 0;

  // Towards the peer.
  std::uint32_t sent = 0;
  std::uint32_t write_at = 0;
  std::uint32_t posted = 0;
  std::uint32_t signalled = 0;  // the last request that will tell of its completion
  std::uint32_t signal_at = 1;  // a request with this number, or behind it, is signalled
  std::uint32_t completed = 0;
  std::array<WorkRequest, kRequests> requests;
  network::List<Packet> packets;  // that wait; `waiting` is their number
  // The shift that takes the rkey for the adapter of the peer's worker from the rkeys of a region.
  std::uint8_t rkey_at = 0;
  std::uint32_t stripes_under_way = 0;
  std::uint32_t most_whole = 0;  // bytes; longer transfers are split: see Stripes
  bool by_value = false;         // ready, and no message waits: a command is posted at once
  bool flush_due = false;        // in Sending::flushes_due_

  // From the peer.
  std::uint32_t read_at = 0;
  // Up to here messages were taken. Those behind `consumed` were handed out by the last poll.
  std::uint32_t arrived = 0;
  std::uint32_t consumed = 0;
  std::uint32_t told_consumed = 0;
  bool owing = false;  // it must be told of credit

  void update_by_value() { by_value = ready() && waiting == 0; }
  // The same shift for the second pair: the rkey is that for the other adapter.
  [[nodiscard]] unsigned stripe_rkey_at() const { return 32U - rkey_at; }
  [[nodiscard]] std::uint32_t under_way() const { return posted - completed; }
  // Number `at`, as `posted` and `completed` count.
  [[nodiscard]] WorkRequest& request(std::uint32_t at) { return requests[at % kRequests]; }
  [[nodiscard]] bool has_transfers() const {
    for (std::uint32_t at = completed; at != posted; ++at) {
      const WorkRequest::Kind kind = requests[at % kRequests].shape.kind;
      if (kind == WorkRequest::Kind::transfer || kind == WorkRequest::Kind::half) return true;
    }
    return stripes_under_way != 0;
  }
};

// With its mailbox, a peer takes less than 16 KiB.
static_assert(sizeof(PeerState) <= 3 << 10);

inline PeerState& state(network::Peer& peer) {
  return static_cast<PeerState&>(peer);
}

class Port;

// Messages of a port on their way in. The senders' adapters write them into the mailboxes; each
// takes an entry of the shared receive queue, and brings a completion with its length and the
// sender's 32 bits. They are handed out where they lie, as many as a poll has room for; the others
// wait in the completion queue.
class Receiving {
 public:
  explicit Receiving(Port& port);
  ~Receiving() { close(); }
  Receiving(const Receiving&) = delete;
  Receiving& operator=(const Receiving&) = delete;

  // SYSTEM.
  base::Status open(const CompletionChannel& channel);
  void close();
  void make_room_for(std::size_t peers);
  [[nodiscard]] ibv_cq* queue() const { return queue_.get(); }
  [[nodiscard]] ibv_srq* shared() const { return shared_; }
  void arm() const { queue_.arm(); }

  // A pair has been made for the peer, or is going to be destroyed: drivers may forget the
  // completions of such a pair, so all that have come are read first.
  void enter(PeerState& peer);
  void leave(const PeerState& peer);

  // By the owner's polls, in this order: the messages that the last poll has handed out are not
  // used any more; hands out the next ones.
  void release_lent() {
    if (!lending_.empty()) release_all_lent();
  }
  void hand_out();
  // Nobody polls any more: consumes all messages that are here.
  void drop_all();
  // Looks whether anything is there. True: something new.
  bool look();
  [[nodiscard]] bool has_some() const { return begin_ != end_; }
  [[nodiscard]] bool empty() const { return !has_some() && more_.empty() && lending_.empty() && owing_.empty(); }
  // Peers are told of credit that they could not be told of before.
  void send_owed();
  [[nodiscard]] bool owes() const { return !owing_.empty(); }

 private:
  static constexpr std::uint32_t kEntries = 1024;  // messages that may wait
  static constexpr std::uint32_t kRefill = 64;

  [[nodiscard]] std::size_t slot_of(std::size_t number) const { return number & (by_pair_.size() - 1); }
  [[nodiscard]] PeerState* find(std::uint32_t pair) const;
  void refill();
  void read_all();
  PeerState* arrived(const ibv_wc& entry, std::byte** data, std::uint32_t* end);
  void wrong(PeerState& peer, const ibv_wc& entry);
  void release_all_lent();
  void owe(PeerState& peer);

  Port& port_;
  const std::uint32_t window_;
  CompletionQueue queue_;
  ibv_srq* shared_ = nullptr;
  std::uint32_t missing_ = 0;  // entries that were taken from it
  std::array<ibv_recv_wr, kRefill> entries_;
  // By number of the pair: open addressing, at most half full, a power of two.
  std::vector<PeerState*> by_pair_;
  // Completions that were read, and not handed out.
  std::array<ibv_wc, 16> read_;
  std::vector<ibv_wc> more_;  // that leave() has read, behind those; it has room for all entries
  ibv_wc* begin_ = nullptr;
  ibv_wc* end_ = nullptr;
  std::vector<PeerState*> lending_;  // with messages that the last poll has handed out
  std::vector<PeerState*> owing_;
};

class Port;

// The work requests that leave a port. The requests of one post() to one peer are a chain, which
// the adapter gets with one call.
//
// A message is written into its receiver's ring, with the caller's 32 bits as immediate data. It is
// done, as a put is, when the receiver's adapter has acknowledged it. Not each request is
// signalled: see PeerState.
class SendQueue {
 public:
  explicit SendQueue(Port& port);
  ~SendQueue() { close(); }
  SendQueue(const SendQueue&) = delete;
  SendQueue& operator=(const SendQueue&) = delete;

  // SYSTEM, NO_MEMORY.
  base::Status open(const CompletionChannel& channel);
  void close();
  void make_room_for(std::size_t peers);
  [[nodiscard]] ibv_cq* queue() const { return queue_.get(); }
  void arm() const { queue_.arm(); }
  // Bytes that a request of any pair may carry inline: an adapter that is short of room may give a
  // later pair less.
  [[nodiscard]] std::uint32_t inline_bytes() const { return inline_bytes_; }
  void limit_inline(std::uint32_t bytes) { inline_bytes_ = std::min(inline_bytes_, bytes); }
  // The longest transfer that one pair carries, in bytes. `split`: the peer has a second pair, and
  // half of a longer transfer goes by it.
  [[nodiscard]] std::uint32_t most_whole(bool split) const {
    return split ? std::min(split_above_, most_bytes_) : most_bytes_;
  }

  // By the owner, inside a Turn. How many commands from the front were accepted.
  [[nodiscard]] std::size_t post(std::span<Command> batch);
  // Its connection is ready: waiting messages leave.
  void begin(PeerState& peer);
  // Tells the peer up to where it has been consumed. False: not now.
  bool send_credit(PeerState& peer);

  // The peer has written an impossible credit: nothing would ever be sent.
  [[nodiscard]] bool has_impossible_credit(const PeerState& peer) const {
    return peer.sent - peer.mine.mailbox->credit.load(std::memory_order_acquire) > window_;
  }
  // Writes nothing to the peer, to which nothing is under way: that tells whether it is reached.
  void probe(PeerState& peer) { flush(peer); }

  // By polls: takes completions, and sends waiting messages. True: there were completions.
  bool progress();
  // Fails all that is under way to the peer, whose pair does not exist any more.
  void fail(PeerState& peer, base::Status status);
  void drop_waiting(PeerState& peer);
  [[nodiscard]] bool has_waiting() const { return !stuck_.empty(); }

 private:
  static constexpr std::uint32_t kWaitingPackets = 16;  // of one peer state
  static constexpr std::uint32_t kMostWaiting = 32;     // of all: some are left to connected ones
  static constexpr std::uint32_t kPackets = 48;
  static constexpr std::uint32_t kCompletions = 2048;  // requests under way in a port

  // A request alone of the usual kinds: only what differs from the last one is written.
  struct Alone {
    ibv_send_wr work{};
    ibv_sge part{};
  };

  PeerState* ready_peer(const Command& command);
  std::size_t post_message(PeerState& peer, Command& command);
  std::size_t post_put(PeerState& peer, Command& command);
  std::size_t post_get(PeerState& peer, Command& command);
  [[nodiscard]] bool is_usual(const Command& command, std::uint64_t most) const;
  void post_transfer(PeerState& peer, Command& command, Alone& one, std::uint32_t flags, std::uint32_t lease);
  void call(PeerState& peer, ibv_send_wr& first, std::uint32_t flags);
  void rejected(PeerState& peer, int error);
  std::size_t post_otherwise(std::span<Command> batch);
  std::size_t post_chain(std::span<Command> batch);
  bool post_alone(Command& command);
  bool post_split(PeerState& peer, Command& command);
  bool wait(PeerState& peer, Command& command);
  base::Status check(const Command& command) const;
  // Adds a request of the usual kinds to the chain. False: it is not usual, or there is no room.
  bool add(PeerState& peer, Command& command);
  bool add_message(PeerState& peer, Command& command);
  bool add_transfer(PeerState& peer, Command& command);
  void add_packet(PeerState& peer, Packet& packet);
  void add_write(PeerState& peer, ibv_send_wr& work, std::uint32_t bytes, std::uint32_t immediate);
  // How many requests more may be under way, if so many are left to others.
  [[nodiscard]] std::uint32_t room(const PeerState& peer, std::uint32_t spare) const;
  ibv_send_wr& next(PeerState& peer, WorkRequest request);
  void ring(PeerState& peer);
  [[nodiscard]] std::uint32_t signal(PeerState& peer);
  void flush(PeerState& peer);
  void send_due_flushes();
  void push_all();
  bool push(PeerState& peer);
  void take(const ibv_wc& entry);
  void complete(PeerState& peer, std::uint32_t up_to, base::Status status);
  void end_closed(PeerState& peer, std::uint32_t up_to);
  void end_otherwise(const WorkRequest& request, base::Status status);
  base::Status lease(const Command& command, memory::Access access, memory::RegistrationCache::Lease* lease);

  Port& port_;
  const std::uint32_t window_;
  std::uint32_t most_bytes_ = 0;     // of a transfer
  const std::uint32_t split_above_;  // bytes; see Stripes
  std::uint32_t inline_bytes_ = UINT32_MAX;
  network::Room& messages_;
  network::Room& transfers_;
  CompletionQueue queue_;
  CallersMemory memory_;
  OwnMemory packet_memory_;
  network::Pool<Packet> packets_;
  std::uint32_t waiting_ = 0;      // packets that wait for a connection
  std::uint32_t under_way_ = 0;    // requests of all peers
  std::vector<PeerState*> stuck_;  // ready, with messages that wait
  // All that was signalled is complete, and requests are behind it.
  std::vector<PeerState*> flushes_due_;
  PeerState* latest_ = nullptr;  // to which the last commands went
  Alone put_;
  Alone get_;
  Alone message_;
  // The chain that is being made. Each request has its part, and the next one behind it, from the
  // beginning: only what differs is written.
  std::uint32_t chained_ = 0;
  std::array<ibv_send_wr, PeerState::kDepth> work_{};
  std::array<ibv_sge, PeerState::kDepth> parts_{};
};

inline std::uint32_t SendQueue::room(const PeerState& peer, std::uint32_t spare) const {
  const std::uint32_t here = peer.under_way() + spare;
  if (here >= PeerState::kDepth || under_way_ >= kCompletions) [[unlikely]]
    return 0;
  return std::min(PeerState::kDepth - here, kCompletions - under_way_);
}

// The next request of the chain, of one part; the caller has looked for room.
inline ibv_send_wr& SendQueue::next(PeerState& peer, WorkRequest request) {
  ibv_send_wr& work = work_[chained_++];
  peer.request(peer.posted++) = request;
  work.wr_id = peer.number_above | peer.posted;
  work.num_sge = 1;
  return work;
}

// The flag for the last request, whether it is signalled: see PeerState::kPeriod.
inline std::uint32_t SendQueue::signal(PeerState& peer) {
  if (static_cast<std::int32_t>(peer.posted - peer.signal_at) < 0) [[likely]]
    return 0;
  peer.signalled = peer.posted;
  peer.signal_at = peer.posted + (peer.under_way() < PeerState::kPeriod ? 1 : PeerState::kPeriod);
  return IBV_SEND_SIGNALED;
}

// Hands the chain to the adapter, with one doorbell.
inline void SendQueue::ring(PeerState& peer) {
  ibv_send_wr& last = work_[chained_ - 1];
  last.send_flags |= signal(peer);
  ibv_send_wr* const behind = std::exchange(last.next, nullptr);
  under_way_ += std::exchange(chained_, 0U);
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(peer.pair, work_.data(), &bad);
  last.next = behind;
  if (error != 0) [[unlikely]]
    rejected(peer, error);
}

class Port;

// Large puts and gets over both adapters of a rank: a transfer is split into two halves. The first
// half goes by the queue pair of the worker's own adapter (see Sending). The second half goes by a
// second queue pair to the same worker, between the other adapters of both ranks. A transfer is
// complete when both halves are.
//
// Second pairs carry nothing else. Each request is signalled, and its wr_id is the number of its
// transfer. Their completion queue has no channel: nobody sleeps while a transfer is under way.
class Stripes {
 public:
  explicit Stripes(Port& port);
  ~Stripes() { close(); }
  Stripes(const Stripes&) = delete;
  Stripes& operator=(const Stripes&) = delete;

  // `adapter`: the rank's other one. SYSTEM.
  base::Status open(const Adapter& adapter);
  void close();
  // Null: nothing is split: there is one adapter, or the other one has failed before.
  [[nodiscard]] const Adapter* adapter() const { return adapter_; }

  // ---- the second pair of a peer
  // If it cannot be made, the peer has none: transfers to it are not split.
  void make_pair(PeerState& peer);
  // Once the peer's handshake has come. AGAIN: not now. If the pair cannot be connected, or the
  // peer has none, neither has this end.
  base::Status connect(PeerState& peer);
  void stop_pair(const PeerState& peer);
  void destroy_pair(PeerState& peer);

  // ---- transfers
  // A transfer to the peer can be split now.
  [[nodiscard]] bool has_room(const PeerState& peer) const {
    return split_.front() != nullptr && peer.stripes_under_way < kDepth;
  }
  // Posts the second half, which begins at byte `from`; there is room for it. The source is not
  // free yet. `number`: the transfer's, from 1, for end_half(). NO_MEMORY, ARGUMENT: nothing
  // happened.
  base::Status begin(PeerState& peer, const Command& command, std::uint64_t from, std::uint16_t* number);
  // A half of the transfer with that number is complete, or has failed.
  void end_half(std::uint16_t number, base::Status status);

  [[nodiscard]] bool under_way() const { return under_way_ != 0; }
  // By polls, while something is under way. True: there were completions.
  bool progress();
  // Fails all second halves to the peer, whose pairs do not exist any more.
  void fail(PeerState& peer, base::Status status);

 private:
  static constexpr std::uint32_t kDepth = 16;   // second halves under way to one peer
  static constexpr std::uint32_t kSplit = 128;  // transfers that are split, to all peers

  // A transfer that is split, of which one half or both are under way.
  struct Split {
    Split* next = nullptr;
    PeerState* peer = nullptr;  // while the second half is under way; then null
    Token token = 0;
    std::uint32_t lease = 0;  // of the second half's memory
    base::Status status = HEDDLE_DONE;
    std::uint8_t halves = 0;   // under way
    bool owes_source = false;  // as in Request::Shape
  };
  void take(const ibv_wc& entry);
  void end_second(Split& split, base::Status status);
  [[nodiscard]] std::uint16_t number_of(const Split& split) const {
    return static_cast<std::uint16_t>(&split - split_.all().data() + 1);
  }

  Port& port_;
  const Adapter* adapter_ = nullptr;
  CompletionQueue queue_;
  CallersMemory memory_;
  network::Pool<Split> split_;
  std::uint32_t under_way_ = 0;
};

// This transport's part of a worker: its queues, and its peer states.
//
// Two workers connect by four notes: each tells its queue pair and its mailbox, connects its pair
// when it has those of the other, and says so. A port that disconnects says that too, since no
// adapter tells the other end that a queue pair is gone.
class Port final : public network::Port {
 public:
  static base::Result<std::unique_ptr<Port>> create(Device& device, std::uint32_t index);
  ~Port() override;

  [[nodiscard]] Device& device() const { return device_; }
  [[nodiscard]] const Adapter& adapter() const { return adapter_; }
  [[nodiscard]] SendQueue& sending() { return sending_; }
  [[nodiscard]] Stripes& stripes() { return stripes_; }

  // ---- the owner; see TransportWorker
  [[nodiscard]] std::size_t post(std::span<Command> batch) {
    const Turn turn(*this, std::try_to_lock);
    return turn.inside() ? sending_.post(batch) : 0;
  }
  [[nodiscard]] std::size_t poll(std::span<Completion> completions);
  [[nodiscard]] bool arm() { return receiving_.empty() && !has_mail() && network::Port::arm(); }
  [[nodiscard]] bool has_untaken() const { return receiving_.has_some(); }
  [[nodiscard]] std::uint64_t malformed() const { return malformed_; }

  // ---- with the device's mutex
  struct Mail {
    std::uint32_t rank;
    Handshake hello;
  };
  // It throws std::bad_alloc.
  void deliver(const Mail& mail);
  // Its adapter, or a queue of it, has failed: all peers are lost, and no more are connected.
  void note_failed();
  // The other adapter has failed: no more transfers are split.
  void note_other_failed();

  // ---- for the parts
  // A request to the peer has failed. True: its worker was closed, and the requests under way end
  // as those to a closed worker do. False: see note_lost().
  [[nodiscard]] bool has_closed(PeerState& peer);
  // The requests under way to the peer are lost. Called within progress: the pair is destroyed
  // afterwards.
  void note_lost(PeerState& peer, const char* why);
  // The same, because the peer has written something that no rank of ours would write.
  void note_malformed(PeerState& peer, const char* why);

 private:
  // Polls between two looks at the device. Only for speed: the helper answers notes if nobody
  // looks.
  static constexpr std::uint32_t kDevicePeriod = 64;
  static constexpr std::uint32_t kConnectingPeriod = 4;  // while something connects

  Port(Device& device, std::uint32_t index);
  base::Status open();
  base::Status open_stripes();
  // AGAIN: not now. SYSTEM.
  base::Status connect_pairs(PeerState& peer);
  bool progress_sending();
  void end_stripes();
  void end_stripe(PeerState& peer);
  void do_more(std::uint32_t poll);
  void take_mail();
  // False: there is no memory, and it is kept.
  bool take(const Mail& mail);
  void take_hello(PeerState& peer, const Handshake& hello);
  bool make_pair(PeerState& peer);
  ibv_qp* create_pair();
  void stop_pair(PeerState& peer);
  void destroy_pair(PeerState& peer);
  bool say(PeerState& peer, Handshake::Kind kind);
  void begin_handshake(PeerState& peer);
  bool handshake_takes_too_long(PeerState& peer) const;
  void take_end(PeerState& peer, std::uint32_t kind);
  // Its requests end by themselves.
  void end_closed(PeerState& peer);
  void owe(PeerState& peer, Handshake::Kind note);
  void tell_owed();
  // Nothing is sent there any more: requests under way fail with PEER_FAILED. Its rank counts as
  // lost, unless only its worker has ended.
  void disconnect(PeerState& peer);
  // Its pair is destroyed, so that the adapter has nothing of it any more; then requests end.
  void abandon(PeerState& peer, base::Status status);
  void note_all_lost();
  [[nodiscard]] bool is_failed() const { return failed_.load(std::memory_order_relaxed); }
  void go_on_disconnecting();

  // ---- Connections
  [[nodiscard]] std::unique_ptr<network::Peer> make_peer() override;
  void make_room_for(std::size_t peers) override;
  [[nodiscard]] bool open(network::Peer& peer, const network::Bytes& address) override;
  [[nodiscard]] bool go_on_with_handshake(network::Peer& peer) override;
  void on_end(network::Peer& peer) override;

  // ---- network::Port
  bool move_on() override;
  bool progress_library() override;
  [[nodiscard]] bool arm_library() override;
  [[nodiscard]] bool in_flight() const override;
  [[nodiscard]] bool transfers_under_way() const override;
  [[nodiscard]] bool disconnecting() const override { return !lost_.empty() || !untold_.empty(); }
  void disconnect_transfers() override;
  void disconnect_failed(network::Peer& peer) override { disconnect(state(peer)); }
  void ask_silent() override;
  void probe_if_silent(PeerState& peer);

  Device& device_;
  const Adapter& adapter_;
  CompletionChannel channel_;
  Mailboxes mailboxes_;
  Receiving receiving_;
  SendQueue sending_;
  Stripes stripes_;
  std::uint64_t malformed_ = 0;
  bool told_short_ = false;  // that there is no memory for a connection
  std::vector<PeerState*> lost_;
  std::vector<PeerState*> untold_;         // that must be told something: PeerState::owes
  std::atomic<bool> failed_{false};        // relaxed: set with the device's mutex
  std::atomic<bool> other_failed_{false};  // likewise; read once
  // Handshakes that have come: written and read with the device's mutex.
  std::vector<Mail> mail_;
  std::vector<Mail> taken_;
};

}  // namespace heddle::transport::verbs
