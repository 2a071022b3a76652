#include "mpi/types/type.hpp"

#include <mutex>

#include <units/datatypes.hpp>
#include "mpi/check/check.hpp"
#include "mpi/check/leaks.hpp"
#include "mpi/core/pool.hpp"
#include "mpi/types/basic.hpp"
#include "mpi/types/construct.hpp"

namespace heddle::mpi {
namespace {

Pool<Type, 1U << 18> g_types;
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

Type* new_type(Layout layout, std::shared_ptr<const Envelope> envelope, bool committed) {
  Type* const type = g_types.take();
  if (type == nullptr) return nullptr;
  static_cast<Layout&>(*type) = std::move(layout);
  type->envelope = std::move(envelope);
  type->committed = committed;
  return type;
}

int give_type(Layout layout, std::shared_ptr<const Envelope> envelope, MPI_Datatype* newtype) {
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

int check_lengths(const char* name, Counts values, MPI_Count count) {
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

}  // namespace heddle::mpi
