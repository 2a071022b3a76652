// Sleepers: a bell for many senders, and a thread that sleeps until a token comes.
//
// The bell: a thread sleeps until something arrives in one of many places. A sender pays only a
// read of a word that rarely changes: no fence, no atomic read-modify-write, no system call.
//
//   sender                           sleeper
//   publish the thing                seen = rings
//   light fence                      for each place: armed = 1
//   armed == 0 ? done                heavy fence (membarrier over all senders)
//   armed: 1 -> 0 ? ring             for each place: is something there? then do not sleep
//                                    sleep while rings == seen
//
// Invariants
//   By the two fences the sender sees armed == 1 or the sleeper sees the thing (Dekker). In the
//   first case exactly one sender rings: the one whose exchange finds 1. rings was read before the
//   place was armed, so the sleeper does not miss it. rings only grows (and wraps); sleepers counts
//   the threads that are in the kernel or on their way into it.
//   A sender that dies between its exchange and its ring leaves the sleeper asleep although
//   something is there: the thread that notices the death must ring.
//   The heavy fence takes 9 µs where a sender runs on another core, and stops that core. A sleeper
//   that sleeps often therefore asks its senders for the fence: see Arming.
//   A ring for some places wakes the threads that sleep on one of them. A thread that is not asleep
//   yet, and waits for other places, sees that rings has changed, and looks again.
//
// Zeroed memory is a valid bell without sleepers. It may lie in memory that several processes
// share; the worst that another process can do is to ring needlessly, or not to ring.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/fence.hpp"
#include "base/wait.hpp"

namespace heddle::queue {

template <template <class> class Atomic = std::atomic>
struct BellWords {
  // seq_cst with `sleepers`: a thread that rings and one that falls asleep see each other
  Atomic<std::uint32_t> rings{0};
  Atomic<std::uint32_t> sleepers{0};  // seq_cst with `rings`
};

// The places that a sleeper waits for or a ring is for, a bit each: so a ring for one of a
// process's workers does not wake the threads that wait for others. Places whose numbers differ by
// a multiple of 32 share a bit.
using Places = std::uint32_t;
inline constexpr Places kEveryPlace = ~Places{0};
constexpr Places place(std::uint32_t number) {
  return Places{1} << number % 32;
}

// Not a worker: the words of a process that its peers change by stores (Transport::arm_stores()).
// It shares its bit with worker 31: a ring for one of the two also wakes those that wait for the
// other.
inline constexpr Places kStoresPlace = place(31);

// For Bell: a futex that other processes may wake.
struct PlacesFutex {
  static void wait(std::atomic<std::uint32_t>* word, std::uint32_t expected, std::int64_t timeout_ns, Places places) {
    base::futex_wait_bits(word, expected, timeout_ns, places, base::FutexScope::shared);
  }
  static void wake(std::atomic<std::uint32_t>* word, Places places) {
    base::futex_wake_bits(word, places, base::FutexScope::shared);
  }
};

template <template <class> class Atomic = std::atomic, class Futex = PlacesFutex>
class Bell {
 public:
  Bell() = default;
  explicit Bell(BellWords<Atomic>* words) : words_(words) {}

  // Pass it to wait(): every ring from now on for its places ends that wait.
  [[nodiscard]] std::uint32_t rings() const { return words_->rings.load(std::memory_order_acquire); }

  // Wakes the threads that sleep on one of `places`. Any thread.
  void ring(Places places = kEveryPlace) const {
    words_->rings.fetch_add(1, std::memory_order_seq_cst);
    if (words_->sleepers.load(std::memory_order_seq_cst) != 0) Futex::wake(&words_->rings, places);
  }

  // Returns when the bell has rung for one of `places` (at least one) since `seen` was read, after
  // timeout_ns (negative: never), or for no reason. Any number of threads may wait; a ring wakes
  // all threads that it is for.
  void wait(std::uint32_t seen, std::int64_t timeout_ns, Places places = kEveryPlace) const {
    words_->sleepers.fetch_add(1, std::memory_order_seq_cst);
    if (words_->rings.load(std::memory_order_seq_cst) == seen) Futex::wait(&words_->rings, seen, timeout_ns, places);
    words_->sleepers.fetch_sub(1, std::memory_order_relaxed);
  }

 private:
  BellWords<Atomic>* words_ = nullptr;
};

// The word of a place. kArmed: the sleeper sleeps, or is about to. kFenced: senders execute a full
// fence before they look at kArmed. 0 is the word of a place that nobody has armed.
inline constexpr std::uint32_t kArmed = 1;
inline constexpr std::uint32_t kFenced = 2;

// The sender's check, after it has published and has seen that the word is not 0; with kFenced,
// after a full fence. True: the place was armed, and the caller must ring.
template <class Word>
[[nodiscard]] bool disarmed_by_me(Word& armed) {
  return (armed.load(std::memory_order_relaxed) & kArmed) != 0 &&
         (armed.fetch_and(~kArmed, std::memory_order_relaxed) & kArmed) != 0;
}

// The sleeper's part of a place's word. One thread at a time.
//
// A sleeper that arms again within kOftenNs asks its senders for their fence by kFenced, and one
// heavy fence makes sure that they all see that. From then on each arming finds kFenced as it left
// it, by one exchange, and needs no heavy fence: a sender has seen kFenced, executes its fence, and
// sees kArmed or is seen; or it sees kArmed at once. Senders that have fenced in vain for long take
// kFenced away; then the exchange does not find it, and the heavy fence is due again. The exchange
// decides: a sender that has read 0 read it before the exchange, which then has not found kFenced.
template <class Word>
class Arming {
 public:
  explicit Arming(Word& word) : word_(word) {}
  // heavy(): the heavy fence; false: it has failed. True: the heavy fence is due before the caller
  // looks whether something is there. False: the caller's full fence is enough.
  template <class Heavy>
  [[nodiscard]] bool arm(std::uint64_t now_ns, Heavy&& heavy) {
    const bool often = last_ns_ != 0 && now_ns - last_ns_ < kOftenNs;
    last_ns_ = now_ns;
    if (!often) {
      agreed_ = false;
      word_.store(kArmed, std::memory_order_relaxed);
      return true;
    }
    const std::uint32_t before = word_.exchange(kArmed | kFenced, std::memory_order_seq_cst);
    if (agreed_ && (before & kFenced) != 0) return false;
    agreed_ = heavy();
    return !agreed_;
  }
  static constexpr std::uint64_t kOftenNs = 4'000'000;  // naps of 1 ms among them

