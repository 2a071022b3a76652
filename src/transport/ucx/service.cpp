// What the helper does for a rank whose threads do not poll, and how workers are armed for sleeping.
#include "base/membarrier.hpp"
#include "transport/ucx/station.hpp"

namespace heddle::transport::ucx {
namespace {

// Rounds of progress in one visit, so that one that is busy does not keep the helper from the others, nor its owner waiting.
constexpr int kRounds = 64;

}  // namespace

// ---- the home -------------------------------------------------------------------------------------------------------------

Home::Served Home::serve() {
  const std::lock_guard lock(mutex_);
  Served served;
  bool some = true;
  for (int round = 0; round < kRounds && some; ++round) {
    some = work();
    if (!closed_.empty()) some = linger() || some;
  }
  served.learned = std::exchange(learned_, false);
  served.moving = some || sending_ != 0 || !talking_.empty() || !closing_.empty() || !arm_all();
  return served;
}

// False: something is there.
bool Home::arm_all() {
  if (call_.worker_arm(worker_) != UCS_OK) return false;
  for (const auto& station : closed_) {
    if (station->has_orphans()) continue;  // nobody moves it on any more
    if (call_.worker_arm(station->worker()) != UCS_OK) return false;
  }
  return true;
}

// ---- a station ------------------------------------------------------------------------------------------------------------

base::Status Station::be_watched() {
  if (const ucs_status_t status = call_.worker_get_efd(worker_, &descriptor_); status != UCS_OK) {
    return base::fail(HEDDLE_ERR_SYSTEM, "UCX gives no descriptor to sleep on: %s", call_.status_string(status));
  }
  const auto number = home_.helper().watch(*this, descriptor_);
  if (!number) return number.status();
  watch_ = *number;
  return HEDDLE_DONE;
}

Station::Served Station::serve(std::uint32_t thread) {
  if (!base::membarrier_private_ready()) return Served::never;
  if (!handover_.try_claim(thread)) return Served::stuck;
  if (has_orphans()) {
    handover_.release();
    return Served::never;
  }
  if (armed()) {  // its owner has come and gone to sleep: what is taken from UCX now would wake nobody
    handover_.release();
    return Served::watched;
  }
  room_ = 0;
  bool some = true;
  for (int round = 0; round < kRounds && some; ++round) some = move_on();
  if (!telling_.empty()) tell_all();
  bool ucx_armed = !some && call_.worker_arm(worker_) == UCS_OK;
  if (!some && !ucx_armed) {  // shared memory has read a signal, and is armed by the next call
    some = move_on();
    ucx_armed = !some && call_.worker_arm(worker_) == UCS_OK;
  }
  const bool waiting = packets_out_ + credits_out_ + under_way_ != 0 || !owing_.empty() || !connecting_.empty() ||
                       !dying_.empty() || !closing_.empty();
  quiet_.store(ucx_armed && !waiting, std::memory_order_release);
  handover_.release();
  if (ucx_armed) return waiting ? Served::waiting : Served::quiet;
  return some ? Served::more : Served::stuck;
}

// What a poll does, but for what it hands out and takes back. What has ended waits in the backlog. True: UCX had something.
bool Station::move_on() {
  if (!dirty_.empty()) flush_dirty();
  const bool some = call_.worker_progress(worker_) != 0;
  if (!changing_.empty()) change_again();
  if (!owing_.empty()) send_credits();
  if (!connecting_.empty()) advance_connecting();
  if (!to_break_.empty() || !dying_.empty() || !closing_.empty()) close_broken();
  return some;
}

// UCX keeps a message, whose shared memory does not tell when the peer has room again; or the home has something to ask.
[[gnu::cold]] void Station::leaves_something() {
  if (!quiet()) return;
  armed_.store(false, std::memory_order_release);
  quiet_.store(false, std::memory_order_release);
  home_.helper().wake();
}

bool Station::at_rest() const {
  return under_way_ + undelivered_ == 0 && backlog_count_ == 0 && packets_out_ + credits_out_ == 0 && ready_.empty() &&
         lending_.empty() && owing_.empty() && dirty_.empty() && changing_.empty() && connecting_.empty() &&
         to_break_.empty() && dying_.empty() && closing_.empty();
}

bool Station::arm() {
  if (!telling_.empty()) tell_all();
  room_ = 0;
  if (!at_rest()) return false;
  if (armed()) return true;
  // What UCX has found where no connection was yet it looks at in its progress, until that finds nothing; arming it before would lose it.
  if (call_.worker_progress(worker_) != 0 || !at_rest() || call_.worker_arm(worker_) != UCS_OK) return false;
  quiet_.store(true, std::memory_order_release);
  armed_.store(true, std::memory_order_release);
  home_.helper().watch_again(watch_, descriptor_);
  return true;
}

void Station::retire() {
  handover_.enter();  // for good: the helper finds its owner inside
  close();
  retired_.store(true, std::memory_order_release);
}

}  // namespace heddle::transport::ucx
