// The streams of a port: messages on their way out, and credit. Those on their way in are in
// incoming.cpp.
#include "transport/network/streams.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/fence.hpp"
#include "transport/network/device.hpp"

namespace heddle::transport::network {

[[gnu::noinline]] void Undelivered::remember_anew(StreamPeer& peer, Token token, std::uint32_t cost) {
  Sending* sending = sendings_.take();
  sending->token = token;
  sending->end = peer.next.position;
  sending->cost = cost;
  sending->count = 1;
  peer.undelivered.append(sending);
}

bool Undelivered::learn(StreamPeer& peer, std::uint32_t consumed, std::uint32_t arrived) {
  const News news = news_of(consumed, peer.acked, peer.next.position);
  if (news != News::fresh) [[unlikely]]
    return news == News::stale;
  if (arrived - consumed > peer.next.position - consumed) [[unlikely]]
    return false;
  peer.acked = consumed;
  peer.delivered = later_of(peer.delivered, arrived);
  end(peer, peer.delivered, HEDDLE_DONE);
  return true;
}

// The messages up to there in the stream are done.
void Undelivered::end(StreamPeer& peer, std::uint32_t delivered, base::Status status) {
  while (!peer.undelivered.empty()) {
    Sending& first = *peer.undelivered.first;
    const std::uint32_t left = unarrived_of(first.count, first.cost, first.end, delivered);
    const std::uint32_t done = first.count - left;
    if (done == 0) return;
    completions_.done(first.token, status, done);
    room_.give(done);
    first.end += done * first.cost;
    first.count = left;
    if (left != 0) return;
    sendings_.give_back(peer.undelivered.take());
  }
}

std::size_t bundle_of(std::span<const Command> batch, const StreamPeer& peer, std::uint32_t window,
                      const Undelivered& undelivered) {
  std::uint32_t bytes = sizeof(Head);
  std::uint32_t cost = 0;
  std::size_t count = 0;
  for (const Command& command : batch) {
    if (command.opcode != Opcode::message || command.rank != peer.rank || command.worker != peer.worker) break;
    if (command.header_bytes > kMostPart || command.bytes > kMostPart) break;
    const auto packet = static_cast<std::uint32_t>(command.packet_bytes());
    bytes += part_bytes(packet);
    cost += cost_of(packet);
    if (packet > kMostPart || bytes > kMostBundle || peer.is_full(cost, window) ||
        !undelivered.has_room(static_cast<std::uint32_t>(count) + 1))
      break;
    ++count;
  }
  return count;
}

std::uint32_t write_bundle(std::span<Command> batch, StreamPeer& peer, Undelivered& undelivered, std::byte* to) {
  std::byte* const begin = to;
  for (Command& command : batch) {
    const Part part{static_cast<std::uint32_t>(command.packet_bytes()), command.immediate};
    const std::uint32_t room = part_bytes(part.bytes);
    std::memset(to + room - 8, 0, 8);
    std::memcpy(to, &part, sizeof part);
    write_packet(command, to + sizeof part);
    to += room;
    peer.next.position += cost_of(part.bytes);
    undelivered.remember(peer, command.token, cost_of(part.bytes));
    command.source_free = true;
  }
  return static_cast<std::uint32_t>(to - begin);
}

void Credits::promise(StreamPeer& peer) {
  if (std::exchange(peer.owing, true)) return;
  owing_.push_back(&peer);
}

void Credits::note_first_arrival(StreamPeer& peer) {
  peer.telling = true;
  if (telling_.empty()) waited_ = idle_ = 0;
  telling_.push_back(&peer);
}

bool Credits::owes_the_living() const {
  return std::ranges::any_of(owing_, [this](const StreamPeer* peer) { return !losses_.failed(peer->rank); });
}

void Credits::tell_all() {
  for (StreamPeer* peer : telling_) {
    peer->telling = false;
    if (peer->told_arrived != peer->next.arrived) promise(*peer);
  }
  telling_.clear();
  send_owed();
}

void Credits::send_owed() {
  for (std::size_t i = 0; i < owing_.size(); ++i) send_if_ready(*owing_[i]);
  std::erase_if(owing_, [](const StreamPeer* peer) { return !peer->owing; });
}

void Credits::send_if_ready(StreamPeer& peer) {
  if (peer.stage == StreamPeer::Stage::unopened) port_.connect(peer);
  if (peer.over() || peer.all_told()) {
    peer.owing = false;
  } else if (peer.ready()) {
    peer.owing = !port_.send_credit(peer);
  }
}

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
