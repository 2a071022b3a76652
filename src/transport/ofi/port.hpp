// This transport's part of a worker: its peer states, messages out, puts, gets and atomics, and the
// Port.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transport/network/lists.hpp"
#include "transport/network/losses.hpp"
#include "transport/network/peers.hpp"
#include "transport/network/port.hpp"
#include "transport/network/streams.hpp"
#include "transport/ofi/device.hpp"
#include "transport/ofi/endpoint.hpp"
#include "transport/ofi/fabric.hpp"

namespace heddle::transport::ofi {

struct PeerState;

// A message whose bytes libfabric reads until its completion, or that waits for its turn.
struct Packet : OperationContext {
  Packet* next = nullptr;
  PeerState* peer = nullptr;
  std::uint32_t bytes = 0;  // head included
  alignas(8) std::byte data[sizeof(network::Head) + network::kMostMessage];
  Packet() : OperationContext(Kind::packet) {}  // NOLINT(cppcoreguidelines-pro-type-member-init)
};

// A put, get or atomic under way.
struct Transfer : OperationContext {
  // The duties at its end, besides reporting it.
  enum Duty : std::uint8_t {
    owes_source = 1,  // source_free was asked for and not reported yet
    has_lease = 2,    // of the caller's memory
    has_result = 4    // of an atomic, for the caller
  };
  std::uint8_t duties = 0;
  bool orphan = false;  // reported as failed; libfabric still has it
  bool is_get = false;
  std::uint32_t lease = 0;
  Transfer* next = nullptr;
  PeerState* peer = nullptr;  // null: free
  Token token = 0;
  // The values of an atomic, which libfabric reads and writes.
  std::uint64_t operand = 0;
  std::uint64_t compare = 0;
  std::uint64_t result = 0;
  void* result_to = nullptr;  // the caller's
  std::uint64_t result_bytes = 0;
  Transfer() : OperationContext(Kind::transfer) {}
  void owe(Duty duty) {
    duties |= duty;
    usual_transfer = false;
  }
};

// What a port knows of one worker of a peer, besides the streams of messages.
struct PeerState final : network::StreamPeer {
  fi_addr_t address = FI_ADDR_NOTAVAIL;
  // The endpoint by which its rank's regions are reached: with FI_MR_ENDPOINT the device's, else
  // the worker's.
  fi_addr_t memory = FI_ADDR_NOTAVAIL;
  // ready, and no message waits or is gathered: a short message may leave at once
  bool by_value = false;
  // Whether libfabric has taken anything for this peer, which shows whether there is a connection.
  enum class Taken : std::uint8_t { nothing_yet, some, nothing_lately };
  Taken taken = Taken::nothing_yet;
  network::Patience patience;     // while libfabric takes nothing
  std::uint64_t dies_at = 0;      // ns; while it is in Port::dying_
  network::List<Packet> packets;  // that wait; `waiting` is their number
  Packet* gathered = nullptr;     // see network::Gathering

  void update_by_value() { by_value = ready() && waiting == 0 && gathered == nullptr; }
};

inline PeerState& state(network::Peer& peer) {
  return static_cast<PeerState&>(peer);
}

class Port;

// Messages of a port on their way out.
//
// A message that lies in its command goes by value: libfabric has copied it when its call returns.
// Another one is copied into a packet, which libfabric reads until its completion. While libfabric
// takes nothing for a peer, because it connects or has no room, packets wait; messages after them
// wait too, so that they stay in order. Short messages to a busy peer are gathered. A message is
// complete when its receiver tells that it has arrived.
class Outgoing {
 public:
  explicit Outgoing(Port& port);
  // With the port's endpoint: see Endpoint::add_buffers().
  base::Status open(Endpoint& endpoint) {
    return endpoint.add_buffers(packets_.all().data(), packets_.all().size_bytes(), &descriptor_);
  }
  void make_room_for(std::size_t peers) {
    network::make_room(&stuck_, peers);
    gathering_.make_room_for(peers);
  }

  // By the owner, outside a Turn. How many were accepted: 0 or 1. Static, so that all that it uses
  // is at a fixed distance from the port.
  [[nodiscard]] static std::size_t post(Port& port, Command& command);
  // Sends short messages to one worker, from the front of the batch, together. Returns how many. 0:
  // there are no two, or it is better done one by one.
  [[nodiscard]] std::size_t post_bundle(std::span<Command> batch);

