// src/queue: the tag pool itself, over the explorer's atomics.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "expect.hpp"
#include "queue/tag_pool.hpp"

namespace heddle::explore {
namespace {

// Planted: a swap of the stack's top that looks at the slot and not at the stamp.
template <class T>
class NoStamp : public Atomic<T> {
 public:
  using Atomic<T>::Atomic;
  bool compare_exchange_weak(T& expected, T desired, std::memory_order order) {
    T found = this->load(std::memory_order_acquire);
    if (static_cast<std::uint32_t>(found) != static_cast<std::uint32_t>(expected)) {
      expected = found;
      return false;
    }
    if (Atomic<T>::compare_exchange_weak(found, desired, order)) return true;
    expected = found;
    return false;
  }
};
// Planted: taking from and giving to the stack orders nothing.
template <class T>
class Unordered : public Atomic<T> {
 public:
  using Atomic<T>::Atomic;
  bool compare_exchange_weak(T& expected, T desired, std::memory_order) {
    return Atomic<T>::compare_exchange_weak(expected, desired, std::memory_order_relaxed);
  }
};

template <template <class> class A, std::uint32_t kSlots, std::uint32_t kThreads>
struct PoolModel : Model {
  using Pool = queue::TagPool<A>;
  using Local = typename Pool::Local;
  Pool pool{kSlots, kThreads};
  // Here and not in run(): an execution is given up by an exception, which cannot leave a destructor.
  std::array<Local, 2> locals{Local(pool), Local(pool)};
  std::array<Plain<std::uint64_t>, kSlots> user;  // who has the slot

  [[nodiscard]] std::uint32_t threads() const override { return 2; }

  queue::Tag take(Local& local, std::uint32_t self) {
    const queue::Tag tag = local.take();
    check(bool(tag) && pool.live(tag), "there is a slot");
    check(user[tag.index].load() == 0, "nobody else has it");
    user[tag.index].store(self + 1);
    return tag;
  }
  void give(Local& local, queue::Tag tag, std::uint32_t self) {
    check(user[tag.index].load() == self + 1, "nobody else had it");
    user[tag.index].store(0);
    check(local.give_back(tag), "it was live");
  }
  // Everything can be had, once, and not more.
  void finish() override {
    for (Local& local : locals) local.drain();
    Local& local = locals[0];
    std::vector<queue::Tag> tags;
    while (const queue::Tag tag = local.take()) {
      check(user[tag.index].load() == 0, "it was given back");
      user[tag.index].store(9);
      tags.push_back(tag);
      check(tags.size() <= kSlots, "no slot twice");
    }
    check(tags.size() == kSlots, "no slot is lost");
  }
};

// The stack's classic: one thread is about to take the first of A, B, C, D; the other takes A and B and gives A back.
template <template <class> class A>
struct StackModel final : PoolModel<A, 4, 0> {
  void run(std::uint32_t thread) override {
    auto& local = this->locals[thread];
    const queue::Tag first = this->take(local, thread);
    const queue::Tag second = this->take(local, thread);
    this->give(local, first, thread);
    this->give(local, second, thread);
  }
};

// One Local may hold three slots, the other none: it takes two at once, holds what it gets back, and gives all in the
// end.
template <template <class> class A>
struct LocalModel final : PoolModel<A, 6, 1> {
  void run(std::uint32_t thread) override {
    auto& local = this->locals[thread];
    const queue::Tag first = this->take(local, thread);
    const queue::Tag second = this->take(local, thread);
    this->give(local, first, thread);
    this->give(local, second, thread);
    check(!local.give_back(first), "not twice");
    local.drain();
  }
};

// One slot goes round: a thread takes it, the other gives it back and knows what the first did with it.
template <template <class> class A>
struct HandModel final : PoolModel<A, 1, 0> {
  A<std::uint64_t> hand{0};

  void run(std::uint32_t thread) override {
    if (thread == 1) return complete();
    auto& local = this->locals[0];
    queue::Tag old;
    for (int i = 0; i < 2; ++i) {
      queue::Tag tag;
      while (!(tag = local.take())) pause();
      check(tag.index == 0 && tag != old && !this->pool.live(old) && !local.give_back(old), "an old tag is dead");
      old = tag;
      check(this->user[0].load() == 0, "the last use is over");
      this->user[0].store(1);
      hand.store(tag.word(), std::memory_order_release);
      while (i == 0 && hand.load(std::memory_order_relaxed) != 0) pause();
    }
  }
  void complete() {
    for (int i = 0; i < 2; ++i) {
      std::uint64_t word = 0;
      while ((word = hand.load(std::memory_order_acquire)) == 0) pause();
      check(this->user[0].load() == 1, "what its taker did is visible");
      this->user[0].store(0);
      hand.store(0, std::memory_order_relaxed);
      check(this->pool.give_back(queue::Tag::from_word(word)), "it was live");
    }
  }
};

TEST(TagPool, HoldsInAllSchedules) {
  expect_holds<StackModel<Atomic>>("tags, the stack", kInterleaved);
  expect_holds<LocalModel<Atomic>>("tags, a local and the stack", kInterleaved);
  expect_holds<HandModel<Atomic>>("tags, one slot from hand to hand", kOrdered);
}

TEST(TagPool, PlantedBugsAreFound) {
  expect_finds<StackModel<NoStamp>>("ABA", kInterleaved, "not so");
  expect_finds<StackModel<TornSwap>>("a swap that is none", kInterleaved, "race");
  expect_finds<HandModel<Unordered>>("no order", kOrdered, "race");
}

}  // namespace
}  // namespace heddle::explore
