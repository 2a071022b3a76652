#include "transport/verbs/port.hpp"

#include <algorithm>
#include <utility>

namespace heddle::transport::verbs {

Port::Port(Device& device, std::uint32_t index)
    : network::Port(device, index, device.slots()),
      device_(device),
      mailboxes_(device.window() + kMostMessage),
      receiving_(*this),
      sending_(*this) {}

base::Result<std::unique_ptr<Port>> Port::create(Device& device, std::uint32_t index) {
  if (const base::Status status = device.directory().take_number(index); status != HEDDLE_DONE) return status;
  std::unique_ptr<Port> port(new Port(device, index));
  if (const base::Status status = port->open(); status != HEDDLE_DONE) return status;
  return port;
}

base::Status Port::open() {
  const Adapter& adapter = device_.adapter();
  mailboxes_.open(adapter);
  base::Status status = channel_.open(adapter);
  if (status == HEDDLE_DONE) status = receiving_.open(channel_);
  if (status == HEDDLE_DONE) status = sending_.open(channel_);
  if (status != HEDDLE_DONE) return status;
  // How much a request may carry is found out by asking.
  ibv_qp* first = create_pair();
  if (first == nullptr) return base::fail_errno(HEDDLE_ERR_SYSTEM, "%s gives no queue pair", adapter.name().c_str());
  adapter.call().destroy_qp(first);
  const Turn turn(*this);  // the helper does not enter before all is set up
  if (status = watch(channel_.descriptor()); status != HEDDLE_DONE) return status;
  device_.enter(*this);
  const auto* address = reinterpret_cast<const std::byte*>(&adapter.address());
  device_.directory().announce(index(), network::Bytes(address, address + sizeof(Address)));
  return HEDDLE_DONE;
}

Port::~Port() {
  unwatch();
  device_.leave(*this);
  for (const auto& peer : peers().all()) destroy_pair(state(*peer));
  sending_.close();
  receiving_.close();
  mailboxes_.close();
  channel_.close();
}

std::unique_ptr<network::Peer> Port::make_peer() {
  auto peer = std::make_unique<PeerState>();
  peer->number_above = std::uint64_t{peers().all().size()} << 32;
  return peer;
}

void Port::make_room_for(std::size_t peers) {
  receiving_.make_room_for(peers);
  sending_.make_room_for(peers);
  network::make_room(&lost_, peers);
}

// ---- the owner ----------------------------------------------------------------------------------

std::size_t Port::poll(std::span<Completion> completions) {
  if (completions.empty()) [[unlikely]]
    return 0;
  const Turn turn(*this);
  receiving_.release_lent();
  this->completions().begin(completions);
  if (sending_.progress()) note_progress();
  receiving_.hand_out();
  if (this->completions().written() != 0) note_progress();
  count_poll();
  do_more(polls());
  return this->completions().end();
}

// What not every poll does.
inline void Port::do_more(std::uint32_t poll) {
  if (receiving_.owes()) [[unlikely]]
    receiving_.send_owed();
  if (has_mail()) [[unlikely]]
    take_mail();
  const bool connects = peers().connecting();
  if ((poll & (kDevicePeriod - 1)) == 0 || (connects && (poll & (kConnectingPeriod - 1)) == 0)) [[unlikely]] {
    device_.progress();
    if (connects) peers().advance();
  }
  if (!lost_.empty()) [[unlikely]]
    go_on_disconnecting();
}

// ---- progress -----------------------------------------------------------------------------------

// Messages wait where they are for the owner; once it is gone, they are consumed.
bool Port::progress_library() {
  const bool some = sending_.progress();
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
  if (!lost_.empty()) go_on_disconnecting();
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

[[gnu::cold]] void Port::take_mail() {
  {
    const std::unique_lock lock(device_.mutex(), std::try_to_lock);
    if (!lock) return;
    taken_.swap(mail_);
    set_has_mail(false);
  }
  for (const Mail& mail : taken_) take(mail);
  taken_.clear();
  if (peers().connecting()) peers().advance();
}

void Port::take(const Mail& mail) {
  network::Peer* known = peers().find_or_make(mail.rank, mail.hello.worker);
  if (known == nullptr) {
    device_.log().line(base::Level::error, "no memory to connect to worker %u of rank %u", mail.hello.worker,
                       mail.rank);
    return;
  }
  PeerState& peer = state(*known);
  if (mail.hello.kind == Hello::is_up) peer.is_up = true;
  if (mail.hello.kind == Hello::opens && peer.theirs.kind == 0) peer.theirs = mail.hello;
  // Its address is in its note, so there is no need to wait for the directory's, which may say that
  // it was closed: it still has messages for us.
  const bool connecting = peer.stage == network::Peer::Stage::connecting;
  const bool ended = peer.stage == network::Peer::Stage::closed && !peer.connected;
  if ((peer.stage != network::Peer::Stage::unopened && !connecting && !ended) || peer.theirs.kind == 0 || closed())
    return;
  peer.address = peer.theirs.address;
  if (peer.pair == nullptr && !make_pair(peer)) {  // no memory: tried again
    if (!connecting) peers().connect(peer);
    return;
  }
  peer.stage = network::Peer::Stage::greeting;
  if (!connecting) peers().go_on_connecting(peer);
}

bool Port::open(network::Peer& opened, const network::Bytes& address) {
  PeerState& peer = state(opened);
  if (address.size() != sizeof peer.address) {
    device_.log().line(base::Level::error, "worker %u of rank %u has an address of %zu bytes", peer.worker, peer.rank,
                       address.size());
    disconnect(peer, HEDDLE_ERR_PEER_FAILED);
    return true;
  }
  std::memcpy(&peer.address, address.data(), sizeof peer.address);
  if (!make_pair(peer)) return false;
  peer.stage = network::Peer::Stage::greeting;
  static_cast<void>(greet(peer));
  return true;
}

ibv_qp* Port::create_pair() {
  const Adapter& adapter = device_.adapter();
  for (const std::uint32_t bytes : {96U, 64U, 0U}) {
    ibv_qp_init_attr make{};
    make.qp_type = IBV_QPT_RC;
    make.send_cq = sending_.queue();
    make.recv_cq = receiving_.queue();
    make.srq = receiving_.shared();
    make.cap.max_send_wr = PeerState::kDepth;
    make.cap.max_send_sge = 1;
    make.cap.max_inline_data = bytes;
    ibv_qp* pair = adapter.call().create_qp(adapter.domain(), &make);
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
                         index(), peer.worker, peer.rank, device_.adapter().name().c_str());
    }
    return false;
  }
  peer.pair_number = peer.pair->qp_num;
  receiving_.enter(peer);
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_INIT;
  to.port_num = device_.adapter().port();
  to.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  const int failed = device_.adapter().call().modify_qp(
      peer.pair, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (failed == 0) return true;
  destroy_pair(peer);
  return false;
}

// Both ends say hello, whoever began; what is missing of the four notes comes in a later call.
bool Port::greet(network::Peer& greeted) {
  PeerState& peer = state(greeted);
  if (peer.stage != network::Peer::Stage::greeting) return true;
  if (device_.failed(peer.rank)) {  // it does not answer any more
    disconnect(peer, HEDDLE_ERR_PEER_FAILED);
    return true;
  }
  if (peer.theirs.kind == 0 && device_.directory().known_closed(peer.rank, peer.worker)) {
    peers().end(peer, network::Peer::Stage::closed, HEDDLE_DONE);
    return true;
  }
  if (!peer.said_open && !(peer.said_open = say(peer, Hello::opens))) return false;
  if (peer.theirs.kind == 0) return false;
  if (!peer.connected) {
    if (connect_pair(peer) != HEDDLE_DONE) {
      device_.log().line(base::Level::error, "worker %u cannot connect to worker %u of rank %u: %s", index(),
                         peer.worker, peer.rank, base::last_message());
      disconnect(peer, HEDDLE_ERR_PEER_FAILED);
      return true;
    }
    peer.connected = peer.heard = true;
  }
  if (!peer.said_up && !(peer.said_up = say(peer, Hello::is_up))) return false;
  if (!peer.is_up) return false;
  peer.stage = network::Peer::Stage::ready;
  sending_.begin(peer);
  return true;
}

bool Port::say(PeerState& peer, Hello::Kind kind) {
  Hello hello;
  hello.kind = kind;
  hello.worker = index();
  hello.queue_pair = peer.pair_number;
  hello.mailbox = reinterpret_cast<std::uintptr_t>(peer.mine.mailbox);
  hello.rkey = peer.mine.rkey;
  hello.address = device_.adapter().address();
  const auto* begin = reinterpret_cast<const std::byte*>(&hello);
  return device_.directory().tell(peer.rank, peer.worker, network::Bytes(begin, begin + sizeof hello)) == HEDDLE_DONE;
}

base::Status Port::connect_pair(PeerState& peer) {
  const Adapter& adapter = device_.adapter();
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_RTR;
  to.path_mtu = static_cast<ibv_mtu>(std::min(adapter.address().mtu, peer.address.mtu));
  to.dest_qp_num = peer.theirs.queue_pair;
  to.max_dest_rd_atomic = static_cast<std::uint8_t>(adapter.address().reads);
  to.min_rnr_timer = 12;  // 0.64 ms
  to.ah_attr = adapter.way_to(peer.address);
  int failed = adapter.call().modify_qp(peer.pair, &to,
                                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (failed == 0) {
    to.qp_state = IBV_QPS_RTS;
    to.timeout = 18;  // 1 s until a packet is sent again, seven times
    to.retry_cnt = 7;
    to.rnr_retry = 7;  // for ever: a receiver that computes is not lost
    // not more than the peer's adapter answers at a time, which may be another model
    to.max_rd_atomic =
        static_cast<std::uint8_t>(std::min<int>(adapter.limits().max_qp_init_rd_atom, peer.address.reads));
    failed = adapter.call().modify_qp(
        peer.pair, &to,
        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  }
  if (failed == 0) return HEDDLE_DONE;
  return base::fail(HEDDLE_ERR_SYSTEM, "%s does not connect a queue pair: %s", adapter.name().c_str(),
                    std::strerror(failed));
}

void Port::destroy_pair(PeerState& peer) {
  if (peer.pair == nullptr) return;
  ibv_qp_attr to{};  // nothing arrives any more
  to.qp_state = IBV_QPS_ERR;
  static_cast<void>(device_.adapter().call().modify_qp(peer.pair, &to, IBV_QP_STATE));
  receiving_.leave(peer);
  device_.adapter().call().destroy_qp(std::exchange(peer.pair, nullptr));
}

// ---- disconnecting ------------------------------------------------------------------------------

void Port::note_lost(PeerState& peer, const char* why) {
  if (peer.stage == network::Peer::Stage::broken || std::ranges::find(lost_, &peer) != lost_.end()) return;
  const bool known = peers().failed(peer.rank) || device_.failed(peer.rank);
  device_.log().line(known ? base::Level::debug : base::Level::info, "worker %u has lost worker %u of rank %u: %s",
                     index(), peer.worker, peer.rank, why);
  lost_.push_back(&peer);
}

void Port::go_on_disconnecting() {
  while (!lost_.empty()) {
    PeerState& peer = *lost_.back();
    lost_.pop_back();
    disconnect(peer, HEDDLE_ERR_PEER_FAILED);
  }
}

void Port::disconnect(PeerState& peer, base::Status status) {
  if (peer.stage == network::Peer::Stage::broken) return;
  if (!closed()) device_.lose(peer.rank);
  peers().end(peer, network::Peer::Stage::broken, status);
}

// The adapter touches no memory for a pair that does not exist any more. A worker that was closed
// still acknowledges, and its pair stays.
void Port::on_end(network::Peer& ended) {
  PeerState& peer = state(ended);
  sending_.drop_waiting(peer);
  if (peer.stage != network::Peer::Stage::broken) return;
  destroy_pair(peer);
  sending_.fail(peer, peer.status);
}

void Port::disconnect_rank(std::uint32_t rank) {
  for (const auto& peer : peers().all()) {
    if (peer->rank != rank) continue;
    if (peer->stage == network::Peer::Stage::broken) peer->status = HEDDLE_ERR_PEER_FAILED;
    disconnect(state(*peer), HEDDLE_ERR_PEER_FAILED);
  }
}

void Port::disconnect_transfers() {
  for (const auto& peer : peers().all()) {
    if (state(*peer).has_transfers()) disconnect(state(*peer), HEDDLE_ERR_PEER_FAILED);
  }
}

}  // namespace heddle::transport::verbs
