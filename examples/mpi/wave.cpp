// MPI: a string that swings. Its ends travel by persistent messages while the process computes the
// inner points; the library moves them on in the meantime.
//
//   heddle-mpicxx -O2 wave.cpp -o wave && heddle-mpirun -n 3 ./wave
#include <mpi.h>

#include <cmath>
#include <cstdio>
#include <numbers>
#include <vector>

namespace {

constexpr int kPoints = 12000;  // of the whole string
constexpr int kSteps = 2400;    // a fifth of a period
constexpr double kRatio = 1.0;  // time step by space step: the scheme is exact

double at_begin(int point) {
  return std::sin(std::numbers::pi * point / kPoints);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int first = static_cast<int>(static_cast<long>(kPoints) * rank / size);
  const int last = static_cast<int>(static_cast<long>(kPoints) * (rank + 1) / size);
  const int count = last - first;
  const int left = rank > 0 ? rank - 1 : MPI_PROC_NULL;
  const int right = rank < size - 1 ? rank + 1 : MPI_PROC_NULL;

  // [0] and [count + 1] are the neighbours' ends, or the ends of the string, which are fixed. Three
  // rows take turns, one for each of three times.
  std::vector<std::vector<double>> rows(3, std::vector<double>(static_cast<std::size_t>(count) + 2));
  for (int i = 0; i < count + 2; ++i) rows[0][i] = rows[1][i] = at_begin(first + i - 1);
  // The string begins at rest: the first step goes half as far.
  for (int i = 1; i <= count; ++i)
    rows[1][i] += kRatio * kRatio / 2 * (rows[0][i - 1] - 2 * rows[0][i] + rows[0][i + 1]);

  std::vector<std::vector<MPI_Request>> exchanges(3, std::vector<MPI_Request>(4));
  for (int i = 0; i < 3; ++i) {
    double* const row = rows[i].data();
    MPI_Recv_init(&row[0], 1, MPI_DOUBLE, left, 1, MPI_COMM_WORLD, &exchanges[i][0]);
    MPI_Recv_init(&row[count + 1], 1, MPI_DOUBLE, right, 2, MPI_COMM_WORLD, &exchanges[i][1]);
    MPI_Send_init(&row[1], 1, MPI_DOUBLE, left, 2, MPI_COMM_WORLD, &exchanges[i][2]);
    MPI_Send_init(&row[count], 1, MPI_DOUBLE, right, 1, MPI_COMM_WORLD, &exchanges[i][3]);
  }

  for (int step = 1; step < kSteps; ++step) {
    const std::vector<double>& before = rows[(step + 2) % 3];
    std::vector<double>& now = rows[step % 3];
    std::vector<double>& next = rows[(step + 1) % 3];
    const auto compute = [&](int i) {
      next[i] = 2 * now[i] - before[i] + kRatio * kRatio * (now[i - 1] - 2 * now[i] + now[i + 1]);
    };
    MPI_Startall(4, exchanges[step % 3].data());
    for (int i = 2; i < count; ++i) compute(i);
    MPI_Waitall(4, exchanges[step % 3].data(), MPI_STATUSES_IGNORE);
    if (count > 0) compute(1);
    if (count > 1) compute(count);
    if (rank == 0) next[1] = 0;  // the end of the string
  }

  const double turned = std::cos(std::numbers::pi * kSteps / kPoints);
  double worst = 0;
  for (int i = 1; i <= count; ++i)
    worst = std::fmax(worst, std::fabs(rows[kSteps % 3][i] - at_begin(first + i - 1) * turned));
  double error = 0;
  MPI_Allreduce(&worst, &error, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  for (auto& exchange : exchanges)
    for (MPI_Request& request : exchange) MPI_Request_free(&request);
  const bool right_shape = error < 1e-6;
  if (rank == 0) std::printf("the string is where it must be: %s\n", right_shape ? "yes" : "no");
  MPI_Finalize();
  return right_shape ? 0 : 1;
}
