// MPI_Dims_create: dimensions that are as equal as possible.
#include <algorithm>
#include <new>
#include <numeric>
#include <vector>

#include <units/topologies.hpp>
#include "mpi/core/errors.hpp"

namespace heddle::mpi {
namespace {

// Divisors of the number that is shared out, ascending.
std::vector<int> divisors_of(int number) {
  std::vector<int> low;
  std::vector<int> high;
  for (int i = 1; i <= number / i; ++i) {
    if (number % i != 0) continue;
    low.push_back(i);
    if (i != number / i) high.push_back(number / i);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

// value^exponent, or the limit if it is not below that.
std::int64_t power_up_to(std::int64_t value, std::size_t exponent, std::int64_t limit) {
  std::int64_t power = 1;
  for (std::size_t i = 0; i < exponent && power < limit; ++i) power *= value;
  return std::min(power, limit);
}

// Finds the factors of a number that are as close to each other as possible: the difference of the
// largest and the smallest factor is least. If several factorisations have this difference, the sum
// decides, since a small sum means a small surface; then the largest factor. The search looks at
// all factorisations that can be the best, smallest factor first; these are few.
class Balance {
 public:
  Balance(int number, std::size_t count) : number_(number), count_(count), divisors_(divisors_of(number)) {}

  // Descending.
  std::vector<int> find() {
    best_.assign(count_, 1);
    best_.back() = number_;  // ascending while it is sought
    spread_ = number_ - (count_ > 1 ? 1 : number_);
    if (count_ > 1) {
      // From the root of the number down: there the factors are closest.
      for (auto smallest = divisors_.rbegin(); smallest != divisors_.rend(); ++smallest) {
        if (power_up_to(*smallest, count_, std::int64_t{number_} + 1) > number_) continue;
        if (power_up_to(std::int64_t{*smallest} + spread_, count_, number_) < number_) break;
        factors_.assign(1, *smallest);
        extend(number_ / *smallest);
      }
    }
    std::ranges::reverse(best_);
    return best_;
  }

 private:
  // `rest`: the product of the factors that are missing.
  void extend(int rest) {
    const std::size_t missing = count_ - factors_.size();
    const int most = static_cast<int>(std::min<std::int64_t>(std::int64_t{factors_.front()} + spread_, rest));
    if (missing == 1) {
      if (rest <= most && rest >= factors_.back()) take(rest);
      return;
    }
    for (auto next = std::ranges::lower_bound(divisors_, factors_.back()); next != divisors_.end(); ++next) {
      if (*next > most || power_up_to(*next, missing, std::int64_t{rest} + 1) > rest) return;
      if (rest % *next != 0 || power_up_to(most, missing - 1, rest / *next) < rest / *next) continue;
      factors_.push_back(*next);
      extend(rest / *next);
      factors_.pop_back();
    }
  }

  void take(int last) {
    std::vector<int> found = factors_;
    found.push_back(last);
    const int spread = last - found.front();
    if (spread == spread_) {
      const auto sum = [](const std::vector<int>& of) { return std::reduce(of.begin(), of.end(), std::int64_t{0}); };
      const std::int64_t here = sum(found);
      const std::int64_t known = sum(best_);
      const bool lower = std::lexicographical_compare(found.rbegin(), found.rend(), best_.rbegin(), best_.rend());
      if (here > known || (here == known && !lower)) return;
    }
    best_ = std::move(found);
    spread_ = spread;
  }

  const int number_;
  const std::size_t count_;
  const std::vector<int> divisors_;
  std::vector<int> factors_;  // ascending: those chosen so far
  std::vector<int> best_;
  int spread_ = 0;  // of the best: the largest less the smallest
};

int fill_dims(int nnodes, int ndims, int dims[]) {
  if (nnodes < 1) return error(MPI_ERR_ARG, "nnodes %d: there is at least 1", nnodes);
  if (ndims < 0) return error(MPI_ERR_DIMS, "ndims %d is negative", ndims);
  if (ndims > 0 && dims == nullptr) return null_argument("dims");
  std::int64_t fixed = 1;
  std::size_t open = 0;
  for (int i = 0; i < ndims; ++i) {
    if (dims[i] < 0) return error(MPI_ERR_DIMS, "dims[%d] is %d: none may be negative", i, dims[i]);
    if (dims[i] == 0) ++open;
    if (dims[i] > 0) fixed *= dims[i];
    if (fixed > nnodes) break;
  }
  if (fixed > nnodes || nnodes % fixed != 0) {
    return error(MPI_ERR_DIMS, "dims: the product of those that are not 0 does not divide nnodes %d", nnodes);
  }
  const int rest = static_cast<int>(nnodes / fixed);
  const std::vector<int> factors = open > 0 ? Balance(rest, open).find() : std::vector<int>{};
  std::size_t next = 0;
  for (int i = 0; i < ndims; ++i)
    if (dims[i] == 0) dims[i] = factors[next++];
  return MPI_SUCCESS;
}

}  // namespace

int dims_create(Call call, int nnodes, int ndims, int dims[]) {
  try {
    return told(call, fill_dims(nnodes, ndims, dims));
  } catch (const std::bad_alloc&) {
    return told(call, error(MPI_ERR_NO_MEM, "no memory for %d dimensions", ndims));
  }
}

}  // namespace heddle::mpi
