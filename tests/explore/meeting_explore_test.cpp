// src/queue: barriers by memory; the code itself.
#include <gtest/gtest.h>

#include <array>

#include "expect.hpp"
#include "queue/meeting.hpp"

namespace heddle::explore::meeting_explore_test {
namespace {

enum class Last { comes, comes_twice, elsewhere, dies_before, dies_after };
enum class Bug { none, known_dead_too_early };

// Planted: a word that does not carry the stores before it.
template <class T>
class Relaxed : public Atomic<T> {
 public:
  using Atomic<T>::Atomic;
  void store(T value, std::memory_order) { Atomic<T>::store(value, std::memory_order_relaxed); }
};

// Ranks in a barrier, the last of which does as kLast says.
template <template <class> class A, std::uint32_t kRanks, Last kLast, Bug kBug = Bug::none>
struct MeetingModel final : Model {
  using Meeting = queue::Meeting<A>;
  using Found = typename Meeting::Found;
  std::array<A<std::uint64_t>, kRanks> words;
  std::array<Plain<int>, kRanks> data;
  Atomic<std::uint32_t> dead;
  std::array<Found, kRanks> found{};

  [[nodiscard]] std::uint32_t threads() const override { return kRanks; }
  static constexpr bool dies = kLast == Last::dies_before || kLast == Last::dies_after;

  void run(std::uint32_t self) override {
    const bool last = self == kRanks - 1;
    Meeting meeting(std::span<A<std::uint64_t>>(words), self);
    if (kRanks == 2) data[self].store(1);
    if (last && dies) return die(meeting);
    meeting.enter(!(last && kLast == Last::elsewhere));
    found[self] = last && kLast == Last::elsewhere ? Found::astray : wait(meeting);
    if (found[self] != Found::all) return;
    // Three ranks would have more schedules than there is time for.
    for (std::uint32_t rank = 0; kRanks == 2 && rank < kRanks; ++rank) {
      check(data[rank].load() == 1, "what was done before the barrier is seen after it");
    }
    if (kLast != Last::comes_twice) return;
    meeting.enter(true);
    check(wait(meeting) == Found::all, "the second barrier ends");
  }
  void die(Meeting& meeting) {
    if (kBug == Bug::known_dead_too_early) dead.store(1, std::memory_order_release);
    if (kLast == Last::dies_after) meeting.enter(true);
    dead.store(1, std::memory_order_release);
  }
  Found wait(Meeting& meeting) {
    for (;;) {
      const Found now = meeting.look(
          [&](std::uint32_t rank) { return rank == kRanks - 1 && dead.load(std::memory_order_acquire) == 1; });
      if (now != Found::waiting) return now;
      pause();
    }
  }
  void finish() override {
    constexpr bool all = kLast == Last::comes || kLast == Last::comes_twice || kLast == Last::dies_after;
    for (std::uint32_t rank = 0; rank < kRanks - (dies ? 1 : 0); ++rank) {
      check(found[rank] == (all ? Found::all : Found::astray), "all the living find the same");
    }
  }
};

// All schedules of three are more than there is time for.
constexpr Options kBounded{.weak = false, .preemptions = 1};

TEST(Meeting, HoldsInAllSchedules) {
  expect_holds<MeetingModel<Atomic, 2, Last::comes>>("2 come", kOrdered);
  expect_holds<MeetingModel<Atomic, 2, Last::comes_twice>>("2 come twice", kOrdered);
  expect_holds<MeetingModel<Atomic, 3, Last::comes>>("3 come", kBounded);
  expect_holds<MeetingModel<Atomic, 3, Last::elsewhere>>("1 of 3 is elsewhere", kBounded);
  expect_holds<MeetingModel<Atomic, 3, Last::dies_before>>("1 of 3 dies before it comes", kBounded);
  expect_holds<MeetingModel<Atomic, 3, Last::dies_after>>("1 of 3 dies after it came", kBounded);
}

TEST(Meeting, PlantedBugsAreFound) {
  expect_finds<MeetingModel<Relaxed, 2, Last::comes>>("a relaxed word", kOrdered, "race");
  expect_finds<MeetingModel<Atomic, 3, Last::dies_after, Bug::known_dead_too_early>>("dead before the last store",
                                                                                     kBounded, "find the same");
}

}  // namespace
}  // namespace heddle::explore::meeting_explore_test
