// This transport's part of a worker: one of UCX's workers, its connections, its messages and
// transfers.
#pragma once

#include <cstdint>
#include <memory>

#include "transport/network/stream_port.hpp"
#include "transport/ucx/device.hpp"
#include "transport/ucx/endpoints.hpp"
#include "transport/ucx/outgoing.hpp"
#include "transport/ucx/transfers.hpp"

namespace heddle::transport::ucx {

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
