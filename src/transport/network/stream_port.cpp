#include "transport/network/stream_port.hpp"

#include <algorithm>
#include <utility>

#include "base/membarrier.hpp"
#include "transport/network/device.hpp"

namespace heddle::transport::network {

StreamPort::StreamPort(Device& device, std::uint32_t index, std::uint32_t slots)
    : Port(device, index, slots),
      credits_(*this, device.losses(), device.window()),
      undelivered_(completions(), slots),
      incoming_(*this, device, completions()) {}

void StreamPort::make_room_for(std::size_t peers) {
  credits_.make_room_for(peers);
  incoming_.make_room_for(peers);
}

void StreamPort::begin_stream(Peer& peer) {
  auto& made = static_cast<StreamPeer&>(peer);
  made.pass = pass_of(peer.rank, peer.worker, device().secret());
  made.next.rank = device().rank();
  made.next.worker = index();
  made.next.pass = pass_of(device().rank(), index(), device().secret());
  // the helper cannot serve
  if (!base::membarrier_private_ready()) made.busy_above = StreamPeer::kNeverBusy;
  made.next.kind = static_cast<std::uint32_t>(Kind::message);
}

[[gnu::cold]] void StreamPort::disconnect_gap(StreamPeer& peer) {
  if (peer.stage == Peer::Stage::broken || peer.has_gap) return;
  peer.has_gap = true;
  device().log().line(base::Level::error, "worker %u disconnects worker %u of rank %u: its messages have a gap",
                      index(), peer.worker, peer.rank);
  note_lost(peer);
}

// A peer that has consumed all that was sent to it has nothing to tell. Another peer may have told
// us, or may not have got all: if a connection breaks and is made anew, the library may lose both
// without a report. It may lose a question likewise, so the question is repeated until something
// comes.
[[gnu::cold]] void StreamPort::ask_silent() {
  const bool all = asks_all();
  const bool idle_too = asks_idle();
  bool some_left = false;
  for (const auto& each : peers().all()) {
    auto* peer = static_cast<StreamPeer*>(each.get());
    const bool owed = std::exchange(peer->owes_news, peer->ready() && peer->acked != peer->next.position);
    const bool old = peer->seen_acked == peer->acked && peer->seen_delivered == peer->delivered;
    peer->seen_acked = peer->acked;
    peer->seen_delivered = peer->delivered;
    const bool idle = idle_too && old && peer->seen_arrived == peer->next.arrived;
    peer->unanswered = peer->ready() && peer->unanswered && peer->seen_arrived == peer->next.arrived;
    peer->to_be_asked =
        peer->ready() && (peer->to_be_asked || peer->unanswered || all || idle || (owed && old && peer->owes_news));
    peer->seen_arrived = peer->next.arrived;
    if (peer->to_be_asked) {
      const Asked asked = ask(*peer);
      peer->to_be_asked = asked == Asked::later;
      peer->unanswered = asked == Asked::asked;
    }
    some_left |= peer->to_be_asked || peer->unanswered || (idle_too && peer->ready());
  }
  set_has_questions(some_left);
}

// ---- the end ------------------------------------------------------------------------------------

bool StreamPort::all_arrived() const {
  return undelivered_.count() == 0 || std::ranges::none_of(peers().all(), [this](const auto& each) {
           const auto& peer = static_cast<const StreamPeer&>(*each);
           return !peer.undelivered.empty() && !device().failed(peer.rank) &&
                  !device().directory().known_closed(peer.rank, peer.worker);
         });
}

// Peers must be told which messages have arrived, otherwise their messages seem lost.
bool StreamPort::drop_arrivals() {
  incoming_.drop_all();
  tell_all();
  return credits_.owes_the_living();
}

}  // namespace heddle::transport::network
