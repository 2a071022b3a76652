// Datatypes: cases known from the standard, limits, envelopes, external32.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "mpi/core/arguments.hpp"
#include "mpi/types/constructors.hpp"
#include "mpi/types/layout.hpp"
#include "mpi/types/type.hpp"

namespace heddle::mpi::cases_test {
namespace {

// Freed at its end.
class Owned {
 public:
  Owned() = default;
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (handle_ != MPI_DATATYPE_NULL) MPI_Type_free(&handle_);
  }
  // NOLINT(google-runtime-operator): as MPI functions take it
  MPI_Datatype* operator&() { return &handle_; }
  operator MPI_Datatype() const { return handle_; }  // NOLINT(google-explicit-constructor)
  [[nodiscard]] const Type* operator->() const { return type_of(handle_); }
  [[nodiscard]] const Type& operator*() const { return *type_of(handle_); }

 private:
  MPI_Datatype handle_ = MPI_DATATYPE_NULL;
};

std::string name_of(MPI_Datatype type) {
  char name[MPI_MAX_OBJECT_NAME];
  int length = 0;
  MPI_Type_get_name(type, name, &length);
  EXPECT_EQ(std::strlen(name), static_cast<std::size_t>(length));
  return name;
}

// ---- predefined datatypes -----------------------------------------------------------------------

const MPI_Count g_size_at_load = [] {
  MPI_Count size = 0;
  MPI_Type_size_c(MPI_LONG_DOUBLE_INT, &size);
  return size;
}();

TEST(BasicTypes, AreThereBeforeEverything) {
  EXPECT_EQ(g_size_at_load, 20);
}

TEST(BasicTypes, AreThePlatforms) {
  EXPECT_EQ(type_of(MPI_LONG)->size, static_cast<MPI_Count>(sizeof(long)));
  EXPECT_EQ(type_of(MPI_WCHAR)->size, static_cast<MPI_Count>(sizeof(wchar_t)));
  EXPECT_EQ(type_of(MPI_LONG_DOUBLE)->alignment, static_cast<int>(alignof(long double)));
  EXPECT_EQ(type_of(MPI_C_DOUBLE_COMPLEX)->alignment, static_cast<int>(alignof(double)));
  struct DoubleInt {
    double value;
    int index;
  };
  EXPECT_EQ(type_of(MPI_DOUBLE_INT)->extent, static_cast<MPI_Count>(sizeof(DoubleInt)));
  EXPECT_EQ(type_of(MPI_DOUBLE_INT)->size, 12);
  EXPECT_FALSE(type_of(MPI_DOUBLE_INT)->contiguous);
  EXPECT_FALSE(type_of(MPI_SHORT_INT)->contiguous);
  EXPECT_TRUE(type_of(MPI_2INT)->contiguous);
  EXPECT_EQ(type_of(MPI_DATATYPE_NULL), nullptr);
  EXPECT_EQ(type_of(reinterpret_cast<MPI_Datatype>(0x204)), nullptr);
  EXPECT_EQ(name_of(MPI_INT), "MPI_INT");
  EXPECT_EQ(name_of(MPI_CXX_LONG_DOUBLE_COMPLEX), "MPI_CXX_LONG_DOUBLE_COMPLEX");
  EXPECT_EQ(name_of(MPI_2DOUBLE_PRECISION), "MPI_2DOUBLE_PRECISION");
}

TEST(BasicTypes, AreFoundByTheirProperties) {
  MPI_Datatype found = MPI_DATATYPE_NULL;
  ASSERT_EQ(MPI_Type_match_size(MPI_TYPECLASS_COMPLEX, 16, &found), MPI_SUCCESS);
  EXPECT_EQ(found, MPI_COMPLEX16);
  ASSERT_EQ(MPI_Type_get_value_index(MPI_LONG_DOUBLE, MPI_INT, &found), MPI_SUCCESS);
  EXPECT_EQ(found, MPI_LONG_DOUBLE_INT);
  ASSERT_EQ(MPI_Type_get_value_index(MPI_INT, MPI_DOUBLE, &found), MPI_SUCCESS);
  EXPECT_EQ(found, MPI_DATATYPE_NULL);
  MPI_Datatype real = MPI_DATATYPE_NULL;
  MPI_Datatype again = MPI_DATATYPE_NULL;
  ASSERT_EQ(MPI_Type_create_f90_real(10, 200, &real), MPI_SUCCESS);
  ASSERT_EQ(MPI_Type_create_f90_real(10, 200, &again), MPI_SUCCESS);
  EXPECT_EQ(real, again);
  EXPECT_EQ(type_of(real)->size, 8);
  EXPECT_EQ(type_of(real)->basic, Basic::float64);
  EXPECT_TRUE(type_of(real)->committed);
  int integers = 0;
  int addresses = 0;
  int types = 0;
  int combiner = 0;
  ASSERT_EQ(MPI_Type_get_envelope(real, &integers, &addresses, &types, &combiner), MPI_SUCCESS);
  EXPECT_EQ(combiner, MPI_COMBINER_F90_REAL);
  ASSERT_EQ(integers, 2);
  int values[2];
  ASSERT_EQ(MPI_Type_get_contents(real, 2, 0, 0, values, nullptr, nullptr), MPI_SUCCESS);
  EXPECT_EQ(values[0], 10);
  EXPECT_EQ(values[1], 200);
}

// ---- bounds -------------------------------------------------------------------------------------

TEST(Bounds, OfTheStandardsExamples) {
  Owned resized;  // {(lb, -3), (int, 0), (ub, 6)}, twice: lb at -3, ub at 15
  Owned twice;
  MPI_Type_create_resized(MPI_INT, -3, 9, &resized);
  MPI_Type_contiguous(2, resized, &twice);
  EXPECT_EQ(twice->lb, -3);
  EXPECT_EQ(twice->extent, 18);
  EXPECT_EQ(twice->true_lb, 0);
  EXPECT_EQ(twice->true_extent, 13);
  Owned structure;  // {(double, 0), (char, 8)}: 16 bytes, to align the next one
  const int lengths[] = {1, 1};
  const MPI_Aint displacements[] = {0, 8};
  const MPI_Datatype types[] = {MPI_DOUBLE, MPI_CHAR};
  MPI_Type_create_struct(2, lengths, displacements, types, &structure);
  EXPECT_EQ(structure->extent, 16);
  EXPECT_EQ(structure->size, 9);
  EXPECT_EQ(structure->true_extent, 9);
  EXPECT_FALSE(structure->contiguous);
  Owned marked;  // bounds that the program gave hide those of other members, and are not padded
  const MPI_Datatype with_resized[] = {MPI_DOUBLE, resized};
  MPI_Type_create_struct(2, lengths, displacements, with_resized, &marked);
  EXPECT_EQ(marked->lb, 5);
  EXPECT_EQ(marked->extent, 9);
}

TEST(Bounds, OfDistributedArrays) {
  // 10 × 7 integers on 2 × 3 processes: rank 4 is (1, 1).
  const int sizes[] = {10, 7};
  const int distributions[] = {MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_BLOCK};
  const int arguments[] = {3, MPI_DISTRIBUTE_DFLT_DARG};
  const int processes[] = {2, 3};
  Owned array;
  MPI_Type_create_darray(6, 4, 2, sizes, distributions, arguments, processes, MPI_ORDER_C, MPI_INT, &array);
  std::vector<int> values(70);
  std::iota(values.begin(), values.end(), 0);
  std::vector<int> expected;
  for (const int row : {3, 4, 5, 9})
    for (const int column : {3, 4, 5}) expected.push_back(row * 7 + column);
  std::vector<int> packed(expected.size());
  ASSERT_EQ(array->size, static_cast<MPI_Count>(expected.size() * 4));
  EXPECT_EQ(array->lb, 0);
  EXPECT_EQ(array->extent, 280);
  pack(values.data(), 1, *array, packed.data());
  EXPECT_EQ(packed, expected);
}

TEST(Bounds, OfNothing) {
  Owned none;
  Owned vector;
  MPI_Type_contiguous(0, MPI_INT, &none);
  MPI_Type_create_hvector(3, 1, 100, none, &vector);
  EXPECT_EQ(vector->extent, 0);
  EXPECT_EQ(vector->size, 0);
  EXPECT_TRUE(vector->contiguous);
  EXPECT_EQ(elements_in(*vector, 0), 0);
  EXPECT_EQ(elements_in(*vector, 4), MPI_UNDEFINED);
}

// ---- limits -------------------------------------------------------------------------------------

TEST(Limits, CountsMayBeLarge) {
  constexpr MPI_Count kMany = MPI_Count{3} << 31;
  Owned row;
  Owned columns;
  ASSERT_EQ(MPI_Type_contiguous_c(kMany, MPI_DOUBLE, &row), MPI_SUCCESS);
  EXPECT_EQ(row->size, 8 * kMany);
  EXPECT_TRUE(row->contiguous);
  EXPECT_EQ(row->loop, nullptr);
  int narrow = 0;
  MPI_Count wide = 0;
  MPI_Type_size(row, &narrow);
  MPI_Type_size_c(row, &wide);
  EXPECT_EQ(narrow, MPI_UNDEFINED);
  EXPECT_EQ(wide, 8 * kMany);
  ASSERT_EQ(MPI_Type_vector_c(kMany, 2, 5, MPI_INT, &columns), MPI_SUCCESS);
  EXPECT_EQ(columns->loop->kind, Loop::Kind::blocks) << "memory does not grow with the count";
  MPI_Status status{};
  set_bytes(&status, 8 * kMany);
  EXPECT_EQ(MPI_Get_count(&status, MPI_BYTE, &narrow), MPI_SUCCESS);
  EXPECT_EQ(narrow, MPI_UNDEFINED);
  EXPECT_EQ(MPI_Get_elements_c(&status, columns, &wide), MPI_SUCCESS);
  EXPECT_EQ(wide, 2 * kMany);
}

TEST(Limits, WhatDoesNotFitIsAnError) {
  const TypeLayout& of = *type_of(MPI_DOUBLE);
  TypeLayout made;
  constexpr MPI_Count kHuge = std::numeric_limits<MPI_Count>::max();
  EXPECT_NE(repeat(of, kHuge, 8, &made), MPI_SUCCESS);
  EXPECT_NE(repeat(of, kHuge / 8 + 1, 8, &made), MPI_SUCCESS);
  EXPECT_EQ(repeat(of, kHuge / 8, 8, &made), MPI_SUCCESS);
  EXPECT_NE(repeat(made, 2, made.extent, &made), MPI_SUCCESS);
  EXPECT_NE(repeat(of, 3, kHuge / 2, &made), MPI_SUCCESS);
  EXPECT_NE(resize(kHuge, 1, &made), MPI_SUCCESS);
  Joined joined;
  EXPECT_NE(joined.add(of, 1, kHuge - 3), MPI_SUCCESS);
  Joined far;
  EXPECT_EQ(far.add(of, 1, std::numeric_limits<MPI_Count>::min()), MPI_SUCCESS);
  EXPECT_EQ(far.add(of, 1, kHuge - 8), MPI_SUCCESS);
  EXPECT_NE(far.take(&made), MPI_SUCCESS) << "the extent";
}

TEST(Limits, EqualStepsAreOneLoop) {
  std::vector<int> displacements;
  for (int i = 0; i < 10000; ++i) displacements.push_back(3 * i);
  Owned even;
  MPI_Type_create_indexed_block(10000, 2, displacements.data(), MPI_INT, &even);
  EXPECT_EQ(even->loop->kind, Loop::Kind::blocks);
  displacements[5000] += 1;
  Owned uneven;
  MPI_Type_create_indexed_block(10000, 1, displacements.data(), MPI_INT, &uneven);
  EXPECT_EQ(uneven->loop->kind, Loop::Kind::scattered);
  const int sizes[] = {100, 100, 100};
  const int subsizes[] = {10, 100, 100};
  const int starts[] = {5, 0, 0};
  Owned slab;
  MPI_Type_create_subarray(3, sizes, subsizes, starts, MPI_ORDER_C, MPI_DOUBLE, &slab);
  EXPECT_EQ(slab->loop, nullptr) << "one block";
}

TEST(Limits, NestingMayBeDeep) {
  MPI_Datatype type = MPI_INT;
  const int lengths[] = {1, 1};
  for (int depth = 0; depth < 2000; ++depth) {
    const MPI_Aint displacements[] = {0, 8};
    const MPI_Datatype types[] = {MPI_CHAR, type};
    MPI_Datatype next = MPI_DATATYPE_NULL;
    ASSERT_EQ(MPI_Type_create_struct(2, lengths, displacements, types, &next), MPI_SUCCESS);
    if (type != MPI_INT) MPI_Type_free(&type);
    type = next;
  }
  EXPECT_EQ(type_of(type)->size, 2004);
  EXPECT_EQ(elements_in(*type_of(type), 2004), 2001);
  EXPECT_EQ(elements_in(*type_of(type), 2001), MPI_UNDEFINED);
  MPI_Count blocks = 0;
  each_block(1, *type_of(type), [&](MPI_Count, MPI_Count) { ++blocks; });
  EXPECT_EQ(blocks, 2001);
  MPI_Type_free(&type);
}

// ---- envelopes ----------------------------------------------------------------------------------

TEST(Envelopes, ContentsAreNewHandles) {
  Owned inner;
  Owned outer;
  MPI_Type_vector(2, 3, 4, MPI_INT, &inner);
  MPI_Type_create_hvector(5, 6, 700, inner, &outer);
  int integers[2];
  MPI_Aint addresses[1];
  MPI_Datatype types[1];
  ASSERT_EQ(MPI_Type_get_contents(outer, 2, 1, 1, integers, addresses, types), MPI_SUCCESS);
  EXPECT_EQ(integers[0], 5);
  EXPECT_EQ(integers[1], 6);
  EXPECT_EQ(addresses[0], 700);
  EXPECT_NE(types[0], inner);
  EXPECT_EQ(type_of(types[0])->size, inner->size);
  ASSERT_EQ(MPI_Type_free(&types[0]), MPI_SUCCESS);
  EXPECT_EQ(types[0], MPI_DATATYPE_NULL);
  EXPECT_EQ(inner->references.load(), 2) << "the handle and the outer one";
}

TEST(Envelopes, LargeCountsAreApart) {
  Owned type;
  const MPI_Count lengths[] = {1, 2};
  const MPI_Count displacements[] = {0, 40};
  const MPI_Datatype types[] = {MPI_INT, MPI_DOUBLE};
  MPI_Type_create_struct_c(2, lengths, displacements, types, &type);
  MPI_Count integers = -1;
  MPI_Count addresses = -1;
  MPI_Count counts = -1;
  MPI_Count datatypes = -1;
  int combiner = 0;
  ASSERT_EQ(MPI_Type_get_envelope_c(type, &integers, &addresses, &counts, &datatypes, &combiner), MPI_SUCCESS);
  EXPECT_EQ(combiner, MPI_COMBINER_STRUCT);
  EXPECT_EQ(integers, 0);
  EXPECT_EQ(addresses, 0);
  ASSERT_EQ(counts, 5);
  ASSERT_EQ(datatypes, 2);
  MPI_Count values[5];
  MPI_Datatype handles[2];
  ASSERT_EQ(MPI_Type_get_contents_c(type, 0, 0, 5, 2, nullptr, nullptr, values, handles), MPI_SUCCESS);
  EXPECT_EQ((std::vector<MPI_Count>(values, values + 5)), (std::vector<MPI_Count>{2, 1, 2, 0, 40}));
  EXPECT_EQ(handles[1], MPI_DOUBLE);
}

// ---- external32 ---------------------------------------------------------------------------------

TEST(External, IsMostSignificantFirstAndOfItsSizes) {
  struct Record {
    long number;
    wchar_t letter;
    short small;
    long double real;
    double value;
    int index;
  };
  const Record record{-2, L'x', 0x1234, 1.5L, -0.5, 7};
  const int lengths[] = {1, 1, 1, 1, 1};
  const MPI_Aint displacements[] = {offsetof(Record, number), offsetof(Record, letter), offsetof(Record, small),
                                    offsetof(Record, real), offsetof(Record, value)};
  const MPI_Datatype types[] = {MPI_LONG, MPI_WCHAR, MPI_SHORT, MPI_LONG_DOUBLE, MPI_DOUBLE_INT};
  Owned type;
  MPI_Type_create_struct(5, lengths, displacements, types, &type);
  ASSERT_EQ(external_size(*type), 4 + 2 + 2 + 16 + 12);
  unsigned char packed[36];
  ASSERT_EQ(pack_external(&record, 1, *type, packed), MPI_SUCCESS);
  const unsigned char expected[36] = {0xff, 0xff, 0xff, 0xfe, 0, 'x', 0x12, 0x34, 0x3f, 0xff, 0x80, 0,
                                      0,    0,    0,    0,    0, 0,   0,    0,    0,    0,    0,    0,
                                      0xbf, 0xe0, 0,    0,    0, 0,   0,    0,    0,    0,    0,    7};
  EXPECT_EQ(std::memcmp(packed, expected, sizeof packed), 0);
  Record back{};
  unpack_external(packed, &back, 1, *type);
  EXPECT_EQ(back.number, record.number);
  EXPECT_EQ(back.letter, record.letter);
  EXPECT_EQ(back.small, record.small);
  EXPECT_EQ(back.real, record.real);
  EXPECT_EQ(back.value, record.value);
  EXPECT_EQ(back.index, record.index);
}

TEST(External, LongDataGoesThroughAndBack) {
  Owned type;
  MPI_Type_vector(1000, 3, 5, MPI_LONG_LONG, &type);
  std::vector<long long> values(5000 * 3);
  std::iota(values.begin(), values.end(), -7000);
  std::vector<std::byte> packed(static_cast<std::size_t>(3 * external_size(*type)));
  ASSERT_EQ(pack_external(values.data(), 3, *type, packed.data()), MPI_SUCCESS);
  std::vector<long long> back(values.size());
  unpack_external(packed.data(), back.data(), 3, *type);
  std::vector<long long> once(values.size() / 5 * 3);
  std::vector<long long> twice(once.size());
  pack(values.data(), 3, *type, once.data());
  pack(back.data(), 3, *type, twice.data());
  EXPECT_EQ(once, twice);
}

TEST(External, AValueThatDoesNotFitIsAnError) {
  const long value = 1L << 40;
  unsigned char packed[4];
  EXPECT_EQ(pack_external(&value, 1, *type_of(MPI_LONG), packed), MPI_ERR_VALUE_TOO_LARGE);
}

}  // namespace
}  // namespace heddle::mpi::cases_test