  // Sends a head without a packet, which tells the peer where the stream from it is: a credit or a
  // question. False: not now.
  [[nodiscard]] bool send_word(PeerState& peer, network::Kind kind);
  // Tells the peer, which may be broken, that nothing is taken from it any more; if libfabric takes
  // that at once.
  void send_end(PeerState& peer);

  // Its connection is ready: waiting messages leave.
  void begin(PeerState& peer);
  // By polls: waiting messages leave, if libfabric takes them.
  void push_on() {
    if (!stuck_.empty() || !gathering_.empty()) [[unlikely]]
      push_all();
  }
  // It will never be ready, or is not any more.
  void drop_waiting(PeerState& peer);
  // libfabric has finished it, with FI_SUCCESS or a positive number.
  void on_finished(Packet& packet, int error);
  // The endpoint is closed: no completion of a packet comes any more.
  void forget() { flying_ = 0; }
  // libfabric may still write to the packets (Endpoint::kept()).
  void keep() { packets_.keep(); }

  // Packets that libfabric has not finished.
  [[nodiscard]] bool flies() const { return flying_ != 0; }
  // The same, or packets that wait for a peer that is ready.
  [[nodiscard]] bool in_flight() const { return flying_ != 0 || !stuck_.empty() || !gathering_.empty(); }

  // ---- see network::Gathering
  Packet* begin_bundle(PeerState& peer);
  // Afterwards libfabric has it, or it waits.
  void send(PeerState& peer, Packet* packet);

 private:
  static constexpr std::uint32_t kWaitingPackets = 16;  // of one peer state
  static constexpr std::uint32_t kPackets = 48;

  static bool post_otherwise(Port& port, Command& command);
  static bool send_by_value(Port& port, PeerState& peer, std::size_t bytes);
  Packet* begin_packet(PeerState& peer, network::Kind kind, std::uint32_t immediate = 0);
  long hand_over(PeerState& peer, Packet* packet);
  void wait(PeerState& peer, Packet* packet);
  void push_all();
  bool push(PeerState& peer);

  Port& port_;
  const std::uint32_t window_;
  const std::size_t inject_bytes_;
  network::Pool<Packet> packets_;
  void* descriptor_ = nullptr;     // of the packets
  std::vector<PeerState*> stuck_;  // ready, with packets that wait
  network::Gathering<PeerState, Outgoing> gathering_;
  std::uint32_t flying_ = 0;
};

// Atomics of libfabric.
//
// They serve only where the adapter itself changes the words (fabric.cpp names these providers).
// Most providers have atomics in software: messages that the target executes when one of its
// endpoints makes progress. These endpoints are polled by several threads, and not all such code
// uses the processor's atomic instructions, so two of them may change a word at once. Nothing is
// lost without them: requests to the owner (protocol/) are messages too, and are atomic with all
// that the owner does.
//
// An adapter's atomics are atomic among themselves. Where other ranks change the same words by the
// processor's instructions, they are not used either
// (Bootstrap::atomics_beside_processors()).

// Whether the network has all atomics of Heddle, on words of both lengths.
[[nodiscard]] bool serves_atomics(fid_ep* endpoint);
// Begins one. It always asks for the result, whose arrival says that the word was changed.
// `descriptor`: of the transfer's slot. Returns libfabric's answer.
[[nodiscard]] long begin_atomic(fid_ep* endpoint, const Command& command, fi_addr_t to, Transfer* transfer,
                                void* descriptor);

class Port;

// Puts, gets and atomics of a port. Each has a slot until libfabric says that it is done: a put,
// that it is in the target's memory. Until then it also keeps the registration of the caller's
// memory, where the provider wants one.
//
// libfabric cannot be made to forget one transfer, and its adapter may execute it at any time, with
// nobody's help. So after the loss of a peer a put or atomic that does not end may be reported as
// failed while libfabric still has it (an orphan): it only reads the caller's memory, and writes to
// its slot. A get is reported when libfabric has let go of its destination, not before: it has
// reported the end itself, or its endpoint is closed.
class Transfers {
 public:
  Transfers(Port& port, std::uint32_t slots);
  // With the port's endpoint. NO_MEMORY, SYSTEM.
  base::Status open(Endpoint& endpoint);

  // By the owner, outside a Turn. How many were accepted: 0 or 1.
  template <Opcode kOpcode>
  [[nodiscard]] static std::size_t post(Port& port, Command& command);
  // An opcode that the transport does not have.
  [[nodiscard]] static std::size_t reject(Port& port, Command& command);

