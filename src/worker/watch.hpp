// Waits of blocking calls that last long: each is entered with the context's inspection, and
// answers it. Where no launcher watches the job, the wait reports itself (HEDDLE_HANG_SECONDS). It
// costs nothing while things move: only waits that have been in vain for a while read the clock
// from time to time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "engine/handlers.hpp"
#include "heddle/heddle.h"
#include "tap/snapshot.hpp"
#include "tap/trace_file.hpp"
#include "worker/inspection.hpp"

namespace heddle::worker {

class Context;
class Worker;

// The call of threads that serve.
inline constexpr const char kServes[] = "heddle_run_tasks";

// Which thread waits, and for how long at most.
struct WaitCall {
  const char* call;
  std::int64_t timeout_ns = HEDDLE_FOREVER;
  bool rings = false;  // only progress on the worker ends the wait, and what comes for that rings
};

// One wait. Any thread may have one; each is used by one thread.
class Watch {
 public:
  enum class Scope { own, all };  // which workers' operations are reported
  // How long it has waited: kept by one wait that is made of several calls.
  struct Waited {
    std::uint32_t rounds = 0;
    std::uint64_t next_ns = 0;  // of the next report; 0: the clock was not read yet
    std::uint64_t reports = 0;
  };
  // `worker`: on which it waits; null: on none, or on all.
  Watch(Context& context, Worker* worker, const char* call, Scope scope = Scope::own)
      : context_(context), worker_(worker), call_(call), scope_(scope) {}
  Watch(Context& context, Worker* worker, const char* call, const Waited& before)
      : context_(context), worker_(worker), call_(call), scope_(Scope::own), waited_(before) {}
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch() {
    if (known_ != kNobody) [[unlikely]]
      end();
  }
  // The thread does something else now, and may go on to wait.
  void interrupt() {
    if (known_ == kNobody) [[likely]]
      return;
    end();
    known_ = kNobody;
  }
  [[nodiscard]] const Waited& waited() const { return waited_; }
  // False: the wait is reported by its ToldWait.
  void set_reports(bool reports) { reports_ = reports; }
  // The wait is about to return, and the program may go on with it.
  void may_resume() { resumes_ = true; }

  // After each fruitless or fruitful round. describe(wait): sets what is awaited. `napping`: rounds
  // are as long as naps now, a tenth of a second at most, and each looks at the clock.
  template <class Describe>
  void round(Describe&& describe, bool napping) {
    if (++waited_.rounds % kRounds != 0 && !napping) [[likely]]
      return;
    const Due due = look(napping);
    if (due == Due::nothing) return;
    tap::Wait wait;
    try {
      describe(wait);
    } catch (...) {
      wait = {};  // no memory: the wait is reported without it
    }
    tell(due, wait);
  }

 private:
  static constexpr std::uint32_t kRounds = 64;  // a look at the clock costs a fraction of them
  enum class Due : std::uint8_t { nothing, answer, report, note };
  [[nodiscard]] Due look(bool napping);
  [[nodiscard]] Due look_for_others(bool napping);
  void tell(Due due, tap::Wait& wait);
  void report(const char* awaited);
  void end();
  void note(tap::TraceEvent event);
  void note_awaited(const tap::Wait& wait);

  Context& context_;
  Worker* worker_;
  const char* call_;
  Scope scope_;
  // Parties that know of the wait, and so are told when it ends.
  static constexpr std::uint8_t kNobody = 0;
  static constexpr std::uint8_t kInspection = 1;
  static constexpr std::uint8_t kTrace = 2;
  static constexpr std::uint8_t kTold = 4;  // also what is waited for
  static constexpr std::uint8_t kProbe = 8;
  std::uint8_t known_ = kNobody;
  bool resumes_ = false;
  bool reports_ = true;
  std::uint32_t naps_ = 0;  // of a traced wait
  Waited waited_;
};

// A wait of which a library on top of Heddle tells what it is for, as by heddle_wait_note. Used by
// the thread that waits.
class ToldWait {
 public:
  struct Facts {
    const char* call;       // in reports; `tell` may name another
    heddle_tell_wait tell;  // null: nothing is told
    void* arg;
  };
  // `worker`: on which it waits; null: on none, or on all.
  ToldWait(Context& context, const Worker* worker, const Facts& facts)
      : context_(context), worker_(worker), facts_(facts) {}
  ToldWait(const ToldWait&) = delete;
  ToldWait& operator=(const ToldWait&) = delete;
  ~ToldWait() {
    if (noted_) [[unlikely]]
      end();
  }
  [[nodiscard]] bool tells() const { return facts_.tell != nullptr; }
  // Inspection::speaks()
  [[nodiscard]] bool speaks() { return Inspection::speaks(waiting()); }
  // In each round that rests.
  void note() {
    if (tells()) note_now();
  }
  // For Watch::round(). May throw std::bad_alloc.
  void describe(tap::Wait& wait);

 private:
  static void say(void* self, heddle_wait_facts* facts);
  [[nodiscard]] Inspection::Waiting waiting();
  void note_now();
  void end();

  Context& context_;
  const Worker* const worker_;
  const Facts facts_;
  bool noted_ = false;
};

// For waits that have no more to say than the operations of the worker.
inline constexpr auto kNothingMore = [](tap::Wait&) {};

// printf into wait.awaited. May throw std::bad_alloc.
[[gnu::cold, gnu::format(printf, 2, 3)]] void awaits(tap::Wait& wait, const char* format, ...);

// Measures for how long nothing has moved. heddle_context_leave stops waiting by it.
//
// For one thread. Events that keep coming prolong the wait, for kProlongedNs at most: peers that go
// on with each other must not hold up a rank that waits for something else.
class Stillness {
 public:
  static constexpr std::int64_t kProlongedNs = 300'000'000'000;
  static constexpr std::uint32_t kRounds = 64;  // without an event, between looks at the clock

  Stillness(std::int64_t ns, base::Clock& clock) : ns_(ns), prolongs_(kProlongedNs, clock), still_(ns, clock) {}

  // Call it after each round of progress. True: nothing has moved for `ns`; or events have
  // prolonged the wait for kProlongedNs, and another `ns` has passed. `napping`: the caller sleeps
  // between rounds, so that the clock costs nothing beside it.
  [[nodiscard]] bool over(bool moved, bool napping) {
    if (!moved && ++rounds_ % kRounds != 0 && !napping && ns_ > 0) return false;
    const bool prolonged = !prolongs_.over() && moved;
    if (prolonged) still_.renew();
    return still_.over() && !prolonged;
  }
  // Begins anew.
  void renew() {
    prolongs_.renew();
    still_.renew();
  }

 private:
  const std::int64_t ns_;
  base::Timeout prolongs_;
  base::Timeout still_;
  std::uint32_t rounds_ = 0;
};

}  // namespace heddle::worker
