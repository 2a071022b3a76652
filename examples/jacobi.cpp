// Heat on a torus, 2-D Jacobi steps. The plane is divided into one rectangle per rank. In every
// step each rank sends its border cells to its four neighbours. The exchange is persistent, one for
// each of the two planes: initialised once, started in every step, in progress while the inner
// cells are computed. Rows go directly from plane to plane, since the planes are regions; columns
// are packed. On a torus with one or two ranks along an axis, a rank is its own neighbour, or has
// the same neighbour twice.
#include <array>
#include <cstdio>
#include <heddle/heddle.hpp>
#include <vector>

namespace {

constexpr std::size_t kRows = 48;
constexpr std::size_t kColumns = 40;
constexpr int kSteps = 60;

double initial(std::size_t row, std::size_t column) {
  return static_cast<double>((row * 31 + column * 17) % 101);
}

// The new value of a cell with these neighbours.
double mean(double north, double south, double west, double east) {
  return 0.25 * ((north + south) + (west + east));
}

// The whole torus, computed by one rank.
std::vector<double> computed_alone() {
  std::vector<double> now(kRows * kColumns);
  std::vector<double> next(now.size());
  for (std::size_t i = 0; i < now.size(); ++i) now[i] = initial(i / kColumns, i % kColumns);
  const auto at = [&](std::size_t row, std::size_t column) {
    return now[(row + kRows) % kRows * kColumns + (column + kColumns) % kColumns];
  };
  for (int step = 0; step < kSteps; ++step) {
    for (std::size_t i = 0; i < kRows; ++i) {
      for (std::size_t j = 0; j < kColumns; ++j)
        next[i * kColumns + j] = mean(at(i + kRows - 1, j), at(i + 1, j), at(i, j + kColumns - 1), at(i, j + 1));
    }
    now.swap(next);
  }
  return now;
}

// Ranks along each axis, as square as the cells allow.
struct Torus {
  std::uint32_t down = 0;
  std::uint32_t across = 0;
  explicit Torus(std::uint32_t ranks) {
    for (std::uint32_t d = 1; d * d <= ranks; ++d) {
      if (ranks % d != 0 || kRows % d != 0 || kColumns % (ranks / d) != 0) continue;
      down = d;
      across = ranks / d;
    }
  }
  [[nodiscard]] std::uint32_t rank(std::uint32_t row, std::uint32_t column) const {
    return row % down * across + column % across;
  }
};

// A rank's rectangle, framed by the neighbours' cells and followed by the packed columns.
class Plane {
 public:
  static std::size_t doubles(std::size_t rows, std::size_t columns) { return (rows + 2) * (columns + 2) + 4 * rows; }
  Plane(double* memory, std::size_t rows, std::size_t columns) : cells_(memory), rows_(rows), columns_(columns) {}

  [[nodiscard]] double& at(std::size_t row, std::size_t column) const { return cells_[index(row, column)]; }
  [[nodiscard]] std::size_t index(std::size_t row, std::size_t column) const { return row * (columns_ + 2) + column; }

  void pack() const {
    for (std::size_t i = 0; i < rows_; ++i) {
      cells_[packed(0) + i] = at(i + 1, 1);
      cells_[packed(1) + i] = at(i + 1, columns_);
    }
  }
  void unpack() const {
    for (std::size_t i = 0; i < rows_; ++i) {
      at(i + 1, 0) = cells_[packed(2) + i];
      at(i + 1, columns_ + 1) = cells_[packed(3) + i];
    }
  }

  // Sends to north, south, west, east; receives from south, north, east, west. The northern
  // neighbour receives a rank's send to the north from the south.
  [[nodiscard]] heddle::Persistent exchange(const heddle::Team& team, const Torus& torus) const {
    const std::uint32_t row = team.rank() / torus.across;
    const std::uint32_t column = team.rank() % torus.across;
    const std::uint32_t north = torus.rank(row + torus.down - 1, column);
    const std::uint32_t south = torus.rank(row + 1, column);
    const std::uint32_t west = torus.rank(row, column + torus.across - 1);
    const std::uint32_t east = torus.rank(row, column + 1);
    const std::array targets = {north, south, west, east};
    const std::array sources = {south, north, east, west};
    const heddle_neighbors neighbors = heddle::neighbors(sources, targets);
    const std::array<std::size_t, 4> counts = {columns_, columns_, rows_, rows_};
    const std::array<std::size_t, 4> given = {index(1, 1), index(rows_, 1), packed(0), packed(1)};
    const std::array<std::size_t, 4> taken = {index(rows_ + 1, 1), index(0, 1), packed(3), packed(2)};
    const heddle_blocks send{counts.data(), given.data(), sizeof(double)};
    const heddle_blocks receive{counts.data(), taken.data(), sizeof(double)};
    const heddle_collective_options* defaults = nullptr;
    return team.make<heddle_neighbor_alltoallv_init>(&neighbors, cells_, &send, cells_, &receive, defaults);
  }

