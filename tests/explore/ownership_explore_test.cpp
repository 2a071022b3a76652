// src/worker: a thread uses an exclusive worker for the first time, while its owner makes progress
// on it in a wait for something else; the code itself, over the explorer's atomics.
#include <gtest/gtest.h>

#include <array>

#include "expect.hpp"
#include "worker/sharing.hpp"

namespace heddle::explore::ownership_explore_test {
namespace {

struct ModelThread {
  static inline std::array<char, kMostThreads> marks{};
  static inline bool running = false;  // the threads are, and not the model's constructor
  static const void* me() { return &marks[running ? Engine::current().running() % kMostThreads : 0]; }
  static void wait() { pause(); }
};

// Thread 0 has opened it, and waits. The others use it one after the other, as the program has
// arranged, and then wait as well.
template <template <class> class A, std::uint32_t kUsers, std::uint32_t kLooks>
struct OwnershipModel final : Model {
  worker::Ownership<A, ModelThread> ownership;
  Atomic<std::uint32_t> turn{1};  // whose use comes next
  Plain<std::uint32_t> guarded;
  std::array<std::uint32_t, kMostThreads> done{};

  OwnershipModel() {
    guarded.name("guarded");
    ModelThread::running = true;
  }
  ~OwnershipModel() override { ModelThread::running = false; }
  [[nodiscard]] std::uint32_t threads() const override { return 1 + kUsers; }
  void use(std::uint32_t thread) {
    guarded.store(guarded.load() + 1);
    ++done[thread];
  }
  void run(std::uint32_t thread) override {
    if (thread > 0) {
      while (turn.load(std::memory_order_acquire) != thread) pause();
      ownership.come_by();
      use(thread);
      turn.store(thread + 1, std::memory_order_release);
    }
    for (std::uint32_t i = 0; i < kLooks; ++i) {
      step();
      static_cast<void>(ownership.attend([&] {
        use(thread);
        ownership.come_by();  // a handler posts
        use(thread);
      }));
    }
  }
  void finish() override {
    std::uint32_t all = 0;
    for (const std::uint32_t count : done) all += count;
    check(guarded.load() == all, "nobody uses it while another one attends to it");
  }
};

// Planted: a thread that attends sees on its second look the value of the first.
template <class T>
class OldOwner : public Atomic<T> {
 public:
  // Somebody has opened the worker, and at first nobody attends to it.
  explicit OldOwner(T first) : Atomic<T>(first), is_owner_(first != T{}) {}
  T load(std::memory_order order) const {
    T& seen = seen_[Engine::current().running() % kMostThreads];
    if (!is_owner_ || order != std::memory_order_seq_cst) seen = Atomic<T>::load(order);
    return seen;
  }

 private:
  const bool is_owner_;
  mutable std::array<T, kMostThreads> seen_{};
};

constexpr Options kFew{.weak = true, .preemptions = 2};
constexpr Options kFewer{.weak = false, .preemptions = 2};

TEST(Ownership, OneUsesItInAllSchedules) {
  expect_holds<OwnershipModel<Atomic, 1, 1>>("a first use beside a look of the owner", kOrdered);
  expect_holds<OwnershipModel<Atomic, 1, 2>>("a first use beside two looks of the owner", kFew);
  expect_holds<OwnershipModel<Atomic, 2, 1>>("two first uses beside looks of the owners", kFewer);
}

TEST(Ownership, PlantedBugsAreFound) {
  expect_finds<OwnershipModel<RelaxedStores, 1, 1>>("stores that come late", kOrdered, "race");
  expect_finds<OwnershipModel<RelaxedLoads, 1, 1>>("looking without acquire", kOrdered, "race");
  expect_finds<OwnershipModel<OldOwner, 1, 1>>("no second look", kOrdered, "race");
}

}  // namespace
}  // namespace heddle::explore::ownership_explore_test
