// The peer states of a port: made on first use, or when a message has come from a worker; and their
// steps from the first use to a connection.
//
// Nothing waits: a connection is made in steps, by polls (advance()). How connections end is each
// transport's own.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transport/network/connections.hpp"
#include "transport/network/peer.hpp"

namespace heddle::transport::network {

class Port;
class Device;

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
