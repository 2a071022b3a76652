// What a port tells its senders: up to where it has consumed their messages (credit), and up to
// where they have arrived, which completes a message. Every message to a sender carries it; if none
// goes there, a message of its own does: when credit of half a window is owed, and a few polls
// after an arrival.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/ucx/peer_state.hpp"

namespace heddle::transport::ucx {

class Device;

class Credits {
 public:
  Credits(Port& port, Device& device);
  void make_room_for(std::size_t peers);

  // To be called whenever something was consumed.
  void owe(PeerState& peer) {
    if (peer.next.consumed - peer.told >= half_window_ && !peer.owing) [[unlikely]]
      promise(peer);
  }
  // The peer is told with the next credits, even if it is owed less than half a window.
  void promise(PeerState& peer);
  // A message has arrived from it.
  void note_arrival(PeerState& peer) {
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
    waited_ += idle ? kIdlePoll : 1;
    return waited_ >= kTellPolls;
  }
  // Tells each sender that its messages have arrived, if no message of ours has done so.
  void tell_all();

 private:
  // Polls from an arrival until a message of its own tells it. A poll that brings nothing counts as
  // several: there is no answer that could carry it, and the sender waits.
  static constexpr std::uint32_t kTellPolls = 16;
  static constexpr std::uint32_t kIdlePoll = 3;

  void note_first_arrival(PeerState& peer);
  void send_if_ready(PeerState& peer);

  Port& port_;
  Device& device_;
  const std::uint32_t half_window_;
  std::vector<PeerState*> owing_;
  std::vector<PeerState*> telling_;  // that may not know of arrivals
  std::uint32_t waited_ = 0;         // polls, since the first of these
};

}  // namespace heddle::transport::ucx
