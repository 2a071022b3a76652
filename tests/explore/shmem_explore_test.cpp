// interfaces/openshmem/: the words of teams and active sets (groups.cpp), and locks (locks.cpp):
// models beside the code.
#include <gtest/gtest.h>

#include <array>

#include "expect.hpp"

namespace heddle::explore::shmem_explore_test {
namespace {

constexpr std::uint64_t kUses = 3;  // so that a place is used again

// ---- teams --------------------------------------------------------------------------------------

enum class TeamBug {
  none,
  signal_relaxed,   // the number does not carry what was stored before it
  heard_relaxed,    // nor does the reader acquire it
  one_line,         // an exchange writes where another may still be read
  one_board,        // likewise
  waits_for_equal,  // a member that is told twice before it looks waits for ever
};

// sync() and exchange() of two members in one round: each has a word that the other sets to the
// number of the use. kBoard: the data lies on the sender's own board, and is read after the sync
// (publish()); else in the line beside the word (exchange()).
template <bool kBoard, TeamBug kBug = TeamBug::none>
struct TeamModel final : Model {
  struct Line {
    Atomic<std::uint64_t> number;
    Plain<std::uint64_t> payload;
  };
  // of each member, by parity: written by the other
  std::array<std::array<Line, 2>, 2> lines;
  // of each member, by parity: written by the owner
  std::array<std::array<Plain<std::uint64_t>, 2>, 2> board;
  // stored before each use, and read after it
  std::array<Plain<std::uint64_t>, 2> before;

  [[nodiscard]] std::uint32_t threads() const override { return 2; }
  void run(std::uint32_t me) override {
    const std::uint32_t other = 1 - me;
    for (std::uint64_t use = 1; use <= kUses; ++use) {
      const std::uint64_t value = 10 * use + me;
      const std::uint64_t place = kBug == TeamBug::one_line || kBug == TeamBug::one_board ? 0 : use % 2;
      if (use == 1) before[me].store(value);
      Line& theirs = kBoard ? lines[other][0] : lines[other][place];
      Line& mine = kBoard ? lines[me][0] : lines[me][place];
      if (kBoard) {
        board[me][place].store(value);
      } else {
        theirs.payload.store(value);
      }
      const bool carries = kBug != TeamBug::signal_relaxed;
      theirs.number.store(use, carries ? std::memory_order_release : std::memory_order_relaxed);
      while (!heard(mine.number, use)) pause();
      const std::uint64_t told = kBoard ? board[other][place].load() : mine.payload.load();
      check(told == 10 * use + other, "what the other told for this use is read");
      if (use == 1) check(before[other].load() == 10 + other, "what it stored before is seen");
    }
  }
  static bool heard(const Atomic<std::uint64_t>& word, std::uint64_t use) {
    const bool takes = kBug != TeamBug::heard_relaxed;
    const std::uint64_t number = word.load(takes ? std::memory_order_acquire : std::memory_order_relaxed);
    return kBug == TeamBug::waits_for_equal ? number == use : number >= use;
  }
};

TEST(ShmemTeam, WhatIsToldIsReadAndAMemberAheadDisturbsNobody) {
  expect_holds<TeamModel<false>>("exchange", kOrdered);
  expect_holds<TeamModel<true>>("publish", kOrdered);
}

TEST(ShmemTeam, PlantedBugsAreFound) {
  expect_finds<TeamModel<false, TeamBug::signal_relaxed>>("a signal without release", kOrdered, "race");
  expect_finds<TeamModel<true, TeamBug::signal_relaxed>>("a signal without release, by boards", kOrdered, "race");
  expect_finds<TeamModel<false, TeamBug::heard_relaxed>>("heard without acquire", kOrdered, "race");
  expect_finds<TeamModel<false, TeamBug::one_line>>("one line for all exchanges", kOrdered, "race");
  expect_finds<TeamModel<true, TeamBug::one_board>>("one board for all uses", kOrdered, "race");
  expect_finds<TeamModel<true, TeamBug::waits_for_equal>>("hearing just this number", kOrdered, "ever");
}

enum class ShowBug { none, root_goes_on, counted_relaxed, told_relaxed };

// show(): the root's memory is fetched by two others, and may be changed when both have told that
// they have it.
template <ShowBug kBug = ShowBug::none>
struct ShowModel final : Model {
  std::array<Atomic<std::uint64_t>, 3> told;  // of each member, by the root
  Atomic<std::uint64_t> fetched;              // of the root, by the others
  Plain<std::uint64_t> source;

