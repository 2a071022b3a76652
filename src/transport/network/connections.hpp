// What the parts of this room ask of a transport's port: its connections. A thread that has the
// port calls them.
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
  // Connects to the worker with this address. The peer is then greeting, ready or broken: set by
  // open() itself, or by Peers::end(). False: not now, for want of memory; it is called again.
  [[nodiscard]] virtual bool open(Peer& peer, const Bytes& address) = 0;
  // Of a peer that is greeting. True: it is not any more.
  [[nodiscard]] virtual bool greet(Peer& peer) {
    static_cast<void>(peer);
    return true;
  }
  // The peer was closed, or is broken: what waits for it is dropped, its messages end.
  virtual void on_end(Peer& peer) = 0;

  // Tells the peer where the stream from it is, with a message of its own. Only if it is ready.
  // False: not now; nothing happened, and it is called again in a later poll.
  [[nodiscard]] virtual bool send_credit(Peer& peer) = 0;
  // The peer has told nothing for long, of messages that were sent, or its connection may be gone:
  // asks it for a credit, at whose arrival the transport clears Peer::unanswered. For a library
  // that may lose messages, or credits, and not tell: others need no question. later: the question
  // has not left, and this is called again.
  enum class Asked : std::uint8_t { needless, asked, later };
  virtual Asked ask(Peer& peer) {
    static_cast<void>(peer);
    return Asked::needless;
  }
  // Whether ask() is called for a peer that is ready in each round, although it owes no news: where
  // only what is sent shows that the network is cut.
  [[nodiscard]] virtual bool asks_each_round() const { return false; }
  // The stream has a gap, and no message behind it can be accepted. A lost connection, of which the
  // other end is told where the library watches it, is better than a silent one. Called within the
  // library's progress: so it only notes it.
  virtual void disconnect_gap(Peer& peer) = 0;
  // Gives a buffer of the library back, in which a message has arrived (Incoming::Arrival::keep).
  virtual void give_back(void* kept) = 0;

 protected:
  Connections() = default;
  ~Connections() = default;
  Connections(const Connections&) = default;
  Connections& operator=(const Connections&) = default;
};

}  // namespace heddle::transport::network
