// This transport's part of a worker: an endpoint of libfabric, and its peer states.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "transport/network/stream_port.hpp"
#include "transport/ofi/device.hpp"
#include "transport/ofi/outgoing.hpp"
#include "transport/ofi/transfers.hpp"

namespace heddle::transport::ofi {

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
  // HEDDLE_OFI_TIMEOUT, and has nothing under way, there is no connection, and the peer is lost:
  // libfabric would try for ever.
  void not_taken(PeerState& peer, long answer);
  // libfabric reports that operations to the peer are lost. Called within its progress.
  void on_broken(PeerState& peer, int error);
  // Nothing is sent there any more: operations under way fail with PEER_FAILED.
  void disconnect(PeerState& peer);

  // ---- see Endpoint::progress()
  void on_receive(const std::byte* data, std::size_t bytes);
  const fi_cq_msg_entry* on_done(const fi_cq_msg_entry* entry, const fi_cq_msg_entry* end) {
    Operation* operation = Operation::of(entry->op_context);
    if (operation->usual_transfer) return transfers_.on_done(entry, end);
    on_finished(*operation, FI_SUCCESS);
    return entry + 1;
  }
  void on_finished(Operation& operation, int error);

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
        return Transfers::refuse(*this, command);
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
  // The kernel watches TCP's connections (network/silence.hpp).
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
  [[nodiscard]] bool disconnecting() const override { return !lost_.empty() || !dying_.empty(); }
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
  std::vector<PeerState*> dying_;  // broken, with transfers that libfabric has; see on_end()
};

}  // namespace heddle::transport::ofi
