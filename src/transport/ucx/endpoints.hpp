// The connections of a port: opened, with a handshake, once the peer's address is known; lost,
// closed.
//
// Nothing waits: a connection is made in steps, by polls.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/ucx/peer_state.hpp"

namespace heddle::transport::ucx {

class Device;

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
  // Nothing is sent there any more: operations under way fail with PEER_FAILED. now: UCX's endpoint
  // is closed by force, since UCX itself has reported the connection as broken, or at the end.
  // when_safe: the peer may live, and UCX may be answering it.
  enum class Close : std::uint8_t { when_safe, now };
  void disconnect(PeerState& peer, Close close_it);
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

}  // namespace heddle::transport::ucx
