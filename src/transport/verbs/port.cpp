#include "transport/verbs/port.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/verbs/adapter.hpp"

namespace heddle::transport::verbs {
namespace {

// Before a pair is connected once more, after a failure for a passing reason.
constexpr std::uint64_t kConnectPauseNs = 20'000'000;
constexpr const char* kAdapterFailed = "its adapter has failed";

}  // namespace

Port::Port(Device& device, std::uint32_t index)
    : network::Port(device, index, device.slots()),
      device_(device),
      adapter_(*device.adapters()[device.adapter_index(index)]),
      mailboxes_(device.window() + kMostMessage),
      receiving_(*this),
      sending_(*this),
      stripes_(*this) {}

base::Result<std::unique_ptr<Port>> Port::create(Device& device, std::uint32_t index) {
  if (const base::Status status = device.directory().take_number(index); status != HEDDLE_DONE) return status;
  std::unique_ptr<Port> port(new Port(device, index));
  if (const base::Status status = port->open(); status != HEDDLE_DONE) return status;
  return port;
}

base::Status Port::open() {
  if (adapter_.failed()) return base::fail(HEDDLE_ERR_SYSTEM, "the adapter %s has failed", adapter_.name().c_str());
  mailboxes_.open(adapter_);
  base::Status status = channel_.open(adapter_);
  if (status == HEDDLE_DONE) status = receiving_.open(channel_);
  if (status == HEDDLE_DONE) status = sending_.open(channel_);
  if (status == HEDDLE_DONE) status = open_stripes();
  if (status != HEDDLE_DONE) return status;
  // Only a pair that was made says how many bytes a request may carry inline.
  ibv_qp* first = create_pair();
  if (first == nullptr) return base::fail_errno(HEDDLE_ERR_SYSTEM, "%s gives no queue pair", adapter_.name().c_str());
  adapter_.call().destroy_qp(first);
  const Turn turn(*this);  // the helper does not enter before all is set up
  if (status = watch(channel_.descriptor()); status != HEDDLE_DONE) return status;
  device_.enter(*this);
  const auto* address = reinterpret_cast<const std::byte*>(&adapter_.address());
  device_.directory().announce(index(), network::Bytes(address, address + sizeof(PortAddress)));
  return HEDDLE_DONE;
}

Port::~Port() {
  unwatch();
  device_.leave(*this);
  for (const auto& peer : peers().all()) destroy_pair(state(*peer));
  stripes_.close();
  sending_.close();
  receiving_.close();
  mailboxes_.close();
  channel_.close();
}

std::unique_ptr<network::Peer> Port::make_peer() {
  auto peer = std::make_unique<PeerState>();
  peer->number_above = std::uint64_t{peers().all().size()} << 32;
  peer->most_whole = sending_.most_whole(false);
  return peer;
}

void Port::make_room_for(std::size_t peers) {
  receiving_.make_room_for(peers);
  sending_.make_room_for(peers);
  network::make_room(&lost_, peers);
  network::make_room(&untold_, peers);
}

// ---- the owner ----------------------------------------------------------------------------------

std::size_t Port::poll(std::span<Completion> completions) {
  if (completions.empty()) [[unlikely]]
    return 0;
  const Turn turn(*this);
  receiving_.release_lent();
  this->completions().begin(completions);
  const bool some = progress_sending();
  if (some) note_progress();
  receiving_.hand_out();
  if (this->completions().written() != 0) note_progress();
  count_poll();
  do_more(polls());
  return this->completions().end(some);
}

// The work that not every poll does.
inline void Port::do_more(std::uint32_t poll) {
  if (receiving_.owes()) [[unlikely]]
    receiving_.send_owed();
  if (has_mail()) [[unlikely]]
    take_mail();
  const bool connects = peers().connecting();
  if ((poll & (kDevicePeriod - 1)) == 0 || (connects && (poll & (kConnectingPeriod - 1)) == 0)) [[unlikely]] {
    device_.progress();
    if (connects) peers().advance();
    ask_if_due();
  }
  if (disconnecting()) [[unlikely]]
    go_on_disconnecting();
}

// ---- progress -----------------------------------------------------------------------------------

inline bool Port::progress_sending() {
  const bool some = sending_.progress();
  if (!stripes_.under_way()) [[likely]]
    return some;
  return stripes_.progress() || some;
}

// Messages wait where they are for the owner; once it is gone, they are consumed.
bool Port::progress_library() {
  const bool some = progress_sending();
  const bool arrived = receiving_.look();
  if (some || arrived) note_progress();
  return some || arrived;
}

bool Port::move_on() {
  const bool some = progress_library();
  if (closed()) receiving_.drop_all();
  if (receiving_.owes()) receiving_.send_owed();
  if (has_mail()) take_mail();
  if (peers().connecting()) peers().advance();
  ask_if_due();
  if (disconnecting()) go_on_disconnecting();
  return some;
}

bool Port::arm_library() {
  channel_.drain();
  sending_.arm();
  receiving_.arm();
  return !progress_library();
}

bool Port::in_flight() const {
  return sending_.has_waiting() || (closed() && messages_taken() != 0);
}

bool Port::transfers_under_way() const {
  return transfers_taken() != 0;
}

// ---- connecting ---------------------------------------------------------------------------------

void Port::deliver(const Mail& mail) {
  mail_.push_back(mail);
  set_has_mail(true);
}

void Port::note_failed() {
  failed_.store(true, std::memory_order_relaxed);
  set_has_mail(true);
}

void Port::note_other_failed() {
  other_failed_.store(true, std::memory_order_relaxed);
  set_has_mail(true);
}

[[gnu::cold]] void Port::take_mail() {
  {
    const std::unique_lock lock(device_.mutex(), std::try_to_lock);
    if (!lock) return;
    if (taken_.empty()) taken_.swap(mail_);
    set_has_mail(!mail_.empty());
  }
  if (is_failed()) note_all_lost();
  if (other_failed_.exchange(false, std::memory_order_relaxed)) end_stripes();
  std::erase_if(taken_, [this](const Mail& mail) { return take(mail); });
  if (!taken_.empty()) set_has_mail(true);
  if (peers().connecting()) peers().advance();
}

bool Port::take(const Mail& mail) {
  network::Peer* known = peers().find_or_make(mail.rank, mail.hello.worker);
  if (known == nullptr) {
    device_.log().line(base::Level::error, "no memory to connect to worker %u of rank %u", mail.hello.worker,
                       mail.rank);
    return false;
  }
  PeerState& peer = state(*known);
  if (mail.hello.kind == Handshake::ended || mail.hello.kind == Handshake::closed) {
    take_end(peer, mail.hello.kind);
  } else {
    take_hello(peer, mail.hello);
  }
  return true;
}

void Port::take_hello(PeerState& peer, const Handshake& hello) {
  if (hello.kind == Handshake::is_up) {
    peer.is_up = true;
    if (hello.stripe_pair == 0) end_stripe(peer);
  }
  if (hello.kind == Handshake::opens && peer.theirs.kind == 0) peer.theirs = hello;
  // Its address is in its note, so there is no need to wait for the directory's, which may say that
  // it was closed: it still has messages for us.
  const bool connecting = peer.stage == network::Peer::Stage::connecting;
  const bool ended = peer.stage == network::Peer::Stage::closed && !peer.connected;
  if ((peer.stage != network::Peer::Stage::unopened && !connecting && !ended) || peer.theirs.kind == 0 || closed())
    return;
  if (is_failed()) return note_lost(peer, kAdapterFailed);
  peer.address = peer.theirs.address;
  if (peer.pair == nullptr && !make_pair(peer)) {  // no memory: tried again
    if (!connecting) peers().connect(peer);
    return;
  }
  begin_handshake(peer);
  if (!connecting) peers().go_on_connecting(peer);
}

// If a worker was closed, its rank does not count as lost, and messages that it has sent before can
// still be read. Only the requests under way to it end.
void Port::take_end(PeerState& peer, std::uint32_t kind) {
  peer.told_end = true;
  if (peer.stage == network::Peer::Stage::broken) return;
  if (kind == Handshake::ended) return note_lost(peer, "it has disconnected");
  end_closed(peer);
}

void Port::end_closed(PeerState& peer) {
  peer.told_end = true;
  peers().end(peer, network::Peer::Stage::closed, HEDDLE_DONE);
  stop_pair(peer);
}

// Its requests may fail before it says itself that it ends.
[[gnu::cold]] bool Port::has_closed(PeerState& peer) {
  if (peer.stage == network::Peer::Stage::closed && peer.told_end) return true;
  const bool goes_on = !closed() && !is_failed() && peer.stage != network::Peer::Stage::broken;
  if (!goes_on || !device_.only_worker_ended(peer.rank, peer.worker)) return false;
  end_closed(peer);
  return true;
}

bool Port::open(network::Peer& opened, const network::Bytes& address) {
  PeerState& peer = state(opened);
  if (is_failed()) {
    disconnect(peer);
    return true;
  }
  if (address.size() != sizeof peer.address) {
    device_.log().line(base::Level::error, "worker %u of rank %u has an address of %zu bytes", peer.worker, peer.rank,
                       address.size());
    disconnect(peer);
    return true;
  }
  std::memcpy(&peer.address, address.data(), sizeof peer.address);
  if (!make_pair(peer)) return false;
  begin_handshake(peer);
  static_cast<void>(go_on_with_handshake(peer));
  return true;
}

void Port::begin_handshake(PeerState& peer) {
  peer.stage = network::Peer::Stage::handshake;
  peer.patience.renew();
}

ibv_qp* Port::create_pair() {
  for (const std::uint32_t bytes : {96U, 64U, 0U}) {
    ibv_qp_init_attr make{};
    make.qp_type = IBV_QPT_RC;
    make.send_cq = sending_.queue();
    make.recv_cq = receiving_.queue();
    make.srq = receiving_.shared();
    make.cap.max_send_wr = PeerState::kDepth;
    make.cap.max_send_sge = 1;
    make.cap.max_inline_data = bytes;
    ibv_qp* pair = adapter_.call().create_qp(adapter_.domain(), &make);
    if (pair == nullptr) continue;
    sending_.limit_inline(make.cap.max_inline_data);
    return pair;
  }
  return nullptr;
}

bool Port::make_pair(PeerState& peer) {
  if (peer.mine.mailbox == nullptr) peer.mine = mailboxes_.take();
  if (peer.mine.mailbox != nullptr) peer.pair = create_pair();
  if (peer.pair == nullptr) {
    if (!std::exchange(told_short_, true)) {
      device_.log().line(base::Level::error,
                         "worker %u waits for memory to connect to worker %u of rank %u: %s gives none (ulimit -l says "
                         "how much may be registered)",
                         index(), peer.worker, peer.rank, adapter_.name().c_str());
    }
    return false;
  }
  peer.pair_number = peer.pair->qp_num;
  receiving_.enter(peer);
  if (prepare_pair(adapter_, peer.pair)) {
    stripes_.make_pair(peer);
    return true;
  }
  destroy_pair(peer);
  return false;
}

// True: the other worker exists, and its rank acknowledges notes, but it has not answered in time.
// It may have no memory, or its end may not have been reported. A note that has come and was not
// taken may be the answer.
bool Port::handshake_takes_too_long(PeerState& peer) const {
  const std::uint64_t most = device_.timeout_ns();
  return most != 0 && !has_mail() && peer.patience.over(now_ns(), most);
}

// Both ends say hello, whichever began. If some of the four notes are missing, a later call goes
// on.
bool Port::go_on_with_handshake(network::Peer& begun) {
  PeerState& peer = state(begun);
  if (peer.stage != network::Peer::Stage::handshake) return true;
  if (device_.failed(peer.rank)) {  // it does not answer any more
    disconnect(peer);
    return true;
  }
  if (peer.theirs.kind == 0 && device_.directory().known_closed(peer.rank, peer.worker)) {
    peers().end(peer, network::Peer::Stage::closed, HEDDLE_DONE);
    return true;
  }
  if (handshake_takes_too_long(peer)) {
    device_.log().line(base::Level::warn, "worker %u of rank %u does not connect to worker %u (HEDDLE_NETWORK_TIMEOUT)",
                       peer.worker, peer.rank, index());
    disconnect(peer);
    return true;
  }
  if (!peer.said_open && !(peer.said_open = say(peer, Handshake::opens))) return false;
  if (peer.theirs.kind == 0) return false;
  if (!peer.connected) {
    if (now_ns() < peer.connect_at) return false;
    const base::Status status = connect_pairs(peer);
    if (status == HEDDLE_AGAIN) {
      peer.connect_at = now_ns() + kConnectPauseNs;
      return false;
    }
    if (status != HEDDLE_DONE) {
      device_.log().line(base::Level::error, "worker %u cannot connect to worker %u of rank %u: %s", index(),
                         peer.worker, peer.rank, base::last_message());
      disconnect(peer);
      return true;
    }
    peer.rkey_at = static_cast<std::uint8_t>(32 * peer.theirs.adapter);
    peer.most_whole = sending_.most_whole(peer.stripe != nullptr);
    peer.connected = peer.heard = true;
  }
  if (!peer.said_up && !(peer.said_up = say(peer, Handshake::is_up))) return false;
  if (!peer.is_up) return false;
  peer.stage = network::Peer::Stage::ready;
  set_has_questions(true);
  sending_.begin(peer);
  return true;
}

// An adapter finds out by its own sends that a network is cut: so all peers are looked at in each
// round, and a sleeping owner is woken for that.
void Port::ask_silent() {
  bool some = false;
  for (const auto& peer : peers().all()) {
    if (!peer->ready()) continue;
    some = true;
    probe_if_silent(state(*peer));
  }
  set_has_questions(some);
}

// If nothing was heard from a peer for a round, and nothing is under way to it, it gets a write of
// nothing.
void Port::probe_if_silent(PeerState& peer) {
  if (sending_.has_impossible_credit(peer)) {
    return note_malformed(peer, "it says that it has consumed what was not sent");
  }
  const std::uint32_t completed = std::exchange(peer.seen_completed, peer.completed);
  const std::uint32_t consumed = std::exchange(peer.seen_consumed, peer.consumed);
  if (peer.under_way() == 0 && completed == peer.completed && consumed == peer.consumed) sending_.probe(peer);
}

// The second pair stays connected if the first one cannot be yet: the next attempt skips it.
base::Status Port::connect_pairs(PeerState& peer) {
  const base::Status status = stripes_.connect(peer);
  return status == HEDDLE_DONE ? connect_pair(adapter_, peer.pair, peer.theirs.queue_pair, peer.address) : status;
}

bool Port::say(PeerState& peer, Handshake::Kind kind) {
  Handshake hello;
  hello.kind = kind;
  hello.worker = index();
  hello.queue_pair = peer.pair_number;
  hello.adapter = device_.adapter_index(index());
  hello.mailbox = reinterpret_cast<std::uintptr_t>(peer.mine.mailbox);
  hello.rkey = peer.mine.rkey;
  hello.address = adapter_.address();
  if (peer.stripe != nullptr) {
    hello.stripe_pair = peer.stripe->qp_num;
    hello.stripe_address = stripes_.adapter()->address();
  }
  const auto* begin = reinterpret_cast<const std::byte*>(&hello);
  return device_.directory().tell(peer.rank, peer.worker, {begin, sizeof hello}) == HEDDLE_DONE;
}

// Nothing leaves or arrives any more: requests end with errors.
void Port::stop_pair(PeerState& peer) {
  if (peer.pair != nullptr) verbs::stop_pair(adapter_, peer.pair);
  stripes_.stop_pair(peer);
}

void Port::destroy_pair(PeerState& peer) {
  if (peer.pair == nullptr) return;
  stop_pair(peer);
  stripes_.destroy_pair(peer);
  receiving_.leave(peer);
  adapter_.call().destroy_qp(std::exchange(peer.pair, nullptr));
}

// ---- disconnecting ------------------------------------------------------------------------------

void Port::note_lost(PeerState& peer, const char* why) {
  if (peer.stage == network::Peer::Stage::broken || std::ranges::find(lost_, &peer) != lost_.end()) return;
  log_lost(peer, why);
  lost_.push_back(&peer);
}

void Port::note_all_lost() {
  for (const auto& peer : peers().all()) {
    if (!peer->over() && peer->stage != network::Peer::Stage::unopened) note_lost(state(*peer), kAdapterFailed);
  }
}

void Port::note_malformed(PeerState& peer, const char* why) {
  if (malformed_++ == 0) {
    device_.log().line(base::Level::error, "worker %u disconnects worker %u of rank %u, which is out of order: %s",
                       index(), peer.worker, peer.rank, why);
  }
  note_lost(peer, why);
}

void Port::go_on_disconnecting() {
  while (!lost_.empty()) {
    PeerState& peer = *lost_.back();
    lost_.pop_back();
    disconnect(peer);
  }
  tell_owed();
}

void Port::disconnect(PeerState& peer) {
  if (peer.stage == network::Peer::Stage::broken) return;
  const bool met = peer.said_open || peer.theirs.kind != 0;
  if (!closed() && device_.only_worker_ended(peer.rank, peer.worker)) {
    peers().end(peer, network::Peer::Stage::closed, HEDDLE_DONE);
    abandon(peer, HEDDLE_ERR_PEER_FAILED);
  } else {
    if (!closed()) device_.lose(peer.rank);
    peers().end(peer, network::Peer::Stage::broken, HEDDLE_ERR_PEER_FAILED);
  }
  if (!met || peer.told_end || device_.failed(peer.rank)) return;
  owe(peer, closed() ? Handshake::closed : Handshake::ended);
}

void Port::owe(PeerState& peer, Handshake::Kind note) {
  // it has room for all
  if (std::exchange(peer.owes, note) == Handshake::Kind{}) untold_.push_back(&peer);
}

// The notes, once the device's mutex is free.
void Port::tell_owed() {
  std::erase_if(untold_, [this](PeerState* peer) {
    if (!device_.failed(peer->rank) && !say(*peer, peer->owes)) return false;
    peer->owes = {};
    return true;
  });
}

// The adapter touches no memory for a pair that does not exist any more. A worker that was closed
// still acknowledges, and its pair stays.
void Port::on_end(network::Peer& ended) {
  PeerState& peer = state(ended);
  sending_.drop_waiting(peer);
  if (peer.stage == network::Peer::Stage::broken) abandon(peer, peer.status);
}

void Port::abandon(PeerState& peer, base::Status status) {
  destroy_pair(peer);
  sending_.fail(peer, status);
  stripes_.fail(peer, status);
}

void Port::disconnect_transfers() {
  for (const auto& peer : peers().all()) {
    if (state(*peer).has_transfers()) disconnect(state(*peer));
  }
}

}  // namespace heddle::transport::verbs