  [[nodiscard]] std::uint32_t threads() const override { return 3; }
  void run(std::uint32_t me) override {
    if (me == 0) return show();
    while (told[me].load(std::memory_order_acquire) < 1) pause();
    check(source.load() == 1, "what the root shows is fetched");
    fetched.fetch_add(1, kBug == ShowBug::counted_relaxed ? std::memory_order_relaxed : std::memory_order_release);
  }
  void show() {
    source.store(1);
    for (const std::uint32_t other : {1U, 2U}) {
      told[other].store(1, kBug == ShowBug::told_relaxed ? std::memory_order_relaxed : std::memory_order_release);
    }
    while (kBug != ShowBug::root_goes_on && fetched.load(std::memory_order_acquire) < 2) pause();
    source.store(2);  // the program's own, after the call
  }
};

TEST(ShmemShow, TheRootsMemoryIsLeftAloneTillAllHaveFetchedIt) {
  expect_holds<ShowModel<>>("shown to two", kOrdered);
}

TEST(ShmemShow, PlantedBugsAreFound) {
  expect_finds<ShowModel<ShowBug::root_goes_on>>("the root waits for nobody", kOrdered, "race");
  expect_finds<ShowModel<ShowBug::counted_relaxed>>("fetched without release", kOrdered, "race");
  expect_finds<ShowModel<ShowBug::told_relaxed>>("told without release", kOrdered, "race");
}

// ---- active sets --------------------------------------------------------------------------------

enum class SetBug { none, cleared_by_store, heard_relaxed };

// sync() of an active set: words in the program's memory that are zero before and after each use,
// so they count.
template <SetBug kBug = SetBug::none>
struct ActiveSetModel final : Model {
  std::array<Atomic<std::uint64_t>, 2> words;
  std::array<Plain<std::uint64_t>, 2> data;

  [[nodiscard]] std::uint32_t threads() const override { return 2; }
  void run(std::uint32_t me) override {
    data[me].store(1 + me);
    for (std::uint64_t use = 1; use <= kUses; ++use) {
      words[1 - me].fetch_add(1, std::memory_order_release);
      const bool takes = kBug != SetBug::heard_relaxed;
      while (words[me].load(takes ? std::memory_order_acquire : std::memory_order_relaxed) < 1) pause();
      if (kBug == SetBug::cleared_by_store) {
        words[me].store(0, std::memory_order_relaxed);
      } else {
        words[me].fetch_sub(1, std::memory_order_relaxed);
      }
      check(data[1 - me].load() == 2 - me, "what was stored before the sync is seen after it");
    }
  }
  void finish() override {
    for (Atomic<std::uint64_t>& word : words) check(word.load() == 0, "the words are zero again");
  }
};

TEST(ShmemActiveSet, CountsAreNeitherLostNorLeft) {
  expect_holds<ActiveSetModel<>>("sync twice", kOrdered);
}

TEST(ShmemActiveSet, PlantedBugsAreFound) {
  expect_finds<ActiveSetModel<SetBug::cleared_by_store>>("cleared instead of counted down", kOrdered, "ever");
  expect_finds<ActiveSetModel<SetBug::heard_relaxed>>("heard without acquire", kOrdered, "race");
}

// ---- locks --------------------------------------------------------------------------------------

enum class LockBug {
  none,
  cleared_relaxed,  // the next holder does not see this holder's stores
  served_relaxed,   // nor if it does not acquire them
  test_by_store,    // test_lock looks, then stores
  test_draws,       // test_lock draws a ticket, and goes away if it is not served
  named_late,       // a PE that has cleared the lock names itself
};

// set_lock(), test_lock() and clear_lock(); the home's two words. Thread kTester tests, once and
// then till it gets in; it reads the words one by one, which is more than the code does. `turn` is
// 16 times the ticket that is served, and the holder.
template <std::uint32_t kThreads, LockBug kBug = LockBug::none>
struct LockModel final : Model {
  static constexpr std::uint32_t kTester = kThreads - 1;
  Atomic<std::uint32_t> next;
  Atomic<std::uint32_t> turn;
  Plain<std::uint32_t> guarded;
  std::array<bool, kThreads> was_in{};

