// The peer states of a port and their connections: made on first use, greeted, lost, disconnected.
//
// Nothing waits: a connection is made in steps, by polls (advance()).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "transport/ucx/peer_state.hpp"

namespace heddle::transport::ucx {

class Device;

class Endpoints {
 public:
  Endpoints(Port& port, Device& device);

  // Null: nothing is known, or there can be no such worker.
  [[nodiscard]] PeerState* known(std::uint32_t rank, std::uint32_t worker) const {
    if (rank >= size_ || worker >= max_workers_) [[unlikely]]
      return nullptr;
    return by_worker_[std::size_t{rank} * max_workers_ + worker];
  }
  // Begins to connect. Null: `why` says why not; AGAIN: there is no memory. The peer state may not
  // be ready yet.
  PeerState* use(std::uint32_t rank, std::uint32_t worker, base::Status* why);
  // The sender of a message, as its head names it. Null: there is no such worker, its pass is
  // wrong, or there is no memory.
  [[nodiscard]] PeerState* sender(const Head& head) {
    PeerState* peer = known(head.rank, head.worker);
    if (peer != nullptr && peer->heard && peer->pass == head.pass) [[likely]]
      return peer;
    return new_sender(head.rank, head.worker, head.pass);
  }
  void connect(PeerState& peer);
  [[nodiscard]] bool closed(TransportWorker::Target target) const;
  [[nodiscard]] bool failed(std::uint32_t rank) const { return failed_[rank] != 0; }

  // By polls: advance what is under way here.
  [[nodiscard]] bool busy() const { return busy_; }
  [[nodiscard]] bool connecting() const { return !connecting_.empty(); }
  void advance();
  [[nodiscard]] bool disconnecting() const { return !lost_.empty() || !dying_.empty() || !closing_.empty(); }
  void go_on_disconnecting();
  // Messages wait for a connection to a rank that lives.
  [[nodiscard]] bool has_waiting() const;

  // UCX reports that a connection broke. May be called within UCX's progress: the endpoint is
  // closed afterwards.
  static void on_broken(void* arg, ucp_ep_h endpoint, ucs_status_t status);
  // The stream has a gap, and no message behind it can be accepted. A lost connection, of which the
  // other end is told where UCX watches it, is better than a silent one. As on_broken().
  void disconnect_gap(PeerState& peer);
  void peer_failed(std::uint32_t rank);
  // Nothing is sent there any more: what is under way fails with PEER_FAILED. `sure`: UCX itself
  // reported the connection as broken, or it was used.
  void disconnect(PeerState& peer, base::Status status, bool sure);
  // At the end: disconnects all. They are closed when all_closed() says so.
  void disconnect_all();
  [[nodiscard]] bool all_closed() const { return closing_.empty(); }

 private:
  // A closed endpoint of which UCX still has something.
  struct Closing {
    PeerState* peer;
    void* request;         // of closing it; null: it has ended
    std::uint64_t until;   // ns; UCX has forgotten what has not ended by then
    std::uint32_t rounds;  // of progress since
  };

  [[nodiscard]] PeerState*& slot(std::uint32_t rank, std::uint32_t worker) {
    return by_worker_[std::size_t{rank} * max_workers_ + worker];
  }
  PeerState* new_peer(std::uint32_t rank, std::uint32_t worker);
  PeerState* new_sender(std::uint32_t rank, std::uint32_t worker, std::uint32_t pass);
  bool advance(PeerState& peer);
  bool find_way(PeerState& peer, const void* address);
  bool greet(PeerState& peer);
  void become_ready(PeerState& peer);
  void end(PeerState& peer, PeerState::Stage stage, base::Status status);
  void note_lost(PeerState& peer);
  void close(PeerState& peer);
  void end_closing();

  Port& port_;
  Device& device_;
  const std::uint32_t size_;
  const std::uint32_t max_workers_;
  std::vector<PeerState*> by_worker_;  // by rank and worker
  std::vector<std::unique_ptr<PeerState>> all_;
  std::vector<std::uint8_t> failed_;  // by rank
  std::vector<PeerState*> connecting_;
  std::vector<PeerState*> lost_;   // see on_broken() and disconnect_gap()
  std::vector<PeerState*> dying_;  // broken, and left to UCX for a while; see disconnect()
  std::vector<Closing> closing_;   // each once
  bool busy_ = false;              // connecting or disconnecting, or was
};

}  // namespace heddle::transport::ucx
