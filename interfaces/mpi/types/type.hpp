// A datatype: a map of basic types to offsets, kept as the program built it (a tree) and as the
// loops by which data is copied.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mpi/core/attributes.hpp"
#include "mpi/core/errors.hpp"

namespace heddle::mpi {

// The kind of a basic type, for reductions and for external32.
enum class Basic : std::uint8_t {
  none,  // a derived type
  int8,
  int16,
  int32,
  int64,
  uint8,
  uint16,
  uint32,
  uint64,
  float16,
  float32,
  float64,
  long_double,
  float128,
  complex_float,
  complex_double,
  complex_long_double,
  complex_half,
  complex_quad,
  int128,     // INTEGER*16
  logical,    // C bool, C++ bool and Fortran's: of Type::size bytes
  byte,       // MPI_BYTE, MPI_PACKED, characters of Fortran
  character,  // MPI_WCHAR: not for reductions
  pair,       // a value and an int: MINLOC and MAXLOC
};

struct Loop;       // types/loops.hpp: how its data is copied
struct Signature;  // types/layout.hpp: its basic types in order
struct Envelope;   // types/constructors.hpp: how the program made it
struct Type;

// A datatype: where the data of one element lies. Sizes, bounds and displacements are in bytes.
struct TypeLayout {
  MPI_Count size = 0;  // of data
  MPI_Count lb = 0;
  MPI_Count extent = 0;
  MPI_Count true_lb = 0;
  MPI_Count true_extent = 0;
  // Any number of elements is one block of memory, in order, which begins true_lb bytes after the
  // buffer's address.
  bool contiguous = true;
  // lb and extent were given by the program (resized, subarray, darray), here or in a part
  bool marked = false;
  int alignment = 1;  // the largest of its basic types
  // The basic type, if all elements have the same one: accumulates need it. Null: several, or none.
  const Type* element = nullptr;
  MPI_Count elements = 0;                      // how many of `element` are in one of it
  std::shared_ptr<const Loop> loop;            // null: one block of `size` bytes at true_lb
  std::shared_ptr<const Signature> signature;  // null: `elements` times `element`
};

struct Type : TypeLayout {
  bool committed = false;
  bool predefined = false;  // not to be freed: named types, and those of MPI_Type_create_f90_…
  Basic basic = Basic::none;
  std::shared_ptr<const Envelope> envelope;  // null: named
  // handles, operations, envelopes, windows; not counted of predefined ones
  std::atomic<int> references{1};
  Attributes attributes;
  std::string name;
};

inline constexpr std::uintptr_t kFirstType = 0x200;
inline constexpr std::uintptr_t kMostBasicTypes = 0x100;
extern Type g_basic_types[kMostBasicTypes];  // by handle; what is not `predefined` names no type
Type* find_type(MPI_Datatype handle);
MPI_Datatype handle_of(const Type* type);
// The same types as small integers, for the handles' integer forms: a predefined one's handle
// value, or kMostBasicTypes + kFirstType and above. Null: no type has the number.
int number_of(const Type* type);
Type* type_at(int number);

// Null: the handle names no type (told by bad_type()).
[[gnu::always_inline]] inline Type* type_of(MPI_Datatype handle) {
  const std::uintptr_t number = value_of(handle) - kFirstType;
  if (number < kMostBasicTypes) [[likely]]
    return g_basic_types[number].predefined ? &g_basic_types[number] : nullptr;
  return find_type(handle);
}
[[gnu::cold]] int bad_type(MPI_Datatype handle);
// As type_of(); also an error if it is not committed.
int committed_type(MPI_Datatype handle, const char* argument, Type** type);

Type* retain(Type* type);
void release(Type* type);

// A type whose data is one block of memory for any count. The short paths take such types.
struct Plain {
  std::size_t size;      // bytes of an element; 0: it is no such type, or none that may be used
  std::ptrdiff_t begin;  // of the block, from the buffer's address
};
extern std::uint8_t g_plain_sizes[kMostBasicTypes];  // of named types, by handle
Plain plain_derived(MPI_Datatype handle);
[[gnu::always_inline]] inline Plain plain_of(MPI_Datatype handle) {
  const std::uintptr_t number = value_of(handle) - kFirstType;
  if (number < kMostBasicTypes) [[likely]]
    return {g_plain_sizes[number], 0};
  return plain_derived(handle);
}

// ---- data ---------------------------------------------------------------------------------------

// Copies the data of `count` elements at `buffer` to `packed` (count × size bytes), or back. A part
// of it: `bytes` bytes from `from` on, of the packed form.
void pack(const void* buffer, MPI_Count count, const Type& type, void* packed);
void pack_part(const void* buffer, MPI_Count count, const Type& type, MPI_Count from, MPI_Count bytes, void* packed);
// unpack() of fewer bytes than all writes what they contain.
void unpack(const void* packed, MPI_Count bytes, void* buffer, MPI_Count count, const Type& type);
void unpack_part(const void* packed, MPI_Count from, MPI_Count bytes, void* buffer, MPI_Count count, const Type& type);
// Copies data between two layouts; at most as many bytes as both have.
void copy(const void* from, MPI_Count from_count, const Type& from_type, void* to, MPI_Count to_count,
          const Type& to_type);
// How many basic elements `bytes` bytes of it contain (a pair is two); MPI_UNDEFINED: they end
// within one.
MPI_Count elements_in(const Type& type, MPI_Count bytes);
// The blocks of memory of `count` elements in order, blocks that touch joined: visit(offset,
// bytes), the offset from the buffer's address.
template <class Visit>
void each_block(MPI_Count count, const Type& type, Visit&& visit);  // types/loops.hpp

// The memory of a contiguous buffer.
[[gnu::always_inline]] inline void* begin_of(const void* buffer, const Type& type) {
  return const_cast<std::byte*>(static_cast<const std::byte*>(buffer)) + type.true_lb;
}

// The predefined datatypes.

// The predefined datatype of this handle, which is a constant of the standard.
inline Type* basic_type(MPI_Datatype handle) {
  return &g_basic_types[value_of(handle) - kFirstType];
}

// The standard's representation of data that all machines read, external32: most significant byte
// first, IEEE numbers, and its own sizes of some types (4 bytes of long, 2 of wchar_t, 16 of long
// double).

// Bytes of one element of it.
MPI_Count external_size(const TypeLayout& layout);
// Converts `count` elements. Error: a value does not fit in the representation.
int pack_external(const void* buffer, MPI_Count count, const Type& type, void* external);
void unpack_external(const void* external, void* buffer, MPI_Count count, const Type& type);

}  // namespace heddle::mpi