  // Transfers that were not reported as done yet.
  [[nodiscard]] std::uint32_t under_way() const { return room_.taken() - orphans_; }
  // libfabric still has transfers that were reported as failed: it cannot be made to forget one.
  [[nodiscard]] bool has_orphans() const { return orphans_ != 0; }

  // Completes the first of these entries, a usual transfer's, and the usual ones behind it with the
  // same token. Returns the first entry that is left.
  const fi_cq_msg_entry* on_done(const fi_cq_msg_entry* entry, const fi_cq_msg_entry* end) {
    const Token token = static_cast<const Transfer*>(OperationContext::of(entry->op_context))->token;
    std::uint32_t count = 0;
    Transfer* front = pool_.front();
    do {
      auto* transfer = static_cast<Transfer*>(OperationContext::of(entry->op_context));
      if (!transfer->usual_transfer || transfer->token != token) break;
      transfer->peer = nullptr;
      transfer->next = front;
      front = transfer;
      ++count;
    } while (++entry != end);
    pool_.set_front(front);
    room_.give(count);
    completions_.done(token, HEDDLE_DONE, count);
    return entry;
  }
  // libfabric has finished it, with FI_SUCCESS or a positive number.
  void on_finished(Transfer& transfer, int error);
  // Fails the puts and atomics of a peer state whose connection was lost long ago. libfabric keeps
  // the transfers that it has; nobody waits for them any more. True: gets are left.
  bool orphan(PeerState& peer);
  [[nodiscard]] bool holds_some(const PeerState& peer) const;
  // libfabric has let go of all transfers: fails those that were not reported.
  void forget();
  // It may still write to the slots (Endpoint::kept()).
  void keep() { pool_.keep(); }

 private:
  [[nodiscard]] base::Status check(const Command& command) const;
  static std::size_t post_otherwise(Port& port, Command& command);
  bool take_otherwise(Command& command);
  template <Opcode kOpcode>
  static bool start(Port& port, PeerState& peer, Command& command, std::uint64_t flags);
  bool update(PeerState& peer, Command& command);
  void begin(PeerState& peer, const Command& command, Transfer* transfer);
  bool not_started(PeerState& peer, Command& command, long answer);
  void do_duties(Transfer& transfer, int error);
  void give_back(Transfer* transfer) {
    room_.give(1);
    transfer->peer = nullptr;
    transfer->orphan = false;
    transfer->usual_transfer = true;
    pool_.give_back(transfer);
  }

  // The arguments of a put for libfabric. They are kept, since only a few fields differ between
  // puts.
  struct Put {
    iovec local{};
    fi_rma_iov remote{};
    void* descriptor = nullptr;
    fi_msg_rma message{};
  };

  Port& port_;
  network::Completions& completions_;
  CallersMemory* callers_ = nullptr;  // null: the provider wants none of it registered
  network::Room& room_;               // there are at least as many free slots
  network::Pool<Transfer> pool_;
  Put put_;
  const std::size_t inject_bytes_;
  void* descriptor_ = nullptr;  // of the slots, for atomics
  std::uint32_t orphans_ = 0;
};

// This transport's part of a worker: an endpoint of libfabric, and its peer states.
class Port final : public network::StreamPort {
 public:
  static base::Result<std::unique_ptr<Port>> create(Device& device, std::uint32_t index);
  ~Port() override;

  [[nodiscard]] Device& device() const { return device_; }
  [[nodiscard]] Endpoint& endpoint() { return endpoint_; }
  [[nodiscard]] Outgoing& outgoing() { return outgoing_; }
  [[nodiscard]] Transfers& transfers() { return transfers_; }

  // ---- the owner; see TransportWorker
  [[nodiscard]] std::size_t post(std::span<Command> batch) {
    if (batch.size() != 1) return post_batch(batch);
    return post_one(batch.front());
  }
  [[nodiscard]] std::size_t poll(std::span<Completion> completions);

  // ---- for the parts
  // libfabric has not taken a message or transfer, and gave this answer. If it takes none for
  // HEDDLE_NETWORK_TIMEOUT, and has nothing under way, there is no connection, and the peer is
  // lost: libfabric would try for ever.
  void not_taken(PeerState& peer, long answer);
  // libfabric reports that operations to the peer are lost. Called within its progress.
  void on_broken(PeerState& peer, int error);
  // Nothing is sent there any more: operations under way fail with PEER_FAILED.
  void disconnect(PeerState& peer);