 private:
  Word& word_;
  std::uint64_t last_ns_ = 0;  // of the last arm()
  bool agreed_ = false;        // a heavy fence has passed since this object set kFenced
};

// A sender's part, once it has published and seen that the word is not 0. Any number of fences in
// vain are right; after kInVain of them the sleeper seems to be awake.
template <std::uint32_t kInVain = 64>
class Fencing {
 public:
  // fence(): a full fence. True: the caller must ring.
  template <class Word, class Fence>
  [[nodiscard]] bool disarmed_by_me(Word& word, Fence&& fence) {
    fence();
    const std::atomic_ref<std::uint32_t> in_vain(in_vain_);
    if (queue::disarmed_by_me(word)) {
      in_vain.store(0, std::memory_order_relaxed);
      return true;
    }
    const std::uint32_t fences = in_vain.load(std::memory_order_relaxed) + 1;
    in_vain.store(fences % kInVain, std::memory_order_relaxed);
    if (fences >= kInVain) word.fetch_and(~kFenced, std::memory_order_relaxed);
    return false;
  }

 private:
  // Several threads may be senders by one object: updates may be lost, and fences are right
  // whenever they come.
  std::uint32_t in_vain_ = 0;
};

// How a sender wakes the threads that sleep at a place of another process. After each publication
// the sender checks whether the place is armed: one load of a line that rarely changes. If one of
// the two processes lacks membarrier, looked_at_ is a word that is always 1, so that the sender
// always executes the fence and checks the real word; otherwise it does so where the sleeper asks
// for it. Any thread.
class BellPull {
 public:
  BellPull() = default;
  BellPull(std::atomic<std::uint32_t>* looked_at, std::atomic<std::uint32_t>* armed, Bell<> bell, Places place)
      : looked_at_(looked_at), armed_(armed), bell_(bell), place_(place) {}
  void published() {
    if (wanted()) [[unlikely]]
      pull();
  }
  // published() in two parts: whether to pull, after a publication.
  [[nodiscard]] bool wanted() const {
    base::light_fence();
    return looked_at_->load(std::memory_order_relaxed) != 0;
  }
  void pull();

 private:
  std::atomic<std::uint32_t>* looked_at_ = nullptr;
  std::atomic<std::uint32_t>* armed_ = nullptr;
  Bell<> bell_;
  Places place_ = kEveryPlace;
  Fencing<> fencing_;
};

// Blocks in the kernel, on a word of this process.
struct SystemFutex {
  // Returns when woken, when *word is not `expected`, after `timeout_ns` (negative: never), or for
  // no reason.
  static void wait(std::atomic<std::uint32_t>* word, std::uint32_t expected, std::int64_t timeout_ns);
  static void wake_one(std::atomic<std::uint32_t>* word);
};

// One thread sleeps until another wakes it: wake() leaves a token, sleep() consumes it. A token
// that is left while the thread does not sleep is kept, so a wake-up is never lost. That does not
// depend on other agreements of the two threads about when a wake-up is due (the command queue's
// sleeping bit). Several tokens are one. Within one process.
//
// state: kNothing, kToken, kAsleep. Only the sleeper goes to kAsleep and from kToken to kNothing;
// wake() goes from any state to kToken, and makes the system call only if it came from kAsleep.
template <template <class> class Atomic = std::atomic, class Futex = SystemFutex>
class Sleeper {
 public:
  Sleeper() = default;
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  // One thread at a time. True: woken. False: the time is over, or a signal came; the caller sleeps
  // again or checks what it waits for.
  [[nodiscard]] bool sleep(std::int64_t timeout_ns) {
    std::uint32_t state = kNothing;
    if (state_.compare_exchange_strong(state, kAsleep, std::memory_order_acquire, std::memory_order_acquire)) {
      Futex::wait(&state_, kAsleep, timeout_ns);
    }
    return state_.exchange(kNothing, std::memory_order_acquire) == kToken;
  }

  // Any thread. The thread that wakes sees what the caller did before.
  void wake() {
    if (state_.exchange(kToken, std::memory_order_release) == kAsleep) Futex::wake_one(&state_);
  }

 private:
  static constexpr std::uint32_t kNothing = 0;
  static constexpr std::uint32_t kToken = 1;
  static constexpr std::uint32_t kAsleep = 2;

  Atomic<std::uint32_t> state_{kNothing};  // release by wake(), acquire by sleep()
};

}  // namespace heddle::queue
