// How much of its time a shared resource has granted, in the timing model: a link, or the lock that
// registrations take.
//
// Time is divided into bins. For each bin the ledger knows how much is taken, and up to which
// point. A request takes the time that is free from its own time on, in pieces if necessary, as
// packets of several messages share a link. So the ledger never grants more time than there is. A
// request that comes late in the real run with an early virtual time still finds what was free then
// (a Calendar remembers only 128 pieces: too few where many threads leave gaps). The price: if
// requests do not come in the order of their times, grants may overlap within a bin.
//
// Zeroed memory is a ledger in which nothing is taken, so it may lie in fresh shared memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace tofu_emulator {

class Ledger {
 public:
  static constexpr std::uint64_t kBin = 128;  // ns
  // 8.4 ms are remembered. Earlier time counts as taken: time may be wasted, but is never granted
  // twice.
  static constexpr std::uint64_t kBins = std::uint64_t{1} << 16U;

  struct Grant {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };

  // Grants `length` nanoseconds, the first not before `earliest`.
  Grant take(std::uint64_t earliest, std::uint64_t length) {
    earliest = std::max(earliest, first_ * kBin);
    Grant grant{earliest, earliest};
    for (std::uint64_t bin = earliest / kBin, left = length; left != 0; ++bin) {
      remember(bin);
      const std::uint64_t from = std::max(earliest, bin * kBin) - bin * kBin;
      std::uint64_t begin = from;
      const std::uint64_t end = take_of(bins_[bin % kBins], from, &begin, &left);
      if (end == from) continue;  // none was free
      if (grant.end == earliest) grant.begin = bin * kBin + begin;
      grant.end = bin * kBin + end;
    }
    return grant;
  }

 private:
  struct Bin {
    std::uint8_t taken = 0;  // nanoseconds taken in total
    std::uint8_t end = 0;    // the bin is free from here on
  };

  // Takes from a bin up to *left of what is free from `from` on. Sets where it begins, and returns
  // where it ends; returns `from` if nothing was free. The positions of gaps before the end of the
  // taken time are not known; the earliest time is assumed to be free.
  static std::uint64_t take_of(Bin& bin, std::uint64_t from, std::uint64_t* begin, std::uint64_t* left) {
    const std::uint64_t after = std::max<std::uint64_t>(from, bin.end);
    const std::uint64_t gaps = after - from > bin.taken ? after - from - bin.taken : 0;
    const std::uint64_t piece = std::min(gaps + kBin - after, *left);
    if (piece == 0) return from;
    *begin = gaps != 0 ? from : after;
    *left -= piece;
    const std::uint64_t end = piece > gaps ? after + piece - gaps : from + piece;
    bin.taken = static_cast<std::uint8_t>(bin.taken + piece);
    bin.end = static_cast<std::uint8_t>(std::max<std::uint64_t>(bin.end, end));
    return end;
  }

  void remember(std::uint64_t bin) {
    if (bin < first_ + kBins) return;
    const std::uint64_t first = bin - kBins + 1;
    if (first - first_ >= kBins) {
      bins_.fill({});
    } else {
      for (std::uint64_t old = first_; old != first; ++old) bins_[old % kBins] = {};
    }
    first_ = first;
  }

  std::uint64_t first_ = 0;  // the oldest remembered bin
  std::array<Bin, kBins> bins_;
};
static_assert(Ledger::kBin < 256);

}  // namespace tofu_emulator
