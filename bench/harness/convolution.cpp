#include "harness/convolution.hpp"

namespace heddle::bench::harness {

ThreadGrid ThreadGrid::of(std::uint32_t threads) {
  // As square as halves of whole columns go.
  std::uint32_t rows = 1;
  while (4 * rows * rows <= 2 * threads && threads % (2 * rows) == 0) rows *= 2;
  return {rows, 2 * threads / rows};
}

Place place_of(const ThreadGrid& grid, std::uint32_t rank, std::uint32_t thread) {
  const std::uint32_t half = grid.columns / 2;
  return {thread / half, rank * half + thread % half};
}

Neighbour neighbour_of(const ThreadGrid& grid, std::uint32_t rank, std::uint32_t thread, Side side) {
  Place place = place_of(grid, rank, thread);
  const bool edge = (side == Side::north && place.row == 0) || (side == Side::west && place.column == 0) ||
                    (side == Side::south && place.row + 1 == grid.rows) ||
                    (side == Side::east && place.column + 1 == grid.columns);
  if (edge) return {};
  if (side == Side::north) --place.row;
  if (side == Side::south) ++place.row;
  if (side == Side::west) --place.column;
  if (side == Side::east) ++place.column;
  const std::uint32_t half = grid.columns / 2;
  return {true, place.column / half, place.row * half + place.column % half};
}

std::uint32_t Block::first_value(std::uint32_t row, std::uint32_t column) {
  return (row * 2654435761U) ^ (column * 40503U + 1U);
}

Block::Block(const ThreadGrid& grid, Place place, std::uint32_t side) : side_(side) {
  const std::size_t width = std::size_t{side} + 2;
  now_.resize(width * width);
  next_.resize(width * width);
  // One more in each direction, so that the margin is at 0 and side + 1, and what lies beyond the
  // matrix is 0.
  for (std::uint32_t i = 0; i < width; ++i) {
    const std::uint32_t row = place.row * side + i;
    if (row == 0 || row > grid.rows * side) continue;
    for (std::uint32_t j = 0; j < width; ++j) {
      const std::uint32_t column = place.column * side + j;
      if (column == 0 || column > grid.columns * side) continue;
      now_[i * width + j] = first_value(row - 1, column - 1);
    }
  }
}

// Cells first … last - 1 of a row.
void Block::compute(std::uint32_t row, std::uint32_t first, std::uint32_t last) {
  const std::uint32_t* here = &now_[at(row, 0)];
  const std::uint32_t* above = here - (side_ + 2);
  const std::uint32_t* below = here + (side_ + 2);
  std::uint32_t* out = &next_[at(row, 0)];
  for (std::ptrdiff_t i = first; i < static_cast<std::ptrdiff_t>(last); ++i) {
    out[i] = 4 * here[i] + here[i - 1] + here[i + 1] + above[i] + below[i];
  }
}

void Block::compute_frontier() {
  compute(0, 0, side_);
  compute(side_ - 1, 0, side_);
  for (std::uint32_t row = 1; row + 1 < side_; ++row) {
    compute(row, 0, 1);
    compute(row, side_ - 1, side_);
  }
}

void Block::compute_rest() {
  for (std::uint32_t row = 1; row + 1 < side_; ++row) compute(row, 1, side_ - 1);
}

void Block::give(Side side, std::uint32_t* values) const {
  for (std::uint32_t i = 0; i < side_; ++i) {
    const std::size_t cell = side == Side::north   ? at(0, i)
                             : side == Side::south ? at(side_ - 1, i)
                             : side == Side::west  ? at(i, 0)
                                                   : at(i, side_ - 1);
    values[i] = next_[cell];
  }
}

void Block::take(Side side, const std::uint32_t* values) {
  const std::size_t width = std::size_t{side_} + 2;
  for (std::size_t i = 0; i < side_; ++i) {
    const std::size_t cell = side == Side::north   ? i + 1
                             : side == Side::south ? (std::size_t{side_} + 1) * width + i + 1
                             : side == Side::west  ? (i + 1) * width
                                                   : (i + 1) * width + side_ + 1;
    next_[cell] = values[i];
  }
}

void Block::advance() {
  now_.swap(next_);
}

SerialConvolution::SerialConvolution(std::uint32_t rows, std::uint32_t columns)
    : rows_(rows), columns_(columns), cells_(std::size_t{rows} * columns) {
  for (std::uint32_t row = 0; row < rows; ++row) {
    for (std::uint32_t column = 0; column < columns; ++column) {
      cells_[std::size_t{row} * columns + column] = Block::first_value(row, column);
    }
  }
}

std::uint32_t SerialConvolution::cell(std::uint32_t row, std::uint32_t column) const {
  return cells_[std::size_t{row} * columns_ + column];
}

void SerialConvolution::step() {
  std::vector<std::uint32_t> next(cells_.size());
  for (std::uint32_t row = 0; row < rows_; ++row) {
    for (std::uint32_t column = 0; column < columns_; ++column) {
      std::uint32_t sum = 4 * cell(row, column);
      if (row > 0) sum += cell(row - 1, column);
      if (row + 1 < rows_) sum += cell(row + 1, column);
      if (column > 0) sum += cell(row, column - 1);
      if (column + 1 < columns_) sum += cell(row, column + 1);
      next[std::size_t{row} * columns_ + column] = sum;
    }
  }
  cells_.swap(next);
}

bool SerialConvolution::has(const Block& block, Place place) const {
  for (std::uint32_t row = 0; row < block.side(); ++row) {
    for (std::uint32_t column = 0; column < block.side(); ++column) {
      if (block.cell(row, column) != cell(place.row * block.side() + row, place.column * block.side() + column)) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace heddle::bench::harness
