// A board: where a worker shows one sending worker which of its receives wait for long messages of
// that worker, and where the two agree which of them copies. It lies in memory of the receiver that
// both map.
//
// Stages of a place, in its word with a generation:
//   free  -> shown   receiver: all of its line is written
//   shown -> free    receiver: the receive was cancelled, or matched by a message that the sender
//                    had sent before
//   shown -> taken   sender: its message belongs to this receive; `offer` says where its data is
//   taken -> free    receiver, when both have finished with it
// Both leave `shown` by compare-and-swap, so exactly one of them succeeds: a receive that was
// cancelled is never written to, and one that the sender has taken is never given to another
// message. A place that is taken is copied in parts: a side that has time claims the next part by
// adding to `next` (the sender puts it, the receiver gets it), and adds its length to `finished`
// when it is copied.
//
// The sender chooses the receive that the receiver would have chosen, for these reasons. The sender
// takes a place only while `seen` equals the number of messages that it has left to the receiver to
// match (all messages that it sent, except those that it took a place for). So each of these was
// matched, and the receive it matched was taken off the board, before the sender looked. From the
// places that fit, the sender takes the earliest one that was there when it looked (`count`). The
// receiver shows a receive only if every receive that was posted before and could take the same
// message is shown too: no receive with a mask or a wildcard source is posted then, and the earlier
// one of the same source and tag is shown. So when the sender's message is matched by taking a
// place, no message that came before it is unmatched, and no earlier receive that fits it is left.
// A message that the sender sends later and the receiver matches finds the taken receive gone: the
// receiver's own compare-and-swap fails, and it goes on to the next receive.
//
// Hostile peers: either may write anything. Each reads what it uses once, checks it against its own
// memory's range, and ends its side when `finished` reaches its own length; the worst result is
// wrong data in the buffers that were shown.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "wire/messages.hpp"

