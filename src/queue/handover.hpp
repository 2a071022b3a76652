// Ownership: an object of one thread that others use (Handover), or take over (Bias).
#pragma once

#include <array>
#include <atomic>
#include <cassert>
#include <cstdint>
#include <span>

#include "base/cache_line.hpp"
#include "base/fence.hpp"

namespace heddle::queue {

// For real machines. Where the kernel has no membarrier, there must be no helpers.
struct SystemHandover {
  // a few microseconds: what a short poll of a helper takes
  static constexpr std::uint32_t kSpins = 200;
  static constexpr std::uint32_t kUrgentLooks = 400;
  static void light() { base::light_fence(); }
  [[nodiscard]] static bool heavy() { return base::membarrier_private() || barrier_failed(); }
  // Says so once, if the kernel forbids the barrier that it allowed before. Returns false.
  [[gnu::cold]] static bool barrier_failed();
  static void relax();
  // Sleeps for a while, as long as *word == expected. From the second `round` on it first moves the
  // helper, thread number `helper`, to the core that the caller is about to leave: on a core that
  // others keep busy, a helper of low priority would go on only after hundreds of milliseconds. So
  // the wait is at most kPatienceNs, plus a migration, plus the time of the helper's use, plus the
  // time that the scheduler gives others on the owner's core.
  static void wait(std::atomic<std::uint32_t>* word, std::uint32_t expected, std::uint32_t helper, std::uint32_t round);
  static void wake(std::atomic<std::uint32_t>* word);
  // As wait() from its second round on: moves the helper, and sleeps for at most `sleep_ns`. Any
  // thread.
  static void fetch(std::atomic<std::uint32_t>* word, std::uint32_t expected, std::uint32_t helper,
                    std::int64_t sleep_ns);
  // Moves the helper to the caller's core, unless it has ended or *word is not `expected`.
  static void bring(std::uint32_t helper, const std::atomic<std::uint32_t>& word, std::uint32_t expected);
  // A number that changes after each move of some helper of this process.
  static std::uint32_t moves();

  static constexpr std::int64_t kPatienceNs = 50'000;
  // Added to the number of a helper that is a thread of the application: it is not moved.
  static constexpr std::uint32_t kStays = 1U << 30;
};

// Something that belongs to one thread, the owner. Other threads, the helpers, may use it while the
// owner is elsewhere. That costs the owner two plain stores and two loads of one line: no lock, no
// fence, no atomic read-modify-write.
//
//   owner                                helper
//   inside = 1                           claim: 0 -> its thread's number (compare-and-swap)
//   light fence                          heavy fence (membarrier)
//   claim == 0 ? go on : wait            inside == 0 ? go on : release the claim
//   … use …                              … use …
//   inside = 0                           claim = 0, and wake the owner if it sleeps
//
// Invariants
//   Each of inside and claim is written by one side (claim: by the helper that has it; a thread
//   that waits only adds kWaiting to it and never removes it).
//   The owner goes on only if it has seen claim == 0 after its store to inside; a helper only if it
//   has seen inside == 0 after its compare-and-swap. The two fences make at least one of them see
//   the other's store (Dekker), so never both go on. If both see the other's, the owner keeps
//   `inside` and the helper releases its claim: the owner waits for at most one look. No helper
//   claims while it sees inside != 0, so only helpers that were already on their way overtake a
//   waiting owner.
//   An urgent claim (kUrgent) is made whether or not the owner is inside. An owner that waits for
//   one steps back: inside = 0 until claim == 0, then it enters anew. So a helper can also help an
//   owner that mostly comes back before the heavy fence is over, and would then win. An owner that
//   comes after the heavy fence sees the claim, so the helper may look again and again.
//
// Waiting owner: a helper may be a thread of low priority that the scheduler has preempted in the
// middle of its work, perhaps on another core that is busy. The owner therefore spins only briefly,
// then sleeps, which leaves the helper the core; what System does beyond that bounds the wait (see
// SystemHandover).
//
// A thread that has the claim must not call enter(), which would wait for that claim: it asks
// held_by() first.
//
// A helper that was moved to another core restores its affinity when it sees that moves() has
// changed. It cannot learn of the move otherwise: the owner may be late, and move a helper that has
// released its claim and gone on, or has restored its affinity already.
template <template <class> class Atomic = std::atomic, class System = SystemHandover>
class Handover {
 public:
  Handover() = default;
  Handover(const Handover&) = delete;
  Handover& operator=(const Handover&) = delete;

  // ---- the owner: one thread at a time, not inside ----

  void enter() {
    inside_.store(1, std::memory_order_relaxed);
    System::light();
    if (claim_.load(std::memory_order_acquire) != 0) [[unlikely]] {
      wait_for_helper();
    }
  }
  // Enters without waiting. False: a helper has the claim, and the owner is outside.
  [[nodiscard]] bool try_enter() {
    inside_.store(1, std::memory_order_relaxed);
    System::light();
    if (claim_.load(std::memory_order_acquire) == 0) [[likely]] {
      return true;
    }
    leave();  // with release: this store, not the last leave's, is what a helper will see
    return false;
  }
  // After try_enter() has said false: sleeps until the helper releases its claim, for System's
  // patience. A helper that takes longer may have been preempted: then gives this core to it, and
  // sleeps for at most `sleep_ns` more.
  void await_helper(std::int64_t sleep_ns) {
    std::uint32_t claim = claim_.load(std::memory_order_relaxed);
    if (claim == 0) return;
    // relaxed: this owner is still outside
    if ((claim & kWaiting) == 0 && !claim_.compare_exchange_strong(claim, claim | kWaiting, std::memory_order_relaxed,
                                                                   std::memory_order_relaxed)) {
      return;
    }
    const std::uint32_t expected = claim | kWaiting;
    System::wait(&claim_, expected, number_of(claim), 0);
    if (claim_.load(std::memory_order_relaxed) != expected) return;
    System::fetch(&claim_, expected, number_of(claim), sleep_ns);
  }
  void leave() { inside_.store(0, std::memory_order_release); }

