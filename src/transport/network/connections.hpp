// The connections of a transport's port, as the parts of this room use them. A thread that has the
// port calls these functions.
#pragma once

#include <cstddef>
#include <memory>

#include "transport/network/peer.hpp"

namespace heddle::transport::network {

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

}  // namespace heddle::transport::network
