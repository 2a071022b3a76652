// How a PE waits: it polls the word, makes progress now and then, yields its core when the wait
// takes long, and sleeps when it takes longer still. The policy is the engine's (decision 0017),
// applied to words that other processes store to directly: such a store wakes no thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "openshmem/state.hpp"

namespace heddle::shmem {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif
#else
inline constexpr bool kThreadSanitizer = false;
#endif

// All earlier stores become visible before any later store: shmem_fence. Free on x86.
inline void store_fence() {
  if constexpr (kThreadSanitizer) {
    static std::atomic<int> word{0};
    word.fetch_add(1, std::memory_order_acq_rel);
  } else {
    std::atomic_thread_fence(std::memory_order_release);
  }
}

// All earlier loads and stores are visible to all before any later load or store: shmem_quiet.
inline void full_fence() {
  if constexpr (kThreadSanitizer) {
    static std::atomic<int> word{0};
    word.fetch_add(1, std::memory_order_seq_cst);
  } else {
#if defined(__x86_64__)
    // cheaper than mfence, with the same order for normal memory
    asm volatile("lock; orl $0, -8(%%rsp)" ::: "memory", "cc");
#else
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
  }
}

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // NOLINT: `yield` is a no-op on the cores that matter; isb really pauses
#endif
}

// What the death of a PE means to PEs that wait for a word in memory, where no operation ends with
// an error. OpenSHMEM's functions return no errors either. So the job ends, with a message that
// names the dead PE and what was waited for. A wait for one PE (in a collective, or for a lock that
// it holds) is in vain once that PE has died. A word may be written by any PE, so nobody knows
// whether the wait is in vain. But a death ends the job, so by default the death of any PE ends
// such a wait too. SHMEM_DEATHS=ignore lets it go on.
//
// The engine reports deaths under any launcher.

// Reads SHMEM_DEATHS; ends the job if it is none of its values.
void read_deaths(Call call);

// Whether a PE is known to have died. Each call looks at some of the PEs, other ones than the last
// call.
bool sees_death();
bool has_died(int pe);
// For a test that fails, and may be one of many in a loop: true if a PE had died a while ago.
bool sees_death_in_tests();

// An operation has ended with PEER_FAILED. Ends the job. `pe`: the PE that it was for; -1: not
// known. A network reports a death before the launcher does, so the launcher's report is awaited
// for a moment.
[[noreturn, gnu::cold]] void fail_by_death(Call call, int pe);

// To be called once a death is seen, and what that PE did before has arrived. Ends the job if the
// wait is in vain. `tell` says what the wait is for, as for heddle_wait_note. `dead`: a dead PE
// without which the wait cannot end; -1: none, or not known.
[[gnu::cold]] void end_if_in_vain(Call call, heddle_tell_wait tell, void* arg, int dead);

// Sets what the waits of this process assume about its cores: whether another thread usually runs
// on a core after a yield. The waits update it. It is a hint, which may be wrong for a while and
// whose updates may be lost; any thread may change it. Before the first wait: how many PEs share
// how many cores, as far as known.
void expect_crowd(std::uint32_t pes, std::uint32_t cores);

// One per wait. Call pause() after each poll that found nothing. True: it has napped, or made
// progress for long. Then the wait is to be noted with the engine (heddle_wait_note), for reports
// about jobs that hang, and deaths are to be looked for.
class PollPatience {
 public:
  explicit PollPatience(heddle_worker worker) : worker_(worker), spins_(first_spins()) {}

  [[nodiscard]] bool pause() {
    // The answer is usually one cache transfer away: poll again at once, since a call of the engine
    // takes longer than that.
    if (++looks_ < spins_) {
      if (looks_ > kFree) cpu_relax();
      return false;
    }
    return give_way();
  }

 private:
  static constexpr std::uint32_t kFree = 128;
  static std::uint32_t first_spins();
  bool give_way();

  heddle_worker worker_;
  std::uint32_t spins_;
  std::uint32_t looks_ = 0;
  std::uint32_t moves_ = 0;     // rounds of progress that have moved something
  std::uint64_t since_ns_ = 0;  // time of the first yield since the last progress; 0: none
};

// The description of a wait that the engine gets when it asks: describe(facts).
template <class Describe>
struct Noted {
  Call call;
  const Describe& describe;
  static void tell(void* self, heddle_wait_facts* facts) {
    const auto& noted = *static_cast<const Noted*>(self);
    facts->call = noted.call;
    noted.describe(*facts);
  }
};

// All that dead PEs wrote before their death has arrived, as far as it will, and so has all that
// living PEs wrote up to now.
void take_what_came(heddle_worker worker);

// For a wait that any PE may end.
struct Anybody {
  int operator()() const { return -1; }
};

// describe(facts): sets what the wait is for, except the call. dead(): a dead PE without which the
// wait cannot end; -1: none.
template <class Ready, class Describe, class Dead = Anybody>
inline void wait_until_true(Call call, heddle_worker worker, const Ready& ready, const Describe& describe,
                            const Dead& dead = {}) {
  if (ready()) return;
  Noted<Describe> noted{call, describe};
  bool told = false;
  PollPatience patience(worker);
  do {
    if (!patience.pause()) [[likely]]
      continue;
    told = heddle_wait_note(worker, &Noted<Describe>::tell, &noted) == HEDDLE_DONE;
    if (!sees_death()) continue;
    take_what_came(worker);
    if (ready()) break;
    const int who = dead();
    // It may have done what is waited for between the look and its death.
    if (who >= 0) {
      if (ready()) break;
      if (dead() != who) continue;
    }
    end_if_in_vain(call, &Noted<Describe>::tell, &noted, who);
  } while (!ready());
  if (told) [[unlikely]]
    static_cast<void>(heddle_wait_end(worker, &noted));
}

// Called after a test that has failed. Makes progress, so that a program which only tests does not
// stall its peers, and looks for deaths now and then. describe(facts), dead(): as for a wait.
template <class Describe, class Dead = Anybody>
inline void failed_test(Call call, const Describe& describe, const Dead& dead = {}) {
  heddle_worker_progress(default_context().worker);
  if (!sees_death_in_tests()) [[likely]]
    return;
  Noted<Describe> noted{call, describe};
  end_if_in_vain(call, &Noted<Describe>::tell, &noted, dead());
}

// Whether the condition becomes true within a second: for events that are sure to come, but late.
bool comes_true(const std::function<bool()>& condition);

// For describe().
[[gnu::cold, gnu::format(printf, 2, 3)]] void awaits(heddle_wait_facts& facts, const char* format, ...);

}  // namespace heddle::shmem
