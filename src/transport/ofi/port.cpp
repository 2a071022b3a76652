#include "transport/ofi/port.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/copy.hpp"
#include "transport/network/streams.hpp"

namespace heddle::transport::ofi {
namespace {

using network::Head;
using network::Kind;
using network::kMostMessage;

// How long libfabric may take to end operations on a connection that is lost.
constexpr std::uint64_t kDyingNs = 1'000'000'000;
// The same for gets, if there is no time-out. Otherwise twice HEDDLE_NETWORK_TIMEOUT: by then
// libfabric has noticed that the network is cut.
constexpr std::uint64_t kGetsNs = 60'000'000'000;
// How long the peers of a worker may take to learn that it ends, before its endpoint is closed: a
// peer that finds the endpoint gone, and does not know why, takes the rank for lost.
constexpr std::uint64_t kTellNs = 1'000'000'000;
// Below this length a message is copied by its words.
constexpr std::size_t kShort = 1024;

}  // namespace

Port::Port(Device& device, std::uint32_t index)
    : network::StreamPort(device, index, device.slots()),
      device_(device),
      outgoing_(*this),
      transfers_(*this, device.slots()) {}

base::Result<std::unique_ptr<Port>> Port::create(Device& device, std::uint32_t index) {
  if (const base::Status status = device.directory().take_number(index); status != HEDDLE_DONE) return status;
  std::unique_ptr<Port> port(new Port(device, index));
  if (const base::Status status = port->open(); status != HEDDLE_DONE) return status;
  return port;
}

base::Status Port::open() {
  base::Status status = endpoint_.open(device_.fabric());
  if (status == HEDDLE_DONE) status = outgoing_.open(endpoint_);
  if (status == HEDDLE_DONE) status = transfers_.open(endpoint_);
  if (status == HEDDLE_DONE && has_regions()) status = device_.regions().add(endpoint_.scope());
  if (status != HEDDLE_DONE) return status;
  const Turn turn(*this);  // the helper does not enter before all is set up
  if (status = watch(endpoint_.descriptor()); status != HEDDLE_DONE) return status;
  device_.directory().announce(index(), endpoint_.address());
  return HEDDLE_DONE;
}

Port::~Port() {
  close_endpoint();
}

// In this order: with the endpoint libfabric lets go of the caller's memory, and then that may be
// deregistered.
void Port::close_endpoint() {
  ends_ = false;
  if (endpoint_.domain() == nullptr) return;
  unwatch();
  if (has_regions()) device_.regions().remove(endpoint_.domain());
  endpoint_.stop();
  transfers_.forget();
  outgoing_.forget();
  say_registrations();
  endpoint_.close();
  if (!endpoint_.kept()) return;
  transfers_.keep();
  outgoing_.keep();
  device_.log().line(base::Level::error,
                     "libfabric does not close worker %u, and may still write to memory that its gets were given",
                     index());
}

void Port::say_registrations() {
  if (endpoint_.callers_memory() == nullptr || !device_.environment().config.flag(base::Var::stats)) return;
  const std::string said = endpoint_.callers_memory()->describe();
  if (!said.empty()) device_.log().say("worker %u: registrations: %s", index(), said.c_str());
}

void Port::make_room_for(std::size_t peers) {
  StreamPort::make_room_for(peers);
  outgoing_.make_room_for(peers);
  network::make_room(&lost_, peers);
  network::make_room(&dying_, peers);
}

// ---- progress -----------------------------------------------------------------------------------

// A short message of a peer state that has lent a message to this poll is the usual one.
inline void Port::on_receive(const std::byte* data, std::size_t bytes) {
  if (data == nullptr || bytes - sizeof(Head) > kMostMessage) [[unlikely]]  // too few wrap
    return incoming().malformed("a message", "that is none");
  const auto word = [data](std::size_t offset) { return network::read_word(data, offset); };
  const std::size_t packet = bytes - sizeof(Head);
  auto* peer = static_cast<PeerState*>(peers().known(word(offsetof(Head, rank)), word(offsetof(Head, worker))));
  if (peer == nullptr || word(offsetof(Head, kind)) != static_cast<std::uint32_t>(Kind::message) || packet >= kShort)
    return on_other(data, bytes);
  std::byte* at = incoming().take_next(*peer, data, static_cast<std::uint32_t>(packet));
  if (at == nullptr) return on_other(data, bytes);
  if (packet != 8) return base::copy_data(at, data + sizeof(Head), packet);
  std::memcpy(at, data + sizeof(Head), 8);
}

inline std::size_t Port::progress() {
  const std::size_t count = endpoint_.ep() != nullptr ? endpoint_.progress(*this) : 0;
  if (count != 0) note_progress();
  return count;
}

// ---- the owner ----------------------------------------------------------------------------------

std::size_t Port::post_batch(std::span<Command> batch) {
  return network::post_several(
      batch, [this](Command& command) { return post_one(command); },
      [this](std::span<Command> front) { return outgoing_.post_bundle(front); });
}

std::size_t Port::poll(std::span<Completion> completions) {
  if (completions.empty()) [[unlikely]]
    return 0;
  const Turn turn(*this);
  incoming().release_lent();
  this->completions().begin(completions);
  incoming().hand_out();
  outgoing_.push_on();
  // If the poll has completions already, its caller may wait for nothing more: then libfabric is
  // asked only every fourth time.
  bool some = true;
  if (this->completions().written() == 0 || ++skipped_ >= 4) {
    skipped_ = 0;
    // Asks once more only if there was as much as is read at once. Asking in vain takes system
    // calls, and messages that have arrived would wait for them.
    std::size_t count = progress();
    some = count != 0;
    for (int round = 1; count == Endpoint::kEntries && round < kMostRounds && this->completions().has_room(); ++round) {
      count = progress();
    }
  }
  count_poll();
  do_more(polls());
  if (credits().has_to_tell()) {
    if (credits().is_due(!some)) credits().tell_all();
    // This poll may be the last for long, and has taken from libfabric the event that would have
    // woken the helper.
    if (quiet() && credits().has_to_tell()) [[unlikely]]
      leaves_something();
  }
  return this->completions().end(some);  // it was asked if there was nothing to tell
}

// The work that not every poll does.
inline void Port::do_more(std::uint32_t poll) {
  if (credits().owes()) credits().send_owed();
  const bool connects = peers().connecting();
  if ((poll & (kDevicePeriod - 1)) == 0 || (connects && (poll & (kConnectingPeriod - 1)) == 0)) [[unlikely]] {
    device_.progress();
    if (connects) peers().advance();
    ask_if_due();
  }
  if (disconnecting() && go_on_disconnecting()) [[unlikely]]
    end_gets();
}

// ---- in its owner's place too -------------------------------------------------------------------

bool Port::move_on() {
  outgoing_.push_on();
  const bool some = progress_library();
  if (credits().owes()) credits().send_owed();
  if (peers().connecting()) peers().advance();
  ask_if_due();
  if (disconnecting()) static_cast<void>(go_on_disconnecting());  // the owner's next poll ends gets
  return some;
}

[[gnu::noinline]] void Port::on_other(const std::byte* data, std::size_t bytes) {
  const Head head = network::read_head(data);
  const auto kind = static_cast<Kind>(head.kind);
  const bool bundle = kind == Kind::bundle;
  const char* what = bundle ? "a bundle" : kind == Kind::message ? "a message" : "a credit";
  if (kind < Kind::message || kind > Kind::ended) return incoming().malformed("a message", "of no known kind");
  network::StreamPeer* peer = incoming().hear(head, what);
  if (peer == nullptr) return;
  const std::byte* packet = data + sizeof head;
  const auto packet_bytes = static_cast<std::uint32_t>(bytes - sizeof head);
  bool right = false;
  if (bundle) {
    right = incoming().take_bundle(*peer, head.position, packet, packet_bytes);
  } else if (kind == Kind::message) {
    right = incoming().take(*peer, head.position, {packet, packet_bytes, head.immediate});
  } else {
    right = packet_bytes == 0 && on_word(*peer, kind, head.position);
  }
  if (!right) incoming().wrong(*peer, what);
}

// A credit, a question, or the end. False: something is lost.
bool Port::on_word(network::StreamPeer& peer, Kind kind, std::uint32_t position) {
  if (kind == Kind::ended) {
    if (peer.ready()) on_broken(state(peer), FI_ECONNABORTED);
    return true;
  }
  // All that was sent before has arrived: libfabric keeps the order, unless it has connected anew
  // and lost messages on their way.
  const bool whole = position == peer.next.arrived;
  if (kind != Kind::question) {
    peer.unanswered = false;
    return whole;
  }
  if (!whole || peer.has_gap || peer.stage == network::Peer::Stage::broken) {
    outgoing_.send_end(state(peer));
  } else {
    credits().tell_again(peer);
  }
  return whole;
}

void Port::on_finished(OperationContext& operation, int error) {
  if (operation.kind == OperationContext::Kind::packet)
    return outgoing_.on_finished(static_cast<Packet&>(operation), error);
  transfers_.on_finished(static_cast<Transfer&>(operation), error);
}

// ---- connections --------------------------------------------------------------------------------

bool Port::open(network::Peer& peer, const network::Bytes& address) {
  PeerState& to = state(peer);
  if (endpoint_.ep() == nullptr) {  // see end_gets()
    peers().end(peer, network::Peer::Stage::broken, HEDDLE_ERR_PEER_FAILED);
    return true;
  }
  if (address.size() != endpoint_.address().size()) {
    device_.log().line(base::Level::error, "worker %u of rank %u has an address of %zu bytes; this rank's have %zu",
                       peer.worker, peer.rank, address.size(), endpoint_.address().size());
    device_.lose(peer.rank);
    peers().end(peer, network::Peer::Stage::broken, HEDDLE_ERR_PEER_FAILED);
    return true;
  }
  if (const long answer = insert(to, address); answer != 0) return not_inserted(to, answer);
  to.patience.renew();
  to.stage = network::Peer::Stage::ready;
  outgoing_.begin(to);
  return true;
}

// Returns 0, or libfabric's answer. It may be called again: what libfabric has accepted is not
// inserted twice.
long Port::insert(PeerState& peer, const network::Bytes& address) {
  long answer = 0;
  if (peer.address == FI_ADDR_NOTAVAIL) answer = endpoint_.insert(address, &peer.address);
  if (answer != 0) return answer;
  if (device_.plan().by_endpoint) return endpoint_.insert(device_.endpoint().address_of(peer.rank), &peer.memory);
  peer.memory = peer.address;
  return 0;
}

// libfabric does not accept the address: returns what open() returns.
bool Port::not_inserted(PeerState& peer, long answer) {
  const bool over = device_.timeout_ns() != 0 && peer.patience.over(now_ns(), device_.timeout_ns());
  if (is_temporary_for_addresses(answer) && !over) return false;
  device_.log().line(base::Level::error, "libfabric does not accept the address of worker %u of rank %u: %s",
                     peer.worker, peer.rank, device_.library().why(answer));
  device_.lose(peer.rank);
  peers().end(peer, network::Peer::Stage::broken, HEDDLE_ERR_PEER_FAILED);
  return true;
}

void Port::not_taken(PeerState& peer, long answer) {
  if (!is_temporary(answer)) return on_broken(peer, static_cast<int>(-answer));
  if (device_.timeout_ns() == 0) return;
  using Taken = PeerState::Taken;
  if (peer.taken == Taken::some) {
    peer.taken = Taken::nothing_lately;
    peer.patience.renew();
  }
  // If there was a connection, and libfabric has something under way, it may have no room. It
  // reports the end of that, if the connection breaks.
  if ((peer.taken != Taken::nothing_yet || peer.heard) && (outgoing_.flies() || transfers_.under_way() != 0))
    peer.patience.renew();
  if (!peer.patience.over(now_ns(), device_.timeout_ns())) return;
  device_.log().line(base::Level::warn, "worker %u of rank %u accepts no connection (HEDDLE_NETWORK_TIMEOUT)",
                     peer.worker, peer.rank);
  note_lost(peer);
}

void Port::on_broken(PeerState& peer, int error) {
  if (peer.stage == network::Peer::Stage::broken) return;
  log_lost(peer, device_.library().why(-error));
  note_lost(peer);
}

void Port::note_lost(network::StreamPeer& peer) {
  if (std::ranges::find(lost_, &peer) == lost_.end()) lost_.push_back(&state(peer));
}

bool Port::go_on_disconnecting() {
  while (!lost_.empty()) {
    PeerState& peer = *lost_.back();
    lost_.pop_back();
    disconnect(peer);
  }
  const std::uint64_t gets_ns = device_.timeout_ns() != 0 ? 2 * device_.timeout_ns() : kGetsNs;
  bool over = false;
  std::erase_if(dying_, [&](PeerState* peer) {
    if (!transfers_.holds_some(*peer)) return true;
    const std::uint64_t now = now_ns();
    if (now < peer->dies_at) return false;
    if (!transfers_.orphan(*peer)) return true;
    over = over || now - peer->dies_at >= gets_ns;
    return false;
  });
  return over || ends_;  // its peers were told, so it ends even if its gets end meanwhile
}

// libfabric lets go of the gets' destinations only with the endpoint. So this worker ends, and the
// others are told. Their ranks, and the other workers of this rank, go on.
[[gnu::cold]] void Port::end_gets() {
  if (!std::exchange(ends_, true)) {
    device_.log().line(base::Level::error,
                       "worker %u is cut off: libfabric does not end its gets from rank %u, which is lost "
                       "(HEDDLE_NETWORK_TIMEOUT)",
                       index(), dying_.front()->rank);
    telling_.renew();
    device_.announce_closed(*this);
  }
  if (!telling_.over(now_ns(), kTellNs)) return;
  close_endpoint();
  for (const auto& peer : peers().all()) {
    if (!peer->over()) peers().end(*peer, network::Peer::Stage::broken, HEDDLE_ERR_PEER_FAILED);
  }
  dying_.clear();
}

void Port::disconnect(PeerState& peer) {
  if (peer.stage == network::Peer::Stage::broken) return;
  if (device_.only_worker_ended(peer.rank, peer.worker)) {
    return peers().end(peer, network::Peer::Stage::closed, HEDDLE_DONE);
  }
  if (!closed()) device_.lose(peer.rank);
  const bool tells = peer.ready() && !device_.failed(peer.rank) && endpoint_.ep() != nullptr;
  peers().end(peer, network::Peer::Stage::broken, HEDDLE_ERR_PEER_FAILED);
  if (tells) outgoing_.send_end(peer);  // libfabric does not tell a peer that lives
}

// libfabric ends the transfers to a rank that died when the connection breaks: soon, unless the
// rank lives, or its machine is not there any more. Until then libfabric may use the caller's
// memory.
void Port::on_end(network::Peer& peer) {
  PeerState& ended = state(peer);
  outgoing_.drop_waiting(ended);
  if (!transfers_.holds_some(ended) || std::ranges::find(dying_, &ended) != dying_.end()) return;
  ended.dies_at = now_ns() + kDyingNs;
  dying_.push_back(&ended);
}

// The transfers under way use the caller's memory, and libfabric ends them only with its endpoint.
// So messages that have not left are lost with the endpoint.
void Port::disconnect_transfers() {
  close_endpoint();
  for (const auto& peer : peers().all()) disconnect(state(*peer));
  dying_.clear();
}

}  // namespace heddle::transport::ofi
