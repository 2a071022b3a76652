// This transport's part of a worker: its connections, messages out and in, puts, gets and atomics,
// and the Port.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "transport/network/port.hpp"
#include "transport/network/streams.hpp"
#include "transport/ucx/device.hpp"
#include "transport/ucx/peer_state.hpp"
#include "transport/ucx/regions.hpp"

namespace heddle::transport::ucx {

class Device;

// The connections of a port: opened, with a handshake, once the peer's address is known; lost,
// closed.
//
// Nothing waits: a connection is made in steps, by polls.
class Endpoints {
 public:
  Endpoints(Port& port, Device& device) : port_(port), device_(device) {}
  void make_room_for(std::size_t peers) {
    for (auto* list : {&lost_, &dying_}) make_room(list, peers);
    make_room(&closing_, peers);
  }

  // See network::Connections. For a peer state that is connecting, and then in its handshake.
  [[nodiscard]] bool open(PeerState& peer, const Bytes& address);
  [[nodiscard]] bool go_on_with_handshake(PeerState& peer);

  // By polls: continues to disconnect lost connections.
  [[nodiscard]] bool busy() const { return busy_; }
  [[nodiscard]] bool disconnecting() const { return !lost_.empty() || !dying_.empty() || !closing_.empty(); }
  void go_on_disconnecting();

  // UCX reports that a connection broke. May be called within UCX's progress: the endpoint is
  // closed afterwards.
  static void on_broken(void* arg, ucp_ep_h endpoint, ucs_status_t status);
  // The connection is ended by the next go_on_disconnecting().
  void note_lost(PeerState& peer);
  // Nothing is sent there any more: operations under way fail with PEER_FAILED. The rank counts as
  // lost, unless only its worker has ended. now: UCX's endpoint
  // is closed by force, since UCX itself has reported the connection as broken, or at the end.
  // when_safe: the peer may live, and UCX may be answering it.
  enum class Close : std::uint8_t { when_safe, now };
  void disconnect(PeerState& peer, Close close_it);
  // Something under way to that worker has failed because its connection is broken.
  void lose(std::uint32_t rank, std::uint32_t worker);
  // At the end: disconnects all. They are closed when all_closed() says so.
  void disconnect_all();
  [[nodiscard]] bool all_closed() const { return closing_.empty(); }

 private:
  // A closed endpoint whose operations UCX still has.
  struct Closing {
    PeerState* peer;
    void* request;         // of closing it; null: it has ended
    std::uint64_t until;   // ns; by then UCX has forgotten what has not ended
    std::uint32_t rounds;  // of progress since
  };

  void become_ready(PeerState& peer);
  void close(PeerState& peer);
  void end_closing();

  Port& port_;
  Device& device_;
  std::vector<PeerState*> lost_;   // see note_lost()
  std::vector<PeerState*> dying_;  // broken, and left to UCX for a while; see disconnect()
  std::vector<Closing> closing_;   // each once
  bool busy_ = false;              // disconnecting, or was
};

class Device;

// Messages of a port on their way out.
//
// A message that lies in its command goes by value: UCX has copied it when its call returns.
// Another one, or one that UCX does not take by value, is copied into a packet, which waits in UCX,
// or for its connection. Messages after a packet that UCX still has go as packets too, so that they
// stay in order. Short messages to a busy peer are gathered. When they have arrived:
// network::Undelivered.
class Outgoing {
 public:
  Outgoing(Port& port, Device& device);
  void make_room_for(std::size_t peers) { gathering_.make_room_for(peers); }

  // By the owner, outside a Turn. How many were accepted: 0 or 1. Static as Transfers::put().
  [[nodiscard]] static std::size_t post(Port& port, Command& command);
  // Sends short messages to one worker, from the front of the batch, together: UCX and the kernel
  // are called once. Returns how many. 0: there are no two, or it is better done one by one.
  [[nodiscard]] std::size_t post_bundle(std::span<Command> batch);

