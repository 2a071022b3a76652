#include "harness/convolution.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <utility>
#include <vector>

namespace heddle::bench::harness {
namespace {

constexpr std::uint32_t kSide = 5;

// All threads of both processes, exchanging by hand; `lost`: this many exchanges go wrong.
bool runs_right(std::uint32_t threads, std::uint32_t steps, bool lose_one) {
  const ThreadGrid grid = ThreadGrid::of(threads);
  std::vector<std::unique_ptr<Block>> blocks;
  for (std::uint32_t i = 0; i < 2 * threads; ++i) {
    blocks.push_back(std::make_unique<Block>(grid, place_of(grid, i / threads, i % threads), kSide));
  }
  SerialConvolution serial(grid.rows * kSide, grid.columns * kSide);
  for (std::uint32_t step = 0; step < steps; ++step) {
    for (const auto& block : blocks) block->compute_frontier();
    for (const auto& block : blocks) block->compute_rest();
    for (std::uint32_t i = 0; i < 2 * threads; ++i) {
      for (const Side side : kSides) {
        const Neighbour to = neighbour_of(grid, i / threads, i % threads, side);
        if (!to.there || (lose_one && step == 0 && i == 0 && side == Side::east)) continue;
        std::uint32_t values[kSide];
        blocks[i]->give(side, values);
        blocks[to.rank * threads + to.thread]->take(opposite(side), values);
      }
    }
    for (const auto& block : blocks) block->advance();
    serial.step();
  }
  bool right = true;
  for (std::uint32_t i = 0; i < 2 * threads; ++i) {
    right = serial.has(*blocks[i], place_of(grid, i / threads, i % threads)) && right;
  }
  return right;
}

TEST(Convolution, PartsGiveWhatTheWholeGives) {
  for (const std::uint32_t threads : {1U, 2U, 3U, 4U, 6U, 8U}) EXPECT_TRUE(runs_right(threads, 7, false)) << threads;
}

TEST(Convolution, AMissingFrontierIsNoticed) {
  EXPECT_TRUE(runs_right(2, 1, true)) << "the first step needs none";
  EXPECT_FALSE(runs_right(2, 2, true));
}

TEST(Convolution, OneStepByHand) {
  SerialConvolution matrix(2, 2);
  const std::uint32_t expected = 4 * Block::first_value(0, 1) + Block::first_value(0, 0) + Block::first_value(1, 1);
  matrix.step();
  EXPECT_EQ(matrix.cell(0, 1), expected);
}

TEST(Convolution, TheGridOfThePaper) {
  EXPECT_EQ(std::pair(ThreadGrid::of(2).rows, ThreadGrid::of(2).columns), std::pair(2U, 2U));
  EXPECT_EQ(std::pair(ThreadGrid::of(8).rows, ThreadGrid::of(8).columns), std::pair(4U, 4U));
  EXPECT_EQ(std::pair(ThreadGrid::of(3).rows, ThreadGrid::of(3).columns), std::pair(1U, 6U));
}

TEST(Convolution, NeighboursAreEachOthers) {
  for (const std::uint32_t threads : {1U, 2U, 5U, 8U}) {
    const ThreadGrid grid = ThreadGrid::of(threads);
    std::set<std::pair<std::uint32_t, std::uint32_t>> places;
    std::uint32_t between = 0;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      for (std::uint32_t thread = 0; thread < threads; ++thread) {
        const Place place = place_of(grid, rank, thread);
        EXPECT_TRUE(place.row < grid.rows && place.column < grid.columns);
        places.emplace(place.row, place.column);
        for (const Side side : kSides) {
          const Neighbour other = neighbour_of(grid, rank, thread, side);
          if (!other.there) continue;
          between += other.rank != rank ? 1 : 0;
          const Neighbour back = neighbour_of(grid, other.rank, other.thread, opposite(side));
          EXPECT_TRUE(back.there && back.rank == rank && back.thread == thread);
        }
      }
    }
    EXPECT_EQ(places.size(), 2 * threads) << "each thread has a place of its own";
    EXPECT_EQ(between, 2 * grid.rows);
  }
}

}  // namespace
}  // namespace heddle::bench::harness
