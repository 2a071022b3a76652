// MPI_Dims_create: dimensions that are as equal as possible.
#include <algorithm>
#include <new>
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

// value^exponent < limit.
bool power_below(int value, std::size_t exponent, int limit) {
  std::int64_t power = 1;
  for (std::size_t i = 0; i < exponent && power < limit; ++i) power *= value;
  return power < limit;
}

// Writes `count` factors of `number`, none larger than `most`, descending: the largest is as small
// as possible, then the second largest, and so on. False: there are none.
bool share_out(int number, std::size_t count, int most, const std::vector<int>& divisors, int* factors) {
  if (count == 0) return number == 1;
  if (power_below(most, count, number)) return false;
  for (const int divisor : divisors) {
    if (divisor > most) return false;
    if (number % divisor != 0 || power_below(divisor, count, number)) continue;
    if (!share_out(number / divisor, count - 1, divisor, divisors, factors + 1)) continue;
    *factors = divisor;
    return true;
  }
  return false;
}

int create(int nnodes, int ndims, int dims[]) {
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
  std::vector<int> factors(open, 1);
  if (open > 0) static_cast<void>(share_out(rest, open, rest, divisors_of(rest), factors.data()));
  std::size_t next = 0;
  for (int i = 0; i < ndims; ++i)
    if (dims[i] == 0) dims[i] = factors[next++];
  return MPI_SUCCESS;
}

}  // namespace

int dims_create(Call call, int nnodes, int ndims, int dims[]) {
  try {
    return told(call, create(nnodes, ndims, dims));
  } catch (const std::bad_alloc&) {
    return told(call, error(MPI_ERR_NO_MEM, "no memory for %d dimensions", ndims));
  }
}

}  // namespace heddle::mpi
