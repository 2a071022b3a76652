// src/wire/board.hpp: one place of a board between its receiver and its sender; the code itself.
#include <gtest/gtest.h>

#include <array>
#include <utility>

#include "expect.hpp"
#include "wire/board.hpp"

namespace heddle::explore::board_explore_test {
namespace {

using wire::BoardPart;
using wire::Stage;

// Their actions besides copying until all data is there.
enum class Case {
  both_copy,
  receiver_cancels,  // the receive, which may have been taken
  receiver_closes,   // while both copy
  sender_closes,
};

enum class Bug {
  none,
  part_of_another,        // a claim that fails leaves behind the part that the other side has got
  claimed_by_store,       // two may get the same part
  taken_back_by_store,    // the receiver looks, then stores
  ended_before_finished,  // the receiver ends when nothing is left to be claimed
  shown_before_left,      // again, while the sender still looks at it
  finished_relaxed,       // the number does not carry what was copied
  closes_in_silence       // the sender does not say that its data is gone
};

constexpr std::uint32_t kReceiver = 0;
constexpr std::uint64_t kPart = 1;  // bytes

struct Place {
  Atomic<std::uint64_t> word;
  Atomic<std::uint64_t> next;
  Atomic<std::uint64_t> finished;
  Atomic<std::int32_t> status;
  Atomic<std::uint64_t> left;
};

// kUses: how often the place is shown; kBytes: of each message, one to a part. A byte of the buffer
// is 0 till it is copied, once.
template <Case kCase, std::uint64_t kUses, std::uint64_t kBytes, Bug kBug = Bug::none>
struct BoardModel final : Model {
  Place place;
  Atomic<std::uint32_t> over;  // the receiver shows nothing any more
  std::array<Plain<std::uint32_t>, kBytes> buffer;
  std::array<Plain<std::uint32_t>, kBytes> source;
  std::uint64_t sent = 0;
  std::uint64_t received = 0;

  BoardModel() {
    place.word.name("word");
    place.next.name("next");
    place.finished.name("finished");
    place.status.name("status");
    place.left.name("left");
  }
  [[nodiscard]] std::uint32_t threads() const override { return 2; }
  void run(std::uint32_t thread) override {
    for (std::uint64_t use = 1; use <= kUses; ++use) {
      if (!(thread == kReceiver ? receive(use) : send(use))) break;
    }
    if (thread == kReceiver) over.store(1, std::memory_order_release);
  }
  void finish() override {
    if (kCase == Case::both_copy) check(sent == kUses && received == kUses, "all messages are received");
    check(kCase == Case::sender_closes || kCase == Case::receiver_closes || sent == received, "both hear the same");
  }

  bool claim(BoardPart* part) {
    if (kBug == Bug::claimed_by_store) {
      const std::uint64_t next = place.next.load(std::memory_order_relaxed);
      if (next >= kBytes) return false;
      place.next.store(next + kPart, std::memory_order_relaxed);
      *part = {next, kPart};
      return true;
    }
    if (kBug == Bug::part_of_another) {
      std::uint64_t next = place.next.load(std::memory_order_relaxed);
      do {
        if (next >= kBytes) return false;
        *part = {next, kPart};
      } while (!place.next.compare_exchange_weak(next, next + part->bytes, std::memory_order_relaxed));
      return true;
    }
    return wire::claim_part(place, kBytes, kPart, part);
  }
  void copy(std::uint64_t at) {
    check(buffer[at].load() == 0, "each part is copied once");
    buffer[at].store(source[at].load());
  }
  void finish(std::uint64_t bytes) {
    if (kBug == Bug::finished_relaxed) {
      place.finished.fetch_add(bytes, std::memory_order_relaxed);
      return;
    }
    wire::finish_part(place, bytes, HEDDLE_DONE);
  }

  // Tagged::show(), begin_taken(), advance_taken(), end_taken(). False: that was all.
  bool receive(std::uint64_t use) {
    for (Plain<std::uint32_t>& byte : buffer) byte.store(0);
    wire::show_place(place, use);
    if (kCase == Case::receiver_cancels && take_back(use)) {
      use_buffer();
      return false;
    }
    while (wire::stage_of(place.word.load(std::memory_order_acquire)) != Stage::taken) pause();
    BoardPart part;
    if (kCase == Case::receiver_closes) {
      if (claim(&part)) wire::finish_part(place, part.bytes, HEDDLE_ERR_CANCELLED);
      wire::cancel_rest(place, kBytes, HEDDLE_ERR_CANCELLED);
    }
    while (claim(&part)) {
      copy(part.at);
      finish(part.bytes);
    }
    while (kBug != Bug::ended_before_finished && !wire::all_finished(place, kBytes)) pause();
    const bool done = place.status.load(std::memory_order_relaxed) == HEDDLE_DONE;
    for (std::uint64_t at = 0; done && at < kBytes; ++at) check(buffer[at].load() == use, "the data is there");
    if (done) ++received;
    use_buffer();
    while (kBug != Bug::shown_before_left && !wire::was_left(place, use)) pause();
    return true;
  }
  bool take_back(std::uint64_t use) {
    if (kBug != Bug::taken_back_by_store) return wire::hide_place(place, use);
    if (place.word.load(std::memory_order_acquire) != wire::place_word(use, Stage::shown)) return false;
    place.word.store(wire::place_word(use, Stage::free), std::memory_order_release);
    return true;
  }
  // The receive has ended: it belongs to the program again.
  void use_buffer() {
    for (Plain<std::uint32_t>& byte : buffer) byte.store(99);
  }