  // Tells the peer where the stream from it is. value: that leaves at once or not at all. packet:
  // UCX may keep it until it can leave. OK: it has left, or UCX has it. NO_RESOURCE: not now. Else
  // the connection is broken.
  enum class As : std::uint8_t { value, packet };
  ucs_status_t send_credit(PeerState& peer, As as);

  // By polls: gathered messages leave.
  void push_on() {
    if (!gathering_.empty()) [[unlikely]]
      gathering_.leave_all();
  }
  // Its connection is ready.
  void send_waiting(PeerState& peer);
  // It will never be ready.
  void drop_waiting(PeerState& peer);

  // UCX has packets or credits, or some are gathered.
  [[nodiscard]] bool in_flight() const { return flying_ != 0 || !gathering_.empty(); }

  // ---- see network::Gathering
  Packet* begin_bundle(PeerState& peer);
  // Afterwards UCX has the packet, or it is free again. False: the connection is broken.
  bool send(PeerState& peer, Packet* packet);

 private:
  static constexpr std::uint32_t kWaitingPackets = 16;  // of one peer state
  static constexpr std::uint32_t kPackets = 48;

  static bool post_otherwise(Port& port, Command& command);
  static ucs_status_t send_by_value(Port& port, PeerState& peer, unsigned id, std::size_t bytes);
  void send_as_packet(PeerState& peer, const Command& command, std::uint32_t bytes);
  Packet* begin_packet(PeerState& peer, unsigned id, std::uint32_t immediate = 0);
  ucs_status_t hand_over(PeerState& peer, unsigned id, std::span<const std::byte> bytes, ucp_send_nbx_callback_t sent,
                         void* user);
  static void on_sent(void* request, ucs_status_t status, void* user);
  static void on_credit_sent(void* request, ucs_status_t status, void* user);

  Port& port_;
  Device& device_;
  const std::uint32_t window_;
  ucp_request_param_t by_value_{};  // of every message that goes by value
  Pool<Packet> packets_;
  network::Gathering<PeerState, Outgoing> gathering_;
  std::uint32_t flying_ = 0;
};

class Port;

// Messages of a port as UCX brings them: passed to network::Incoming.
class Receive {
 public:
  // Before anything can arrive: UCX calls the functions below from now on. SYSTEM.
  static base::Status listen(Port& port);

 private:
  using Function = ucs_status_t(void* arg, const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
                                const ucp_am_recv_param_t* param);
  static Function on_message;
  static Function on_other_message;
  static Function on_bundle;
  static Function on_credit;
};

class Device;

// Puts, gets and atomics of a port.
//
// A put is done when a flush of its endpoint, begun after it, has ended: puts that were posted
// between two polls share one flush, and one slot if they have one token and their sources are
// free. A get is done when UCX says so, and so is an atomic, which always asks for the result.
class Transfers {
 public:
  Transfers(Port& port, Device& device, std::uint32_t slots);
  void make_room_for(std::size_t peers) { make_room(&dirty_, peers); }

  // By the owner, outside a Turn. How many were accepted: 0 or 1. Static: all that the first two
  // use is at a fixed distance from the port.
  [[nodiscard]] static std::size_t put(Port& port, Command& command);
  [[nodiscard]] static std::size_t get(Port& port, Command& command);
  [[nodiscard]] static std::size_t post(Port& port, Command& command);

  // Transfers that were not reported as done yet.
  [[nodiscard]] std::uint32_t under_way() const { return room_.taken() - orphans_; }
  // UCX still has transfers that were reported as failed, since it cannot be made to forget them
  // (orphan()).
  [[nodiscard]] bool has_orphans() const { return orphans_ != 0; }
  [[nodiscard]] bool at_rest() const { return under_way() == 0 && dirty_.empty() && changing_.empty(); }

