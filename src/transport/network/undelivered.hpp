// Messages that were sent and may not have arrived: a message is complete when its receiver tells
// that it has arrived, with the head of any message of its own.
#pragma once

#include <cstdint>

#include "transport/network/completions.hpp"
#include "transport/network/peer.hpp"

namespace heddle::transport::network {

class Undelivered {
 public:
  // `slots`: messages that may not have arrived; as many as `completions` has room for.
  Undelivered(Completions& completions, std::uint32_t slots)
      : completions_(completions), room_(completions.messages()), sendings_(slots) {}

  // True: one message more may be sent. Not while too many completions are kept.
  [[nodiscard]] bool has_room(std::uint32_t count = 1) const { return room_.has(count); }
  [[nodiscard]] std::uint32_t count() const { return room_.taken(); }

  // A message was sent, the last of its stream: peer.next.position is where it ends.
  void remember(StreamPeer& peer, Token token, std::uint32_t cost) { remember(room_, peer, token, cost); }
  // The same. `room`: Completions::messages(); a caller that has the port knows where that is.
  void remember(Room& room, StreamPeer& peer, Token token, std::uint32_t cost) {
    room.take();
    Sending* last = peer.undelivered.last;
    if (last == nullptr || last->token != token || last->cost != cost) [[unlikely]]
      return remember_anew(peer, token, cost);
    ++last->count;
  }

  // A message of the peer tells up to where it has consumed the stream towards it, and up to where
  // that has arrived. False: that is impossible.
  [[nodiscard]] bool hear(StreamPeer& peer, const Head& head) {
    if (peer.knows(head.consumed, head.arrived)) return true;
    return learn(peer, head.consumed, head.arrived);
  }

  // The peer will not tell any more which messages have arrived: completes all that were sent to
  // it.
  void end_all(StreamPeer& peer, base::Status status) { end(peer, peer.next.position, status); }

 private:
  void remember_anew(StreamPeer& peer, Token token, std::uint32_t cost);
  bool learn(StreamPeer& peer, std::uint32_t consumed, std::uint32_t arrived);
  void end(StreamPeer& peer, std::uint32_t delivered, base::Status status);

  Completions& completions_;
  Room& room_;
  Pool<Sending> sendings_;
};

}  // namespace heddle::transport::network
