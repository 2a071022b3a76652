// Queries of datatypes and statuses: sizes, bounds, names, counts.
#include <algorithm>
#include <cstring>
#include <string_view>

#include <units/datatypes.hpp>
#include "mpi/types/basic.hpp"
#include "mpi/types/construct.hpp"
#include "mpi/types/status.hpp"

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

}  // namespace heddle::mpi
