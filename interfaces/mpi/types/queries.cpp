// Queries of datatypes and statuses: sizes, bounds, names, counts.

#include <algorithm>
#include <cfloat>
#include <cstring>
#include <map>
#include <mutex>
#include <string_view>
#include <tuple>
#include <units/datatypes.hpp>

#include "mpi/core/arguments.hpp"
#include "mpi/types/constructors.hpp"
#include "mpi/types/type.hpp"

namespace heddle::mpi {

namespace {

int get_extent(MPI_Datatype datatype, const char* names, CountOut lb, CountOut extent, bool of_data) {
  const Type* const type = type_of(datatype);
  if (type == nullptr) return bad_type(datatype);
  if (!lb.present() || !extent.present()) return null_argument(names);
  lb.set(of_data ? type->true_lb : type->lb);
  extent.set(of_data ? type->true_extent : type->extent);
  return MPI_SUCCESS;
}

int get_size(MPI_Datatype datatype, CountOut size) {
  const Type* const type = type_of(datatype);
  if (type == nullptr) return bad_type(datatype);
  if (!size.present()) return null_argument("size");
  size.set(type->size);
  return MPI_SUCCESS;
}

// ---- statuses -----------------------------------------------------------------------------------

int check_status(const MPI_Status* status) {
  if (status != MPI_STATUS_IGNORE) return MPI_SUCCESS;
  return error(MPI_ERR_ARG, "the status is MPI_STATUS_IGNORE or a null pointer: pass one that a call has set");
}

int count_received(const MPI_Status* status, MPI_Datatype datatype, CountOut count, bool of_elements) {
  if (const int code = check_status(status)) return code;
  const Type* const type = type_of(datatype);
  if (type == nullptr) return bad_type(datatype);
  if (!count.present()) return null_argument("count");
  const MPI_Count bytes = bytes_of(*status);
  if (of_elements)
    count.set(elements_in(*type, bytes));
  else if (bytes == 0)
    count.set(0);
  else
    count.set(type->size == 0 || bytes % type->size != 0 ? MPI_Count{MPI_UNDEFINED} : bytes / type->size);
  return MPI_SUCCESS;
}

int set_elements(MPI_Status* status, MPI_Datatype datatype, MPI_Count count) {
  MPI_Count bytes = 0;
  if (const int code = check_status(status)) return code;
  const Type* const type = type_of(datatype);
  if (type == nullptr) return bad_type(datatype);
  if (const int code = check_count("count", count)) return code;
  if (const int code = bytes_of_elements(*type, count, &bytes)) return code;
  set_bytes(status, bytes);
  return MPI_SUCCESS;
}

// ---- names, addresses ---------------------------------------------------------------------------

int set_type_name(MPI_Datatype datatype, const char* name) {
  Type* const type = type_of(datatype);
  if (type == nullptr) return bad_type(datatype);
  if (name == nullptr) return null_argument("type_name");
  type->name.assign(name, ::strnlen(name, MPI_MAX_OBJECT_NAME - 1));
  return MPI_SUCCESS;
}

int get_type_name(MPI_Datatype datatype, char* name, int* length) {
  const Type* const type = type_of(datatype);
  if (type == nullptr && datatype != MPI_DATATYPE_NULL) return bad_type(datatype);
  if (name == nullptr) return null_argument("type_name");
  if (length == nullptr) return null_argument("resultlen");
  const std::string_view text = type == nullptr ? std::string_view("MPI_DATATYPE_NULL") : type->name;
  name[text.copy(name, text.size())] = '\0';
  *length = static_cast<int>(text.size());
  return MPI_SUCCESS;
}

}  // namespace

int type_get_extent(Call call, MPI_Datatype datatype, CountOut lb, CountOut extent) {
  return told(call, get_extent(datatype, "lb or extent", lb, extent, false));
}

int type_get_extent_x(Call call, MPI_Datatype datatype, MPI_Count* lb, MPI_Count* extent) {
  return told(call, get_extent(datatype, "lb or extent", lb, extent, false));
}

int type_get_true_extent(Call call, MPI_Datatype datatype, CountOut true_lb, CountOut true_extent) {
  return told(call, get_extent(datatype, "true_lb or true_extent", true_lb, true_extent, true));
}

int type_get_true_extent_x(Call call, MPI_Datatype datatype, MPI_Count* true_lb, MPI_Count* true_extent) {
  return told(call, get_extent(datatype, "true_lb or true_extent", true_lb, true_extent, true));
}

int type_size(Call call, MPI_Datatype datatype, CountOut size) {
  return told(call, get_size(datatype, size));
}

int type_size_x(Call call, MPI_Datatype datatype, MPI_Count* size) {
  return told(call, get_size(datatype, size));
}

int get_count(Call call, const MPI_Status* status, MPI_Datatype datatype, CountOut count) {
  return told(call, count_received(status, datatype, count, false));
}

int get_elements(Call call, const MPI_Status* status, MPI_Datatype datatype, CountOut count) {
  return told(call, count_received(status, datatype, count, true));
}

int get_elements_x(Call call, const MPI_Status* status, MPI_Datatype datatype, MPI_Count* count) {
  return told(call, count_received(status, datatype, count, true));
}

int status_set_elements(Call call, MPI_Status* status, MPI_Datatype datatype, MPI_Count count) {
  return told(call, set_elements(status, datatype, count));
}

int status_set_elements_x(Call call, MPI_Status* status, MPI_Datatype datatype, MPI_Count count) {
  return told(call, set_elements(status, datatype, count));
}

int type_set_name(Call call, MPI_Datatype datatype, const char* type_name) {
  return told(call, guarded("the datatype", [&] { return set_type_name(datatype, type_name); }));
}

int type_get_name(Call call, MPI_Datatype datatype, char* type_name, int* resultlen) {
  return told(call, get_type_name(datatype, type_name, resultlen));
}

int get_address(Call call, const void* location, MPI_Aint* address) {
  if (address == nullptr) return told(call, null_argument("address"));
  *address = reinterpret_cast<MPI_Aint>(location);
  return MPI_SUCCESS;
}

// Addresses wrap around as unsigned numbers do.
MPI_Aint aint_add(Call /*call*/, MPI_Aint base, MPI_Aint disp) {
  return static_cast<MPI_Aint>(static_cast<std::uintptr_t>(base) + static_cast<std::uintptr_t>(disp));
}

MPI_Aint aint_diff(Call /*call*/, MPI_Aint addr1, MPI_Aint addr2) {
  return static_cast<MPI_Aint>(static_cast<std::uintptr_t>(addr1) - static_cast<std::uintptr_t>(addr2));
}

// Datatypes found by a property: Fortran's kinds, sizes, pairs.

namespace {

// ---- Fortran's kinds ----------------------------------------------------------------------------
//
// The kinds are those of GNU Fortran, in the order in which selected_real_kind() and
// selected_int_kind() take them.

struct RealKind {
  int precision;
  int range;
  MPI_Datatype real;
  MPI_Datatype complex;
};

const RealKind* find_real(int precision, int range) {
  static const RealKind kinds[] = {
      {FLT_DIG, FLT_MAX_10_EXP - 1, MPI_REAL4, MPI_COMPLEX8},
      {DBL_DIG, DBL_MAX_10_EXP - 1, MPI_REAL8, MPI_COMPLEX16},
      {LDBL_DIG, LDBL_MAX_10_EXP - 1, MPI_LONG_DOUBLE, MPI_C_LONG_DOUBLE_COMPLEX},
      {33, 4931, MPI_REAL16, MPI_COMPLEX32},
  };
  for (const RealKind& kind : kinds)
    if (precision <= kind.precision && range <= kind.range) return &kind;
  return nullptr;
}

MPI_Datatype find_integer(int range) {
  static const std::pair<int, MPI_Datatype> kinds[] = {
      {2, MPI_INTEGER1}, {4, MPI_INTEGER2}, {9, MPI_INTEGER4}, {18, MPI_INTEGER8}, {38, MPI_INTEGER16}};
  for (const auto& [digits, type] : kinds)
    if (range <= digits) return type;
  return MPI_DATATYPE_NULL;
}

// A predefined datatype without a name.
struct Kind {
  Type* type = nullptr;
  std::shared_ptr<const Envelope> envelope;  // for leak checkers, which do not look into pools
};

// Always the same for the same arguments.
int give_kind(int combiner, int precision, int range, MPI_Datatype of, MPI_Datatype* newtype) {
  static std::mutex mutex;
  // never destroyed, as the types
  static auto& kinds = *new std::map<std::tuple<int, int, int>, Kind>;
  const std::scoped_lock lock(mutex);
  Kind& kind = kinds[{combiner, precision, range}];
  if (kind.type == nullptr) {
    auto how = std::make_shared<Envelope>(combiner, "");
    if (combiner != MPI_COMBINER_F90_INTEGER) how->integer(precision);
    how->integer(range);
    kind.envelope = std::move(how);
    kind.type = new_type(*basic_type(of), kind.envelope, true);
    if (kind.type == nullptr) return no_memory_for("the datatype");
    kind.type->basic = basic_type(of)->basic;
    kind.type->predefined = true;
  }
  *newtype = handle_of(kind.type);
  return MPI_SUCCESS;
}

int create_real(int p, int r, bool complex, MPI_Datatype* newtype) {
  if (newtype == nullptr) return null_argument("newtype");
  if (p == MPI_UNDEFINED && r == MPI_UNDEFINED) return error(MPI_ERR_ARG, "p and r must not both be MPI_UNDEFINED");
  if (p < 0 && p != MPI_UNDEFINED) return error(MPI_ERR_ARG, "p is %d: it must not be negative", p);
  if (r < 0 && r != MPI_UNDEFINED) return error(MPI_ERR_ARG, "r is %d: it must not be negative", r);
  const RealKind* const kind = find_real(p, r);
  if (kind == nullptr)
    return error(MPI_ERR_ARG,
                 "no kind has %d digits and an exponent range of %d: the largest has 33 digits and range 4931", p, r);
  const int combiner = complex ? MPI_COMBINER_F90_COMPLEX : MPI_COMBINER_F90_REAL;
  return give_kind(combiner, p, r, complex ? kind->complex : kind->real, newtype);
}

int create_integer(int r, MPI_Datatype* newtype) {
  if (newtype == nullptr) return null_argument("newtype");
  if (r < 0) return error(MPI_ERR_ARG, "r is %d: it must not be negative", r);
  const MPI_Datatype found = find_integer(r);
  if (found == MPI_DATATYPE_NULL) return error(MPI_ERR_ARG, "no kind has %d decimal digits: the largest has 38", r);
  return give_kind(MPI_COMBINER_F90_INTEGER, 0, r, found, newtype);
}

// ---- sizes and pairs ----------------------------------------------------------------------------

int match_size(int typeclass, int size, MPI_Datatype* datatype) {
  struct Match {
    int typeclass;
    MPI_Datatype type;
  };
  static const Match matches[] = {
      {MPI_TYPECLASS_INTEGER, MPI_INTEGER1},  {MPI_TYPECLASS_INTEGER, MPI_INTEGER2},
      {MPI_TYPECLASS_INTEGER, MPI_INTEGER4},  {MPI_TYPECLASS_INTEGER, MPI_INTEGER8},
      {MPI_TYPECLASS_INTEGER, MPI_INTEGER16}, {MPI_TYPECLASS_REAL, MPI_REAL2},
      {MPI_TYPECLASS_REAL, MPI_REAL4},        {MPI_TYPECLASS_REAL, MPI_REAL8},
      {MPI_TYPECLASS_REAL, MPI_REAL16},       {MPI_TYPECLASS_COMPLEX, MPI_COMPLEX4},
      {MPI_TYPECLASS_COMPLEX, MPI_COMPLEX8},  {MPI_TYPECLASS_COMPLEX, MPI_COMPLEX16},
      {MPI_TYPECLASS_COMPLEX, MPI_COMPLEX32}, {MPIX_TYPECLASS_LOGICAL, MPI_LOGICAL1},
      {MPIX_TYPECLASS_LOGICAL, MPI_LOGICAL2}, {MPIX_TYPECLASS_LOGICAL, MPI_LOGICAL4},
      {MPIX_TYPECLASS_LOGICAL, MPI_LOGICAL8}, {MPIX_TYPECLASS_LOGICAL, MPI_LOGICAL16},
  };
  if (datatype == nullptr) return null_argument("datatype");
  bool known = false;
  for (const Match& match : matches) {
    if (match.typeclass != typeclass) continue;
    known = true;
    if (basic_type(match.type)->size != size) continue;
    *datatype = match.type;
    return MPI_SUCCESS;
  }
  if (!known)
    return error(MPI_ERR_ARG, "typeclass is %d: it must be MPI_TYPECLASS_REAL, _INTEGER or _COMPLEX", typeclass);
  return error(MPI_ERR_ARG, "no datatype of this class has a size of %d bytes", size);
}

int value_index(MPI_Datatype value, MPI_Datatype index, MPI_Datatype* pair) {
  static const MPI_Datatype pairs[] = {MPI_FLOAT_INT, MPI_DOUBLE_INT,        MPI_LONG_INT,
                                       MPI_2INT,      MPI_SHORT_INT,         MPI_LONG_DOUBLE_INT,
                                       MPI_2REAL,     MPI_2DOUBLE_PRECISION, MPI_2INTEGER};
  if (pair == nullptr) return null_argument("pair_type");
  const Type* const value_type = type_of(value);
  const Type* const index_type = type_of(index);
  if (value_type == nullptr) return bad_type(value);
  if (index_type == nullptr) return bad_type(index);
  if (!value_type->predefined || !index_type->predefined)
    return error(MPI_ERR_TYPE, "value_type and index_type must be predefined datatypes");
  *pair = MPI_DATATYPE_NULL;  // the standard's result for two types that have no pair
  for (const MPI_Datatype one : pairs) {
    const PairParts parts = parts_of_pair(*basic_type(one));
    if (parts.value == value_type && parts.index == index_type) *pair = one;
  }
  return MPI_SUCCESS;
}

}  // namespace

int type_create_f90_real(Call call, int p, int r, MPI_Datatype* newtype) {
  return told(call, guarded("the datatype", [&] { return create_real(p, r, false, newtype); }));
}

int type_create_f90_complex(Call call, int p, int r, MPI_Datatype* newtype) {
  return told(call, guarded("the datatype", [&] { return create_real(p, r, true, newtype); }));
}

int type_create_f90_integer(Call call, int r, MPI_Datatype* newtype) {
  return told(call, guarded("the datatype", [&] { return create_integer(r, newtype); }));
}

int type_match_size(Call call, int typeclass, int size, MPI_Datatype* datatype) {
  return told(call, match_size(typeclass, size, datatype));
}

int type_get_value_index(Call call, MPI_Datatype value_type, MPI_Datatype index_type, MPI_Datatype* pair_type) {
  return told(call, value_index(value_type, index_type, pair_type));
}

}  // namespace heddle::mpi
