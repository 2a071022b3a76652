// How a PE waits: it looks, moves the engine now and then, gives its core away when that takes
// long, and sleeps when it takes longer still. The policy is the engine's (decision 0017), for
// words that other processes store to directly: those wake nobody.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "openshmem/order.hpp"
#include "openshmem/state.hpp"

namespace heddle::shmem {

// What the waits of this process have learned about its cores: whether who gives one away finds
// somebody else on it. A hint, which may be wrong for a while and whose updates may be lost; any
// thread. Before anybody has waited: whether there are more PEs than cores.
void expect_crowd(bool crowded);

// A wait that lasts so many seconds is reported, and again after as many more; 0: never
// (HEDDLE_HANG_SECONDS).
void report_waits_after(std::uint64_t seconds);

// One per wait. Call pause() after each look that found nothing. True: the wait is to be reported
// now.
class Patience {
 public:
  explicit Patience(heddle_worker worker) : worker_(worker), spins_(first_spins()) {}

  [[nodiscard]] bool pause() {
    // The answer is mostly one cache transfer away: look again at once, since a call of the engine
    // takes longer than that.
    if (++looks_ < spins_) {
      if (looks_ > kFree) cpu_relax();
      return false;
    }
    return give_way();
  }
  [[nodiscard]] std::uint64_t seconds() const;

 private:
  static constexpr std::uint32_t kFree = 128;
  static std::uint32_t first_spins();
  bool give_way();
  bool due(std::uint64_t now);

  heddle_worker worker_;
  std::uint32_t spins_;
  std::uint32_t looks_ = 0;
  std::uint32_t reports_ = 0;
  std::uint64_t since_ns_ = 0;  // when it first gave way; 0: not since something happened
  std::uint64_t began_ns_ = 0;  // when it was first asked whether a report is due; 0: not yet
};

// `awaited`: what the wait is for, as a clause.
[[gnu::cold]] void report_wait(Call call, std::uint64_t seconds, const char* awaited);
inline constexpr std::size_t kAwaitedText = 160;

// describe(text): for the report, into kAwaitedText characters.
template <class Ready, class Describe>
inline void wait_until_true(Call call, heddle_worker worker, const Ready& ready, const Describe& describe) {
  if (ready()) return;
  Patience patience(worker);
  do {
    if (patience.pause()) [[unlikely]] {
      char text[kAwaitedText] = "";
      describe(text);
      report_wait(call, patience.seconds(), text);
    }
  } while (!ready());
}

}  // namespace heddle::shmem
