#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string_view>
#include <units/errors.hpp>
#include <units/unsupported.hpp>

#include "mpi/communicators/comm.hpp"
#include "mpi/core/errors.hpp"
#include "mpi/core/objects.hpp"

namespace heddle::mpi {

namespace {

struct Text {
  int code;
  const char* name;
  const char* text;
};

constexpr Text kTexts[] = {
    {MPI_SUCCESS, "MPI_SUCCESS", "no error"},
    {MPI_ERR_BUFFER, "MPI_ERR_BUFFER", "the buffer is not usable, or too small"},
    {MPI_ERR_COUNT, "MPI_ERR_COUNT", "a count is negative, or larger than allowed"},
    {MPI_ERR_TYPE, "MPI_ERR_TYPE", "no datatype, or one that is not committed or not allowed here"},
    {MPI_ERR_TAG, "MPI_ERR_TAG", "a tag is negative or above MPI_TAG_UB"},
    {MPI_ERR_COMM, "MPI_ERR_COMM", "no communicator, or one of a kind that is not allowed here"},
    {MPI_ERR_RANK, "MPI_ERR_RANK", "no such rank in the group"},
    {MPI_ERR_REQUEST, "MPI_ERR_REQUEST", "no request, or one of a kind that is not allowed here"},
    {MPI_ERR_ROOT, "MPI_ERR_ROOT", "the root is no rank of the group"},
    {MPI_ERR_GROUP, "MPI_ERR_GROUP", "no group, or not the one that is needed"},
    {MPI_ERR_OP, "MPI_ERR_OP", "no operator, or one that does not take this datatype"},
    {MPI_ERR_TOPOLOGY, "MPI_ERR_TOPOLOGY", "the communicator does not have the topology that is needed"},
    {MPI_ERR_DIMS, "MPI_ERR_DIMS", "dimensions are negative, or do not fit the number of processes"},
    {MPI_ERR_ARG, "MPI_ERR_ARG", "an argument is not allowed"},
    {MPI_ERR_UNKNOWN, "MPI_ERR_UNKNOWN", "an error of an unknown kind"},
    {MPI_ERR_TRUNCATE, "MPI_ERR_TRUNCATE", "the message was longer than the receive's buffer"},
    {MPI_ERR_OTHER, "MPI_ERR_OTHER", "an error of another kind"},
    {MPI_ERR_INTERN, "MPI_ERR_INTERN", "an error of the library itself"},
    {MPI_ERR_PENDING, "MPI_ERR_PENDING", "the request has not completed"},
    {MPI_ERR_IN_STATUS, "MPI_ERR_IN_STATUS", "the errors are in the statuses"},
    {MPI_ERR_ACCESS, "MPI_ERR_ACCESS", "permission to use the file was denied"},
    {MPI_ERR_AMODE, "MPI_ERR_AMODE", "the file's access mode does not allow it"},
    {MPI_ERR_ASSERT, "MPI_ERR_ASSERT", "the assertion is none that is allowed here"},
    {MPI_ERR_BAD_FILE, "MPI_ERR_BAD_FILE", "the file's name is not allowed"},
    {MPI_ERR_BASE, "MPI_ERR_BASE", "the address is not the start of such memory"},
    {MPI_ERR_CONVERSION, "MPI_ERR_CONVERSION", "a function that converts data failed"},
    {MPI_ERR_DISP, "MPI_ERR_DISP", "a displacement is not allowed"},
    {MPI_ERR_DUP_DATAREP, "MPI_ERR_DUP_DATAREP", "the data representation exists already"},
    {MPI_ERR_FILE_EXISTS, "MPI_ERR_FILE_EXISTS", "the file exists"},
    {MPI_ERR_FILE_IN_USE, "MPI_ERR_FILE_IN_USE", "the file is open"},
    {MPI_ERR_FILE, "MPI_ERR_FILE", "no file"},
    {MPI_ERR_INFO_KEY, "MPI_ERR_INFO_KEY", "the info's key is empty or too long"},
    {MPI_ERR_INFO_NOKEY, "MPI_ERR_INFO_NOKEY", "the info does not have the key"},
    {MPI_ERR_INFO_VALUE, "MPI_ERR_INFO_VALUE", "the info's value is too long, or none that is allowed"},
    {MPI_ERR_INFO, "MPI_ERR_INFO", "no info, or one that does not change"},
    {MPI_ERR_IO, "MPI_ERR_IO", "an error of input or output"},
    {MPI_ERR_KEYVAL, "MPI_ERR_KEYVAL", "no key of attributes, or one of another kind of object"},
    {MPI_ERR_LOCKTYPE, "MPI_ERR_LOCKTYPE", "the lock is neither MPI_LOCK_EXCLUSIVE nor MPI_LOCK_SHARED"},
    {MPI_ERR_NAME, "MPI_ERR_NAME", "no service of this name is published"},
    {MPI_ERR_NO_MEM, "MPI_ERR_NO_MEM", "memory is exhausted"},
    {MPI_ERR_NOT_SAME, "MPI_ERR_NOT_SAME", "an argument differs between processes"},
    {MPI_ERR_NO_SPACE, "MPI_ERR_NO_SPACE", "the disk is full"},
    {MPI_ERR_NO_SUCH_FILE, "MPI_ERR_NO_SUCH_FILE", "the file does not exist"},
    {MPI_ERR_PORT, "MPI_ERR_PORT", "no such port"},
    {MPI_ERR_QUOTA, "MPI_ERR_QUOTA", "the quota is used up"},
    {MPI_ERR_READ_ONLY, "MPI_ERR_READ_ONLY", "the file or file system can only be read"},
    {MPI_ERR_RMA_ATTACH, "MPI_ERR_RMA_ATTACH", "the memory cannot be attached"},
    {MPI_ERR_RMA_CONFLICT, "MPI_ERR_RMA_CONFLICT", "accesses to the window conflict"},
    {MPI_ERR_RMA_RANGE, "MPI_ERR_RMA_RANGE", "the access leaves the window's memory"},
    {MPI_ERR_RMA_SHARED, "MPI_ERR_RMA_SHARED", "the memory cannot be shared"},
    {MPI_ERR_RMA_SYNC, "MPI_ERR_RMA_SYNC", "no epoch of the window allows the call now"},
    {MPI_ERR_SERVICE, "MPI_ERR_SERVICE", "the service's name is not allowed"},
    {MPI_ERR_SIZE, "MPI_ERR_SIZE", "a size is not allowed"},
    {MPI_ERR_SPAWN, "MPI_ERR_SPAWN", "processes could not be started"},
    {MPI_ERR_UNSUPPORTED_DATAREP, "MPI_ERR_UNSUPPORTED_DATAREP", "the data representation is not supported"},
    {MPI_ERR_UNSUPPORTED_OPERATION, "MPI_ERR_UNSUPPORTED_OPERATION", "the operation is not supported"},
    {MPI_ERR_WIN, "MPI_ERR_WIN", "no window"},
    {MPI_ERR_RMA_FLAVOR, "MPI_ERR_RMA_FLAVOR", "the window is of a kind that does not allow it"},
    {MPI_ERR_PROC_ABORTED, "MPI_ERR_PROC_ABORTED", "a process of the operation has ended"},
    {MPI_ERR_VALUE_TOO_LARGE, "MPI_ERR_VALUE_TOO_LARGE", "a value is too large to be stored: use the _c function"},
    {MPI_ERR_SESSION, "MPI_ERR_SESSION", "no session"},
    {MPI_ERR_ERRHANDLER, "MPI_ERR_ERRHANDLER", "no error handler, or one of another kind of object"},
    {MPI_ERR_ABI, "MPI_ERR_ABI", "the call does not fit the ABI, or its values are set already"},
    {MPI_T_ERR_CANNOT_INIT, "MPI_T_ERR_CANNOT_INIT", "the tool interface cannot be initialized now"},
    {MPI_T_ERR_NOT_ACCESSIBLE, "MPI_T_ERR_NOT_ACCESSIBLE", "the interface's data cannot be used now"},
    {MPI_T_ERR_NOT_INITIALIZED, "MPI_T_ERR_NOT_INITIALIZED", "MPI_T_init_thread has not been called"},
    {MPI_T_ERR_NOT_SUPPORTED, "MPI_T_ERR_NOT_SUPPORTED", "the tool interface does not support it"},
    {MPI_T_ERR_MEMORY, "MPI_T_ERR_MEMORY", "memory is exhausted"},
    {MPI_T_ERR_INVALID, "MPI_T_ERR_INVALID", "an argument is not allowed"},
    {MPI_T_ERR_INVALID_INDEX, "MPI_T_ERR_INVALID_INDEX", "no variable, category or enumeration has this index"},
    {MPI_T_ERR_INVALID_ITEM, "MPI_T_ERR_INVALID_ITEM", "the enumeration has no item of this index"},
    {MPI_T_ERR_INVALID_SESSION, "MPI_T_ERR_INVALID_SESSION", "no session of performance variables"},
    {MPI_T_ERR_INVALID_HANDLE, "MPI_T_ERR_INVALID_HANDLE", "no handle of the tool interface"},
    {MPI_T_ERR_INVALID_NAME, "MPI_T_ERR_INVALID_NAME", "no variable or category has this name"},
    {MPI_T_ERR_OUT_OF_HANDLES, "MPI_T_ERR_OUT_OF_HANDLES", "no more handles are available"},
    {MPI_T_ERR_OUT_OF_SESSIONS, "MPI_T_ERR_OUT_OF_SESSIONS", "no more sessions are available"},
    {MPI_T_ERR_CVAR_SET_NOT_NOW, "MPI_T_ERR_CVAR_SET_NOT_NOW", "the control variable cannot be set now"},
    {MPI_T_ERR_CVAR_SET_NEVER, "MPI_T_ERR_CVAR_SET_NEVER", "the control variable can never be set"},
    {MPI_T_ERR_PVAR_NO_WRITE, "MPI_T_ERR_PVAR_NO_WRITE", "the performance variable can only be read"},
    {MPI_T_ERR_PVAR_NO_STARTSTOP, "MPI_T_ERR_PVAR_NO_STARTSTOP", "the variable cannot be started or stopped"},
    {MPI_T_ERR_PVAR_NO_ATOMIC, "MPI_T_ERR_PVAR_NO_ATOMIC", "the variable cannot be read and written at once"},
};

const Text* find_text(int code) {
  const auto* const found = std::ranges::lower_bound(kTexts, code, {}, &Text::code);
  return found != std::end(kTexts) && found->code == code ? found : nullptr;
}
static_assert(std::ranges::is_sorted(kTexts, {}, &Text::code));

// A class or code of the program.
struct Added {
  int of_class = 0;  // a class: itself
  bool has_text = false;
  std::string text;
};
std::mutex g_added_mutex;  // guards what follows
std::map<int, Added>& added() {
  static std::map<int, Added> codes;
  return codes;
}
int g_last_used = MPI_ERR_LASTCODE;

// Programs read it through the attribute's address, at any time.
void set_last_used() {
  const int last = added().empty() ? MPI_ERR_LASTCODE : added().rbegin()->first;
  std::atomic_ref(g_last_used).store(last, std::memory_order_relaxed);
}

struct Reported {
  int code = MPI_SUCCESS;
  char text[MPI_MAX_ERROR_STRING / 2] = "";
};
using ThreadReported = PerThread<Reported>;

int add_code(int of_class, int* out) {
  const std::scoped_lock lock(g_added_mutex);
  const int code = g_last_used + 1;
  if (of_class != 0 && find_text(of_class) == nullptr) {
    const auto found = added().find(of_class);
    if (found == added().end() || found->second.of_class != of_class) {
      return error(MPI_ERR_ARG, "errorclass %d: it is neither a class of the standard nor one of MPI_Add_error_class",
                   of_class);
    }
  }
  added()[code].of_class = of_class != 0 ? of_class : code;
  set_last_used();
  *out = code;
  return MPI_SUCCESS;
}

// With g_added_mutex held. Null, with *code: it is not the program's.
Added* find_added(int number, const char* argument, int* code) {
  const auto found = added().find(number);
  if (found != added().end()) return &found->second;
  *code = error(MPI_ERR_ARG, "%s %d: the program has not added it%s", argument, number,
                number <= MPI_ERR_LASTCODE ? "; those up to MPI_ERR_LASTCODE do not change" : "");
  return nullptr;
}

int add_string(int number, const char* string) {
  if (string == nullptr) return null_argument("string");
  if (std::strlen(string) >= MPI_MAX_ERROR_STRING) {
    return error(MPI_ERR_ARG, "string: it has %zu characters; at most %d fit", std::strlen(string),
                 MPI_MAX_ERROR_STRING - 1);
  }
  const std::scoped_lock lock(g_added_mutex);
  int code = MPI_SUCCESS;
  Added* const found = find_added(number, "errorcode", &code);
  if (found == nullptr) return code;
  found->text = string;
  found->has_text = true;
  return MPI_SUCCESS;
}

int remove_string(int number) {
  const std::scoped_lock lock(g_added_mutex);
  int code = MPI_SUCCESS;
  Added* const found = find_added(number, "errorcode", &code);
  if (found == nullptr) return code;
  if (!found->has_text) return error(MPI_ERR_ARG, "errorcode %d: it has no string", number);
  found->text.clear();
  found->has_text = false;
  return MPI_SUCCESS;
}

int remove_code(int number) {
  const std::scoped_lock lock(g_added_mutex);
  int code = MPI_SUCCESS;
  const Added* const found = find_added(number, "errorcode", &code);
  if (found == nullptr) return code;
  if (found->of_class == number) {
    return error(MPI_ERR_ARG, "errorcode %d: it is a class; use MPI_Remove_error_class", number);
  }
  if (found->has_text)
    return error(MPI_ERR_OTHER, "errorcode %d: MPI_Remove_error_string must remove its string first", number);
  added().erase(number);
  set_last_used();
  return MPI_SUCCESS;
}

int remove_class(int number) {
  const std::scoped_lock lock(g_added_mutex);
  int code = MPI_SUCCESS;
  const Added* const found = find_added(number, "errorclass", &code);
  if (found == nullptr) return code;
  if (found->of_class != number) {
    return error(MPI_ERR_ARG, "errorclass %d: it is a code; use MPI_Remove_error_code", number);
  }
  for (const auto& [other, what] : added()) {
    if (other != number && what.of_class == number) {
      return error(MPI_ERR_OTHER, "errorclass %d: MPI_Remove_error_code must remove its code %d first", number, other);
    }
  }
  if (found->has_text)
    return error(MPI_ERR_OTHER, "errorclass %d: MPI_Remove_error_string must remove its string first", number);
  added().erase(number);
  set_last_used();
  return MPI_SUCCESS;
}

}  // namespace

const char* name_of_class(int code) {
  const Text* const text = find_text(code);
  return text == nullptr ? nullptr : text->name;
}

const char* text_of_class(int code) {
  const Text* const text = find_text(code);
  return text == nullptr ? nullptr : text->text;
}

int class_of(int code) {
  if (find_text(code) != nullptr) return code;
  const std::scoped_lock lock(g_added_mutex);
  const auto found = added().find(code);
  return found == added().end() ? MPI_ERR_UNKNOWN : found->second.of_class;
}

std::string text_of(int code) {
  if (const Text* const text = find_text(code); text != nullptr) {
    std::string told = std::string(text->name) + ": " + text->text;
    const Reported* const reported = ThreadReported::find();
    if (code != MPI_SUCCESS && reported != nullptr && reported->code == code) {
      told += std::string(" - ") + reported->text;
    }
    return told;
  }
  const std::scoped_lock lock(g_added_mutex);
  const auto found = added().find(code);
  if (found != added().end()) return found->second.text;
  return std::to_string(code) + " is no error code";
}

int* last_used_code() {
  return &g_last_used;
}

void remember_reported(Call call, int code, const char* text) {
  Reported* const reported = ThreadReported::get();
  if (reported == nullptr) return;
  reported->code = code;
  std::snprintf(reported->text, sizeof reported->text, "%s: %s", call, text);
}

// ---- the functions ------------------------------------------------------------------------------

int add_error_class(Call call, int* errorclass) {
  if (errorclass == nullptr) return told(call, null_argument("errorclass"));
  return told(call, guarded("an error code", [&] { return add_code(0, errorclass); }));
}

int add_error_code(Call call, int errorclass, int* errorcode) {
  if (errorcode == nullptr) return told(call, null_argument("errorcode"));
  if (errorclass == MPI_SUCCESS) return told(call, error(MPI_ERR_ARG, "errorclass 0: MPI_SUCCESS is no error"));
  return told(call, guarded("an error code", [&] { return add_code(errorclass, errorcode); }));
}

int add_error_string(Call call, int errorcode, const char* string) {
  return told(call, guarded("an error code", [&] { return add_string(errorcode, string); }));
}

int remove_error_class(Call call, int errorclass) {
  return told(call, remove_class(errorclass));
}
int remove_error_code(Call call, int errorcode) {
  return told(call, remove_code(errorcode));
}
int remove_error_string(Call call, int errorcode) {
  return told(call, remove_string(errorcode));
}

int error_class(Call call, int errorcode, int* errorclass) {
  if (errorclass == nullptr) return told(call, null_argument("errorclass"));
  *errorclass = class_of(errorcode);
  return MPI_SUCCESS;
}

int error_string(Call call, int errorcode, char* string, int* resultlen) {
  if (string == nullptr) return told(call, null_argument("string"));
  if (resultlen == nullptr) return told(call, null_argument("resultlen"));
  return told(call, guarded("an error code", [&] {
                const std::string text = text_of(errorcode);
                const std::size_t length = std::min<std::size_t>(text.size(), MPI_MAX_ERROR_STRING - 1);
                std::memcpy(string, text.data(), length);
                string[length] = '\0';
                *resultlen = static_cast<int>(length);
                return MPI_SUCCESS;
              }));
}

// The functions of MPI that Heddle does not have. They report this, and name what to use instead.

namespace {

const char* advice(std::string_view call) {
  if (call.starts_with("MPI_File_") || call.starts_with("MPI_Register_datarep")) {
    return "Heddle has no MPI-IO; use the functions of C or POSIX, or a library of files, on a file of each process or "
           "on parts "
           "of one file";
  }
  if (call.starts_with("MPI_Comm_spawn")) {
    return "Heddle does not start processes while a job runs; start all of them with the job: heddle run -n, or "
           "mpiexec";
  }
  return "Heddle does not connect jobs that run; start all processes in one job, and split MPI_COMM_WORLD";
}

}  // namespace

int unsupported(Call call, MPI_Comm comm) {
  const int code = error(MPI_ERR_UNSUPPORTED_OPERATION, "%s", advice(call));
  if (std::string_view(call).starts_with("MPI_File_")) return report_file(call, code);
  Comm* const object = comm == MPI_COMM_NULL ? nullptr : comm_of(comm);
  return object == nullptr ? report(call, code) : report(call, object, code);
}

}  // namespace heddle::mpi