  // By polls, before UCX's progress: puts are flushed.
  void flush_dirty() {
    if (!dirty_.empty()) flush_all_dirty();
  }
  // After it: atomics whose word another process changed first are retried.
  void change_again() {
    if (!changing_.empty()) [[unlikely]]
      change_all_again();
  }
  // From time to time.
  void forget_releases() { keys_.forget_releases(under_way() + orphans_ != 0); }

  // Fails the transfers of a peer state whose connection is lost. UCX keeps the transfers that it
  // has; nobody waits for them any more.
  void orphan(PeerState& peer);
  // UCX still has a transfer or a flush of it.
  [[nodiscard]] bool holds_some(const PeerState& peer) const;
  // UCX has forgotten the operations of this peer state that have not ended: fails them.
  void abandon(PeerState& peer);
  // Its flush has ended, or it has none.
  void end_flush(PeerState& peer, base::Status status);
  // Disconnects each peer state that has something under way.
  void disconnect_all();
  // At the end.
  void destroy_keys() { keys_.destroy(); }

 private:
  // A put whose source is free, and that waits for a flush.
  static constexpr std::uint32_t kPutLeft = Transfer::active | Transfer::is_put | Transfer::local_done;

  static bool post_otherwise(Port& port, Command& command);
  [[nodiscard]] static const Key* usual(Port& port, const Command& command);
  [[nodiscard]] base::Status check(const Command& command) const;
  static bool put(Port& port, Command& command, const Key& key);
  static bool get(Port& port, Command& command, const Key& key);
  bool update(Command& command, const Key& key);
  static bool begin(Port& port, PeerState& peer, Command& command, void* request);
  bool not_started(Command& command, ucs_status_t status);
  void* begin_update(const Command& command, Transfer* transfer, const Key& key);
  void* fetch(Transfer* transfer, ucp_atomic_op_t op, std::uint64_t address, ucp_rkey_h key);
  void* change(Transfer* transfer);
  void change_all_again();
  static void take_result(Transfer& transfer) {
    if (transfer.local != nullptr) std::memcpy(transfer.local, &transfer.result, transfer.local_bytes);
  }
  // Another process has changed the word between our read and our change.
  static bool was_forestalled(const Transfer& transfer) {
    return std::memcmp(&transfer.result, &transfer.operand, transfer.local_bytes) != 0;
  }
  static void on_local(void* request, ucs_status_t status, void* user);
  static void on_flushed(void* request, ucs_status_t status, void* user);
  void flush_all_dirty();
  void flush(PeerState& peer);
  void end_puts(Transfer* put, base::Status status);
  void tell(const Transfer& transfer, base::Status status);
  void finish(Transfer* transfer);
  Transfer* take_slot();
  void give_slot(Transfer* transfer);

  Port& port_;
  Device& device_;
  network::Room& room_;  // there are at least as many free slots
  Pool<Transfer> pool_;
  ucp_request_param_t params_{};  // of every put and get, with the first free slot
  std::uint32_t orphans_ = 0;
  std::vector<PeerState*> dirty_;  // with puts that are not flushed
  List<Transfer> changing_;        // atomics to be retried
  Keys keys_;
};

// This transport's part of a worker: one of UCX's workers, its connections, its messages and
// transfers.
class Port final : public network::StreamPort {
 public:
  static base::Result<std::unique_ptr<Port>> create(Device& device, std::uint32_t index);
  ~Port() override;
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  // For the parts: the objects that they share.
  [[nodiscard]] Endpoints& endpoints() { return endpoints_; }
  [[nodiscard]] Outgoing& outgoing() { return outgoing_; }
  [[nodiscard]] Transfers& transfers() { return transfers_; }
  [[nodiscard]] const Functions& call() const { return call_; }
  [[nodiscard]] ucp_worker_h worker() const { return worker_; }
  // UCX's progress. True: it had something.
  bool progress() {
    if (call_.worker_progress(worker_) == 0) return false;
    note_progress();
    return true;
  }

