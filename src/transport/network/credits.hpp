// A port's reports to its senders: up to where it has consumed their messages (credit), and up to
// where they have arrived, which completes a message. Every message to a sender carries the report.
// If no message goes there, the report has a message of its own: when credit of half a window is
// owed, and a few polls after an arrival.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/network/losses.hpp"
#include "transport/network/peer.hpp"

namespace heddle::transport::network {

class StreamPort;

class Credits {
 public:
  Credits(StreamPort& port, const Losses& losses, std::uint32_t window)
      : port_(port), losses_(losses), half_window_(window / 2) {}
  void make_room_for(std::size_t peers) {
    make_room(&owing_, peers);
    make_room(&telling_, peers);
  }

  // To be called whenever something was consumed.
  void owe(StreamPeer& peer) {
    if (peer.next.consumed - peer.told >= half_window_ && !peer.owing) [[unlikely]]
      promise(peer);
  }
  // The peer is told with the next credits, even if it is owed less than half a window.
  void promise(StreamPeer& peer);
  // The same, even if the peer was told everything: the report may have been lost.
  void tell_again(StreamPeer& peer) {
    peer.told_arrived = peer.next.arrived - 1;
    promise(peer);
  }
  // A message has arrived from it.
  void note_arrival(StreamPeer& peer) {
    if (!peer.telling) [[unlikely]]
      note_first_arrival(peer);
  }

  [[nodiscard]] bool owes() const { return !owing_.empty(); }
  // The same, to ranks that live.
  [[nodiscard]] bool owes_the_living() const;
  void send_owed();
  [[nodiscard]] bool has_to_tell() const { return !telling_.empty(); }
  // By every poll, if has_to_tell(); `idle`: the poll has brought nothing. True: arrivals were not
  // told for long.
  [[nodiscard]] bool is_due(bool idle) {
    if (idle) return ++idle_ >= kIdlePolls;
    idle_ = 0;
    return ++waited_ >= kTellPolls;
  }
  // Tells each sender that its messages have arrived, if no message of ours has done so.
  void tell_all();

 private:
  // Polls with arrivals until the report gets a message of its own; or polls in a row that bring
  // nothing: then no answer carries the report, and the sender may wait for it.
  static constexpr std::uint32_t kTellPolls = 64;
  static constexpr std::uint32_t kIdlePolls = 2;

  void note_first_arrival(StreamPeer& peer);
  void send_if_ready(StreamPeer& peer);

  StreamPort& port_;
  const Losses& losses_;
  const std::uint32_t half_window_;
  std::vector<StreamPeer*> owing_;
  std::vector<StreamPeer*> telling_;  // that may not know of arrivals
  std::uint32_t waited_ = 0;          // polls since the first of these
  std::uint32_t idle_ = 0;            // that brought nothing, since the last that brought something
};

}  // namespace heddle::transport::network
