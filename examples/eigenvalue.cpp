// The largest eigenvalue of a matrix whose rows are distributed over the ranks, by the power
// method. Both collective operations of a step are persistent: initialised once, started in every
// step. The sum is in progress while the next product is computed.
#include <cmath>
#include <cstdio>
#include <heddle/heddle.hpp>

namespace {

constexpr std::size_t kRowsInAll = 96;
constexpr int kSteps = 300;

double element(std::size_t row, std::size_t column) {
  const std::size_t distance = row < column ? column - row : row - column;
  return 1.0 / static_cast<double>(1 + distance);
}

// Rows [begin, begin + out.size()) of matrix × in.
void multiply(std::size_t begin, std::span<const double> in, std::span<double> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    double sum = 0;
    for (std::size_t j = 0; j < in.size(); ++j) sum += element(begin + i, j) * in[j];
    out[i] = sum;
  }
}

double largest_eigenvalue(const heddle::Context& context) {
  const auto team = heddle::Team::world(context);
  const std::size_t rows = kRowsInAll / team.size();
  const std::size_t begin = rows * team.rank();
  // In a region, so that peers access it directly: this rank's rows, then the whole vector.
  const auto region = context.alloc((rows + kRowsInAll) * sizeof(double));
  const auto memory = region.memory<double>();
  const auto mine = memory.first(rows);
  const auto all = memory.subspan(rows, kRowsInAll);
  double part = 0;
  double sum = 0;

  const heddle_collective_options* defaults = nullptr;
  const heddle_reduction how = heddle::reduction<double>(HEDDLE_SUM);
  const auto gather = team.make<heddle_allgather_init>(mine.data(), all.data(), mine.size_bytes(), defaults);
  const auto norm = team.make<heddle_allreduce_init>(&part, &sum, std::size_t{1}, &how, defaults);

  for (double& each : all) each = 1;
  double last = kRowsInAll;  // the square of the vector's length
  double eigenvalue = 0;
  for (int step = 0; step < kSteps; ++step) {
    multiply(begin, all, mine);
    part = 0;
    for (const double each : mine) part += each * each;
    heddle::check(norm.start());
    heddle::check(gather.start());
    heddle::check(norm.wait());
    eigenvalue = std::sqrt(sum / last);
    heddle::check(gather.wait());
    const double scale = 1 / std::sqrt(sum);  // the same bits on all ranks
    for (double& each : all) each *= scale;
    last = 1;
  }
  return eigenvalue;
}

}  // namespace

int main() try {
  const auto context = heddle::Context::join();
  if (kRowsInAll % context.size() != 0) {
    context.abort(2, "the number of ranks has to divide 96");
  }
  const double eigenvalue = largest_eigenvalue(context);
  if (context.rank() == 0) std::printf("largest eigenvalue: %.6f\n", eigenvalue);
  return 0;
} catch (const heddle::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
