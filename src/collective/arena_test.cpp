#include "collective/commons.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.hpp"

namespace heddle::collective::arena_test {
namespace {

struct Memory {
  explicit Memory(std::size_t count) : words(count) {}
  std::vector<CounterWord> words;
  std::byte* base() { return reinterpret_cast<std::byte*>(words.data()); }
  [[nodiscard]] std::uint64_t bytes() const { return words.size() * sizeof(CounterWord); }
};

TEST(Arena, GivesPiecesThatDoNotOverlapUntilItIsFull) {
  Memory memory(8);
  Arena arena(memory.base(), memory.bytes());
  std::vector<std::uint64_t> offsets;
  while (const auto offset = arena.take(sizeof(CounterWord) - 1)) offsets.push_back(*offset);
  std::ranges::sort(offsets);
  ASSERT_EQ(offsets.size(), 8U);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(offsets[i], i * sizeof(CounterWord));
}

TEST(Arena, JoinsNeighboursThatWereGivenBack) {
  Memory memory(64);
  Arena arena(memory.base(), memory.bytes());
  base::Random random(3);
  std::vector<std::uint64_t> held;
  for (int i = 0; i < 2000; ++i) {
    const auto offset = random.below(2) == 0 ? arena.take(1 + random.below(6 * sizeof(CounterWord))) : std::nullopt;
    if (offset) held.push_back(*offset);
    if (offset || held.empty()) continue;
    std::swap(held[random.below(held.size())], held.back());
    arena.give_back(held.back());
    held.pop_back();
  }
  for (const std::uint64_t offset : held) arena.give_back(offset);
  EXPECT_EQ(arena.take(memory.bytes()), 0U);
}

TEST(Arena, KeepsAPieceUntilAllThatPeersOweHasCome) {
  Memory memory(4);
  Arena arena(memory.base(), memory.bytes());
  ASSERT_EQ(arena.take(memory.bytes()), 0U);
  bool gone = false;
  memory.words[0].credits = 3;
  memory.words[1].credits = 6;
  arena.give_back_after(0, {3, 7}, [&] { gone = true; });
  EXPECT_EQ(arena.take(1), std::nullopt);
  EXPECT_FALSE(gone);
  memory.words[1].credits = 7;
  EXPECT_EQ(arena.take(memory.bytes()), 0U);
  EXPECT_TRUE(gone);
}

}  // namespace
}  // namespace heddle::collective::arena_test
