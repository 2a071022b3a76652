// src/memory: a slot of the table of regions that changes hands while it is read; the code itself.
#include <gtest/gtest.h>

#include "expect.hpp"
#include "memory/regions.hpp"

namespace heddle::explore::region_explore_test {
namespace {

// Planted: a second look, the only relaxed one, that says again what the first has said.
template <class T>
class Hasty : public Atomic<T> {
 public:
  using Atomic<T>::Atomic;
  T load(std::memory_order order) const {
    if (order != std::memory_order_relaxed) seen_ = Atomic<T>::load(order);
    return seen_;
  }

 private:
  mutable T seen_{};  // by the reader
};
// Planted: words that do not tell that the region before is gone.
template <class T>
class Relaxed : public Atomic<T> {
 public:
  using Atomic<T>::Atomic;
  void store(T value, std::memory_order) { Atomic<T>::store(value, std::memory_order_relaxed); }
};

// Region n begins at byte 100 n and has n bytes. One thread puts region 2 into the slot of region
// 1, the other reads.
template <class Slot>
struct SlotModel final : Model {
  static std::byte* at(std::uint64_t number) { return reinterpret_cast<std::byte*>(100 * number); }
  SlotModel() { slot.set(1, at(1), 1); }
  Slot slot;
  bool found_first = false;
  [[nodiscard]] std::uint32_t threads() const override { return 2; }
  void run(std::uint32_t self) override {
    if (self == 0) {
      slot.clear();
      slot.set(2, at(2), 2);
      return;
    }
    for (std::uint64_t number = 1; number <= 2; ++number) {
      const auto span = slot.read(number);
      check(!span || (span->address == at(number) && span->bytes == number), "what is found is one region");
    }
  }
};

TEST(RegionSlot, HoldsInAllSchedules) {
  expect_holds<SlotModel<memory::RegionSlot<Atomic>>>("a slot changes hands", kOrdered);
}

TEST(RegionSlot, PlantedBugsAreFound) {
  expect_finds<SlotModel<memory::RegionSlot<Relaxed>>>("relaxed words", kOrdered, "one region");
  expect_finds<SlotModel<memory::RegionSlot<Hasty>>>("no second look", kOrdered, "one region");
}

}  // namespace
}  // namespace heddle::explore::region_explore_test
