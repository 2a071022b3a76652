// Who owns something that mostly one thread uses, and that others may come to use. While it has an
// owner, that thread enters and leaves by plain stores (handover.hpp). A thread that is not the
// owner takes it over, which costs it a membarrier. When a mover says so, or all places have
// owners, nobody owns it any more, and all share it by a lock of the caller's.
//
//   places_[0] … places_[kOwners]    a Handover for each thread that has been the owner; the first
//                                    has none
//   current_                         the place of the present owner; null: it is shared, for ever
//
// Invariants
//   A place's owner is written before current_ names the place for the first time, and never again:
//   a thread that becomes the owner once more has its old place again, and no other thread enters
//   by it. A thread that ends leaves its place to the later one that has the same mark. current_
//   and known_ are written by a thread that has the claim of the place that current_ names, or
//   names till then.
//   Inside is the owner of current_ between enter() and leave(), or who has the claim of current_:
//   the hand-over admits one of them. When current_ moves, the owner of the old place is outside,
//   since the mover has the claim. An owner who enters its old place later sees the claim, or sees
//   it released and then that current_ has moved: it leaves; only itself could move current_ back.
//   A helper or mover that claims an old place sees the same, or that current_ has come back to it,
//   and is inside. So what is written to an old place concerns nobody.
//   When shared() is true, nobody is inside by a place, nor ever will be.
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

  // For ever, once it has been true.
  [[nodiscard]] bool shared() const { return current_.load(std::memory_order_acquire) == nullptr; }

  // `me`: what names the calling thread, which is not inside. Not null: it is the owner, and is
  // inside until leave(). Null: it is not, or somebody has a claim.
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

  // Makes the calling thread, which is not inside, the owner; with `share` the thing shared.
  // `number`, `urgent`: as for Handover. False: somebody is inside, or about to be; nothing has
  // happened, or another thread has done it.
  [[nodiscard]] bool take_over(const void* me, bool share, std::uint32_t number, bool urgent) {
    Place* const place = claim(number, urgent);
    if (place == nullptr) return shared();
    current_.store(share ? nullptr : place_of(me), std::memory_order_release);
    give_back(place);
    return true;
  }

  // A helper: as the hand-over's claims. Not null: inside until give_back(). Null: not now, or it
  // is shared.
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
  // For who has the claim of current_. Null: all have other owners.
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
  // Release by who moves it, acquire by all: what the owner before has written, and the new one's
  // name.
  Atomic<Place*> current_;
};

}  // namespace heddle::queue