  // ---- see Endpoint::progress()
  void on_receive(const std::byte* data, std::size_t bytes);
  const fi_cq_msg_entry* on_done(const fi_cq_msg_entry* entry, const fi_cq_msg_entry* end) {
    OperationContext* operation = OperationContext::of(entry->op_context);
    if (operation->usual_transfer) return transfers_.on_done(entry, end);
    on_finished(*operation, FI_SUCCESS);
    return entry + 1;
  }
  void on_finished(OperationContext& operation, int error);

 private:
  // Polls between two looks at the device. Only for speed: the helper answers notes if nobody
  // looks.
  static constexpr std::uint32_t kDevicePeriod = 256;
  static constexpr std::uint32_t kConnectingPeriod = 4;  // while something connects
  static constexpr int kMostRounds = 4;                  // of progress in one poll

  Port(Device& device, std::uint32_t index);
  base::Status open();
  std::size_t post_one(Command& command) {
    switch (command.opcode) {
      case Opcode::message:
        return Outgoing::post(*this, command);
      case Opcode::put:
        return Transfers::post<Opcode::put>(*this, command);
      case Opcode::get:
        return Transfers::post<Opcode::get>(*this, command);
      default:
        return Transfers::reject(*this, command);
    }
  }
  std::size_t post_batch(std::span<Command> batch);
  void do_more(std::uint32_t poll);
  // Peers reach this rank's regions through this port: it has a domain of its own.
  [[nodiscard]] bool has_regions() const { return !device_.plan().shared && !device_.plan().by_endpoint; }
  // True: a get to a peer that was lost long ago does not end.
  bool go_on_disconnecting();
  void end_gets();
  void close_endpoint();
  void say_registrations();

  // ---- Connections
  [[nodiscard]] std::unique_ptr<network::Peer> make_peer() override { return std::make_unique<PeerState>(); }
  void make_room_for(std::size_t peers) override;
  [[nodiscard]] bool open(network::Peer& peer, const network::Bytes& address) override;
  long insert(PeerState& peer, const network::Bytes& address);
  bool not_inserted(PeerState& peer, long answer);
  void on_end(network::Peer& peer) override;
  [[nodiscard]] bool send_credit(network::StreamPeer& peer) override {
    return outgoing_.send_word(state(peer), network::Kind::credit);
  }
  Asked ask(network::StreamPeer& peer) override {
    return outgoing_.send_word(state(peer), network::Kind::question) ? Asked::asked : Asked::later;
  }
  void note_lost(network::StreamPeer& peer) override;
  // The kernel watches TCP's connections (network::Silence).
  [[nodiscard]] bool asks_idle() const override { return !device_.over_tcp(); }
  void give_back(void* kept) override { static_cast<void>(kept); }  // all is copied

  // ---- network::Port
  bool move_on() override;
  bool progress_library() override { return progress() != 0; }
  std::size_t progress();
  [[nodiscard]] bool arm_library() override { return endpoint_.ep() == nullptr || endpoint_.arm(); }
  [[nodiscard]] bool in_flight() const override { return outgoing_.in_flight(); }
  // Once it is closed, also those that were reported as failed: the caller's memory must be free.
  [[nodiscard]] bool transfers_under_way() const override {
    return transfers_.under_way() != 0 || (closed() && transfers_.has_orphans());
  }
  [[nodiscard]] bool disconnecting() const override { return !lost_.empty() || !dying_.empty() || ends_; }
  [[nodiscard]] bool owners_only() const override { return transfers_.has_orphans(); }
  void disconnect_transfers() override;
  void disconnect_failed(network::Peer& peer) override { disconnect(state(peer)); }

  void on_other(const std::byte* data, std::size_t bytes);
  bool on_word(network::StreamPeer& peer, network::Kind kind, std::uint32_t position);

  Device& device_;
  Endpoint endpoint_;
  std::uint32_t skipped_ = 0;  // polls that have not asked libfabric
  Outgoing outgoing_;
  Transfers transfers_;
  std::vector<PeerState*> lost_;   // see note_lost()
  std::vector<PeerState*> dying_;  // ended, with transfers that libfabric has; see on_end()
  bool ends_ = false;              // its peers are told that it ends; see end_gets()
  network::Patience telling_;      // meanwhile
};

}  // namespace heddle::transport::ofi
