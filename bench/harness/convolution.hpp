// The application of PIOMan's paper, without its messages: a matrix that is split among threads,
// each of which computes its frontier, has it sent, computes the rest, and needs its neighbours'
// frontiers before the next step.
//
// Every cell becomes four times itself and the sum of its four neighbours, modulo 2^32: exact, so
// that any order of computing gives the same matrix. Beyond the matrix all is 0.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace heddle::bench::harness {

enum class Side : std::uint32_t { north = 0, south = 1, west = 2, east = 3 };
inline std::size_t index_of(Side side) {
  return static_cast<std::size_t>(side);
}
inline constexpr std::array<Side, 4> kSides = {Side::north, Side::south, Side::west, Side::east};
inline Side opposite(Side side) {
  return static_cast<Side>(static_cast<std::uint32_t>(side) ^ 1U);
}

// The threads of the two processes as a grid: 4 are 2 × 2, 16 are 4 × 4; process 0 has the western
// half.
struct ThreadGrid {
  std::uint32_t rows = 0;
  std::uint32_t columns = 0;
  // Of `threads` threads in each of two processes.
  static ThreadGrid of(std::uint32_t threads);
};
struct Place {
  std::uint32_t row = 0;
  std::uint32_t column = 0;
};
struct Neighbour {
  bool there = false;
  std::uint32_t rank = 0;
  std::uint32_t thread = 0;
};
Place place_of(const ThreadGrid& grid, std::uint32_t rank, std::uint32_t thread);
Neighbour neighbour_of(const ThreadGrid& grid, std::uint32_t rank, std::uint32_t thread, Side side);

// One thread's part: side × side cells and a margin for what the neighbours send.
class Block {
 public:
  // With the values that these cells of the matrix, and those around them, have at first.
  Block(const ThreadGrid& grid, Place place, std::uint32_t side);

  void compute_frontier();  // of the next step
  void compute_rest();
  // The margin of the next step, from the neighbour on that side; and the frontier that goes to it.
  void take(Side side, const std::uint32_t* values);
  void give(Side side, std::uint32_t* values) const;
  void advance();  // the next step becomes this one

  [[nodiscard]] std::uint32_t side() const { return side_; }
  [[nodiscard]] std::uint32_t cell(std::uint32_t row, std::uint32_t column) const { return now_[at(row, column)]; }
  // The matrix's first values.
  static std::uint32_t first_value(std::uint32_t row, std::uint32_t column);

 private:
  [[nodiscard]] std::size_t at(std::size_t row, std::size_t column) const {
    return (row + 1) * (side_ + 2) + column + 1;
  }
  void compute(std::uint32_t row, std::uint32_t first, std::uint32_t last);
  std::uint32_t side_;
  std::vector<std::uint32_t> now_;
  std::vector<std::uint32_t> next_;
};

// The same on the whole matrix at once, by one thread.
class SerialConvolution {
 public:
  SerialConvolution(std::uint32_t rows, std::uint32_t columns);
  void step();
  [[nodiscard]] std::uint32_t cell(std::uint32_t row, std::uint32_t column) const;
  // Is the block at this place of the matrix the same?
  [[nodiscard]] bool has(const Block& block, Place place) const;

 private:
  std::uint32_t rows_;
  std::uint32_t columns_;
  std::vector<std::uint32_t> cells_;
};

}  // namespace heddle::bench::harness
