// The constructors of datatypes, except those of arrays.
#include <units/datatypes.hpp>
#include "mpi/types/construct.hpp"

namespace heddle::mpi {
namespace {

std::shared_ptr<Envelope> envelope(int combiner, Call call) {
  return std::make_shared<Envelope>(combiner, call);
}

// displacements[i] × unit, of `count` blocks; of one length if `lengths` is absent.
struct ListedBlocks {
  MPI_Count count;
  MPI_Count length;
  Counts lengths;
  Counts displacements;
  MPI_Count unit;
};

int check_blocks(const ListedBlocks& blocks) {
  if (const int code = check_count("count", blocks.count)) return code;
  if (blocks.count != 0 && !blocks.displacements.present()) return null_argument("array_of_displacements");
  return MPI_SUCCESS;
}

int join_blocks(const Type& old, const ListedBlocks& blocks, Layout* made) {
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
  Layout made;
  if (const int code = old_type(oldtype, newtype, &old)) return code;
  if (const int code = check_count("count", count)) return code;
  if (const int code = repeat(*old, count, old->extent, &made)) return code;
  auto how = envelope(MPI_COMBINER_CONTIGUOUS, call);
  how->count(count).type(old);
  return give_type(std::move(made), std::move(how), newtype);
}

int vector(Call call, const Steps& steps, MPI_Datatype oldtype, MPI_Datatype* newtype) {
  Type* old = nullptr;
  Layout made;
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
  Layout made;
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
  Layout made;
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
  Layout made;
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
int pad(Layout* layout) {
  if (layout->marked || layout->extent % layout->alignment == 0) return MPI_SUCCESS;
  const MPI_Count padding = layout->alignment - layout->extent % layout->alignment;
  MPI_Count ub = 0;
  if (__builtin_add_overflow(layout->extent, padding, &layout->extent) ||
      __builtin_add_overflow(layout->lb, layout->extent, &ub))
    return error(MPI_ERR_ARG, "the extent of the new datatype does not fit in 64 bits");
  layout->contiguous = layout->size == 0;
  return MPI_SUCCESS;
}

int structure(Call call, MPI_Count count, Counts lengths, Counts displacements, const MPI_Datatype* types,
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
  Layout made;
  if (const int code = joined.take(&made)) return code;
  if (const int code = pad(&made)) return code;
  return give_type(std::move(made), std::move(how), newtype);
}

int resized(Call call, MPI_Datatype oldtype, MPI_Count lb, MPI_Count extent, MPI_Datatype* newtype) {
  Type* old = nullptr;
  if (const int code = old_type(oldtype, newtype, &old)) return code;
  Layout made = *old;
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

int type_indexed(Call call, MPI_Count count, Counts array_of_blocklengths, Counts array_of_displacements,
                 MPI_Datatype oldtype, MPI_Datatype* newtype) {
  const ListedBlocks blocks{count, 0, array_of_blocklengths, array_of_displacements, 1};
  return told(call, guarded("the datatype", [&] { return indexed(call, blocks, true, oldtype, newtype); }));
}

int type_create_hindexed(Call call, MPI_Count count, Counts array_of_blocklengths, Counts array_of_displacements,
                         MPI_Datatype oldtype, MPI_Datatype* newtype) {
  const ListedBlocks blocks{count, 0, array_of_blocklengths, array_of_displacements, 1};
  return told(call, guarded("the datatype", [&] { return indexed(call, blocks, false, oldtype, newtype); }));
}

int type_create_indexed_block(Call call, MPI_Count count, MPI_Count blocklength, Counts array_of_displacements,
                              MPI_Datatype oldtype, MPI_Datatype* newtype) {
  const ListedBlocks blocks{count, blocklength, {}, array_of_displacements, 1};
  return told(call, guarded("the datatype", [&] { return indexed_block(call, blocks, true, oldtype, newtype); }));
}

int type_create_hindexed_block(Call call, MPI_Count count, MPI_Count blocklength, Counts array_of_displacements,
                               MPI_Datatype oldtype, MPI_Datatype* newtype) {
  const ListedBlocks blocks{count, blocklength, {}, array_of_displacements, 1};
  return told(call, guarded("the datatype", [&] { return indexed_block(call, blocks, false, oldtype, newtype); }));
}

int type_create_struct(Call call, MPI_Count count, Counts array_of_blocklengths, Counts array_of_displacements,
                       const MPI_Datatype array_of_types[], MPI_Datatype* newtype) {
  return told(call, guarded("the datatype", [&] {
                return structure(call, count, array_of_blocklengths, array_of_displacements, array_of_types, newtype);
              }));
}

int type_create_resized(Call call, MPI_Datatype oldtype, MPI_Count lb, MPI_Count extent, MPI_Datatype* newtype) {
  return told(call, guarded("the datatype", [&] { return resized(call, oldtype, lb, extent, newtype); }));
}

}  // namespace heddle::mpi
