// Random access (GUPS): the stream of updates, the same for Heddle and for its peers.
//
// Each thread has its own seeded stream. An update xors a 64-bit random number into a word of the
// table, which that number chooses; so applying all updates twice gives the first table again. A
// word that differs then has lost an update to a race.
#pragma once

#include <cstdint>

#include "base/random.hpp"

namespace heddle::bench::harness {

// as in the papers: 20 M, 160 MiB
inline constexpr std::uint64_t kGupsDefaultWords = std::uint64_t{20} << 20;
inline constexpr std::uint64_t kGupsQuickWords = std::uint64_t{64} << 10;
// the share of updates that get + xor + put may lose (HPCC's rule)
inline constexpr double kGupsRacyBound = 0.01;

struct GupsUpdate {
  std::uint64_t value;
  std::uint32_t owner;  // rank
  std::uint64_t index;  // of the word in the owner's half
};

class GupsStream {
 public:
  GupsStream(std::uint32_t rank, std::uint32_t thread, std::uint64_t words_per_rank)
      : random_(1 + rank + 2 * std::uint64_t{thread}), words_per_rank_(words_per_rank) {}

  GupsUpdate next() {
    const std::uint64_t value = random_.next();
    __extension__ typedef unsigned __int128 Wide;  // not ISO C++, but of both compilers
    const auto at = static_cast<std::uint64_t>((static_cast<Wide>(value) * (2 * words_per_rank_)) >> 64);
    const bool second = at >= words_per_rank_;
    return {value, second ? 1U : 0U, second ? at - words_per_rank_ : at};
  }

 private:
  base::Random random_;
  std::uint64_t words_per_rank_;
};

inline std::uint64_t gups_words_per_rank(std::uint64_t total, bool quick) {
  return (total != 0 ? total : quick ? kGupsQuickWords : kGupsDefaultWords) / 2;
}

// The table before the updates.
inline void gups_fill(std::uint64_t* table, std::uint64_t words) {
  for (std::uint64_t i = 0; i < words; ++i) table[i] = i;
}
inline std::uint64_t gups_count_wrong(const std::uint64_t* table, std::uint64_t words) {
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < words; ++i) wrong += table[i] != i ? 1 : 0;
  return wrong;
}

}  // namespace heddle::bench::harness