namespace heddle::wire {

inline constexpr std::uint32_t kBoardPlaces = 15;

enum class Stage : std::uint8_t { free = 0, shown = 1, taken = 2 };
constexpr std::uint64_t place_word(std::uint64_t generation, Stage stage) {
  return generation << 8 | static_cast<std::uint64_t>(stage);
}
constexpr Stage stage_of(std::uint64_t word) {
  return static_cast<Stage>(word & 0xFF);
}
constexpr std::uint64_t generation_of(std::uint64_t word) {
  return word >> 8;
}

struct alignas(64) BoardPlace {
  // Written by the receiver while the place is free. The sender reads the atomic ones before it has
  // taken the place: relaxed, since `word` orders them.
  std::atomic<std::uint64_t> word;    // acquire, release and both: partner is the other side's
  std::atomic<std::uint64_t> tag;     // all bits count
  std::atomic<std::uint64_t> number;  // in the order of posting
  std::uint64_t room;                 // bytes
  alignas(64) std::uint8_t key[kOfferKeyBytes];
  // Written by the sender before it takes the place.
  alignas(64) Offer offer;
  // Written by both.
  std::atomic<std::uint64_t> next;  // bytes that were claimed; relaxed: claiming orders nothing
  // bytes that are copied, or never will be; release when raised, acquire when read
  std::atomic<std::uint64_t> finished;
  std::atomic<std::int32_t> status;  // the first error; written before `finished` is raised
  // the receiver can copy without the sender's help; the sender may copy as well
  std::atomic<std::uint32_t> shared;
  std::atomic<std::uint64_t>
      // written by the sender: the generation that it has finished with. Release; partner: the
      // receiver's acquire
      left;
};
static_assert(sizeof(BoardPlace) == 256);

struct Board {
  // Written by the receiver.
  // number of messages matched or kept. Release; partner: the sender's acquire
  alignas(64) std::atomic<std::uint64_t> seen;
  // number of receives shown so far. Release; partner: the sender's acquire
  std::atomic<std::uint64_t> count;
  std::atomic<std::uint32_t> live;  // bit i: places[i] may be shown; a hint
  alignas(64) BoardPlace places[kBoardPlaces];
};
static_assert(sizeof(Board) <= 4096 && std::atomic<std::uint64_t>::is_always_lock_free);

// ---- the protocol of a place: templates, so that the schedule explorer runs the code itself -----

// For the receiver, while the place is free and when everything else in it has been written.
template <class Place>
void show_place(Place& place, std::uint64_t generation) {
  place.next.store(0, std::memory_order_relaxed);
  place.finished.store(0, std::memory_order_relaxed);
  place.status.store(HEDDLE_DONE, std::memory_order_relaxed);
  place.word.store(place_word(generation, Stage::shown), std::memory_order_release);
}
// For the receiver. False: the sender has taken the place, and what the sender wrote before is
// visible.
template <class Place>
bool hide_place(Place& place, std::uint64_t generation) {
  std::uint64_t word = place_word(generation, Stage::shown);
  return place.word.compare_exchange_strong(word, place_word(generation, Stage::free), std::memory_order_acq_rel,
                                            std::memory_order_acquire);
}
// For the sender, when `offer` is written; `word`: as it read it there, with acquire. False: the
// receiver has taken the place back.
template <class Place>
bool take_place(Place& place, std::uint64_t word) {
  return place.word.compare_exchange_strong(word, place_word(generation_of(word), Stage::taken),
                                            std::memory_order_acq_rel, std::memory_order_acquire);
}
// For the sender: it will not look at this use of the place any more.
template <class Place>
void leave_place(Place& place, std::uint64_t generation) {
  place.left.store(generation, std::memory_order_release);
}
// For the receiver. True: the sender has left the place, so that it may be shown again.
template <class Place>
[[nodiscard]] bool was_left(const Place& place, std::uint64_t generation) {
  return place.left.load(std::memory_order_acquire) == generation;
}

struct BoardPart {
  std::uint64_t at = 0;
  std::uint64_t bytes = 0;
};
// Claims the next part of at most `most` bytes of `total`. False: none is left, and *part is
// unchanged: a caller that keeps it between calls must not be left with a part that the other side
// has claimed.
template <class Place>
bool claim_part(Place& place, std::uint64_t total, std::uint64_t most, BoardPart* part) {
  std::uint64_t next = place.next.load(std::memory_order_relaxed);
  for (;;) {
    if (next >= total) return false;
    const std::uint64_t bytes = std::min(total - next, most);
    if (place.next.compare_exchange_weak(next, next + bytes, std::memory_order_relaxed)) {
      *part = {next, bytes};
      return true;
    }
  }
}
// A part that was claimed has been copied, or will not be. The caller touches nothing of it
// afterwards.
template <class Place>
void finish_part(Place& place, std::uint64_t bytes, std::int32_t status) {
  std::int32_t none = HEDDLE_DONE;
  if (status != HEDDLE_DONE) place.status.compare_exchange_strong(none, status, std::memory_order_relaxed);
  // Release: what was copied, and the status. Acquire: a thread that sees all of it finished sees
  // what the earlier calls did.
  place.finished.fetch_add(bytes, std::memory_order_acq_rel);
}
// The part that nobody has claimed will not be copied.
template <class Place>
void cancel_rest(Place& place, std::uint64_t total, std::int32_t status) {
  BoardPart rest;
  if (claim_part(place, total, total, &rest)) finish_part(place, rest.bytes, status);
}
template <class Place>
[[nodiscard]] bool all_finished(const Place& place, std::uint64_t total) {
  return place.finished.load(std::memory_order_acquire) >= total;
}
// For the sender, when its message has ended, perhaps early. The parts that the sender has claimed,
// and those that nobody has claimed, are not copied. If the receiver still copies, the data may be
// gone: a thread that sees the bytes finished here then sees this status.
template <class Place>
void abandon_place(Place& place, const BoardPart& claimed, std::uint64_t total) {
  if (all_finished(place, total)) return;
  finish_part(place, claimed.bytes, HEDDLE_ERR_CANCELLED);
  cancel_rest(place, total, HEDDLE_ERR_CANCELLED);
}

}  // namespace heddle::wire