  // ---- the owner; see TransportWorker
  [[nodiscard]] std::size_t post(std::span<Command> batch) {
    if (batch.size() != 1) return post_batch(batch);
    return post_one(batch.front());
  }
  // Waits for the helper to leave: a caller whose post() was refused calls this next.
  [[nodiscard]] std::size_t poll(std::span<Completion> out);

  // Nothing is under way that must not be cut off: destroys UCX's worker.
  void end();

 private:
  // Polls between two looks at the device. Only for speed: the helper answers notes if nobody
  // looks.
  static constexpr std::uint32_t kDevicePeriod = 32;
  static constexpr std::uint32_t kConnectingPeriod = 4;  // while something connects
  static constexpr int kMostRounds = 16;                 // of progress in one poll

  Port(Device& device, std::uint32_t index);
  base::Status open_worker();
  std::size_t post_one(Command& command) {
    if (command.opcode == Opcode::message) return Outgoing::post(*this, command);
    if (command.opcode == Opcode::put) return Transfers::put(*this, command);
    if (command.opcode == Opcode::get) return Transfers::get(*this, command);
    return Transfers::post(*this, command);
  }
  std::size_t post_batch(std::span<Command> batch);
  [[nodiscard]] bool has_more_to_do(std::uint32_t poll) {
    return (poll & (kDevicePeriod - 1)) == 0 || credits().owes() || peers().connecting() || endpoints_.busy();
  }
  void ask_ucx();
  void do_more(std::uint32_t poll);

  // ---- see network::Connections
  [[nodiscard]] std::unique_ptr<network::Peer> make_peer() override { return std::make_unique<PeerState>(*this); }
  void make_room_for(std::size_t peers) override {
    StreamPort::make_room_for(peers);
    endpoints_.make_room_for(peers);
    outgoing_.make_room_for(peers);
    transfers_.make_room_for(peers);
  }
  [[nodiscard]] bool open(network::Peer& peer, const Bytes& address) override {
    return endpoints_.open(state_of(peer), address);
  }
  [[nodiscard]] bool go_on_with_handshake(network::Peer& peer) override {
    return endpoints_.go_on_with_handshake(state_of(peer));
  }
  void on_end(network::Peer& peer) override;
  [[nodiscard]] bool send_credit(network::StreamPeer& peer) override;
  void note_lost(network::StreamPeer& peer) override { endpoints_.note_lost(state_of(peer)); }
  void give_back(void* kept) override { call_.am_data_release(worker_, kept); }

  // ---- see network::Port
  bool move_on() override;
  bool progress_library() override { return call_.worker_progress(worker_) != 0; }
  [[nodiscard]] bool arm_library() override { return call_.worker_arm(worker_) == UCS_OK; }
  // UCX's shared memory does not report that a full peer has room again.
  [[nodiscard]] bool in_flight() const override { return outgoing_.in_flight(); }
  [[nodiscard]] bool transfers_under_way() const override { return transfers_.under_way() != 0; }
  [[nodiscard]] bool transfers_at_rest() const override { return transfers_.at_rest(); }
  [[nodiscard]] bool disconnecting() const override { return endpoints_.disconnecting(); }
  // If the peer of an orphan lives, progress on this worker may read or write memory that the
  // caller uses again.
  [[nodiscard]] bool owners_only() const override { return transfers_.has_orphans(); }
  void disconnect_transfers() override { transfers_.disconnect_all(); }
  void disconnect_failed(network::Peer& peer) override {
    endpoints_.disconnect(state_of(peer), Endpoints::Close::when_safe);
  }

  Device& device_;
  const Functions call_;
  ucp_worker_h worker_ = nullptr;
  std::uint32_t skipped_ = 0;  // polls that have not asked UCX
  bool streams_ = false;       // UCX had something when it was asked last
  Endpoints endpoints_;
  Outgoing outgoing_;
  Transfers transfers_;
};

}  // namespace heddle::transport::ucx
