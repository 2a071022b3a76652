// MPI_Dims_create against a search of all factorisations: the product, the order, and the balance.
#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <tuple>
#include <vector>

#include "check.hpp"

namespace {

using Dims = std::vector<int>;

// The values that must be least, in this order: the difference of the largest and the smallest, the
// sum, the largest, the second largest, …
auto measure(const Dims& descending) {
  const long sum = std::reduce(descending.begin(), descending.end(), 0L);
  return std::tuple(descending.front() - descending.back(), sum, descending);
}

// All products of `count` factors, ascending, none below `least`.
void search(int rest, int count, int least, Dims* factors, Dims* best) {
  if (count == 1) {
    if (rest < least) return;
    Dims found(factors->rbegin(), factors->rend());
    found.insert(found.begin(), rest);
    if (best->empty() || measure(found) < measure(*best)) *best = found;
    return;
  }
  for (int factor = least; factor <= rest / factor; ++factor) {
    if (rest % factor != 0) continue;
    factors->push_back(factor);
    search(rest / factor, count - 1, factor, factors, best);
    factors->pop_back();
  }
}

Dims dims_of(int nodes, int count) {
  Dims dims(static_cast<std::size_t>(count), 0);
  MUST(MPI_Dims_create(nodes, count, dims.data()));
  return dims;
}

void all_small() {
  constexpr int kMost = 3000;
  for (int nodes = 1; nodes <= kMost; ++nodes) {
    for (int count = 1; count <= 5; ++count) {
      Dims factors;
      Dims best;
      search(nodes, count, 1, &factors, &best);
      CHECK(dims_of(nodes, count) == best);
    }
  }
}

void known() {
  CHECK((dims_of(34425, 3) == Dims{51, 27, 25}));
  CHECK((dims_of(2147483647, 3) == Dims{2147483647, 1, 1}));
  CHECK((dims_of(1 << 30, 7) == Dims{32, 32, 16, 16, 16, 16, 16}));
  const Dims many = dims_of(2095133040, 20);  // 1600 divisors
  CHECK(std::ranges::is_sorted(many, std::ranges::greater()));
  CHECK(std::accumulate(many.begin(), many.end(), 1, std::multiplies<>()) == 2095133040);
  CHECK(many.front() == 19 && many.back() == 1);
  std::array<int, 4> fixed{0, 5, 0, 0};
  MUST(MPI_Dims_create(5 * 34425, 4, fixed.data()));
  CHECK((fixed == std::array<int, 4>{51, 5, 27, 25}));
}

}  // namespace

int main(int argc, char** argv) {
  MUST(MPI_Init(&argc, &argv));
  known();
  all_small();
  MUST(MPI_Finalize());
  return 0;
}
