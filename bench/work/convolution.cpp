// The application of PIOMan's paper: a matrix split among 4 and 16 threads of two processes. Each
// computes its frontier, sends it to its neighbours in tagged messages, inside a process too,
// computes the rest and waits for what they send. The driver runs it under several progress
// policies; before anything is measured the matrix is compared with a serial run.
//
// Every cell becomes four times itself and the sum of its four neighbours, modulo 2^32: exact, so
// that any order of computing gives the same matrix. Beyond the matrix all is 0.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "work/work.hpp"

namespace heddle::bench::work {

namespace {

using harness::Run;

constexpr std::uint64_t kSteps = 3;                           // of the comparison
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 14;  // the matrix has the square of it
constexpr std::size_t kSides = 4;                             // north, south, west, east

struct Cells {
  std::size_t rows = 0;
  std::size_t columns = 0;
};

// A part of the matrix, with a margin for what the neighbours send; or all of it.
class Block {
 public:
  // With the values that these cells, and those around them, have at first.
  Block(Cells whole, Cells begin, Cells size)
      : size_(size), width_(size.columns + 2), now_((size.rows + 2) * width_), next_(now_.size()) {
    for (std::size_t i = 0; i < now_.size(); ++i) {
      // One more than in the matrix, so that the margin of the first is 0.
      const std::size_t row = begin.rows + i / width_;
      const std::size_t column = begin.columns + i % width_;
      const bool inside = row > 0 && row <= whole.rows && column > 0 && column <= whole.columns;
      if (inside) now_[i] = static_cast<std::uint32_t>((row * 2654435761U) ^ (column * 40503U));
    }
  }
  void compute_frontier() {
    compute(1, 1, size_.columns);
    compute(size_.rows, 1, size_.columns);
    for (std::size_t row = 2; row < size_.rows; ++row) {
      compute(row, 1, 1);
      compute(row, size_.columns, size_.columns);
    }
  }
  void compute_rest() {
    for (std::size_t row = 2; row < size_.rows; ++row) compute(row, 2, size_.columns - 1);
  }
  // For the computed step: the frontier on a side, and the margin that a neighbour sent.
  void give(std::size_t side, std::vector<std::uint32_t>* values) const {
    const Line line = line_at(side, 1);
    for (std::size_t i = 0; i < values->size(); ++i) (*values)[i] = next_[line.first + i * line.step];
  }
  void take(std::size_t side, const std::vector<std::uint32_t>& values) {
    const Line line = line_at(side, 0);
    for (std::size_t i = 0; i < values.size(); ++i) next_[line.first + i * line.step] = values[i];
  }
  void advance() { now_.swap(next_); }
  [[nodiscard]] bool is_part_of(const Block& whole, Cells begin) const {
    for (std::size_t row = 1; row <= size_.rows; ++row) {
      const std::uint32_t* mine = &now_[row * width_ + 1];
      const std::uint32_t* its = &whole.now_[(begin.rows + row) * whole.width_ + begin.columns + 1];
      if (!std::equal(mine, mine + size_.columns, its)) return false;
    }
    return true;
  }

 private:
  struct Line {
    std::size_t first;
    std::size_t step;
  };
  // So many cells from the margin inwards.
  [[nodiscard]] Line line_at(std::size_t side, std::size_t inwards) const {
    const std::array<Line, kSides> lines = {{{inwards * width_ + 1, 1},
                                             {(size_.rows + 1 - inwards) * width_ + 1, 1},
                                             {width_ + inwards, width_},
                                             {width_ + size_.columns + 1 - inwards, width_}}};
    return lines[side];
  }
  void compute(std::size_t row, std::size_t first, std::size_t last) {
    const std::uint32_t* here = &now_[row * width_];
    const std::uint32_t* above = here - width_;
    const std::uint32_t* below = here + width_;
    std::uint32_t* out = &next_[row * width_];
    for (std::size_t i = first; i <= last; ++i) out[i] = 4 * here[i] + here[i - 1] + here[i + 1] + above[i] + below[i];
  }

  Cells size_;
  std::size_t width_;
  std::vector<std::uint32_t> now_;
  std::vector<std::uint32_t> next_;
};

// The threads of both processes as a grid, as square as halves of whole columns go: 4 are 2 × 2, 16
// are 4 × 4. Process 0 has the western half.
class Grid {
 public:
  struct Who {
    std::uint32_t rank;
    std::uint32_t thread;
  };
  explicit Grid(std::uint32_t threads) {
    while (4 * rows_ * rows_ <= 2 * threads && threads % (2 * rows_) == 0) rows_ *= 2;
    half_ = threads / rows_;
  }
  // In blocks.
  [[nodiscard]] Cells size() const { return {rows_, 2 * half_}; }
  [[nodiscard]] Cells place_of(Who who) const { return {who.thread / half_, who.rank * half_ + who.thread % half_}; }
  [[nodiscard]] std::optional<Who> neighbour(Who who, std::size_t side) const {
    Cells place = place_of(who);
    std::size_t& moved = side < 2 ? place.rows : place.columns;
    moved += side % 2 == 0 ? std::size_t(-1) : 1;  // before the first is beyond the last
    if (place.rows >= rows_ || place.columns >= 2 * half_) return std::nullopt;
    return Who{static_cast<std::uint32_t>(place.columns / half_),
               static_cast<std::uint32_t>(place.rows * half_ + place.columns % half_)};
  }

