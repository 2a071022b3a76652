#include "mpi/types/type.hpp"

#include <algorithm>
#include <array>
#include <mutex>
#include <type_traits>
#include <units/datatypes.hpp>

#include "mpi/core/check.hpp"
#include "mpi/core/objects.hpp"
#include "mpi/types/constructors.hpp"
#include "mpi/types/layout.hpp"
#include "mpi/types/loops.hpp"

namespace heddle::mpi {

namespace {

ObjectPool<Type, 1U << 18> g_types;
constexpr int kFirstDerivedNumber = static_cast<int>(kFirstType + kMostBasicTypes);

bool is_basic(const Type* type) {
  return type >= g_basic_types && type < g_basic_types + kMostBasicTypes;
}

}  // namespace

Type* find_type(MPI_Datatype handle) {
  return g_types.find(handle);
}

MPI_Datatype handle_of(const Type* type) {
  if (is_basic(type)) return handle_from<MPI_Datatype>(kFirstType + static_cast<std::uintptr_t>(type - g_basic_types));
  return reinterpret_cast<MPI_Datatype>(const_cast<Type*>(type));
}

int number_of(const Type* type) {
  if (is_basic(type)) return static_cast<int>(kFirstType) + static_cast<int>(type - g_basic_types);
  return kFirstDerivedNumber + static_cast<int>(g_types.number(type));
}

Type* type_at(int number) {
  if (number < kFirstDerivedNumber) return type_of(handle_from<MPI_Datatype>(static_cast<std::uintptr_t>(number)));
  return g_types.at(static_cast<std::uint32_t>(number - kFirstDerivedNumber));
}

int bad_type(MPI_Datatype handle) {
  if (handle == MPI_DATATYPE_NULL) return error(MPI_ERR_TYPE, "the datatype is MPI_DATATYPE_NULL");
  return error(MPI_ERR_TYPE, "%p is no datatype: it was freed, or is something else's handle",
               static_cast<void*>(handle));
}

int committed_type(MPI_Datatype handle, const char* argument, Type** type) {
  *type = type_of(handle);
  if (*type == nullptr) return bad_type(handle);
  if (!(*type)->committed) return error(MPI_ERR_TYPE, "%s is not committed: call MPI_Type_commit first", argument);
  return MPI_SUCCESS;
}

Plain plain_derived(MPI_Datatype handle) {
  constexpr MPI_Count kMost = MPI_Count{1} << 31;
  const Type* const type = find_type(handle);
  if (g_checks || type == nullptr || !type->committed || !type->contiguous || type->size > kMost) return {0, 0};
  return {static_cast<std::size_t>(type->size), type->true_lb};
}

std::size_t live_types() {
  std::size_t live = 0;
  g_types.each([&](const Type& type) { live += type.predefined ? 0 : 1; });
  return live;
}

Type* retain(Type* type) {
  if (!type->predefined) type->references.fetch_add(1, std::memory_order_relaxed);
  return type;
}

void release(Type* type) {
  if (!type->predefined && type->references.fetch_sub(1, std::memory_order_acq_rel) == 1) g_types.give_back(type);
}

// ---- what the constructors share ----------------------------------------------------------------

Type* new_type(TypeLayout layout, std::shared_ptr<const Envelope> envelope, bool committed) {
  Type* const type = g_types.take();
  if (type == nullptr) return nullptr;
  static_cast<TypeLayout&>(*type) = std::move(layout);
  type->envelope = std::move(envelope);
  type->committed = committed;
  return type;
}

int give_type(TypeLayout layout, std::shared_ptr<const Envelope> envelope, MPI_Datatype* newtype) {
  Type* const type = new_type(std::move(layout), std::move(envelope), false);
  if (type == nullptr) return no_memory_for("the datatype");
  *newtype = handle_of(type);
  return MPI_SUCCESS;
}

int old_type(MPI_Datatype oldtype, const MPI_Datatype* newtype, Type** old) {
  if (newtype == nullptr) return null_argument("newtype");
  *old = type_of(oldtype);
  return *old == nullptr ? bad_type(oldtype) : MPI_SUCCESS;
}

int check_count(const char* name, MPI_Count value) {
  if (value >= 0) return MPI_SUCCESS;
  return error(MPI_ERR_COUNT, "%s is %lld: it must not be negative", name, static_cast<long long>(value));
}

int check_lengths(const char* name, CountList values, MPI_Count count) {
  if (count != 0 && !values.present()) return null_argument(name);
  for (MPI_Count i = 0; i < count; ++i)
    if (values[i] < 0)
      return error(MPI_ERR_COUNT, "%s[%lld] is %lld: it must not be negative", name, static_cast<long long>(i),
                   static_cast<long long>(values[i]));
  return MPI_SUCCESS;
}

// ---- commit, free, dup --------------------------------------------------------------------------

namespace {

int commit(const MPI_Datatype* datatype) {
  if (datatype == nullptr) return null_argument("datatype");
  Type* const type = type_of(*datatype);
  if (type == nullptr) return bad_type(*datatype);
  if (!type->predefined) type->committed = true;
  return MPI_SUCCESS;
}

int free_type(MPI_Datatype* datatype) {
  if (datatype == nullptr) return null_argument("datatype");
  Type* const type = type_of(*datatype);
  if (type == nullptr) return bad_type(*datatype);
  if (type->predefined) return error(MPI_ERR_TYPE, "predefined datatypes are not to be freed");
  if (!type->attributes.entries.empty()) {
    if (const int code = delete_attributes(*datatype, &type->attributes)) return code;
  }
  release(type);
  *datatype = MPI_DATATYPE_NULL;
  return MPI_SUCCESS;
}

int duplicate_type(Call call, MPI_Datatype oldtype, MPI_Datatype* newtype) {
  Type* old = nullptr;
  if (const int code = old_type(oldtype, newtype, &old)) return code;
  auto envelope = std::make_shared<Envelope>(MPI_COMBINER_DUP, call);
  envelope->type(old);
  Attributes copies;
  if (!old->attributes.entries.empty()) {
    if (const int code = copy_attributes(oldtype, old->attributes, &copies)) return code;
  }
  Type* const type = new_type(*old, std::move(envelope), old->committed);
  if (type == nullptr) return no_memory_for("the datatype");
  type->attributes = std::move(copies);
  *newtype = handle_of(type);
  return MPI_SUCCESS;
}

}  // namespace

int type_commit(Call call, MPI_Datatype* datatype) {
  return told(call, commit(datatype));
}

int type_free(Call call, MPI_Datatype* datatype) {
  return told(call, free_type(datatype));
}

int type_dup(Call call, MPI_Datatype oldtype, MPI_Datatype* newtype) {
  return told(call, guarded("the datatype", [&] { return duplicate_type(call, oldtype, newtype); }));
}

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