 private:
  // Packed columns: sent west and east, received from west and east.
  [[nodiscard]] std::size_t packed(std::size_t which) const { return (rows_ + 2) * (columns_ + 2) + which * rows_; }
  double* cells_;
  std::size_t rows_;
  std::size_t columns_;
};

class Rectangle {
 public:
  Rectangle(const heddle::Context& context, const heddle::Team& team, const Torus& torus)
      : rows_(kRows / torus.down),
        columns_(kColumns / torus.across),
        first_row_(team.rank() / torus.across * rows_),
        first_column_(team.rank() % torus.across * columns_),
        region_(context.alloc(2 * Plane::doubles(rows_, columns_) * sizeof(double))),
        planes_{Plane(region_.memory<double>().data(), rows_, columns_),
                Plane(region_.memory<double>().data() + Plane::doubles(rows_, columns_), rows_, columns_)} {
    for (std::size_t i = 1; i <= rows_; ++i) {
      for (std::size_t j = 1; j <= columns_; ++j)
        planes_[0].at(i, j) = initial(first_row_ + i - 1, first_column_ + j - 1);
    }
    for (std::size_t i = 0; i < 2; ++i) exchanges_[i] = planes_[i].exchange(team, torus);
  }

  void step() {
    const Plane& now = planes_[now_];
    const Plane& next = planes_[1 - now_];
    const auto compute = [&](std::size_t i, std::size_t j) {
      next.at(i, j) = mean(now.at(i - 1, j), now.at(i + 1, j), now.at(i, j - 1), now.at(i, j + 1));
    };
    now.pack();
    heddle::check(exchanges_[now_].start());
    for (std::size_t i = 2; i < rows_; ++i) {
      for (std::size_t j = 2; j < columns_; ++j) compute(i, j);
    }
    heddle::check(exchanges_[now_].wait());
    now.unpack();
    for (std::size_t i = 1; i <= rows_; ++i) {
      const bool border = i == 1 || i == rows_;
      for (std::size_t j = 1; j <= columns_; j += border || j == columns_ ? 1 : columns_ - 1) compute(i, j);
    }
    now_ = 1 - now_;
  }

  [[nodiscard]] std::uint64_t wrong_cells(const std::vector<double>& expected) const {
    std::uint64_t wrong = 0;
    for (std::size_t i = 0; i < rows_; ++i) {
      for (std::size_t j = 0; j < columns_; ++j) {
        const double right = expected[(first_row_ + i) * kColumns + first_column_ + j];
        wrong += planes_[now_].at(i + 1, j + 1) != right ? 1 : 0;
      }
    }
    return wrong;
  }

 private:
  std::size_t rows_;
  std::size_t columns_;
  std::size_t first_row_;
  std::size_t first_column_;
  heddle::Region region_;
  std::array<Plane, 2> planes_;
  std::array<heddle::Persistent, 2> exchanges_;  // destroyed before the region that they use
  std::size_t now_ = 0;
};

}  // namespace

int main() try {
  const auto context = heddle::Context::join();
  const Torus torus(context.size());
  if (torus.down == 0) context.abort(2, "the ranks do not divide 48 rows and 40 columns");
  const auto team = heddle::Team::world(context);
  std::uint64_t wrong = 0;
  {
    Rectangle rectangle(context, team, torus);
    for (int step = 0; step < kSteps; ++step) rectangle.step();
    wrong = team.allreduce(rectangle.wrong_cells(computed_alone()), HEDDLE_SUM);
  }
  if (context.rank() == 0) {
    std::printf("%d steps on %u x %u ranks: %llu cells are not as one rank computes them\n", kSteps, torus.down,
                torus.across, static_cast<unsigned long long>(wrong));
  }
  return wrong == 0 ? 0 : 1;
} catch (const heddle::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
