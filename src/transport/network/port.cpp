#include "transport/network/port.hpp"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "base/membarrier.hpp"
#include "transport/network/device.hpp"

namespace heddle::transport::network {
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
      index_(index),
      completions_(slots),
      peers_(*this, device),
      credits_(*this, device.losses(), device.window()),
      undelivered_(completions_, slots),
      incoming_(*this, device, completions_) {}

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
  return transfers_at_rest() && undelivered_.count() == 0 && completions_.empty() && !in_flight() &&
         incoming_.empty() && !credits_.owes() && !peers_.connecting() && !disconnecting();
}

bool Port::arm() {
  ask_if_due();
  if (credits_.has_to_tell()) credits_.tell_all();
  if (!at_rest()) return false;
  if (armed()) return true;
  // What arrives on an interface without a connection, UCX handles only in its progress. So
  // progress must find nothing first; arming UCX before would lose such an arrival.
  if (progress_library() || !at_rest() || !arm_library()) return false;
  quiet_.store(true, std::memory_order_release);
  armed_.store(true, std::memory_order_release);
  if (watch_ != 0) device_.helper().watch_again(watch_, descriptor_);
  return true;
}

void Port::peer_failed(std::uint32_t rank) {
  if (peers_.note_failed(rank)) disconnect_rank(rank);
}

// A peer that has consumed all that was sent to it has nothing to tell. One that has not may have
// told so, or may not have got all: the library may lose both without a word when a connection
// breaks and is made anew. It may lose a question likewise, so that is asked until something comes.
[[gnu::cold]] void Port::ask_silent() {
  const bool each = asks_each_round();
  const bool all = asks_all_.exchange(false, std::memory_order_relaxed) || each;
  bool some_left = false;
  for (const auto& peer : peers_.all()) {
    const bool owed = std::exchange(peer->owes_news, peer->ready() && peer->acked != peer->next.position);
    const bool old = peer->seen_acked == peer->acked && peer->seen_delivered == peer->delivered;
    peer->seen_acked = peer->acked;
    peer->seen_delivered = peer->delivered;
    peer->unanswered = peer->ready() && peer->unanswered && peer->seen_arrived == peer->next.arrived;
    peer->to_be_asked =
        peer->ready() && (peer->to_be_asked || peer->unanswered || all || (owed && old && peer->owes_news));
    if (peer->to_be_asked) {
      const Asked asked = ask(*peer);
      peer->to_be_asked = asked == Asked::later;
      peer->unanswered = asked == Asked::asked;
      peer->seen_arrived = peer->next.arrived;
    }
    some_left |= peer->to_be_asked || peer->unanswered || (each && peer->ready());
  }
  has_questions_.store(some_left, std::memory_order_relaxed);
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
  if (credits_.has_to_tell()) credits_.tell_all();
  bool is_armed = !some && arm_library();
  if (!some && !is_armed) {  // shared memory has read a signal, and is armed by the next call
    some = move_on();
    is_armed = !some && arm_library();
  }
  const bool waiting =
      in_flight() || transfers_under_way() || credits_.owes() || peers_.connecting() || disconnecting() || has_mail();
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
  incoming_.close();
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
  disconnect_transfers();
  drive(now_ns() + kForceNs);
}

bool Port::all_arrived() const {
  return undelivered_.count() == 0 || std::ranges::none_of(peers_.all(), [this](const auto& peer) {
           return !peer->undelivered.empty() && !device_.failed(peer->rank) &&
                  !device_.directory().known_closed(peer->rank, peer->worker);
         });
}

bool Port::linger() {
  if (owners_only()) return false;
  const bool some = move_on();
  completions_.forget();
  incoming_.drop_all();
  if (credits_.has_to_tell()) credits_.tell_all();
  // Peers must be told what has arrived, else their messages seem lost.
  return some || peers_.has_waiting() || credits_.owes_the_living() || in_flight();
}

}  // namespace heddle::transport::network
