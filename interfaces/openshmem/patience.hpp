// How a PE waits: it looks a few times, and then waits as the engine's calls do
// (heddle_worker_wait_for), which spin, yield and sleep. A word that another process stores to
// wakes no thread: it is noticed after the sleep, a sixteenth of the time waited late at most.
// Messages end the sleep.
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

// For a wait that any PE may end.
struct Anybody {
  int operator()() const { return -1; }
};

// A condition that a call waits for, without its types.
struct WaitSubject {
  Call call;
  bool (*ready)(const void* arg);
  heddle_tell_wait tell;
  int (*dead)(const void* arg);
  void* arg;
};
// Waits as the engine's calls do, reports included, and ends the job once a death has made the wait
// vain.
void await(heddle_worker worker, const WaitSubject& awaited);

// Looks before the engine is called, which takes longer than one: the answer is usually one cache
// transfer away. More looks gain nothing where cores are free, and delay the yield where they are
// shared.
inline constexpr int kFirstLooks = 32;

// describe(facts): sets what the wait is for, except the call. dead(): a dead PE without which the
// wait cannot end; -1: none.
template <class Ready, class Describe, class Dead = Anybody>
inline void wait_until_true(Call call, heddle_worker worker, const Ready& ready, const Describe& describe,
                            const Dead& dead = {}) {
  for (int i = 0; i < kFirstLooks; ++i)
    if (ready()) return;
  struct Condition {
    const Ready& is_true;
    const Describe& describe;
    const Dead& who;
    static bool ready(const void* self) { return static_cast<const Condition*>(self)->is_true(); }
    static void tell(void* self, heddle_wait_facts* facts) { static_cast<const Condition*>(self)->describe(*facts); }
    static int dead(const void* self) { return static_cast<const Condition*>(self)->who(); }
  };
  Condition condition{ready, describe, dead};
  await(worker, {call, &Condition::ready, &Condition::tell, &Condition::dead, &condition});
}

// Called after a test that has failed. Makes progress, so that a program which only tests does not
// stall its peers, and looks for deaths now and then. describe(facts), dead(): as for a wait.
template <class Describe, class Dead = Anybody>
inline void failed_test(Call call, const Describe& describe, const Dead& dead = {}) {
  heddle_worker_progress(default_context().worker);
  if (!sees_death_in_tests()) [[likely]]
    return;
  const auto tell = [](void* told, heddle_wait_facts* facts) { (*static_cast<const Describe*>(told))(*facts); };
  Describe told = describe;
  end_if_in_vain(call, tell, &told, dead());
}

// Whether the condition becomes true in time: for events that are sure to come, but late.
inline constexpr std::int64_t kLateNs = 1'000'000'000;
bool comes_true(Call call, const std::function<bool()>& condition, std::int64_t in_ns = kLateNs);

// For describe().
[[gnu::cold, gnu::format(printf, 2, 3)]] void awaits(heddle_wait_facts& facts, const char* format, ...);

}  // namespace heddle::shmem
