#include "worker/watch.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdarg>
#include <cstdio>
#include <utility>

#include "base/clock.hpp"
#include "tap/probes.hpp"
#include "worker/sharing.hpp"
#include "worker/worker.hpp"

namespace heddle::worker {

void awaits(tap::Wait& wait, const char* format, ...) {
  std::array<char, tap::kMostText> text{};
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  wait.awaited = text.data();
}

Watch::Due Watch::look(bool napping) {
  // Shorter waits need no probe: the event that ends them shows.
  if ((known_ & kProbe) == 0) {
    tap::probe_wait_begin(call_, worker_ != nullptr ? worker_->index() : tap::kNobody);
    known_ |= kProbe;
  }
  if (context_.tracer() != nullptr && (known_ & kTrace) == 0) {
    note(tap::TraceEvent::wait_begin);
    known_ |= kTrace;
  }
  const Due due = look_for_others(napping);
  // The trace notes what the wait is for when it has lasted twice, four times … as long: by rounds
  // while it spins, then by naps, each of which is as long as thousands of such rounds.
  const bool again =
      (known_ & kTold) == 0 || std::has_single_bit(waited_.rounds) || (napping && std::has_single_bit(++naps_));
  if (due != Due::nothing || context_.tracer() == nullptr || !again || waited_.rounds == kRounds) return due;
  known_ |= kTold;
  return Due::note;
}

// Whether the launcher or the user is to be told.
Watch::Due Watch::look_for_others(bool napping) {
  Inspection& inspection = context_.inspection();
  const std::uint32_t worker = worker_ != nullptr ? worker_->index() : tap::kNobody;
  Due due = Due::nothing;
  // If no launcher watches, only a debugger would ask, so the wait is noted only now and then.
  const bool due_now = inspection.watched() || (known_ & kInspection) == 0 || waited_.rounds % kRounds == 0 ||
                       std::has_single_bit(waited_.rounds);
  if (napping && due_now) {
    known_ |= kInspection;
    if (inspection.note({call_, worker, nullptr, nullptr}, context_.clock().now_ns())) due = Due::answer;
  }
  if (inspection.watched() || !reports_) return due;
  // No launcher would report the wait, so it reports itself if the user has asked for that.
  const base::Config& config = context_.environment().config;
  const std::uint64_t period =
      config.is_set(base::Var::hang_seconds) ? config.number(base::Var::hang_seconds) * base::kSecondNs : 0;
  if (period == 0) return due;
  const std::uint64_t now = context_.clock().now_ns();
  if (waited_.next_ns == 0) waited_.next_ns = now + period;
  if (now < waited_.next_ns) return due;
  waited_.next_ns += period;
  ++waited_.reports;
  return Due::report;
}

void Watch::tell(Due due, tap::Wait& wait) {
  if (context_.tracer() != nullptr) note_awaited(wait);
  if (due == Due::note) return;
  due == Due::answer ? context_.inspection().answer(Inspection::From::call, std::move(wait))
                     : report(wait.awaited.c_str());
}

[[gnu::cold]] void Watch::note(tap::TraceEvent event) {
  tap::TraceRecord record{};
  record.id = context_.tracer()->name(call_);
  record.worker = static_cast<std::uint8_t>(worker_ != nullptr ? worker_->index() : tap::kNoTraceWorker);
  record.event = event;
  context_.tracer()->note_wait(record);
}

[[gnu::cold]] void Watch::note_awaited(const tap::Wait& wait) {
  tap::TraceRecord record{};
  record.worker = static_cast<std::uint8_t>(worker_ != nullptr ? worker_->index() : tap::kNoTraceWorker);
  record.event = tap::TraceEvent::awaited;
  record.rank = tap::kAnyRank;
  record.peer = tap::kNoTraceWorker;
  static_assert(static_cast<unsigned>(tap::kLastCause) < 16);
  if (wait.step) {
    record.detail = static_cast<unsigned>(tap::Cause::collective) & 0xFU;
    record.id = wait.step->team;
    record.bytes = wait.step->number;
    context_.tracer()->note(record);
  }
  constexpr std::size_t kMostThings = 4;
  for (std::size_t i = 0; i < std::min(wait.things.size(), kMostThings); ++i) {
    const tap::Awaited& thing = wait.things[i];
    record.detail = static_cast<unsigned>(thing.cause) & 0xFU;
    record.rank = thing.rank;
    record.peer = static_cast<std::uint8_t>(std::min<std::uint32_t>(thing.worker, tap::kNoTraceWorker));
    record.id = 0;
    record.bytes = thing.bytes;
    context_.tracer()->note(record);
  }
}

void Watch::end() {
  tap::probe_wait_end(call_, worker_ != nullptr ? worker_->index() : tap::kNobody);
  if ((known_ & kTrace) != 0) note(tap::TraceEvent::wait_end);
  if ((known_ & kInspection) == 0) return;
  context_.inspection().end(resumes_, context_.clock().now_ns());
}

void Watch::report(const char* awaited) {
  const base::Log& log = context_.environment().log;
  const auto seconds =
      static_cast<unsigned long long>(waited_.reports * context_.environment().config.number(base::Var::hang_seconds));
  const char* colon = awaited[0] == '\0' ? "" : ": ";
  if (worker_ == nullptr) {
    log.say("%s has waited %llu s%s%s", call_, seconds, colon, awaited);
  } else {
    const Mode& mode = *mode_numbered(static_cast<std::uint32_t>(worker_->sharing()));
    log.say("%s has waited %llu s on worker %u (%s: %s)%s%s", call_, seconds, worker_->index(), mode.name,
            mode.moved_by, colon, awaited);
  }
  if (scope_ == Scope::all) {
    context_.report_operations();
  } else if (worker_ != nullptr) {
    worker::report_operations(*worker_);
  }
}

// ---- ToldWait -----------------------------------------------------------------------------------

void ToldWait::say(void* self, heddle_wait_facts* facts) {
  const Facts& told = static_cast<const ToldWait*>(self)->facts_;
  facts->call = told.call;
  told.tell(told.arg, facts);
}

Inspection::Waiting ToldWait::waiting() {
  return {nullptr, worker_ != nullptr ? worker_->index() : tap::kNobody, &say, this};
}

void ToldWait::note_now() {
  noted_ = true;
  Inspection& inspection = context_.inspection();
  if (inspection.note(waiting(), context_.clock().now_ns())) inspection.answer(Inspection::From::program, {});
}

void ToldWait::end() {
  context_.inspection().end_noted(this);
}

void ToldWait::describe(tap::Wait& wait) {
  if (tells()) wait = Inspection::told(waiting());
}

}  // namespace heddle::worker
