// Datatypes of parts of arrays: MPI_Type_create_subarray and MPI_Type_create_darray.
#include <vector>

#include <units/datatypes.hpp>
#include "mpi/types/construct.hpp"

namespace heddle::mpi {
namespace {

int check_order(int order) {
  if (order == MPI_ORDER_C || order == MPI_ORDER_FORTRAN) return MPI_SUCCESS;
  return error(MPI_ERR_ARG, "order is %d: it must be MPI_ORDER_C or MPI_ORDER_FORTRAN", order);
}

int check_dimensions(int ndims) {
  if (ndims >= 1) return MPI_SUCCESS;
  return error(MPI_ERR_DIMS, "ndims is %d: there must be at least one dimension", ndims);
}

int out_of_range(const char* name, int dimension, MPI_Count value, const char* rule) {
  return error(MPI_ERR_ARG, "%s[%d] is %lld: it must be %s", name, dimension, static_cast<long long>(value), rule);
}

// The dimension that varies `nth` fastest.
int dimension(int nth, int ndims, int order) {
  return order == MPI_ORDER_FORTRAN ? nth : ndims - 1 - nth;
}

// One dimension more: of `size` elements, bounds and all.
int bound(MPI_Count size, MPI_Count each, Layout* layout) {
  MPI_Count extent = 0;
  if (__builtin_mul_overflow(size, each, &extent))
    return error(MPI_ERR_ARG, "the array's extent in bytes does not fit in 64 bits: give smaller sizes");
  return resize(0, extent, layout);
}

// Displacements are less than the array's extent, which fits.
int place(const Layout& of, MPI_Count displacement, Layout* made) {
  Joined joined;
  if (const int code = joined.add(of, 1, displacement)) return code;
  return joined.take(made);
}

// ---- subarrays ----------------------------------------------------------------------------------

struct Subarray {
  int ndims;
  Counts sizes;
  Counts subsizes;
  Counts starts;
  int order;
};

int check(const Subarray& array) {
  if (const int code = check_dimensions(array.ndims)) return code;
  if (!array.sizes.present()) return null_argument("array_of_sizes");
  if (!array.subsizes.present()) return null_argument("array_of_subsizes");
  if (!array.starts.present()) return null_argument("array_of_starts");
  for (int i = 0; i < array.ndims; ++i) {
    const MPI_Count size = array.sizes[i];
    const MPI_Count subsize = array.subsizes[i];
    if (size < 1) return out_of_range("array_of_sizes", i, size, "at least 1");
    if (subsize < 1 || subsize > size)
      return out_of_range("array_of_subsizes", i, subsize, "from 1 to the array's size");
    if (array.starts[i] < 0 || array.starts[i] > size - subsize)
      return out_of_range("array_of_starts", i, array.starts[i], "from 0 to size - subsize");
  }
  return check_order(array.order);
}

int make_subarray(const Subarray& array, Layout* layout) {
  for (int nth = 0; nth < array.ndims; ++nth) {
    const int i = dimension(nth, array.ndims, array.order);
    const MPI_Count each = layout->extent;
    Layout whole = *layout;
    // before anything is multiplied
    if (const int code = bound(array.sizes[i], each, &whole)) return code;
    Layout part;
    if (const int code = repeat(*layout, array.subsizes[i], each, &part)) return code;
    if (const int code = place(part, array.starts[i] * each, layout)) return code;
    if (const int code = bound(array.sizes[i], each, layout)) return code;
  }
  return MPI_SUCCESS;
}

int subarray(Call call, const Subarray& array, MPI_Datatype oldtype, MPI_Datatype* newtype) {
  Type* old = nullptr;
  if (const int code = old_type(oldtype, newtype, &old)) return code;
  if (const int code = check(array)) return code;
  Layout layout = *old;
  if (const int code = make_subarray(array, &layout)) return code;
  auto how = std::make_shared<Envelope>(MPI_COMBINER_SUBARRAY, call);
  how->integer(array.ndims).counts_of(array.sizes, array.ndims).counts_of(array.subsizes, array.ndims);
  how->counts_of(array.starts, array.ndims).integer(array.order).type(old);
  return give_type(std::move(layout), std::move(how), newtype);
}

// ---- distributed arrays -------------------------------------------------------------------------

struct Darray {
  int size;
  int rank;
  int ndims;
  Counts gsizes;
  const int* distribs;
  const int* dargs;
  const int* psizes;
  int order;
};

int check_dimension(const Darray& array, int i) {
  const MPI_Count gsize = array.gsizes[i];
  const int psize = array.psizes[i];
  const int darg = array.dargs[i];
  if (gsize < 1) return out_of_range("array_of_gsizes", i, gsize, "at least 1");
  if (psize < 1) return out_of_range("array_of_psizes", i, psize, "at least 1");
  const bool by_default = darg == MPI_DISTRIBUTE_DFLT_DARG;
  switch (array.distribs[i]) {
    case MPI_DISTRIBUTE_NONE:
      if (psize != 1) return out_of_range("array_of_psizes", i, psize, "1, since the dimension is not distributed");
      return MPI_SUCCESS;
    case MPI_DISTRIBUTE_BLOCK:
      if (by_default) return MPI_SUCCESS;
      if (darg < 1) return out_of_range("array_of_dargs", i, darg, "at least 1 or MPI_DISTRIBUTE_DFLT_DARG");
      if (MPI_Count{darg} * psize < gsize)
        return out_of_range("array_of_dargs", i, darg, "so large that the processes' blocks hold the whole dimension");
      return MPI_SUCCESS;
    case MPI_DISTRIBUTE_CYCLIC:
      if (by_default || darg >= 1) return MPI_SUCCESS;
      return out_of_range("array_of_dargs", i, darg, "at least 1 or MPI_DISTRIBUTE_DFLT_DARG");
    default:
      return out_of_range("array_of_distribs", i, array.distribs[i], "MPI_DISTRIBUTE_BLOCK, _CYCLIC or _NONE");
  }
}

int check(const Darray& array) {
  if (array.size < 1) return error(MPI_ERR_ARG, "size is %d: there must be at least one process", array.size);
  if (array.rank < 0 || array.rank >= array.size)
    return error(MPI_ERR_RANK, "rank is %d: it must be from 0 to size - 1, which is %d", array.rank, array.size - 1);
  if (const int code = check_dimensions(array.ndims)) return code;
  if (!array.gsizes.present()) return null_argument("array_of_gsizes");
  if (array.distribs == nullptr) return null_argument("array_of_distribs");
  if (array.dargs == nullptr) return null_argument("array_of_dargs");
  if (array.psizes == nullptr) return null_argument("array_of_psizes");
  MPI_Count processes = 1;
  for (int i = 0; i < array.ndims; ++i) {
    if (const int code = check_dimension(array, i)) return code;
    if (processes <= array.size) processes *= array.psizes[i];
  }
  if (processes != array.size)
    return error(MPI_ERR_ARG, "size is %d: it must be the product of array_of_psizes", array.size);
  return check_order(array.order);
}

// This process's part of a dimension: blocks of `block` elements, every `psize`-th from the
// `process`-th on.
int make_cyclic(MPI_Count gsize, MPI_Count block, MPI_Count psize, MPI_Count process, Layout* layout) {
  const MPI_Count each = layout->extent;
  Layout whole = *layout;
  if (const int code = bound(gsize, each, &whole)) return code;
  // None of these is more than gsize, except the cycle, which may be more than fits.
  MPI_Count start = 0;
  MPI_Count cycle = 0;
  if (__builtin_mul_overflow(process, block, &start) || start > gsize) start = gsize;
  if (__builtin_mul_overflow(psize, block, &cycle) || cycle > gsize) cycle = gsize;
  const MPI_Count mine = gsize - start;
  const MPI_Count full = mine >= block ? (mine - block) / cycle + 1 : 0;
  const MPI_Count tail = start + full * cycle;
  Layout blocks;
  Joined joined;
  if (const int code = repeat_blocks(*layout, full, block, cycle * each, &blocks)) return code;
  if (const int code = joined.add(blocks, 1, start * each)) return code;
  if (tail < gsize) {
    if (const int code = joined.add(*layout, gsize - tail, tail * each)) return code;
  }
  if (const int code = joined.take(layout)) return code;
  return bound(gsize, each, layout);
}

int make_dimension(const Darray& array, int i, int process, Layout* layout) {
  const MPI_Count gsize = array.gsizes[i];
  const MPI_Count psize = array.psizes[i];
  MPI_Count block = array.dargs[i];
  if (array.distribs[i] == MPI_DISTRIBUTE_NONE) {
    block = gsize;
  } else if (array.dargs[i] == MPI_DISTRIBUTE_DFLT_DARG) {
    block = array.distribs[i] == MPI_DISTRIBUTE_BLOCK ? (gsize - 1) / psize + 1 : 1;
  }
  return make_cyclic(gsize, block, psize, process, layout);
}

int make_darray(const Darray& array, Layout* layout) {
  // of the rank in the grid of processes, whose last dimension varies fastest
  std::vector<int> coordinates;
  coordinates.resize(static_cast<std::size_t>(array.ndims));
  int rest = array.rank;
  for (int i = array.ndims - 1; i >= 0; --i) {
    coordinates[static_cast<std::size_t>(i)] = rest % array.psizes[i];
    rest /= array.psizes[i];
  }
  for (int nth = 0; nth < array.ndims; ++nth) {
    const int i = dimension(nth, array.ndims, array.order);
    if (const int code = make_dimension(array, i, coordinates[static_cast<std::size_t>(i)], layout)) return code;
  }
  return MPI_SUCCESS;
}

int darray(Call call, const Darray& array, MPI_Datatype oldtype, MPI_Datatype* newtype) {
  Type* old = nullptr;
  if (const int code = old_type(oldtype, newtype, &old)) return code;
  if (const int code = check(array)) return code;
  Layout layout = *old;
  if (const int code = make_darray(array, &layout)) return code;
  auto how = std::make_shared<Envelope>(MPI_COMBINER_DARRAY, call);
  how->integer(array.size).integer(array.rank).integer(array.ndims).counts_of(array.gsizes, array.ndims);
  how->integers_of(array.distribs, array.ndims).integers_of(array.dargs, array.ndims);
  how->integers_of(array.psizes, array.ndims).integer(array.order).type(old);
  return give_type(std::move(layout), std::move(how), newtype);
}

}  // namespace

int type_create_subarray(Call call, int ndims, Counts array_of_sizes, Counts array_of_subsizes, Counts array_of_starts,
                         int order, MPI_Datatype oldtype, MPI_Datatype* newtype) {
  const Subarray array{ndims, array_of_sizes, array_of_subsizes, array_of_starts, order};
  return told(call, guarded("the datatype", [&] { return subarray(call, array, oldtype, newtype); }));
}

int type_create_darray(Call call, int size, int rank, int ndims, Counts array_of_gsizes, const int array_of_distribs[],
                       const int array_of_dargs[], const int array_of_psizes[], int order, MPI_Datatype oldtype,
                       MPI_Datatype* newtype) {
  const Darray array{size, rank, ndims, array_of_gsizes, array_of_distribs, array_of_dargs, array_of_psizes, order};
  return told(call, guarded("the datatype", [&] { return darray(call, array, oldtype, newtype); }));
}

}  // namespace heddle::mpi
