#include "transport/network/port.hpp"

#include <sched.h>

#include <utility>

#include "base/fence.hpp"
#include "transport/network/device.hpp"

namespace heddle::transport::network {
namespace {

// How long transfers may take to end when their worker is closed; then peers are told that it is,
// and as long again afterwards their connections are closed. A peer that finds its connection gone,
// and does not know why, takes the rank for lost.
constexpr std::uint64_t kCloseNs = 250'000'000;
constexpr std::uint64_t kForceNs = 5'000'000'000;
// Rounds of progress in one visit of the helper, so that a busy port neither keeps the helper from
// the others nor lets the owner wait.
constexpr int kRounds = 64;

}  // namespace

Port::Port(Device& device, std::uint32_t index, std::uint32_t slots)
    : device_(device), index_(index), completions_(slots), peers_(*this, device) {}

std::uint64_t Port::now_ns() const {
  return device_.environment().clock->now_ns();
}

base::Status Port::watch(int descriptor) {
  const auto number = device_.helper().watch(*this, descriptor);
  if (!number) return number.status();
  descriptor_ = descriptor;
  watch_ = *number;
  return HEDDLE_DONE;
}

void Port::unwatch() {
  if (watch_ == 0 || retired()) return;
  device_.helper().unwatch(watch_, descriptor_);
  watch_ = 0;
}

// ---- the owner ----------------------------------------------------------------------------------

[[gnu::cold]] void Port::leaves_something() {
  if (!quiet()) return;
  armed_.store(false, std::memory_order_release);
  quiet_.store(false, std::memory_order_release);
  device_.helper().wake();
}

bool Port::at_rest() const {
  return transfers_at_rest() && completions_.empty() && !in_flight() && messages_at_rest() && !owes() &&
         !peers_.connecting() && !disconnecting();
}

bool Port::arm() {
  ask_if_due();
  tell_all();
  if (!at_rest()) return false;
  if (armed()) return true;
  // UCX handles arrivals on an interface without a connection only in its progress. So progress
  // must find nothing first: if UCX were armed before, such an arrival would be lost.
  if (progress_library() || !at_rest() || !arm_library()) return false;
  quiet_.store(true, std::memory_order_release);
  armed_.store(true, std::memory_order_release);
  if (watch_ != 0) device_.helper().watch_again(watch_, descriptor_);
  return true;
}

void Port::peer_failed(std::uint32_t rank) {
  if (!peers_.note_failed(rank)) return;
  for (const auto& peer : peers_.all()) {
    if (peer->rank != rank) continue;
    if (peer->stage == Peer::Stage::broken) peer->status = HEDDLE_ERR_PEER_FAILED;
    disconnect_failed(*peer);
  }
}

void Port::log_lost(const Peer& peer, const char* why) const {
  const bool known = peers_.failed(peer.rank) || device_.failed(peer.rank);
  device_.log().line(known ? base::Level::debug : base::Level::info, "worker %u has lost worker %u of rank %u: %s",
                     index_, peer.worker, peer.rank, why);
}

// ---- the helper ---------------------------------------------------------------------------------

Port::Served Port::serve(std::uint32_t thread) {
  if (!base::membarrier_private_ready()) return Served::not_ours;
  if (!handover_.try_claim(thread)) return Served::stuck;
  if (owners_only() || armed()) {
    handover_.release();
    return Served::not_ours;
  }
  bool some = true;
  for (int round = 0; round < kRounds && some; ++round) some = move_on();
  tell_all();
  bool is_armed = !some && arm_library();
  if (!some && !is_armed) {  // shared memory has read a signal, and is armed by the next call
    some = move_on();
    is_armed = !some && arm_library();
  }
  const bool waiting =
      in_flight() || transfers_under_way() || owes() || peers_.connecting() || disconnecting() || has_mail();
  quiet_.store(is_armed && !waiting, std::memory_order_release);
  handover_.release();
  if (is_armed) return waiting ? Served::waiting : Served::quiet;
  return some ? Served::more : Served::stuck;
}

// ---- the end ------------------------------------------------------------------------------------

void Port::retire() {
  handover_.enter();  // for good: the helper finds its owner inside
  close();
  retired_at_ns_ = now_ns();
  retired_.store(true, std::memory_order_release);
}

// The library uses the caller's memory until the transfers have ended; peers that make no progress
// do not delay us for long.
void Port::close() {
  closed_ = true;
  stop_taking();
  static_cast<void>(move_on());  // gathered messages leave
  const auto drive = [this](std::uint64_t until) {
    while (transfers_under_way() && now_ns() < until) {
      const bool some = move_on();
      device_.progress();
      completions_.forget();
      if (!some) sched_yield();
    }
  };
  drive(now_ns() + kCloseNs);
  if (!transfers_under_way()) return;
  device_.announce_closed(*this);
  drive(now_ns() + kCloseNs);
  if (!transfers_under_way()) return;
  disconnect_transfers();
  drive(now_ns() + kForceNs);
}

bool Port::linger() {
  if (owners_only()) return false;
  const bool some = move_on();
  completions_.forget();
  const bool owes_some = drop_arrivals();
  return some || peers_.has_waiting() || owes_some || in_flight();
}

}  // namespace heddle::transport::network
