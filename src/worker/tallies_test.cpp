#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "worker/sharing.hpp"

namespace heddle::worker::tallies_test {
namespace {

// More threads than have a line of their own would take long; what they do differs only in the
// instruction.
TEST(Tallies, NeverSayThatMoreWereCommandsThanWerePosted) {
  constexpr int kReads = 20'000;
  Tallies tallies;
  std::atomic<bool> over{false};
  std::atomic<std::uint64_t> posted{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 2; ++thread) {
    threads.emplace_back([&] {
      std::uint64_t mine = 0;
      while (!over.load(std::memory_order_relaxed)) {
        tallies.add_command(&Tally::puts, 8);
        ++mine;
      }
      posted += mine;
    });
  }
  std::uint64_t moved = 0;  // reads between which something was posted: else nothing was tested
  std::uint64_t before = 0;
  std::uint64_t wrong = 0;
  for (int i = 0; i < kReads || moved < 100; ++i) {
    const Tally seen = tallies.sum();
    wrong += seen.puts < seen.commands ? 1 : 0;
    moved += seen.puts != before ? 1 : 0;
    before = seen.puts;
    if (i % 64 == 0) std::this_thread::yield();
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0U);
  EXPECT_EQ(tallies.sum().puts, posted.load());
  EXPECT_EQ(tallies.sum().commands, posted.load());
}

}  // namespace
}  // namespace heddle::worker::tallies_test