  // ---- helpers: any other threads ----

  // `thread`: the caller's number, not 0, without the bits kWaiting and kUrgent. False: the owner
  // is inside, another helper has the claim, or the barrier failed; the caller skips this object.
  [[nodiscard]] bool try_claim(std::uint32_t thread) {
    assert(thread >= 1 && (thread & (kWaiting | kUrgent)) == 0);
    if (inside_.load(std::memory_order_relaxed) != 0 || !claim(thread)) return false;
    if (System::heavy() && inside_.load(std::memory_order_acquire) == 0) return true;
    release();
    return false;
  }
  // The same for an owner that enters and leaves all the time: waits for it for a moment, and the
  // owner lets the caller in first.
  [[nodiscard]] bool try_claim_urgently(std::uint32_t thread) {
    assert(thread >= 1 && (thread & (kWaiting | kUrgent)) == 0);
    if (!claim(thread | kUrgent)) return false;
    if (System::heavy()) {
      for (std::uint32_t i = 0; i < System::kUrgentLooks; ++i) {
        if (inside_.load(std::memory_order_acquire) == 0) return true;
        System::relax();
      }
    }
    release();
    return false;
  }
  void release() {
    if ((claim_.exchange(0, std::memory_order_release) & kWaiting) != 0) System::wake(&claim_);
  }

  // ---- any thread ----

  // For another helper that has nothing better to do: gives its core to the helper that has the
  // claim, which may have been preempted, and sleeps for at most `sleep_ns`. No thread wakes it.
  void fetch_helper(std::int64_t sleep_ns) {
    const std::uint32_t claim = claim_.load(std::memory_order_relaxed);
    if (claim != 0) System::fetch(&claim_, claim, number_of(claim), sleep_ns);
  }
  // Whether the thread with this number has the claim. Exact for the caller's own number.
  [[nodiscard]] bool held_by(std::uint32_t thread) const {
    return number_of(claim_.load(std::memory_order_relaxed)) == thread;
  }
  // For heuristics and printing: out of date when the caller reads the result.
  [[nodiscard]] bool looks_claimed() const { return claim_.load(std::memory_order_relaxed) != 0; }
  [[nodiscard]] bool looks_inside() const { return inside_.load(std::memory_order_relaxed) != 0; }
  // An owner waits for the thread that has the claim: inside, or outside (await_helper()).
  [[nodiscard]] bool looks_wanted() const {
    return looks_inside() || (claim_.load(std::memory_order_relaxed) & kWaiting) != 0;
  }

  // Bits of a claim besides the thread's number.
  static constexpr std::uint32_t kWaiting = 1U << 31;
  static constexpr std::uint32_t kUrgent = 1U << 29;

 private:
  static std::uint32_t number_of(std::uint32_t claim) { return claim & ~(kWaiting | kUrgent); }

  bool claim(std::uint32_t word) {
    std::uint32_t nobody = 0;
    return claim_.compare_exchange_strong(nobody, word, std::memory_order_acquire, std::memory_order_relaxed);
  }

  [[gnu::noinline, gnu::cold]] void wait_for_helper() {
    bool stepped_back = false;
    for (std::uint32_t round = 0;; ++round) {
      std::uint32_t claim = claim_.load(std::memory_order_acquire);
      if (claim == 0) {
        if (!stepped_back) return;
        stepped_back = false;
        inside_.store(1, std::memory_order_relaxed);
        System::light();
        continue;
      }
      if ((claim & kUrgent) != 0 && !stepped_back) {
        stepped_back = true;
        leave();
      }
      if (round < System::kSpins) {
        System::relax();
        continue;
      }
      if ((claim & kWaiting) == 0 && !claim_.compare_exchange_strong(claim, claim | kWaiting, std::memory_order_acquire,
                                                                     std::memory_order_relaxed)) {
        continue;
      }
      System::wait(&claim_, claim | kWaiting, number_of(claim), round - System::kSpins);
    }
  }

  // Written by the owner. 1 relaxed: its partner is the heavy fence of try_claim(). 0 release: its
  // partner is the acquire load in try_claim().
  alignas(base::kCacheLine) Atomic<std::uint32_t> inside_{0};
  // 0, or the helper's number with perhaps kUrgent and kWaiting. The helper's acquire
  // (compare-and-swap) and release (exchange) pair with each other and with the owner's acquire
  // loads.
  Atomic<std::uint32_t> claim_{0};
};

// Ownership of something that mostly one thread uses, and that other threads may come to use. While
// it has an owner, that thread enters and leaves by plain stores (Handover). A thread that is
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
//
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
