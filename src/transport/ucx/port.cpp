#include "transport/ucx/port.hpp"

#include <sched.h>

#include <algorithm>
#include <new>

#include "base/membarrier.hpp"

namespace heddle::transport::ucx {
namespace {

// How long transfers may take to end when their worker is closed; then their connections are
// closed.
constexpr std::uint64_t kCloseNs = 250'000'000;
constexpr std::uint64_t kForceNs = 5'000'000'000;
// Rounds of progress in one visit of the helper, so that a busy port neither keeps the helper from
// the others nor lets the owner wait.
constexpr int kRounds = 64;

}  // namespace

Port::Port(Device& device, std::uint32_t index, std::uint32_t slots)
    : device_(device),
      call_(device.library().call()),
      index_(index),
      completions_(slots),
      endpoints_(*this, device),
      credits_(*this, device),
      outgoing_(*this, device, slots),
      incoming_(*this, device),
      transfers_(*this, device, slots) {}

base::Result<std::unique_ptr<Port>> Port::create(Device& device, std::uint32_t index) {
  const auto slots = static_cast<std::uint32_t>(device.environment().config.number(base::Var::worker_operations));
  std::unique_ptr<Port> port(new Port(device, index, slots));
  if (const base::Status status = port->open(); status != HEDDLE_DONE) return status;
  return port;
}

base::Status Port::open() {
  if (const ucs_status_t made = create_worker(call_, device_.context(), &worker_); made != UCS_OK) {
    return base::fail(HEDDLE_ERR_NO_MEMORY, "UCX gives no worker: %s", call_.status_string(made));
  }
  base::Status status = incoming_.listen();
  Bytes address;
  if (status == HEDDLE_DONE) status = find_address(call_, worker_, &address);
  if (status == HEDDLE_DONE) status = find_descriptor(call_, worker_, &descriptor_);
  if (status != HEDDLE_DONE) return status;
  const Turn turn(*this);  // the helper does not enter before all is set up
  const auto number = device_.helper().watch(*this, descriptor_);
  if (!number) return number.status();
  watch_ = *number;
  device_.directory().announce(index_, std::move(address));
  return HEDDLE_DONE;
}

Port::~Port() {
  // no worker has had it
  if (watch_ != 0 && !retired()) device_.helper().unwatch(watch_, descriptor_);
  if (worker_ != nullptr) end();
}

void Port::make_room_for(std::size_t peers) {
  credits_.make_room_for(peers);
  incoming_.make_room_for(peers);
  transfers_.make_room_for(peers);
}

// ---- the owner ----------------------------------------------------------------------------------

std::size_t Port::post_batch(std::span<Command> batch) {
  std::size_t accepted = 0;
  try {
    while (accepted < batch.size()) {
      const bool several = batch[accepted].opcode == Opcode::message && batch.size() - accepted > 1;
      const std::size_t bundled = several ? outgoing_.post_bundle(batch.subspan(accepted)) : 0;
      if (bundled == 0 && post_one(batch[accepted]) == 0) break;
      accepted += std::max<std::size_t>(bundled, 1);
    }
  } catch (const std::bad_alloc&) {  // the first use of a worker connects to it
    if (accepted == 0) throw;
  }
  return accepted;
}

std::size_t Port::poll(std::span<Completion> completions) {
  if (completions.empty()) [[unlikely]]
    return 0;
  const Turn turn(*this);
  incoming_.release_lent();
  completions_.begin(completions);
  incoming_.hand_out();
  transfers_.flush_dirty();
  // If the poll has completions already, its caller may wait for nothing more: then UCX is asked
  // only every fourth time.
  if (completions_.written() == 0 || ++skipped_ >= 4) {
    skipped_ = 0;
    ask_ucx();
  }
  transfers_.change_again();
  const std::uint32_t poll = polls() + 1;
  polls_.store(poll, std::memory_order_relaxed);
  if (has_more_to_do(poll)) [[unlikely]]
    do_more(poll);
  if (credits_.has_to_tell()) {
    if (credits_.is_due(!streams_)) credits_.tell_all();
    // This poll may be the last for long, and has taken from UCX the event that would have woken
    // the helper.
    if (quiet() && credits_.has_to_tell()) [[unlikely]]
      leaves_something();
  }
  return completions_.end();
}

// UCX's shared memory brings one message per call: while messages stream in, a poll calls it
// several times. If they come one by one, it does not try for more.
inline void Port::ask_ucx() {
  const bool streams = std::exchange(streams_, progress());
  if (!streams || !streams_) return;
  for (int round = 1; round < kMostRounds && completions_.has_room(); ++round) {
    if (call_.worker_progress(worker_) == 0) return;  // progress() has disarmed already
  }
}

// What not every poll does.
void Port::do_more(std::uint32_t poll) {
  if (credits_.owes()) credits_.send_owed();
  const bool connects = endpoints_.connecting();
  if ((poll & (kDevicePeriod - 1)) == 0 || (connects && (poll & (kConnectingPeriod - 1)) == 0)) {
    device_.progress();
    if (connects) endpoints_.advance();
    transfers_.forget_releases();
  }
  if (endpoints_.busy()) endpoints_.go_on_disconnecting();
}

[[gnu::cold]] void Port::leaves_something() {
  if (!quiet()) return;
  armed_.store(false, std::memory_order_release);
  quiet_.store(false, std::memory_order_release);
  device_.helper().wake();
}

bool Port::at_rest() const {
  return transfers_.at_rest() && outgoing_.undelivered() == 0 && completions_.empty() && !in_flight() &&
         incoming_.empty() && !credits_.owes() && !endpoints_.connecting() && !endpoints_.disconnecting();
}

bool Port::arm() {
  if (credits_.has_to_tell()) credits_.tell_all();
  if (!at_rest()) return false;
  if (armed()) return true;
  // What arrives on an interface without a connection, UCX handles only in its progress. So
  // progress must find nothing first; arming UCX before would lose such an arrival.
  if (call_.worker_progress(worker_) != 0 || !at_rest() || call_.worker_arm(worker_) != UCS_OK) return false;
  quiet_.store(true, std::memory_order_release);
  armed_.store(true, std::memory_order_release);
  device_.helper().watch_again(watch_, descriptor_);
  return true;
}

// ---- the helper ---------------------------------------------------------------------------------

Port::Served Port::serve(std::uint32_t thread) {
  if (!base::membarrier_private_ready()) return Served::not_ours;
  if (!handover_.try_claim(thread)) return Served::stuck;
  if (transfers_.has_orphans() || armed()) {
    handover_.release();
    return Served::not_ours;
  }
  bool some = true;
  for (int round = 0; round < kRounds && some; ++round) some = move_on();
  if (credits_.has_to_tell()) credits_.tell_all();
  const auto arm = [&] { return !some && call_.worker_arm(worker_) == UCS_OK; };
  bool ucx_armed = arm();
  if (!some && !ucx_armed) {  // shared memory has read a signal, and is armed by the next call
    some = move_on();
    ucx_armed = arm();
  }
  const bool waiting = in_flight() || transfers_.under_way() != 0 || credits_.owes() || endpoints_.connecting() ||
                       endpoints_.disconnecting();
  quiet_.store(ucx_armed && !waiting, std::memory_order_release);
  handover_.release();
  if (ucx_armed) return waiting ? Served::waiting : Served::quiet;
  return some ? Served::more : Served::stuck;
}

// In place of the owner: what a poll does, except that it hands out and releases no messages.
// Completions wait for the next poll. True: UCX had something.
bool Port::move_on() {
  transfers_.flush_dirty();
  const bool some = call_.worker_progress(worker_) != 0;
  transfers_.change_again();
  if (credits_.owes()) credits_.send_owed();
  if (endpoints_.connecting()) endpoints_.advance();
  if (endpoints_.disconnecting()) endpoints_.go_on_disconnecting();
  return some;
}

// ---- the end ------------------------------------------------------------------------------------

void Port::retire() {
  handover_.enter();  // for good: the helper finds its owner inside
  close();
  retired_.store(true, std::memory_order_release);
}

// UCX uses the caller's memory until the transfers have ended; peers that make no progress do not
// delay us for long.
void Port::close() {
  closed_ = true;
  incoming_.close();
  const auto drive = [this](std::uint64_t until) {
    while (transfers_.under_way() != 0 && now_ns() < until) {
      const bool some = move_on();
      device_.progress();
      completions_.forget();
      if (!some) sched_yield();
    }
  };
  drive(now_ns() + kCloseNs);
  if (transfers_.under_way() == 0) return;
  transfers_.disconnect_all();
  drive(now_ns() + kForceNs);
}

bool Port::linger() {
  if (transfers_.has_orphans()) return false;
  const bool some = move_on();
  completions_.forget();
  incoming_.drop_all();
  if (credits_.has_to_tell()) credits_.tell_all();
  // Peers must be told what has arrived, else their messages seem lost.
  return some || endpoints_.has_waiting() || credits_.owes_the_living() || in_flight();
}

void Port::end() {
  endpoints_.disconnect_all();
  const std::uint64_t until = now_ns() + kForceNs;
  while (!endpoints_.all_closed() && now_ns() < until) {
    // not move_on(): a peer that is heard only now gets no answer
    call_.worker_progress(worker_);
    endpoints_.go_on_disconnecting();
    completions_.forget();
  }
  incoming_.drop_all();
  transfers_.destroy_keys();
  call_.worker_destroy(std::exchange(worker_, nullptr));
}

}  // namespace heddle::transport::ucx