 private:
  std::uint32_t rows_ = 1;
  std::uint32_t half_;
};

// The part of one thread.
struct Part {
  Block block;
  std::array<std::optional<Grid::Who>, kSides> neighbours;
  std::array<std::vector<std::uint32_t>, kSides> in;
  std::array<std::vector<std::uint32_t>, kSides> out;
};

class Convolution {
 public:
  Convolution(Bench& bench, Heddle& library, std::uint32_t threads, std::size_t side)
      : bench_(bench), library_(library), side_(side), grid_(threads) {
    for (std::uint32_t i = 0; i < threads; ++i) {
      Part part{{whole(), begin_of(i), {side, side}}, {}, {}, {}};
      for (std::size_t k = 0; k < kSides; ++k) {
        part.neighbours[k] = grid_.neighbour({bench.rank(), i}, k);
        part.in[k].resize(side);
        part.out[k].resize(side);
      }
      parts_.push_back(std::move(part));
    }
  }

  Run steps(std::uint64_t n) {
    const harness::BenchSession& session = bench_.session();
    const auto pin = [&](std::uint32_t thread) { session.cores().pin_sharing(session.rank(), thread); };
    const auto work = [&](std::uint32_t thread) {
      for (std::uint64_t i = 0; i < n; ++i) step(thread);
    };
    return Run{harness::run_threads(static_cast<std::uint32_t>(parts_.size()), pin, work).ns()};
  }
  // Both processes' parts are what a serial run gives. Collective; right after the construction.
  bool right() {
    steps(kSteps);
    Block serial(whole(), {}, whole());
    for (std::uint64_t i = 0; i < kSteps; ++i) {
      serial.compute_frontier();
      serial.compute_rest();
      serial.advance();
    }
    bool same = true;
    for (std::uint32_t i = 0; i < parts_.size(); ++i) same = same && parts_[i].block.is_part_of(serial, begin_of(i));
    return bench_.everywhere(same);
  }

 private:
  [[nodiscard]] Cells whole() const { return {grid_.size().rows * side_, grid_.size().columns * side_}; }
  [[nodiscard]] Cells begin_of(std::uint32_t thread) const {
    const Cells place = grid_.place_of({bench_.rank(), thread});
    return {place.rows * side_, place.columns * side_};
  }
  // To a thread, from that side of it.
  static std::uint64_t tag_of(std::uint32_t thread, std::size_t side) { return thread * kSides + side; }

  void step(std::uint32_t thread) {
    Part& mine = parts_[thread];
    const std::uint64_t bytes = side_ * sizeof(std::uint32_t);
    std::array<Heddle::Request, kSides> requests;
    for (std::size_t side = 0; side < kSides; ++side) {
      if (!mine.neighbours[side]) continue;
      library_.receive(thread, measure::kAny, tag_of(thread, side), mine.in[side].data(), bytes, requests[side]);
    }
    mine.block.compute_frontier();
    for (std::size_t side = 0; side < kSides; ++side) {
      if (!mine.neighbours[side]) continue;
      const Grid::Who to = *mine.neighbours[side];
      mine.block.give(side, &mine.out[side]);
      // the side opposite to each is the other one of its pair
      library_.send_to(thread, library_.at_lane(to.rank, to.thread), tag_of(to.thread, side ^ 1U),
                       mine.out[side].data(), bytes);
    }
    mine.block.compute_rest();
    library_.wait_all(thread, requests.data(), kSides);
    for (std::size_t side = 0; side < kSides; ++side) {
      if (mine.neighbours[side]) mine.block.take(side, mine.in[side]);
    }
    mine.block.advance();
  }

  Bench& bench_;
  Heddle& library_;
  const std::size_t side_;
  const Grid grid_;
  std::vector<Part> parts_;  // by thread
};

std::string policy() {
  const char* set = std::getenv("HEDDLE_PROGRESS");
  return set != nullptr && *set != '\0' ? set : "default";
}

}  // namespace

void run_convolution(Bench& bench, Heddle& library) {
  if (!bench.wants("convolution")) return;
  const bool quick = bench.options().quick;
  for (const std::uint64_t size : bench.sizes("convolution", {quick ? 256U : 4096U}, kMostBytes)) {
    if (size < 16) continue;
    for (const std::uint32_t threads : harness::threads_or(bench.options(), harness::kConvolutionThreads)) {
      Convolution convolution(bench, library, threads, size / sizeof(std::uint32_t));
      const bool right = convolution.right();
      bench.session().measure(bench.figure({"convolution", policy(), "latency", size, 1, threads}),
                              [&](std::uint64_t n) {
                                Run run = convolution.steps(n);
                                run.verified = right;
                                return run;
                              });
    }
  }
}

}  // namespace heddle::bench::work
