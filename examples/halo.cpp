// Heat spreads along a rod, which is divided into one piece per rank. In each step a rank puts its
// border cells into the neighbours' halo cells, each followed by a signal, and continues when both
// neighbours' signals have arrived.
#include <cmath>
#include <cstdio>
#include <heddle/heddle.hpp>

namespace {

constexpr std::size_t kCells = 64;  // per rank
constexpr std::uint64_t kSteps = 200;

// The memory that neighbours write. Two generations: a neighbour may be one step ahead but not two,
// since it waits for this rank.
struct Halo {
  double left[2];
  double right[2];
  std::uint64_t left_came;
  std::uint64_t right_came;
};

struct Neighbour {
  const heddle::RemoteRegion* region;
  std::size_t cell;  // offset in its Halo
  std::size_t came;
};

heddle::Status put_border(heddle::Worker& worker, const Neighbour& to, const double& value, std::uint64_t step) {
  const heddle_signal signal{to.region->at(to.came), step, HEDDLE_SIGNAL_SET};
  return worker.put_signal(heddle::bytes_of(value), to.region->at(to.cell + step % 2 * sizeof(double)), signal);
}

// The rod is a ring, so that every rank has two neighbours and no heat is lost.
double spread(const heddle::Context& context) {
  auto worker = context.open_worker();
  const auto region = context.alloc(sizeof(Halo));
  const auto all = context.exchange(region);
  const std::uint32_t rank = context.rank();
  const std::uint32_t size = context.size();
  const Neighbour left{&all[(rank + size - 1) % size], offsetof(Halo, right), offsetof(Halo, right_came)};
  const Neighbour right{&all[(rank + 1) % size], offsetof(Halo, left), offsetof(Halo, left_came)};
  const Halo& halo = region.memory<Halo>()[0];

  std::vector<double> rod(kCells + 2);  // with a halo cell at either end
  if (rank == 0) rod[kCells / 2] = 1000;
  for (std::uint64_t step = 1; step <= kSteps; ++step) {
    heddle::check(put_border(worker, left, rod[1], step));
    heddle::check(put_border(worker, right, rod[kCells], step));
    heddle::check(worker.wait(halo.left_came, HEDDLE_GE, step));
    heddle::check(worker.wait(halo.right_came, HEDDLE_GE, step));
    rod.front() = halo.left[step % 2];
    rod.back() = halo.right[step % 2];
    std::vector<double> next = rod;
    for (std::size_t i = 1; i <= kCells; ++i) next[i] = rod[i] + 0.25 * (rod[i - 1] - 2 * rod[i] + rod[i + 1]);
    // the border cells are reusable, and this step's signals arrive before those of the next step
    heddle::check(worker.quiet());
    rod.swap(next);
  }
  context.barrier(worker);  // afterwards no neighbour puts into this region
  double heat = 0;
  for (std::size_t i = 1; i <= kCells; ++i) heat += rod[i];
  return heat;
}

}  // namespace

int main() try {
  const auto context = heddle::Context::join();
  const double mine = spread(context);
  std::vector<double> heat(context.size());
  heddle::check(heddle_context_exchange(context.handle(), &mine, sizeof mine, heat.data()));
  double total = 0;
  for (const double part : heat) total += part;
  if (context.rank() == 0) std::printf("heat in the rod: %.6f\n", total);
  return std::abs(total - 1000) < 1e-6 ? 0 : 1;
} catch (const heddle::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
