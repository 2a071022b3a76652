// src/queue: the bell, and arming as the shm transport does it; the code itself, with the
// explorer's barrier().
#include <gtest/gtest.h>

#include "expect.hpp"
#include "queue/bell.hpp"

namespace heddle::explore::bell_explore_test {
namespace {

// A futex that never wakes by itself: a lost wake-up is a thread that waits for ever.
struct PatientFutex {
  template <class Word>
  static void wait(Word* word, std::uint32_t expected, std::int64_t, queue::Places) {
    while (word->load(std::memory_order_relaxed) == expected) pause();
  }
  template <class Word>
  static void wake(Word*, queue::Places) {}
};
// As in the kernel: a wake-up wakes only a thread that sleeps here, once for each wake-up, and only
// if it sleeps on one of the places. `gate` is its own: wake-ups of places 0 and 1, sixteen bits
// each.
template <template <class> class A>
struct KernelFutex {
  static inline Atomic<std::uint32_t>* gate = nullptr;
  static std::uint32_t mask(queue::Places places) {
    return ((places & 1) != 0 ? 0xffffU : 0U) | ((places & 2) != 0 ? 0xffff0000U : 0U);
  }
  static void wait(A<std::uint32_t>* word, std::uint32_t expected, std::int64_t, queue::Places places) {
    const std::uint32_t before = gate->load() & mask(places);
    if (word->load(std::memory_order_seq_cst) != expected) return;
    while ((gate->load() & mask(places)) == before) pause();
  }
  static void wake(A<std::uint32_t>*, queue::Places places) { gate->fetch_add(mask(places) & 0x10001U); }
};

enum class Bug { none, no_barrier, reads_the_bell_late, does_not_look_again };

// A sleeper with one place for each sender, which sends `kMessages`.
template <Bug kBug, std::uint32_t kSenders, std::uint32_t kMessages>
struct ArmingModel final : Model {
  queue::BellWords<Atomic> words;
  queue::Bell<Atomic, PatientFutex> bell{&words};
  std::array<Atomic<std::uint32_t>, kSenders> armed;
  std::array<Atomic<std::uint32_t>, kSenders> tail;
  std::array<std::uint32_t, kSenders> head{};

  [[nodiscard]] std::uint32_t threads() const override { return kSenders + 1; }
  void run(std::uint32_t thread) override { thread < kSenders ? send(thread) : receive(); }
  void send(std::uint32_t self) {
    for (std::uint32_t i = 1; i <= kMessages; ++i) {
      step();
      tail[self].store(i, std::memory_order_release);
      if (queue::disarmed_by_me(armed[self])) bell.ring();
    }
  }
  std::uint32_t poll() {
    std::uint32_t got = 0;
    for (std::uint32_t i = 0; i < kSenders; ++i) {
      const std::uint32_t now = tail[i].load(std::memory_order_acquire);
      got += now - head[i];
      head[i] = now;
    }
    return got;
  }
  void receive() {
    for (std::uint32_t got = 0; got < kSenders * kMessages;) {
      std::uint32_t seen = bell.rings();
      for (auto& word : armed) word.store(1, std::memory_order_relaxed);
      if (kBug != Bug::no_barrier) barrier();
      const std::uint32_t more = kBug == Bug::does_not_look_again ? 0 : poll();
      got += more;
      if (kBug == Bug::reads_the_bell_late) seen = bell.rings();
      if (more == 0) bell.wait(seen, -1);
      if (kBug == Bug::does_not_look_again) got += poll();
    }
  }
};

// A sleeper that arms often, and a sender that fences if it is asked to, and no more after some
// time. The first sleep comes with a heavy fence that the caller executes, the second with the one
// by which both agree, the others without.
enum class Fault { none, sender_does_not_fence, no_agreement, trusts_an_old_agreement };
template <Fault kFault, std::uint32_t kMessages, std::uint32_t kInVain>
struct FencedModel final : Model {
  // what the sleeper's exchange does not find
  struct Word : Atomic<std::uint32_t> {
    std::uint32_t exchange(std::uint32_t value, std::memory_order order) {
      const std::uint32_t before = Atomic<std::uint32_t>::exchange(value, order);
      return kFault == Fault::trusts_an_old_agreement ? before | queue::kFenced : before;
    }
  };
  queue::BellWords<Atomic> words;
  queue::Bell<Atomic, PatientFutex> bell{&words};
  Word armed;
  Atomic<std::uint32_t> tail;
  Atomic<std::uint32_t> fences;  // an update of it is a full fence
  queue::Fencing<kInVain> fencing;