  // Tagged::take_shown(), push_part(), leave_place(). False: that was all.
  bool send(std::uint64_t use) {
    std::uint64_t word = 0;
    const std::uint64_t shown = wire::place_word(use, Stage::shown);
    while ((word = place.word.load(std::memory_order_acquire)) != shown) {
      if (over.load(std::memory_order_acquire) == 1) return false;
      pause();
    }
    for (Plain<std::uint32_t>& byte : source) byte.store(static_cast<std::uint32_t>(use));
    if (!wire::take_place(place, word)) return false;
    BoardPart part;  // kept from one call to the next where the transport takes nothing
    while (!wire::all_finished(place, kBytes)) {
      if (part.bytes == 0 && !claim(&part)) {
        if (kCase == Case::sender_closes) break;
        pause();
        continue;
      }
      if (kCase == Case::sender_closes) break;
      copy(part.at);
      finish(std::exchange(part.bytes, 0));
    }
    if (place.status.load(std::memory_order_relaxed) == HEDDLE_DONE && part.bytes == 0) ++sent;
    if (kBug == Bug::closes_in_silence) {
      if (part.bytes != 0) finish(part.bytes);
    } else {
      wire::abandon_place(place, part, kBytes);
    }
    for (Plain<std::uint32_t>& byte : source) byte.store(77);  // it is the program's again
    wire::leave_place(place, use);
    return true;
  }
};

// A closing side does not wait for the other: data that is read then may be wrong, and the status
// must say so.
constexpr Options kData{.weak = false, .races = false};
// All schedules of two uses are more than there is time for.
constexpr Options kBounded{.weak = false, .preemptions = 3};

TEST(BoardPlace, HoldsInAllSchedules) {
  expect_holds<BoardModel<Case::both_copy, 1, 1>>("1 part", kOrdered);
  expect_holds<BoardModel<Case::both_copy, 1, 2>>("2 parts", kOrdered);
  expect_holds<BoardModel<Case::both_copy, 2, 1>>("1 part, shown twice", kBounded);
  expect_holds<BoardModel<Case::both_copy, 2, 0>>("no data, shown twice", kBounded);
  expect_holds<BoardModel<Case::receiver_cancels, 1, 1>>("the receiver cancels", kOrdered);
  expect_holds<BoardModel<Case::receiver_cancels, 1, 0>>("the receiver cancels, no data", kOrdered);
  expect_holds<BoardModel<Case::receiver_closes, 1, 2>>("the receiver closes", kOrdered);
  expect_holds<BoardModel<Case::sender_closes, 1, 2>>("the sender closes", kData);
}

TEST(BoardPlace, PlantedBugsAreFound) {
  expect_finds<BoardModel<Case::both_copy, 1, 1, Bug::part_of_another>>("a part of the other's", kInterleaved,
                                                                        "all messages are received");
  expect_finds<BoardModel<Case::both_copy, 1, 1, Bug::claimed_by_store>>("claimed by a store", kInterleaved, "race");
  expect_finds<BoardModel<Case::receiver_cancels, 1, 1, Bug::taken_back_by_store>>("taken back by a store",
                                                                                   kInterleaved, "race");
  expect_finds<BoardModel<Case::both_copy, 1, 1, Bug::ended_before_finished>>("ended too early", kInterleaved, "race");
  expect_finds<BoardModel<Case::both_copy, 2, 1, Bug::shown_before_left>>("shown before it was left", kInterleaved,
                                                                          "race");
  expect_finds<BoardModel<Case::both_copy, 1, 1, Bug::finished_relaxed>>("finished is relaxed", kOrdered, "race");
  expect_finds<BoardModel<Case::sender_closes, 1, 1, Bug::closes_in_silence>>("the sender closes in silence", kData,
                                                                              "the data is there");
}

}  // namespace
}  // namespace heddle::explore::board_explore_test
