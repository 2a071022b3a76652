// How a PE waits: it polls the word, makes progress now and then, yields its core when the wait
// takes long, and sleeps when it takes longer still. The policy is the engine's (decision 0017),
// applied to words that other processes store to directly: such a store wakes no thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "openshmem/order.hpp"
#include "openshmem/state.hpp"

namespace heddle::shmem {

// Sets what the waits of this process assume about its cores: whether another thread usually runs
// on a core after a yield. The waits update it. It is a hint, which may be wrong for a while and
// whose updates may be lost; any thread may change it. Before the first wait: how many PEs share
// how many cores, as far as known.
void expect_crowd(std::uint32_t pes, std::uint32_t cores);

// A wait is reported after this many seconds, and again after each further interval of that length;
// 0: never (HEDDLE_HANG_SECONDS).
void report_waits_after(std::uint64_t seconds);

// One per wait. Call pause() after each poll that found nothing. True: report the wait now.
class Patience {
 public:
  explicit Patience(heddle_worker worker) : worker_(worker), spins_(first_spins()) {}

  [[nodiscard]] bool pause() {
    // The answer is usually one cache transfer away: poll again at once, since a call of the engine
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
  std::uint64_t since_ns_ = 0;  // time of the first yield since the last progress; 0: none
  std::uint64_t began_ns_ = 0;  // time of the first check whether a report is due; 0: none
};

// `awaited`: what the wait is for; a clause for the message.
[[gnu::cold]] void report_wait(Call call, std::uint64_t seconds, const char* awaited);
inline constexpr std::size_t kAwaitedText = 160;

// describe(text) writes what the wait is for, at most kAwaitedText characters.
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