  [[nodiscard]] std::uint32_t threads() const override { return 2; }
  void run(std::uint32_t thread) override { thread == 0 ? send() : receive(); }
  void send() {
    for (std::uint32_t i = 1; i <= kMessages; ++i) {
      step();
      tail.store(i, std::memory_order_release);
      if (armed.load(std::memory_order_relaxed) == 0) continue;
      const auto fence = [this] {
        if (kFault != Fault::sender_does_not_fence) fences.fetch_add(1, std::memory_order_seq_cst);
      };
      if (fencing.disarmed_by_me(armed, fence)) bell.ring();
    }
  }
  void receive() {
    queue::Arming<Word> arming(armed);
    std::uint64_t now = 0;
    for (std::uint32_t got = 0; got < kMessages;) {
      const std::uint32_t seen = bell.rings();
      const auto heavy = [] {
        if (kFault != Fault::no_agreement) barrier();
        return true;
      };
      if (arming.arm(++now, heavy)) {
        barrier();
      } else {
        fences.fetch_add(1, std::memory_order_seq_cst);
      }
      got = tail.load(std::memory_order_acquire);
      if (got < kMessages) bell.wait(seen, -1);
    }
  }
};

// Ring and sleep themselves. Planted: orders that do not let them see each other.
template <class T>
class Relaxed : public Atomic<T> {
 public:
  using Atomic<T>::Atomic;
  T fetch_add(T value, std::memory_order) {  // stored like a plain one, so that it may be seen late
    const T old = Atomic<T>::load(std::memory_order_relaxed);
    Atomic<T>::store(old + value, std::memory_order_relaxed);
    return old;
  }
  T fetch_sub(T value, std::memory_order order) { return fetch_add(T{} - value, order); }
};
template <template <class> class A>
struct RingModel final : Model {
  Atomic<std::uint32_t> gate;
  queue::BellWords<A> words;
  queue::Bell<A, KernelFutex<A>> bell{&words};
  Atomic<std::uint32_t> thing;

  RingModel() { KernelFutex<A>::gate = &gate; }
  [[nodiscard]] std::uint32_t threads() const override { return 2; }
  void run(std::uint32_t thread) override {
    if (thread == 0) {
      thing.store(1, std::memory_order_release);
      bell.ring();
      return;
    }
    for (;;) {
      const std::uint32_t seen = bell.rings();
      if (thing.load(std::memory_order_acquire) == 1) return;
      bell.wait(seen, -1);
    }
  }
};

// Two threads sleep on one bell, each for what is sent to its place. Planted: the place is named
// wrongly, so that a ring wakes the other one.
enum class Mistake { none, wrong_place };
template <Mistake kMistake>
struct PlacesModel final : Model {
  Atomic<std::uint32_t> gate;
  queue::BellWords<Atomic> words;
  queue::Bell<Atomic, KernelFutex<Atomic>> bell{&words};
  std::array<Atomic<std::uint32_t>, 2> things;

  PlacesModel() { KernelFutex<Atomic>::gate = &gate; }
  [[nodiscard]] std::uint32_t threads() const override { return 3; }
  void run(std::uint32_t thread) override {
    if (thread == 2) {
      for (std::uint32_t i = 0; i < 2; ++i) {
        things[i].store(1, std::memory_order_release);
        bell.ring(queue::place(kMistake == Mistake::wrong_place ? 1 - i : i));
      }
      return;
    }
    for (;;) {
      const std::uint32_t seen = bell.rings();
      if (things[thread].load(std::memory_order_acquire) == 1) return;
      bell.wait(seen, -1, queue::place(thread));
    }
  }
};

// All schedules of the larger cases are more than there is time for.
constexpr Options kBounded{.preemptions = 2};

TEST(Bell, HoldsInAllSchedules) {
  expect_holds<RingModel<Atomic>>("bell", kOrdered);
  expect_holds<PlacesModel<Mistake::none>>("two sleepers, each with a place", kBounded);
  expect_holds<ArmingModel<Bug::none, 1, 1>>("arming, 1 sender", kOrdered);
  expect_holds<ArmingModel<Bug::none, 1, 2>>("arming, 1 sender of 2", kBounded);
  expect_holds<ArmingModel<Bug::none, 2, 1>>("arming, 2 senders", Options{.preemptions = 1});
  expect_holds<FencedModel<Fault::none, 3, 1>>("fences of the sender, which soon ends them", kBounded);
  expect_holds<FencedModel<Fault::none, 4, 9>>("fences of the sender", Options{.preemptions = 1});
}

TEST(Bell, PlantedBugsAreFound) {
  expect_finds<RingModel<Relaxed>>("relaxed ring and sleep", kOrdered, "waits for ever");
  expect_finds<PlacesModel<Mistake::wrong_place>>("the wrong place", kBounded, "waits for ever");
  expect_finds<ArmingModel<Bug::no_barrier, 1, 1>>("no membarrier", kOrdered, "waits for ever");
  expect_finds<ArmingModel<Bug::reads_the_bell_late, 1, 1>>("the bell is read late", kOrdered, "waits for ever");
  expect_finds<ArmingModel<Bug::does_not_look_again, 1, 1>>("no second look", kOrdered, "waits for ever");
  expect_finds<FencedModel<Fault::sender_does_not_fence, 4, 9>>("the sender does not fence", kBounded,
                                                                "waits for ever");
  expect_finds<FencedModel<Fault::no_agreement, 4, 9>>("no heavy fence at first", kBounded, "waits for ever");
  expect_finds<FencedModel<Fault::trusts_an_old_agreement, 5, 1>>("fences have ended", kBounded, "waits for ever");
}

}  // namespace
}  // namespace heddle::explore::bell_explore_test
