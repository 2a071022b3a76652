// A barrier over words in memory: every rank of a job reads all of them and writes one. No call
// waits. If ranks die, all others find the same result. It is one kind of collective among others;
// the caller executes these by other means, and also a barrier that has gone astray.
//
// Each rank counts the collectives it enters; all ranks enter the same number of them, but not
// always the same ones. A rank's word says how many, and whether the last one is a barrier.
//
// Invariants
//   The number in a rank's word never falls. A rank enters collective n + 1 after it has left n. It
//   finds that all have come to barrier n only when every word says barrier n, or a number above n.
//   That stays true if ranks die. If some rank's n-th collective is no barrier, or a rank died
//   before it entered it, that never happens, and all the living find that they are astray. A word
//   is written with release and read with acquire: everything done before a barrier happens before
//   everything after it. The word of a rank that is known to be dead is read after the death was
//   known, and no longer changes.
//
// Words that other processes write are not trusted: any value means one of the three findings.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

namespace heddle::queue {

template <template <class> class Atomic = std::atomic>
class Meeting {
 public:
  enum class Found : std::uint8_t { waiting, all, astray };

  // One thread at a time. `words`: zeros at first, the same for all ranks; `rank` writes its own.
  Meeting() = default;
  Meeting(std::span<Atomic<std::uint64_t>> words, std::uint32_t rank) : words_(words), rank_(rank) {}

  // This rank enters its next collective.
  void enter(bool barrier) {
    ++number_;
    first_ = 0;
    // Release: everything done before. Partner: the acquire load in look_at().
    words_[rank_].store(number_ << 1 | (barrier ? 1U : 0U), std::memory_order_release);
  }

  // For a rank in a barrier. failed(rank): it is known to be dead.
  template <class Failed>
  [[nodiscard]] Found look(Failed&& failed) {
    while (first_ < words_.size() && look_at(first_) == Found::all) ++first_;
    if (first_ == words_.size()) return Found::all;
    // Ranks behind that one may have gone astray, and that one may wait for them.
    for (std::uint32_t rank = first_; rank < words_.size(); ++rank) {
      const bool dead = failed(rank);
      const Found found = look_at(rank);
      if (found == Found::astray || (dead && found == Found::waiting)) return Found::astray;
    }
    return Found::waiting;
  }

  // Ranks that have not come.
  [[nodiscard]] std::vector<std::uint32_t> awaited() const {
    std::vector<std::uint32_t> ranks;
    for (std::uint32_t rank = 0; rank < words_.size(); ++rank) {
      if (look_at(rank) == Found::waiting) ranks.push_back(rank);
    }
    return ranks;
  }

 private:
  [[nodiscard]] Found look_at(std::uint32_t rank) const {
    const std::uint64_t word = words_[rank].load(std::memory_order_acquire);
    const std::uint64_t number = word >> 1;
    if (number < number_) return Found::waiting;
    return number > number_ || (word & 1) != 0 ? Found::all : Found::astray;
  }

  std::span<Atomic<std::uint64_t>> words_;
  std::uint32_t rank_ = 0;
  std::uint64_t number_ = 0;  // of the collective that this rank is in, or was in last
  std::uint32_t first_ = 0;   // ranks below it are known to have come
};

}  // namespace heddle::queue
