// Ownership of something that mostly one thread uses, and that other threads may come to use. While
// it has an owner, that thread enters and leaves by plain stores (handover.hpp). A thread that is
// not the owner takes it over, which costs that thread a membarrier. When a thread that takes over
// (a mover) asks for it, or all places have owners, the thing has no owner any more, and all
// threads share it by a lock of the caller.
//
//   places_[0] … places_[kOwners]    a Handover for each thread that has been the owner; the first
//                                    has none
//   current_                         the place of the present owner; null: it is shared, for ever
//
// Invariants
//   A place's owner is written before current_ names the place for the first time, and never again:
//   a thread that becomes the owner once more has its old place again, and no other thread enters
//   by it. A thread that ends leaves its place to the later one that has the same mark. Only a
//   thread that has the claim of the place that current_ names, or named until then, writes
//   current_ and known_.
//   Inside is the owner of current_ between enter() and leave(), or the thread that has the claim
//   of current_: the hand-over admits one of them. When current_ moves, the owner of the old place
//   is outside, since the mover has the claim. If that owner enters its old place later, it sees
//   the claim, or sees the claim released and then that current_ has moved. In both cases it
//   leaves; only the owner itself could move current_ back. A helper or mover that claims an old
//   place sees the same, or that current_ has come back to it, and is inside. So writes to an old
//   place affect no thread inside.
//   When shared() is true, no thread is inside by a place, and none ever will be.
//
// Where the kernel has no membarrier it is shared from the beginning.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>

#include "queue/handover.hpp"

namespace heddle::queue {

// `kOwners`: different threads that may own it.
template <template <class> class Atomic = std::atomic, class System = SystemHandover, std::uint32_t kOwners = 15>
class Bias {
 public:
  struct alignas(base::kCacheLine) Place {
    const void* owner = nullptr;
    Handover<Atomic, System> handover;
  };

  explicit Bias(bool possible) : current_(possible ? places_.data() : nullptr) {}
  Bias(const Bias&) = delete;
  Bias& operator=(const Bias&) = delete;

  // Once true, it stays true for ever.
  [[nodiscard]] bool shared() const { return current_.load(std::memory_order_acquire) == nullptr; }

  // `me`: the mark of the calling thread, which is not inside. Not null: the thread is the owner,
  // and is inside until leave(). Null: it is not the owner, or another thread has a claim.
  [[nodiscard]] Place* enter(const void* me) {
    Place* const place = current_.load(std::memory_order_acquire);
    if (place == nullptr || place->owner != me || !place->handover.try_enter()) return nullptr;
    // relaxed: either nobody has moved it since the first look, or it names another place
    if (current_.load(std::memory_order_relaxed) == place) [[likely]]
      return place;
    place->handover.leave();
    return nullptr;
  }
  static void leave(Place* place) { place->handover.leave(); }

  [[nodiscard]] bool owned_by(const void* me) const {
    const Place* const place = current_.load(std::memory_order_acquire);
    return place != nullptr && place->owner == me;
  }

  // Makes the calling thread, which is not inside, the owner; with `share`, makes the thing shared.
  // `number`, `urgent`: as for Handover. False: another thread is inside, or about to be; nothing
  // has happened, or another thread has done it.
  [[nodiscard]] bool take_over(const void* me, bool share, std::uint32_t number, bool urgent) {
    Place* const place = claim(number, urgent);
    if (place == nullptr) return shared();
    current_.store(share ? nullptr : place_of(me), std::memory_order_release);
    give_back(place);
    return true;
  }

  // For a helper: as the hand-over's claims. Not null: the helper is inside until give_back().
  // Null: not now, or the thing is shared.
  [[nodiscard]] Place* claim(std::uint32_t number, bool urgent) {
    Place* const place = current_.load(std::memory_order_acquire);
    if (place == nullptr) return nullptr;
    if (!(urgent ? place->handover.try_claim_urgently(number) : place->handover.try_claim(number))) return nullptr;
    // acquire: it may have been claimed before current_ came back to it
    if (current_.load(std::memory_order_acquire) == place) return place;
    place->handover.release();
    return nullptr;
  }
  static void give_back(Place* place) { place->handover.release(); }

  // The owner, after enter() has said null: as the hand-over's await_helper().
  void await_helper(std::int64_t sleep_ns) {
    if (Place* const place = current_.load(std::memory_order_acquire); place != nullptr) {
      place->handover.await_helper(sleep_ns);
    }
  }

  // ---- any thread; hints
  void fetch_helper(std::int64_t sleep_ns) {
    if (Place* const place = current_.load(std::memory_order_acquire); place != nullptr) {
      place->handover.fetch_helper(sleep_ns);
    }
  }
  [[nodiscard]] bool looks_inside() const {
    const Place* const place = current_.load(std::memory_order_acquire);
    return place != nullptr && place->handover.looks_inside();
  }
  [[nodiscard]] bool looks_wanted() const {
    const Place* const place = current_.load(std::memory_order_acquire);
    return place != nullptr && place->handover.looks_wanted();
  }

 private:
  // For the thread that has the claim of current_. Null: all places have other owners.
  Place* place_of(const void* me) {
    for (Place& place : std::span(places_).first(known_).subspan(1)) {
      if (place.owner == me) return &place;
    }
    if (known_ == places_.size()) return nullptr;
    places_[known_].owner = me;
    return &places_[known_++];
  }

  std::array<Place, kOwners + 1> places_;
  std::uint32_t known_ = 1;  // places that have been current, from the front
  // Release by the thread that moves it, acquire by all: the writes of the owner before, and the
  // new owner's mark.
  Atomic<Place*> current_;
};

}  // namespace heddle::queue
