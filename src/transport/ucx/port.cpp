#include "transport/ucx/port.hpp"

#include <utility>

#include "transport/network/streams.hpp"

namespace heddle::transport::ucx {
namespace {

// How long UCX may take to close connections.
constexpr std::uint64_t kForceNs = 5'000'000'000;

}  // namespace

Port::Port(Device& device, std::uint32_t index)
    : network::StreamPort(device, index, device.slots()),
      device_(device),
      call_(device.library().call()),
      endpoints_(*this, device),
      outgoing_(*this, device),
      transfers_(*this, device, device.slots()) {}

base::Result<std::unique_ptr<Port>> Port::create(Device& device, std::uint32_t index) {
  if (const base::Status status = device.directory().take_number(index); status != HEDDLE_DONE) return status;
  std::unique_ptr<Port> port(new Port(device, index));
  if (const base::Status status = port->open_worker(); status != HEDDLE_DONE) return status;
  return port;
}

base::Status Port::open_worker() {
  if (const ucs_status_t made = create_worker(call_, device_.context(), &worker_); made != UCS_OK) {
    return base::fail(HEDDLE_ERR_NO_MEMORY, "UCX gives no worker: %s", call_.status_string(made));
  }
  base::Status status = Receive::listen(*this);
  Bytes address;
  if (status == HEDDLE_DONE) status = find_address(call_, worker_, &address);
  int descriptor = -1;
  if (status == HEDDLE_DONE) status = find_descriptor(call_, worker_, &descriptor);
  if (status != HEDDLE_DONE) return status;
  const Turn turn(*this);  // the helper does not enter before all is set up
  status = watch(descriptor);
  if (status != HEDDLE_DONE) return status;
  device_.directory().announce(index(), std::move(address));
  return HEDDLE_DONE;
}

Port::~Port() {
  unwatch();
  if (worker_ != nullptr) end();
}

// ---- connections --------------------------------------------------------------------------------

void Port::on_end(network::Peer& peer) {
  state_of(peer).update_by_value();
  outgoing_.drop_waiting(state_of(peer));
}

bool Port::send_credit(network::StreamPeer& peer) {
  PeerState& state = state_of(peer);
  // The messages that UCX still has tell the peer, or the peer is told later.
  if (state.in_flight != 0) return false;
  const ucs_status_t sent = outgoing_.send_credit(state, Outgoing::As::packet);
  if (sent == UCS_OK && state.in_flight == 0) state.used = true;
  return sent != UCS_ERR_NO_RESOURCE;
}

// ---- the owner ----------------------------------------------------------------------------------

std::size_t Port::post_batch(std::span<Command> batch) {
  return network::post_several(
      batch, [this](Command& command) { return post_one(command); },
      [this](std::span<Command> front) { return outgoing_.post_bundle(front); });
}

std::size_t Port::poll(std::span<Completion> out) {
  if (out.empty()) [[unlikely]]
    return 0;
  const Turn turn(*this);
  incoming().release_lent();
  completions().begin(out);
  incoming().hand_out();
  outgoing_.push_on();
  transfers_.flush_dirty();
  // If the poll has completions already, its caller may wait for nothing more: then UCX is asked
  // only every fourth time.
  if (completions().written() == 0 || ++skipped_ >= 4) {
    skipped_ = 0;
    ask_ucx();
  }
  transfers_.change_again();
  const std::uint32_t poll = count_poll();
  if (has_more_to_do(poll)) [[unlikely]]
    do_more(poll);
  if (credits().has_to_tell()) {
    if (credits().is_due(!streams_)) credits().tell_all();
    // This poll may be the last for long, and has taken from UCX the event that would have woken
    // the helper.
    if (quiet() && credits().has_to_tell()) [[unlikely]]
      leaves_something();
  }
  // If there was nothing to tell, UCX was asked.
  return completions().end(streams_);
}

// UCX's shared memory brings one message per call: while messages stream in, a poll calls it
// several times. If they come one by one, it does not try for more.
inline void Port::ask_ucx() {
  const bool streams = std::exchange(streams_, progress());
  if (!streams || !streams_) return;
  for (int round = 1; round < kMostRounds && completions().has_room(); ++round) {
    if (call_.worker_progress(worker_) == 0) return;  // progress() has disarmed already
  }
}

// The work that not every poll does.
void Port::do_more(std::uint32_t poll) {
  if (credits().owes()) credits().send_owed();
  const bool connects = peers().connecting();
  if ((poll & (kDevicePeriod - 1)) == 0 || (connects && (poll & (kConnectingPeriod - 1)) == 0)) {
    device_.progress();
    if (connects) peers().advance();
    transfers_.forget_releases();
  }
  if (endpoints_.busy()) endpoints_.go_on_disconnecting();
}

// ---- in place of the owner ----------------------------------------------------------------------

bool Port::move_on() {
  outgoing_.push_on();
  transfers_.flush_dirty();
  const bool some = call_.worker_progress(worker_) != 0;
  transfers_.change_again();
  if (credits().owes()) credits().send_owed();
  if (peers().connecting()) peers().advance();
  if (endpoints_.disconnecting()) endpoints_.go_on_disconnecting();
  return some;
}

// ---- the end ------------------------------------------------------------------------------------

void Port::end() {
  endpoints_.disconnect_all();
  const std::uint64_t until = now_ns() + kForceNs;
  while (!endpoints_.all_closed() && now_ns() < until) {
    // not move_on(): a peer that is heard only now gets no answer
    call_.worker_progress(worker_);
    endpoints_.go_on_disconnecting();
    completions().forget();
  }
  incoming().drop_all();
  transfers_.destroy_keys();
  call_.worker_destroy(std::exchange(worker_, nullptr));
}

}  // namespace heddle::transport::ucx