  LockModel() {
    next.name("next");
    turn.name("turn");
  }
  [[nodiscard]] std::uint32_t threads() const override { return kThreads; }
  void run(std::uint32_t me) override {
    std::uint32_t ticket = 0;
    if (me == kTester) {
      while (!test(&ticket)) {
        if (kBug == LockBug::test_draws) return;
        pause();
      }
    } else {
      ticket = next.fetch_add(1, std::memory_order_acq_rel);
      while (look() != ticket) pause();
    }
    if (kBug != LockBug::named_late) name_itself(ticket, me);
    guarded.store(guarded.load() + 1);
    was_in[me] = true;
    if (kBug != LockBug::named_late)
      check(turn.load(std::memory_order_relaxed) == 16 * ticket + me + 1,
            "who has the lock is named, until it clears it");
    turn.store(16 * (ticket + 1),
               kBug == LockBug::cleared_relaxed ? std::memory_order_relaxed : std::memory_order_release);
    if (kBug == LockBug::named_late) name_itself(ticket, me);
  }
  void name_itself(std::uint32_t ticket, std::uint32_t me) {
    turn.store(16 * ticket + me + 1, std::memory_order_release);
  }
  std::uint32_t look() {
    return turn.load(kBug == LockBug::served_relaxed ? std::memory_order_relaxed : std::memory_order_acquire) / 16;
  }
  bool test(std::uint32_t* ticket) {
    if (kBug == LockBug::test_draws) {
      const std::uint32_t now = look();
      return (*ticket = next.fetch_add(1, std::memory_order_acq_rel)) == now;
    }
    std::uint32_t now = next.load(std::memory_order_acquire);
    if (look() != now) return false;
    *ticket = now;
    if (kBug == LockBug::test_by_store) {
      next.store(now + 1, std::memory_order_release);
      return true;
    }
    return next.compare_exchange_strong(now, now + 1, std::memory_order_acq_rel, std::memory_order_acquire);
  }
  void finish() override {
    std::uint32_t count = 0;
    for (const bool one : was_in) count += one ? 1 : 0;
    check(guarded.load() == count, "nobody's change is lost");
    check(16 * next.load() == turn.load(), "the lock is free at the end");
  }
};

TEST(ShmemLock, OneAtATimeGetsIn) {
  expect_holds<LockModel<2>>("one sets, one tests", kOrdered);
  expect_holds<LockModel<3>>("two set, one tests", kOrdered);
}

TEST(ShmemLock, PlantedBugsAreFound) {
  expect_finds<LockModel<2, LockBug::cleared_relaxed>>("cleared without release", kOrdered, "race");
  expect_finds<LockModel<2, LockBug::served_relaxed>>("served without acquire", kOrdered, "race");
  expect_finds<LockModel<2, LockBug::test_by_store>>("tested without a swap", kOrdered, "race");
  expect_finds<LockModel<2, LockBug::test_draws>>("tested by drawing a ticket", kOrdered, "free at the end");
  expect_finds<LockModel<2, LockBug::named_late>>("named after it is cleared", kOrdered, "free at the end");
}

}  // namespace
}  // namespace heddle::explore::shmem_explore_test
