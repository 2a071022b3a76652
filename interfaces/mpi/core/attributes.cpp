#include "mpi/core/attributes.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>

#include <units/attributes.hpp>
#include "mpi/communicators/comm.hpp"
#include "mpi/core/errors.hpp"
#include "mpi/core/job.hpp"
#include "mpi/core/objects.hpp"
#include "mpi/rma/win.hpp"
#include "mpi/types/type.hpp"

namespace heddle::mpi {

enum class KeyvalKind { comm, type, win };

// The program's functions are called with the handle of the object, in the handle type of its kind.
struct Keyval {
  KeyvalKind kind = KeyvalKind::comm;
  union {
    MPI_Comm_copy_attr_function* comm;
    MPI_Type_copy_attr_function* type;
    MPI_Win_copy_attr_function* win;
  } copy{nullptr};
  union {
    MPI_Comm_delete_attr_function* comm;
    MPI_Type_delete_attr_function* type;
    MPI_Win_delete_attr_function* win;
  } remove{nullptr};
  void* extra = nullptr;
  bool freed = false;  // by the program; attributes that have it keep it
  int references = 1;  // the program's, and attributes
};

namespace {

constexpr int kFirstKeyval = 0x1000;  // predefined keys are smaller
constexpr std::uint32_t kMostKeyvals = 1U << 20;
ObjectPool<Keyval, kMostKeyvals> g_keyvals;
// Guards the attributes of all objects, and what changes of keys. Not held while functions of the
// program run.
std::mutex g_attributes_mutex;

int number_of(const Keyval* keyval) {
  return kFirstKeyval + static_cast<int>(g_keyvals.number(keyval));
}

// With g_attributes_mutex held.
void release_keyval(Keyval* keyval) {
  if (--keyval->references == 0) g_keyvals.give_back(keyval);
}

const char* name_of(KeyvalKind kind) {
  switch (kind) {
    case KeyvalKind::comm:
      return "communicators";
    case KeyvalKind::type:
      return "datatypes";
    case KeyvalKind::win:
      return "windows";
  }
  return "";
}

bool is_predefined_key(int number) {
  return number >= MPI_TAG_UB && number <= MPI_WIN_MODEL;
}

// What a call does with a key. A key that the program has freed lives on while attributes have it.
// The program may get and delete these attributes by the number that it has kept.
enum class Purpose { change, look };

// With g_attributes_mutex held.
int find_keyval(int number, KeyvalKind kind, Purpose purpose, Keyval** out) {
  if (number == MPI_KEYVAL_INVALID) return error(MPI_ERR_KEYVAL, "keyval is MPI_KEYVAL_INVALID");
  if (is_predefined_key(number))
    return error(MPI_ERR_KEYVAL, "keyval %d: it is a key of the library, which does not change", number);
  Keyval* const keyval =
      number < kFirstKeyval ? nullptr : g_keyvals.at(static_cast<std::uint32_t>(number - kFirstKeyval));
  if (keyval == nullptr || (keyval->freed && purpose == Purpose::change))
    return error(MPI_ERR_KEYVAL, "keyval %d: it is no key, or was freed", number);
  if (keyval->kind != kind) {
    return error(MPI_ERR_KEYVAL, "keyval %d: it is a key of %s, not of %s", number, name_of(keyval->kind),
                 name_of(kind));
  }
  *out = keyval;
  return MPI_SUCCESS;
}

std::vector<Attributes::Entry>::iterator find_entry(Attributes& attributes, const Keyval* keyval) {
  return std::ranges::find(attributes.entries, keyval, &Attributes::Entry::keyval);
}

// ---- the program's functions --------------------------------------------------------------------

int run_copy(void* from, const Keyval& keyval, void* value, void* copy, int* flag) {
  const int number = number_of(&keyval);
  switch (keyval.kind) {
    case KeyvalKind::comm:
      return keyval.copy.comm(static_cast<MPI_Comm>(from), number, keyval.extra, value, copy, flag);
    case KeyvalKind::type:
      return keyval.copy.type(static_cast<MPI_Datatype>(from), number, keyval.extra, value, copy, flag);
    case KeyvalKind::win:
      return keyval.copy.win(static_cast<MPI_Win>(from), number, keyval.extra, value, copy, flag);
  }
  return MPI_ERR_INTERN;
}

int run_delete(void* of, const Keyval& keyval, void* value) {
  const int number = number_of(&keyval);
  int code = MPI_SUCCESS;
  switch (keyval.kind) {
    case KeyvalKind::comm:
      if (keyval.remove.comm == MPI_COMM_NULL_DELETE_FN) return MPI_SUCCESS;
      code = keyval.remove.comm(static_cast<MPI_Comm>(of), number, value, keyval.extra);
      break;
    case KeyvalKind::type:
      if (keyval.remove.type == MPI_TYPE_NULL_DELETE_FN) return MPI_SUCCESS;
      code = keyval.remove.type(static_cast<MPI_Datatype>(of), number, value, keyval.extra);
      break;
    case KeyvalKind::win:
      if (keyval.remove.win == MPI_WIN_NULL_DELETE_FN) return MPI_SUCCESS;
      code = keyval.remove.win(static_cast<MPI_Win>(of), number, value, keyval.extra);
      break;
  }
  if (code == MPI_SUCCESS) return code;
  return error(code, "keyval %d: the program's delete function returned %d", number, code);
}

// The predefined copy functions that copy the value, such as MPI_COMM_DUP_FN, are not addresses of
// functions.
bool copies_value(const Keyval& keyval) {
  return keyval.copy.comm == MPI_COMM_DUP_FN;
}
bool copies_nothing(const Keyval& keyval) {
  return keyval.copy.comm == MPI_COMM_NULL_COPY_FN;
}

int copy_entry(void* from, const Attributes::Entry& entry, Attributes* copies) {
  const Keyval& keyval = *entry.keyval;
  if (copies_nothing(keyval)) return MPI_SUCCESS;
  void* value = entry.value;
  if (!copies_value(keyval)) {
    int flag = 0;
    void* copy = nullptr;
    const int code = run_copy(from, keyval, entry.value, static_cast<void*>(&copy), &flag);
    if (code != MPI_SUCCESS) {
      return error(code, "keyval %d: the program's copy function returned %d", number_of(&keyval), code);
    }
    if (flag == 0) return MPI_SUCCESS;
    value = copy;
  }
  const std::scoped_lock lock(g_attributes_mutex);
  try {
    copies->entries.push_back({entry.keyval, value});
  } catch (const std::bad_alloc&) {
    return no_memory_for("an attribute");
  }
  ++entry.keyval->references;
  return MPI_SUCCESS;
}

// ---- attributes of an object --------------------------------------------------------------------

// Calls the delete function, then forgets the attribute. Not with g_attributes_mutex held.
int delete_entry(void* of, Attributes* attributes, Attributes::Entry entry) {
  if (const int code = run_delete(of, *entry.keyval, entry.value); code != MPI_SUCCESS) return code;
  const std::scoped_lock lock(g_attributes_mutex);
  const auto found = find_entry(*attributes, entry.keyval);
  if (found == attributes->entries.end()) return MPI_SUCCESS;  // the function has deleted it
  attributes->entries.erase(found);
  release_keyval(entry.keyval);
  return MPI_SUCCESS;
}

// The attribute of a key of the program. *found: there is one.
int look_up(const Attributes& attributes, KeyvalKind kind, int number, Purpose purpose, Attributes::Entry* entry,
            bool* found) {
  const std::scoped_lock lock(g_attributes_mutex);
  Keyval* keyval = nullptr;
  if (const int code = find_keyval(number, kind, purpose, &keyval); code != MPI_SUCCESS) return code;
  const auto place = std::ranges::find(attributes.entries, keyval, &Attributes::Entry::keyval);
  *found = place != attributes.entries.end();
  *entry = *found ? *place : Attributes::Entry{keyval, nullptr};
  return MPI_SUCCESS;
}

int set_attribute(void* of, Attributes* attributes, KeyvalKind kind, int number, void* value) {
  Attributes::Entry entry{};
  bool found = false;
  if (const int code = look_up(*attributes, kind, number, Purpose::change, &entry, &found); code != MPI_SUCCESS)
    return code;
  if (found) {
    if (const int code = delete_entry(of, attributes, entry); code != MPI_SUCCESS) return code;
  }
  const std::scoped_lock lock(g_attributes_mutex);
  // The delete function may have freed the key.
  Keyval* keyval = nullptr;
  if (const int code = find_keyval(number, kind, Purpose::change, &keyval); code != MPI_SUCCESS) return code;
  try {
    attributes->entries.push_back({keyval, value});
  } catch (const std::bad_alloc&) {
    return no_memory_for("an attribute");
  }
  ++keyval->references;
  return MPI_SUCCESS;
}

int get_attribute(const Attributes& attributes, KeyvalKind kind, int number, void* value, int* flag) {
  Attributes::Entry entry{};
  bool found = false;
  if (const int code = look_up(attributes, kind, number, Purpose::look, &entry, &found); code != MPI_SUCCESS)
    return code;
  *flag = found ? 1 : 0;
  if (found) *static_cast<void**>(value) = entry.value;
  return MPI_SUCCESS;
}

int delete_attribute(void* of, Attributes* attributes, KeyvalKind kind, int number) {
  Attributes::Entry entry{};
  bool found = false;
  if (const int code = look_up(*attributes, kind, number, Purpose::look, &entry, &found); code != MPI_SUCCESS)
    return code;
  return found ? delete_entry(of, attributes, entry) : MPI_SUCCESS;
}

int check_out(const void* value, const int* flag) {
  if (value == nullptr) return null_argument("attribute_val");
  if (flag == nullptr) return null_argument("flag");
  return MPI_SUCCESS;
}

// ---- attributes of the library ------------------------------------------------------------------

// Values are told by address.
int g_tag_ub = kTagUb;
int g_io = MPI_ANY_SOURCE;  // all processes can do input and output by C's functions
int g_host = MPI_PROC_NULL;
int g_wtime_is_global = 0;
int g_universe_size = 0;  // written with g_attributes_mutex held

// Null: MPI_APPNUM, which nobody tells.
int* value_of_comms(int number) {
  switch (number) {
    case MPI_TAG_UB:
      return &g_tag_ub;
    case MPI_IO:
      return &g_io;
    case MPI_HOST:
      return &g_host;
    case MPI_WTIME_IS_GLOBAL:
      return &g_wtime_is_global;
    case MPI_LASTUSEDCODE:
      return last_used_code();
    case MPI_UNIVERSE_SIZE: {
      const std::scoped_lock lock(g_attributes_mutex);
      g_universe_size = static_cast<int>(g_job.size);
      return &g_universe_size;
    }
    default:
      return nullptr;
  }
}

int get_of_comm(const Comm& comm, int number, void* value, int* flag) {
  if (const int code = check_out(value, flag); code != MPI_SUCCESS) return code;
  if (number < MPI_TAG_UB || number > MPI_UNIVERSE_SIZE) {
    return get_attribute(comm.attributes, KeyvalKind::comm, number, value, flag);
  }
  int* const known = value_of_comms(number);
  *flag = known != nullptr ? 1 : 0;
  if (known != nullptr) *static_cast<void**>(value) = known;
  return MPI_SUCCESS;
}

int get_of_win(Win& win, int number, void* value, int* flag) {
  if (const int code = check_out(value, flag); code != MPI_SUCCESS) return code;
  void* known = nullptr;
  switch (number) {
    case MPI_WIN_BASE:
      known = win.base;
      break;
    case MPI_WIN_SIZE:
      known = &win.bytes;
      break;
    case MPI_WIN_DISP_UNIT:
      known = &win.disp_unit;
      break;
    case MPI_WIN_CREATE_FLAVOR:
      known = &win.flavor;
      break;
    case MPI_WIN_MODEL:
      known = &win.model;
      break;
    default:
      return get_attribute(win.attributes, KeyvalKind::win, number, value, flag);
  }
  *static_cast<void**>(value) = known;
  *flag = 1;
  return MPI_SUCCESS;
}

// ---- keys ---------------------------------------------------------------------------------------

int create_keyval(const Keyval& keyval, int* out) {
  if (out == nullptr) return null_argument("keyval");
  Keyval* const made = g_keyvals.take(keyval);
  if (made == nullptr) return no_memory_for("an attribute");
  *out = number_of(made);
  return MPI_SUCCESS;
}

int free_keyval(KeyvalKind kind, int* number) {
  if (number == nullptr) return null_argument("keyval");
  const std::scoped_lock lock(g_attributes_mutex);
  Keyval* keyval = nullptr;
  if (const int code = find_keyval(*number, kind, Purpose::change, &keyval); code != MPI_SUCCESS) return code;
  keyval->freed = true;
  release_keyval(keyval);
  *number = MPI_KEYVAL_INVALID;
  return MPI_SUCCESS;
}

int create_of_comms(MPI_Comm_copy_attr_function* copy, MPI_Comm_delete_attr_function* remove_fn, int* out,
                    void* extra) {
  Keyval keyval;
  keyval.kind = KeyvalKind::comm;
  keyval.copy.comm = copy;
  keyval.remove.comm = remove_fn;
  keyval.extra = extra;
  return create_keyval(keyval, out);
}

}  // namespace

int copy_attributes(void* from, const Attributes& attributes, Attributes* copies) {
  std::vector<Attributes::Entry> entries;  // functions of the program may change the attributes
  try {
    const std::scoped_lock lock(g_attributes_mutex);
    entries = attributes.entries;
  } catch (const std::bad_alloc&) {
    return no_memory_for("an attribute");
  }
  for (const Attributes::Entry& entry : entries) {
    const int code = copy_entry(from, entry, copies);
    if (code == MPI_SUCCESS) continue;
    // There is no new object for which delete functions could be called.
    const std::scoped_lock lock(g_attributes_mutex);
    for (const Attributes::Entry& made : copies->entries) release_keyval(made.keyval);
    copies->entries.clear();
    return code;
  }
  return MPI_SUCCESS;
}

int delete_attributes(void* of, Attributes* attributes) {
  for (;;) {
    Attributes::Entry last{};
    {
      const std::scoped_lock lock(g_attributes_mutex);
      if (attributes->entries.empty()) return MPI_SUCCESS;
      last = attributes->entries.back();
    }
    if (const int code = delete_entry(of, attributes, last); code != MPI_SUCCESS) return code;
  }
}

// ---- communicators ------------------------------------------------------------------------------

int comm_create_keyval(Call call, MPI_Comm_copy_attr_function* comm_copy_attr_fn,
                       MPI_Comm_delete_attr_function* comm_delete_attr_fn, int* comm_keyval, void* extra_state) {
  return told(call, create_of_comms(comm_copy_attr_fn, comm_delete_attr_fn, comm_keyval, extra_state));
}

int comm_free_keyval(Call call, int* comm_keyval) {
  return told(call, free_keyval(KeyvalKind::comm, comm_keyval));
}

int comm_set_attr(Call call, MPI_Comm comm, int comm_keyval, void* attribute_val) {
  Comm* const object = comm_of(comm);
  if (object == nullptr) return told(call, bad_comm(comm));
  return told(call, object, set_attribute(comm, &object->attributes, KeyvalKind::comm, comm_keyval, attribute_val));
}

int comm_get_attr(Call call, MPI_Comm comm, int comm_keyval, void* attribute_val, int* flag) {
  Comm* const object = comm_of(comm);
  if (object == nullptr) return told(call, bad_comm(comm));
  return told(call, object, get_of_comm(*object, comm_keyval, attribute_val, flag));
}

int comm_delete_attr(Call call, MPI_Comm comm, int comm_keyval) {
  Comm* const object = comm_of(comm);
  if (object == nullptr) return told(call, bad_comm(comm));
  return told(call, object, delete_attribute(comm, &object->attributes, KeyvalKind::comm, comm_keyval));
}

int keyval_create(Call call, MPI_Copy_function* copy_fn, MPI_Delete_function* delete_fn, int* keyval,
                  void* extra_state) {
  return comm_create_keyval(call, copy_fn, delete_fn, keyval, extra_state);
}
int keyval_free(Call call, int* keyval) {
  return comm_free_keyval(call, keyval);
}
int attr_put(Call call, MPI_Comm comm, int keyval, void* attribute_val) {
  return comm_set_attr(call, comm, keyval, attribute_val);
}
int attr_get(Call call, MPI_Comm comm, int keyval, void* attribute_val, int* flag) {
  return comm_get_attr(call, comm, keyval, attribute_val, flag);
}
int attr_delete(Call call, MPI_Comm comm, int keyval) {
  return comm_delete_attr(call, comm, keyval);
}

// ---- datatypes ----------------------------------------------------------------------------------

int type_create_keyval(Call call, MPI_Type_copy_attr_function* type_copy_attr_fn,
                       MPI_Type_delete_attr_function* type_delete_attr_fn, int* type_keyval, void* extra_state) {
  Keyval keyval;
  keyval.kind = KeyvalKind::type;
  keyval.copy.type = type_copy_attr_fn;
  keyval.remove.type = type_delete_attr_fn;
  keyval.extra = extra_state;
  return told(call, create_keyval(keyval, type_keyval));
}

int type_free_keyval(Call call, int* type_keyval) {
  return told(call, free_keyval(KeyvalKind::type, type_keyval));
}

int type_set_attr(Call call, MPI_Datatype datatype, int type_keyval, void* attribute_val) {
  Type* const object = type_of(datatype);
  if (object == nullptr) return told(call, bad_type(datatype));
  return told(call, set_attribute(datatype, &object->attributes, KeyvalKind::type, type_keyval, attribute_val));
}

int type_get_attr(Call call, MPI_Datatype datatype, int type_keyval, void* attribute_val, int* flag) {
  const Type* const object = type_of(datatype);
  if (object == nullptr) return told(call, bad_type(datatype));
  int code = check_out(attribute_val, flag);
  if (code == MPI_SUCCESS) code = get_attribute(object->attributes, KeyvalKind::type, type_keyval, attribute_val, flag);
  return told(call, code);
}

int type_delete_attr(Call call, MPI_Datatype datatype, int type_keyval) {
  Type* const object = type_of(datatype);
  if (object == nullptr) return told(call, bad_type(datatype));
  return told(call, delete_attribute(datatype, &object->attributes, KeyvalKind::type, type_keyval));
}

// ---- windows ------------------------------------------------------------------------------------

int win_create_keyval(Call call, MPI_Win_copy_attr_function* win_copy_attr_fn,
                      MPI_Win_delete_attr_function* win_delete_attr_fn, int* win_keyval, void* extra_state) {
  Keyval keyval;
  keyval.kind = KeyvalKind::win;
  keyval.copy.win = win_copy_attr_fn;
  keyval.remove.win = win_delete_attr_fn;
  keyval.extra = extra_state;
  return told(call, create_keyval(keyval, win_keyval));
}

int win_free_keyval(Call call, int* win_keyval) {
  return told(call, free_keyval(KeyvalKind::win, win_keyval));
}

int win_set_attr(Call call, MPI_Win win, int win_keyval, void* attribute_val) {
  Win* const object = win_of(win);
  if (object == nullptr) return told(call, bad_win(win));
  return told(call, object, set_attribute(win, &object->attributes, KeyvalKind::win, win_keyval, attribute_val));
}

int win_get_attr(Call call, MPI_Win win, int win_keyval, void* attribute_val, int* flag) {
  Win* const object = win_of(win);
  if (object == nullptr) return told(call, bad_win(win));
  return told(call, object, get_of_win(*object, win_keyval, attribute_val, flag));
}

int win_delete_attr(Call call, MPI_Win win, int win_keyval) {
  Win* const object = win_of(win);
  if (object == nullptr) return told(call, bad_win(win));
  return told(call, object, delete_attribute(win, &object->attributes, KeyvalKind::win, win_keyval));
}

}  // namespace heddle::mpi
