#include "mpi/types/basic.hpp"

#include <algorithm>
#include <array>
#include <type_traits>

#include "mpi/types/loops.hpp"
#include "mpi/types/signature.hpp"

namespace heddle::mpi {

// Constructed before any other object of the library, and filled next: types are used before
// MPI_Init, by initialisers of programs too.
[[gnu::init_priority(101)]] Type g_basic_types[kMostBasicTypes];
constinit std::uint8_t g_plain_sizes[kMostBasicTypes]{};

namespace {

struct Row {
  MPI_Datatype handle;
  const char* name;  // of several synonyms, the one that programs compare with most
  Basic basic;
  int size;
  int alignment;
};
// Handles are no constant expressions, so these tables are made by the first use.
const auto& rows() {
  static const auto table = std::to_array<Row>({
      {MPI_AINT, "MPI_AINT", Basic::int64, 8, 8},
      {MPI_COUNT, "MPI_COUNT", Basic::int64, 8, 8},
      {MPI_OFFSET, "MPI_OFFSET", Basic::int64, 8, 8},
      {MPI_PACKED, "MPI_PACKED", Basic::byte, 1, 1},
      {MPI_SHORT, "MPI_SHORT", Basic::int16, 2, 2},
      {MPI_INT, "MPI_INT", Basic::int32, 4, 4},
      {MPI_LONG, "MPI_LONG", Basic::int64, 8, 8},
      {MPI_LONG_LONG, "MPI_LONG_LONG_INT", Basic::int64, 8, 8},
      {MPI_UNSIGNED_SHORT, "MPI_UNSIGNED_SHORT", Basic::uint16, 2, 2},
      {MPI_UNSIGNED, "MPI_UNSIGNED", Basic::uint32, 4, 4},
      {MPI_UNSIGNED_LONG, "MPI_UNSIGNED_LONG", Basic::uint64, 8, 8},
      {MPI_UNSIGNED_LONG_LONG, "MPI_UNSIGNED_LONG_LONG", Basic::uint64, 8, 8},
      {MPI_FLOAT, "MPI_FLOAT", Basic::float32, 4, 4},
      {MPI_C_FLOAT_COMPLEX, "MPI_C_COMPLEX", Basic::complex_float, 8, 4},
      {MPI_CXX_FLOAT_COMPLEX, "MPI_CXX_FLOAT_COMPLEX", Basic::complex_float, 8, 4},
      {MPI_DOUBLE, "MPI_DOUBLE", Basic::float64, 8, 8},
      {MPI_C_DOUBLE_COMPLEX, "MPI_C_DOUBLE_COMPLEX", Basic::complex_double, 16, 8},
      {MPI_CXX_DOUBLE_COMPLEX, "MPI_CXX_DOUBLE_COMPLEX", Basic::complex_double, 16, 8},
      {MPI_LOGICAL, "MPI_LOGICAL", Basic::logical, 4, 4},
      {MPI_INTEGER, "MPI_INTEGER", Basic::int32, 4, 4},
      {MPI_REAL, "MPI_REAL", Basic::float32, 4, 4},
      {MPI_COMPLEX, "MPI_COMPLEX", Basic::complex_float, 8, 4},
      {MPI_DOUBLE_PRECISION, "MPI_DOUBLE_PRECISION", Basic::float64, 8, 8},
      {MPI_DOUBLE_COMPLEX, "MPI_DOUBLE_COMPLEX", Basic::complex_double, 16, 8},
      {MPI_CHARACTER, "MPI_CHARACTER", Basic::byte, 1, 1},
      {MPI_LONG_DOUBLE, "MPI_LONG_DOUBLE", Basic::long_double, 16, 16},
      {MPI_C_LONG_DOUBLE_COMPLEX, "MPI_C_LONG_DOUBLE_COMPLEX", Basic::complex_long_double, 32, 16},
      {MPI_CXX_LONG_DOUBLE_COMPLEX, "MPI_CXX_LONG_DOUBLE_COMPLEX", Basic::complex_long_double, 32, 16},
      {MPI_C_BOOL, "MPI_C_BOOL", Basic::logical, 1, 1},
      {MPI_CXX_BOOL, "MPI_CXX_BOOL", Basic::logical, 1, 1},
      {MPI_WCHAR, "MPI_WCHAR", Basic::character, 4, 4},
      {MPI_INT8_T, "MPI_INT8_T", Basic::int8, 1, 1},
      {MPI_UINT8_T, "MPI_UINT8_T", Basic::uint8, 1, 1},
      // The standard has no reductions of it, but other libraries do, and benchmarks rely on them.
      {MPI_CHAR, "MPI_CHAR", std::is_signed_v<char> ? Basic::int8 : Basic::uint8, 1, 1},
      {MPI_SIGNED_CHAR, "MPI_SIGNED_CHAR", Basic::int8, 1, 1},
      {MPI_UNSIGNED_CHAR, "MPI_UNSIGNED_CHAR", Basic::uint8, 1, 1},
      {MPI_BYTE, "MPI_BYTE", Basic::byte, 1, 1},
      {MPI_INT16_T, "MPI_INT16_T", Basic::int16, 2, 2},
      {MPI_UINT16_T, "MPI_UINT16_T", Basic::uint16, 2, 2},
      {MPI_INT32_T, "MPI_INT32_T", Basic::int32, 4, 4},
      {MPI_UINT32_T, "MPI_UINT32_T", Basic::uint32, 4, 4},
      {MPI_INT64_T, "MPI_INT64_T", Basic::int64, 8, 8},
      {MPI_UINT64_T, "MPI_UINT64_T", Basic::uint64, 8, 8},
      {MPI_LOGICAL1, "MPI_LOGICAL1", Basic::logical, 1, 1},
      {MPI_INTEGER1, "MPI_INTEGER1", Basic::int8, 1, 1},
      {MPI_LOGICAL2, "MPI_LOGICAL2", Basic::logical, 2, 2},
      {MPI_INTEGER2, "MPI_INTEGER2", Basic::int16, 2, 2},
      {MPI_REAL2, "MPI_REAL2", Basic::float16, 2, 2},
      {MPI_LOGICAL4, "MPI_LOGICAL4", Basic::logical, 4, 4},
      {MPI_INTEGER4, "MPI_INTEGER4", Basic::int32, 4, 4},
      {MPI_REAL4, "MPI_REAL4", Basic::float32, 4, 4},
      {MPI_COMPLEX4, "MPI_COMPLEX4", Basic::complex_half, 4, 2},
      {MPI_LOGICAL8, "MPI_LOGICAL8", Basic::logical, 8, 8},
      {MPI_INTEGER8, "MPI_INTEGER8", Basic::int64, 8, 8},
      {MPI_REAL8, "MPI_REAL8", Basic::float64, 8, 8},
      {MPI_COMPLEX8, "MPI_COMPLEX8", Basic::complex_float, 8, 4},
      {MPI_LOGICAL16, "MPI_LOGICAL16", Basic::logical, 16, 16},
      {MPI_INTEGER16, "MPI_INTEGER16", Basic::int128, 16, 16},
      {MPI_REAL16, "MPI_REAL16", Basic::float128, 16, 16},
      {MPI_COMPLEX16, "MPI_COMPLEX16", Basic::complex_double, 16, 8},
      {MPI_COMPLEX32, "MPI_COMPLEX32", Basic::complex_quad, 32, 16},
  });
  return table;
}

// A pair lies as a C structure of the two.
struct PairRow {
  MPI_Datatype handle;
  const char* name;
  MPI_Datatype value;
  MPI_Datatype index;
};
const auto& pairs() {
  static const auto table = std::to_array<PairRow>({
      {MPI_FLOAT_INT, "MPI_FLOAT_INT", MPI_FLOAT, MPI_INT},
      {MPI_DOUBLE_INT, "MPI_DOUBLE_INT", MPI_DOUBLE, MPI_INT},
      {MPI_LONG_INT, "MPI_LONG_INT", MPI_LONG, MPI_INT},
      {MPI_2INT, "MPI_2INT", MPI_INT, MPI_INT},
      {MPI_SHORT_INT, "MPI_SHORT_INT", MPI_SHORT, MPI_INT},
      {MPI_LONG_DOUBLE_INT, "MPI_LONG_DOUBLE_INT", MPI_LONG_DOUBLE, MPI_INT},
      {MPI_2REAL, "MPI_2REAL", MPI_REAL, MPI_REAL},
      {MPI_2DOUBLE_PRECISION, "MPI_2DOUBLE_PRECISION", MPI_DOUBLE_PRECISION, MPI_DOUBLE_PRECISION},
      {MPI_2INTEGER, "MPI_2INTEGER", MPI_INTEGER, MPI_INTEGER},
  });
  return table;
}

Type& made_basic(MPI_Datatype handle, const char* name, Basic basic) {
  Type& type = *basic_type(handle);
  type.predefined = type.committed = true;
  type.basic = basic;
  type.name = name;
  type.element = &type;
  type.elements = 1;
  return type;
}

MPI_Count rounded_up(MPI_Count value, MPI_Count to) {
  return (value + to - 1) / to * to;
}

void make_pair(const PairRow& row) {
  Type& type = made_basic(row.handle, row.name, Basic::pair);
  const Type& value = *basic_type(row.value);
  const Type& index = *basic_type(row.index);
  const MPI_Count place = rounded_up(value.size, index.alignment);
  type.alignment = std::max(value.alignment, index.alignment);
  type.size = value.size + index.size;
  type.true_extent = place + index.size;
  type.extent = rounded_up(type.true_extent, type.alignment);
  type.contiguous = type.extent == type.size;
  LoopList loops;
  loops.add({nullptr, 0, value.size});
  loops.add({nullptr, place, index.size});
  type.loop = loops.take().loop;
}

struct Maker {
  Maker();
};

Maker::Maker() {
  for (const Row& row : rows()) {
    Type& type = made_basic(row.handle, row.name, row.basic);
    type.size = type.extent = type.true_extent = row.size;
    type.alignment = row.alignment;
  }
  for (const PairRow& row : pairs()) make_pair(row);
  for (std::size_t i = 0; i < kMostBasicTypes; ++i) {
    const Type& type = g_basic_types[i];
    if (type.predefined && type.contiguous) g_plain_sizes[i] = static_cast<std::uint8_t>(type.size);
  }
}

[[gnu::init_priority(102)]] const Maker g_maker;

}  // namespace

PairParts parts_of_pair(const Type& pair) {
  for (const PairRow& row : pairs())
    if (&pair == basic_type(row.handle)) return {basic_type(row.value), basic_type(row.index)};
  return {nullptr, nullptr};
}

}  // namespace heddle::mpi
