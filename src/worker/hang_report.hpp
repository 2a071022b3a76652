// Reports waits of blocking calls that last too long (HEDDLE_HANG_SECONDS).
//
// A report says which call waits on what, each operation of the worker that is not finished with
// the stage it is in, and who should move it on: this thread, the executor, or a thread of a peer.
// It costs nothing while things move: the clock is read from time to time by those who have waited
// in vain for a while.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.hpp"
#include "engine/inside.hpp"
#include "heddle/heddle.h"

namespace heddle::engine {

class Context;
class Worker;

// Whose wait, and how long at most.
struct Wait {
  const char* call;
  std::int64_t timeout_ns = HEDDLE_FOREVER;
};

// One wait. Any thread; for one thread.
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
  [[nodiscard]] const Waited& waited() const { return waited_; }

  // After each fruitless or fruitful round. describe(text): what is awaited, as a clause, into
  // text. `napping`: rounds are as long as naps now, a tenth of a second at most, and each looks at
  // the clock.
  template <class Describe>
  void round(Describe&& describe, bool napping) {
    if ((++waited_.rounds % kRounds == 0 || napping) && due()) [[unlikely]] {
      char text[kText] = "";
      describe(std::span(text));
      report(text);
    }
  }

  static constexpr std::size_t kText = 256;

 private:
  static constexpr std::uint32_t kRounds = 64;  // a look at the clock costs a fraction of them
  [[nodiscard]] bool due();
  void report(const char* awaited);

  Context& context_;
  Worker* worker_;
  const char* call_;
  Scope scope_;
  Waited waited_;
};

// For waits that have no more to say than the operations of the worker.
inline constexpr auto kNothingMore = [](std::span<char>) {};

}  // namespace heddle::engine
