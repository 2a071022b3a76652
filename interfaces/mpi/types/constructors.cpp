// The constructors of datatypes.

#include "mpi/types/constructors.hpp"

#include <algorithm>
#include <string_view>
#include <units/datatypes.hpp>
#include <vector>

namespace heddle::mpi {

namespace {

std::shared_ptr<Envelope> envelope(int combiner, Call call) {
  return std::make_shared<Envelope>(combiner, call);
}

// displacements[i] × unit, of `count` blocks; of one length if `lengths` is absent.
struct ListedBlocks {
  MPI_Count count;
  MPI_Count length;
  CountList lengths;
  CountList displacements;
  MPI_Count unit;
};

int check_blocks(const ListedBlocks& blocks) {
  if (const int code = check_count("count", blocks.count)) return code;
  if (blocks.count != 0 && !blocks.displacements.present()) return null_argument("array_of_displacements");
  return MPI_SUCCESS;
}

int join_blocks(const Type& old, const ListedBlocks& blocks, TypeLayout* made) {
  Joined joined;
  joined.reserve(static_cast<std::size_t>(blocks.count));
  for (MPI_Count i = 0; i < blocks.count; ++i) {
    MPI_Count displacement = 0;
    if (__builtin_mul_overflow(blocks.displacements[i], blocks.unit, &displacement))
      return error(MPI_ERR_ARG, "array_of_displacements[%lld] is %lld, which in bytes does not fit in 64 bits",
                   static_cast<long long>(i), static_cast<long long>(blocks.displacements[i]));
    if (const int code = joined.add(old, blocks.lengths.present() ? blocks.lengths[i] : blocks.length, displacement))
      return code;
  }
  return joined.take(made);
}

// A type of equally long blocks at equal distances.
struct Steps {
  MPI_Count count;
  MPI_Count blocklength;
  MPI_Count stride;
};

int check_steps(const Steps& steps) {
  if (const int code = check_count("count", steps.count)) return code;
  return check_count("blocklength", steps.blocklength);
}

int contiguous(Call call, MPI_Count count, MPI_Datatype oldtype, MPI_Datatype* newtype) {
  Type* old = nullptr;
  TypeLayout made;
  if (const int code = old_type(oldtype, newtype, &old)) return code;
  if (const int code = check_count("count", count)) return code;
  if (const int code = repeat(*old, count, old->extent, &made)) return code;
  auto how = envelope(MPI_COMBINER_CONTIGUOUS, call);
  how->count(count).type(old);
  return give_type(std::move(made), std::move(how), newtype);
}

int vector(Call call, const Steps& steps, MPI_Datatype oldtype, MPI_Datatype* newtype) {
  Type* old = nullptr;
  TypeLayout made;
  MPI_Count stride = 0;
  if (const int code = old_type(oldtype, newtype, &old)) return code;
  if (const int code = check_steps(steps)) return code;
  if (__builtin_mul_overflow(steps.stride, old->extent, &stride) && steps.count > 1)
    return error(MPI_ERR_ARG, "stride is %lld, which in bytes does not fit in 64 bits",
                 static_cast<long long>(steps.stride));
  if (const int code = repeat_blocks(*old, steps.count, steps.blocklength, stride, &made)) return code;
  auto how = envelope(MPI_COMBINER_VECTOR, call);
  how->count(steps.count).count(steps.blocklength).count(steps.stride).type(old);
  return give_type(std::move(made), std::move(how), newtype);
}

int hvector(Call call, const Steps& steps, MPI_Datatype oldtype, MPI_Datatype* newtype) {
  Type* old = nullptr;
  TypeLayout made;
  if (const int code = old_type(oldtype, newtype, &old)) return code;
  if (const int code = check_steps(steps)) return code;
  if (const int code = repeat_blocks(*old, steps.count, steps.blocklength, steps.stride, &made)) return code;
  auto how = envelope(MPI_COMBINER_HVECTOR, call);
  how->count(steps.count).count(steps.blocklength).address(steps.stride).type(old);
  return give_type(std::move(made), std::move(how), newtype);
}

// MPI_Type_indexed (`of_elements`: displacements count elements) and MPI_Type_create_hindexed.
int indexed(Call call, ListedBlocks blocks, bool of_elements, MPI_Datatype oldtype, MPI_Datatype* newtype) {
  Type* old = nullptr;
  TypeLayout made;
  if (const int code = old_type(oldtype, newtype, &old)) return code;
  if (const int code = check_blocks(blocks)) return code;
  if (const int code = check_lengths("array_of_blocklengths", blocks.lengths, blocks.count)) return code;
  blocks.unit = of_elements ? old->extent : 1;
  if (const int code = join_blocks(*old, blocks, &made)) return code;
  auto how = envelope(of_elements ? MPI_COMBINER_INDEXED : MPI_COMBINER_HINDEXED, call);
  how->count(blocks.count).counts_of(blocks.lengths, blocks.count).type(old);
  if (of_elements)
    how->counts_of(blocks.displacements, blocks.count);
  else
    how->addresses_of(blocks.displacements, blocks.count);
  return give_type(std::move(made), std::move(how), newtype);
}

int indexed_block(Call call, ListedBlocks blocks, bool of_elements, MPI_Datatype oldtype, MPI_Datatype* newtype) {
  Type* old = nullptr;
  TypeLayout made;
  if (const int code = old_type(oldtype, newtype, &old)) return code;
  if (const int code = check_blocks(blocks)) return code;
  if (const int code = check_steps({blocks.count, blocks.length, 0})) return code;
  blocks.unit = of_elements ? old->extent : 1;
  if (const int code = join_blocks(*old, blocks, &made)) return code;
  auto how = envelope(of_elements ? MPI_COMBINER_INDEXED_BLOCK : MPI_COMBINER_HINDEXED_BLOCK, call);
  how->count(blocks.count).count(blocks.length).type(old);
  if (of_elements)
    how->counts_of(blocks.displacements, blocks.count);
  else
    how->addresses_of(blocks.displacements, blocks.count);
  return give_type(std::move(made), std::move(how), newtype);
}

// Unless the program gave bounds, an array of the structure keeps its members aligned.
int pad(TypeLayout* layout) {
  if (layout->marked || layout->extent % layout->alignment == 0) return MPI_SUCCESS;
  const MPI_Count padding = layout->alignment - layout->extent % layout->alignment;
  MPI_Count ub = 0;
  if (__builtin_add_overflow(layout->extent, padding, &layout->extent) ||
      __builtin_add_overflow(layout->lb, layout->extent, &ub))
    return error(MPI_ERR_ARG, "the extent of the new datatype does not fit in 64 bits");
  layout->contiguous = layout->size == 0;
  return MPI_SUCCESS;
}

int structure(Call call, MPI_Count count, CountList lengths, CountList displacements, const MPI_Datatype* types,
              MPI_Datatype* newtype) {
  if (newtype == nullptr) return null_argument("newtype");
  if (const int code = check_blocks({count, 0, lengths, displacements, 1})) return code;
  if (const int code = check_lengths("array_of_blocklengths", lengths, count)) return code;
  if (count != 0 && types == nullptr) return null_argument("array_of_types");
  auto how = envelope(MPI_COMBINER_STRUCT, call);
  how->count(count).counts_of(lengths, count).addresses_of(displacements, count);
  Joined joined;
  joined.reserve(static_cast<std::size_t>(count));
  for (MPI_Count i = 0; i < count; ++i) {
    Type* const type = type_of(types[i]);
    if (type == nullptr) return bad_type(types[i]);
    if (const int code = joined.add(*type, lengths[i], displacements[i])) return code;
    how->type(type);
  }
  TypeLayout made;
  if (const int code = joined.take(&made)) return code;
  if (const int code = pad(&made)) return code;
  return give_type(std::move(made), std::move(how), newtype);
}

int resized(Call call, MPI_Datatype oldtype, MPI_Count lb, MPI_Count extent, MPI_Datatype* newtype) {
  Type* old = nullptr;
  if (const int code = old_type(oldtype, newtype, &old)) return code;
  TypeLayout made = *old;
  if (const int code = resize(lb, extent, &made)) return code;
  auto how = envelope(MPI_COMBINER_RESIZED, call);
  how->address(lb).address(extent).type(old);
  return give_type(std::move(made), std::move(how), newtype);
}

}  // namespace

int type_contiguous(Call call, MPI_Count count, MPI_Datatype oldtype, MPI_Datatype* newtype) {
  return told(call, guarded("the datatype", [&] { return contiguous(call, count, oldtype, newtype); }));
}

int type_vector(Call call, MPI_Count count, MPI_Count blocklength, MPI_Count stride, MPI_Datatype oldtype,
                MPI_Datatype* newtype) {
  return told(call,
              guarded("the datatype", [&] { return vector(call, {count, blocklength, stride}, oldtype, newtype); }));
}

int type_create_hvector(Call call, MPI_Count count, MPI_Count blocklength, MPI_Count stride, MPI_Datatype oldtype,
                        MPI_Datatype* newtype) {
  return told(call,
              guarded("the datatype", [&] { return hvector(call, {count, blocklength, stride}, oldtype, newtype); }));
}

int type_indexed(Call call, MPI_Count count, CountList array_of_blocklengths, CountList array_of_displacements,
                 MPI_Datatype oldtype, MPI_Datatype* newtype) {
  const ListedBlocks blocks{count, 0, array_of_blocklengths, array_of_displacements, 1};
  return told(call, guarded("the datatype", [&] { return indexed(call, blocks, true, oldtype, newtype); }));
}

int type_create_hindexed(Call call, MPI_Count count, CountList array_of_blocklengths, CountList array_of_displacements,
                         MPI_Datatype oldtype, MPI_Datatype* newtype) {
  const ListedBlocks blocks{count, 0, array_of_blocklengths, array_of_displacements, 1};
  return told(call, guarded("the datatype", [&] { return indexed(call, blocks, false, oldtype, newtype); }));
}

int type_create_indexed_block(Call call, MPI_Count count, MPI_Count blocklength, CountList array_of_displacements,
                              MPI_Datatype oldtype, MPI_Datatype* newtype) {
  const ListedBlocks blocks{count, blocklength, {}, array_of_displacements, 1};
  return told(call, guarded("the datatype", [&] { return indexed_block(call, blocks, true, oldtype, newtype); }));
}

int type_create_hindexed_block(Call call, MPI_Count count, MPI_Count blocklength, CountList array_of_displacements,
                               MPI_Datatype oldtype, MPI_Datatype* newtype) {
  const ListedBlocks blocks{count, blocklength, {}, array_of_displacements, 1};
  return told(call, guarded("the datatype", [&] { return indexed_block(call, blocks, false, oldtype, newtype); }));
}

int type_create_struct(Call call, MPI_Count count, CountList array_of_blocklengths, CountList array_of_displacements,
                       const MPI_Datatype array_of_types[], MPI_Datatype* newtype) {
  return told(call, guarded("the datatype", [&] {
                return structure(call, count, array_of_blocklengths, array_of_displacements, array_of_types, newtype);
              }));
}

int type_create_resized(Call call, MPI_Datatype oldtype, MPI_Count lb, MPI_Count extent, MPI_Datatype* newtype) {
  return told(call, guarded("the datatype", [&] { return resized(call, oldtype, lb, extent, newtype); }));
}

// Datatypes of parts of arrays: MPI_Type_create_subarray and MPI_Type_create_darray.

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
int bound(MPI_Count size, MPI_Count each, TypeLayout* layout) {
  MPI_Count extent = 0;
  if (__builtin_mul_overflow(size, each, &extent))
    return error(MPI_ERR_ARG, "the array's extent in bytes does not fit in 64 bits: give smaller sizes");
  return resize(0, extent, layout);
}

// Displacements are less than the array's extent, which fits.
int place(const TypeLayout& of, MPI_Count displacement, TypeLayout* made) {
  Joined joined;
  if (const int code = joined.add(of, 1, displacement)) return code;
  return joined.take(made);
}

// ---- subarrays ----------------------------------------------------------------------------------

struct Subarray {
  int ndims;
  CountList sizes;
  CountList subsizes;
  CountList starts;
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

int make_subarray(const Subarray& array, TypeLayout* layout) {
  for (int nth = 0; nth < array.ndims; ++nth) {
    const int i = dimension(nth, array.ndims, array.order);
    const MPI_Count each = layout->extent;
    TypeLayout whole = *layout;
    // before anything is multiplied
    if (const int code = bound(array.sizes[i], each, &whole)) return code;
    TypeLayout part;
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
  TypeLayout layout = *old;
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
  CountList gsizes;
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
int make_cyclic(MPI_Count gsize, MPI_Count block, MPI_Count psize, MPI_Count process, TypeLayout* layout) {
  const MPI_Count each = layout->extent;
  TypeLayout whole = *layout;
  if (const int code = bound(gsize, each, &whole)) return code;
  // None of these is more than gsize, except the cycle, which may be more than fits.
  MPI_Count start = 0;
  MPI_Count cycle = 0;
  if (__builtin_mul_overflow(process, block, &start) || start > gsize) start = gsize;
  if (__builtin_mul_overflow(psize, block, &cycle) || cycle > gsize) cycle = gsize;
  const MPI_Count mine = gsize - start;
  const MPI_Count full = mine >= block ? (mine - block) / cycle + 1 : 0;
  const MPI_Count tail = start + full * cycle;
  TypeLayout blocks;
  Joined joined;
  if (const int code = repeat_blocks(*layout, full, block, cycle * each, &blocks)) return code;
  if (const int code = joined.add(blocks, 1, start * each)) return code;
  if (tail < gsize) {
    if (const int code = joined.add(*layout, gsize - tail, tail * each)) return code;
  }
  if (const int code = joined.take(layout)) return code;
  return bound(gsize, each, layout);
}

int make_dimension(const Darray& array, int i, int process, TypeLayout* layout) {
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

int make_darray(const Darray& array, TypeLayout* layout) {
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
  TypeLayout layout = *old;
  if (const int code = make_darray(array, &layout)) return code;
  auto how = std::make_shared<Envelope>(MPI_COMBINER_DARRAY, call);
  how->integer(array.size).integer(array.rank).integer(array.ndims).counts_of(array.gsizes, array.ndims);
  how->integers_of(array.distribs, array.ndims).integers_of(array.dargs, array.ndims);
  how->integers_of(array.psizes, array.ndims).integer(array.order).type(old);
  return give_type(std::move(layout), std::move(how), newtype);
}

}  // namespace

int type_create_subarray(Call call, int ndims, CountList array_of_sizes, CountList array_of_subsizes,
                         CountList array_of_starts, int order, MPI_Datatype oldtype, MPI_Datatype* newtype) {
  const Subarray array{ndims, array_of_sizes, array_of_subsizes, array_of_starts, order};
  return told(call, guarded("the datatype", [&] { return subarray(call, array, oldtype, newtype); }));
}

int type_create_darray(Call call, int size, int rank, int ndims, CountList array_of_gsizes,
                       const int array_of_distribs[], const int array_of_dargs[], const int array_of_psizes[],
                       int order, MPI_Datatype oldtype, MPI_Datatype* newtype) {
  const Darray array{size, rank, ndims, array_of_gsizes, array_of_distribs, array_of_dargs, array_of_psizes, order};
  return told(call, guarded("the datatype", [&] { return darray(call, array, oldtype, newtype); }));
}

Envelope::Envelope(int of, Call call) : combiner(of), large(std::string_view(call).ends_with("_c")) {}

Envelope::~Envelope() {
  for (Type* const one : types) release(one);
}

Envelope& Envelope::integer(int value) {
  integers.push_back(value);
  return *this;
}

Envelope& Envelope::integers_of(const int* values, MPI_Count number) {
  integers.insert(integers.end(), values, values + number);
  return *this;
}

Envelope& Envelope::count(MPI_Count value) {
  if (large)
    counts.push_back(value);
  else
    integers.push_back(static_cast<int>(value));
  return *this;
}

Envelope& Envelope::counts_of(CountList values, MPI_Count number) {
  if (values.narrow() != nullptr) return integers_of(values.narrow(), number);
  if (values.wide() != nullptr) counts.insert(counts.end(), values.wide(), values.wide() + number);
  return *this;
}

Envelope& Envelope::address(MPI_Count value) {
  (large ? counts : addresses).push_back(value);
  return *this;
}

Envelope& Envelope::addresses_of(CountList values, MPI_Count number) {
  std::vector<MPI_Count>& all = large ? counts : addresses;
  if (values.wide() != nullptr) all.insert(all.end(), values.wide(), values.wide() + number);
  return *this;
}

Envelope& Envelope::type(Type* of) {
  types.push_back(of);
  retain(of);
  return *this;
}

namespace {

const Envelope& named() {
  static const Envelope envelope(MPI_COMBINER_NAMED, "");
  return envelope;
}

// Null: the handle names no datatype.
const Envelope* envelope_of(MPI_Datatype handle) {
  const Type* const type = type_of(handle);
  if (type == nullptr) return nullptr;
  return type->envelope != nullptr ? type->envelope.get() : &named();
}

int check_small(const Envelope& envelope, Call call) {
  if (!envelope.large || envelope.counts.empty()) return MPI_SUCCESS;
  return error(MPI_ERR_TYPE, "the datatype was made with large counts: call %s_c", call);
}

template <class Number>
Number length(const auto& list) {
  return static_cast<Number>(list.size());
}

// Checks that the program's array has room for all elements of its kind.
template <class Element>
int check_room(const char* what, MPI_Count room, std::size_t needed, const Element* list) {
  if (room < 0 || static_cast<std::size_t>(room) < needed)
    return error(MPI_ERR_ARG, "room for %lld %s, of which the datatype has %zu (MPI_Type_get_envelope tells)",
                 static_cast<long long>(room), what, needed);
  if (needed != 0 && list == nullptr)
    return error(MPI_ERR_ARG, "the array for the %zu %s is a null pointer", needed, what);
  return MPI_SUCCESS;
}

// New handles of derived datatypes: the program frees them.
int give_types(const Envelope& envelope, MPI_Datatype* handles) {
  for (std::size_t i = 0; i < envelope.types.size(); ++i) {
    Type* const type = envelope.types[i];
    handles[i] = handle_of(type);
    if (type->predefined) continue;
    Type* const twin = new_type(*type, type->envelope, type->committed);
    if (twin == nullptr) {
      while (i-- > 0)
        if (!envelope.types[i]->predefined) release(type_of(handles[i]));
      return no_memory_for("the datatype");
    }
    handles[i] = handle_of(twin);
  }
  return MPI_SUCCESS;
}

int get_envelope(Call call, MPI_Datatype datatype, int* integers, int* addresses, int* types, int* combiner) {
  const Envelope* const envelope = envelope_of(datatype);
  if (envelope == nullptr) return bad_type(datatype);
  if (integers == nullptr || addresses == nullptr || types == nullptr || combiner == nullptr)
    return null_argument("num_…");
  if (const int code = check_small(*envelope, call)) return code;
  *integers = length<int>(envelope->integers);
  *addresses = length<int>(envelope->addresses);
  *types = length<int>(envelope->types);
  *combiner = envelope->combiner;
  return MPI_SUCCESS;
}

int get_envelope_large(MPI_Datatype datatype, MPI_Count* integers, MPI_Count* addresses, MPI_Count* counts,
                       MPI_Count* types, int* combiner) {
  const Envelope* const envelope = envelope_of(datatype);
  if (envelope == nullptr) return bad_type(datatype);
  if (integers == nullptr || addresses == nullptr || counts == nullptr || types == nullptr || combiner == nullptr)
    return null_argument("num_…");
  *integers = length<MPI_Count>(envelope->integers);
  *addresses = length<MPI_Count>(envelope->addresses);
  *counts = length<MPI_Count>(envelope->counts);
  *types = length<MPI_Count>(envelope->types);
  *combiner = envelope->combiner;
  return MPI_SUCCESS;
}

struct Room {
  MPI_Count integers;
  MPI_Count addresses;
  MPI_Count counts;
  MPI_Count types;
};

int get_contents(const Envelope& envelope, const Room& room, int integers[], MPI_Aint addresses[], MPI_Count counts[],
                 MPI_Datatype types[]) {
  if (envelope.combiner == MPI_COMBINER_NAMED)
    return error(MPI_ERR_TYPE,
                 "a named predefined datatype has no contents: MPI_Type_get_envelope tells which ones are");
  if (const int code = check_room("integers", room.integers, envelope.integers.size(), integers)) return code;
  if (const int code = check_room("addresses", room.addresses, envelope.addresses.size(), addresses)) return code;
  if (const int code = check_room("large counts", room.counts, envelope.counts.size(), counts)) return code;
  if (const int code = check_room("datatypes", room.types, envelope.types.size(), types)) return code;
  std::ranges::copy(envelope.integers, integers);
  std::ranges::copy(envelope.addresses, addresses);
  std::ranges::copy(envelope.counts, counts);
  return give_types(envelope, types);
}

}  // namespace

int type_get_envelope(Call call, MPI_Datatype datatype, int* num_integers, int* num_addresses, int* num_datatypes,
                      int* combiner) {
  return told(call, get_envelope(call, datatype, num_integers, num_addresses, num_datatypes, combiner));
}

int type_get_envelope_c(Call call, MPI_Datatype datatype, MPI_Count* num_integers, MPI_Count* num_addresses,
                        MPI_Count* num_large_counts, MPI_Count* num_datatypes, int* combiner) {
  return told(call,
              get_envelope_large(datatype, num_integers, num_addresses, num_large_counts, num_datatypes, combiner));
}

int type_get_contents(Call call, MPI_Datatype datatype, int max_integers, int max_addresses, int max_datatypes,
                      int array_of_integers[], MPI_Aint array_of_addresses[], MPI_Datatype array_of_datatypes[]) {
  return told(call, guarded("the datatype", [&] {
                const Envelope* const envelope = envelope_of(datatype);
                if (envelope == nullptr) return bad_type(datatype);
                if (const int code = check_small(*envelope, call)) return code;
                return get_contents(*envelope, {max_integers, max_addresses, 0, max_datatypes}, array_of_integers,
                                    array_of_addresses, nullptr, array_of_datatypes);
              }));
}

int type_get_contents_c(Call call, MPI_Datatype datatype, MPI_Count max_integers, MPI_Count max_addresses,
                        MPI_Count max_large_counts, MPI_Count max_datatypes, int array_of_integers[],
                        MPI_Aint array_of_addresses[], MPI_Count array_of_large_counts[],
                        MPI_Datatype array_of_datatypes[]) {
  return told(call, guarded("the datatype", [&] {
                const Envelope* const envelope = envelope_of(datatype);
                if (envelope == nullptr) return bad_type(datatype);
                return get_contents(*envelope, {max_integers, max_addresses, max_large_counts, max_datatypes},
                                    array_of_integers, array_of_addresses, array_of_large_counts, array_of_datatypes);
              }));
}

}  // namespace heddle::mpi
