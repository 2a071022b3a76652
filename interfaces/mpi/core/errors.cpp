#include "mpi/core/errors.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>

#include <units/errors.hpp>
#include "mpi/communicators/comm.hpp"
#include "mpi/communicators/group.hpp"
#include "mpi/core/job.hpp"
#include "mpi/core/objects.hpp"
#include "mpi/rma/win.hpp"

namespace heddle::mpi {
namespace {

constexpr std::size_t kTextBytes = 512;

struct Noted {
  int code = MPI_SUCCESS;
  char text[kTextBytes] = "";
};
using ThreadNoted = PerThread<Noted>;

// Null: nothing is noted.
const Noted* noted_about(int code) {
  const Noted* const noted = ThreadNoted::find();
  return noted != nullptr && noted->code == code ? noted : nullptr;
}

void forget_noted() {
  if (Noted* const noted = ThreadNoted::find(); noted != nullptr) noted->code = MPI_SUCCESS;
}

// The noted text, if it is about this code: a code may come from a function of the program, or from
// another thread.
const char* text_about(int code, char (&space)[kTextBytes]) {
  if (const Noted* const noted = noted_about(code); noted != nullptr && noted->text[0] != '\0') return noted->text;
  if (const char* const text = text_of_class(code); text != nullptr) return text;
  try {
    std::snprintf(space, sizeof space, "%s", text_of(code).c_str());
  } catch (const std::bad_alloc&) {
    std::snprintf(space, sizeof space, "no memory for the text");
  }
  return space;
}

// ---- the end of the job -------------------------------------------------------------------------

void describe_rank(const Comm* comm, char* out, std::size_t bytes) {
  const char* name = comm->name.c_str();
  if (*name == '\0' && comm == g_world) name = "MPI_COMM_WORLD";
  if (*name == '\0' && comm == g_self) name = "MPI_COMM_SELF";
  if (*name != '\0') {
    std::snprintf(out, bytes, "rank %d of %s", comm->rank, name);
  } else {
    std::snprintf(out, bytes, "rank %d of a communicator with %d processes", comm->rank, comm->size());
  }
}

// `where`: whose error handler this is; may be empty.
[[noreturn]] void end_job(Call call, int code, const char* where) {
  static std::atomic<bool> ending{false};
  static thread_local bool t_mine = false;
  if (t_mine) std::_Exit(1);  // by a function that runs at the exit
  t_mine = true;
  while (ending.exchange(true)) ::pause();  // another thread ends it

  char space[kTextBytes];
  const char* const text = text_about(code, space);
  char class_name[32];
  const char* name = name_of_class(code);
  if (name == nullptr) {
    std::snprintf(class_name, sizeof class_name, "error code %d", code);
    name = class_name;
  }
  char line[kTextBytes + 400];
  std::snprintf(line, sizeof line, "%s: %s (%s%s%s)", call, text, name, *where != '\0' ? "; " : "", where);
  std::fflush(stdout);
  // prints it, after the rank's number
  if (g_job.joined) heddle_context_abort(g_job.context, 1, line);
  std::fprintf(stderr, "heddle: %s\n", line);
  std::_Exit(1);
}

// ---- error handlers -----------------------------------------------------------------------------

constexpr std::uint32_t kMostErrhandlers = 1U << 20;
ObjectPool<Errhandler, kMostErrhandlers> g_errhandlers;
Errhandler* g_file_errhandler = &g_errors_return;

bool is_predefined(const Errhandler* errhandler) {
  return errhandler == &g_errors_are_fatal || errhandler == &g_errors_abort || errhandler == &g_errors_return;
}

// If calls within a handler fail, they call the handler again. From this depth on they return their
// codes.
constexpr int kDeepest = 8;
thread_local int t_depth = 0;

// While a handler of the program runs: it may free its own handle, and may leave by an exception.
class Running {
 public:
  explicit Running(Errhandler* errhandler) : errhandler_(retain(errhandler)) { ++t_depth; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ~Running() {
    --t_depth;
    release(errhandler_);
  }

 private:
  Errhandler* errhandler_;
};

void run_handler(Errhandler* errhandler, MPI_Comm handle, int code) {
  errhandler->fn.comm(&handle, &code);
}
void run_handler(Errhandler* errhandler, MPI_Win handle, int code) {
  errhandler->fn.win(&handle, &code);
}
void run_handler(Errhandler* errhandler, MPI_File handle, int code) {
  errhandler->fn.file(&handle, &code);
}
void run_handler(Errhandler* errhandler, MPI_Session handle, int code) {
  errhandler->fn.session(&handle, &code);
}

// Returns if the handler does.
template <class Handle>
void raise(Call call, Errhandler* errhandler, Handle handle, int code, const char* where) {
  if (errhandler->kind == Errhandler::Kind::fatal || errhandler->kind == Errhandler::Kind::abort) {
    end_job(call, code, where);
  }
  if (errhandler->kind == Errhandler::Kind::returns || t_depth >= kDeepest) return;
  const Running running(errhandler);
  run_handler(errhandler, handle, code);
}

bool ends_job(const Errhandler* errhandler) {
  return errhandler->kind == Errhandler::Kind::fatal || errhandler->kind == Errhandler::Kind::abort;
}

void raise(Call call, Comm* comm, int code) {
  char where[MPI_MAX_OBJECT_NAME + 64] = "";
  if (ends_job(comm->errhandler)) describe_rank(comm, where, sizeof where);
  raise(call, comm->errhandler, handle_of(comm), code, where);
}
void raise(Call call, Win* win, int code) {
  char where[MPI_MAX_OBJECT_NAME + 64] = "";
  if (ends_job(win->errhandler)) {
    const bool named = !win->name.empty();
    std::snprintf(where, sizeof where, "rank %d of %s", win->comm == nullptr ? 0 : win->comm->rank,
                  named ? win->name.c_str() : "a window");
  }
  raise(call, win->errhandler, handle_of(win), code, where);
}
void raise(Call call, MpiSession* session, int code) {
  raise(call, session->errhandler, handle_of(session), code, "of a session");
}

void remember(Call call, int code) {
  char space[kTextBytes];
  if (noted_about(code) != nullptr) remember_reported(call, code, text_about(code, space));
}

template <class Object>
int report_about(Call call, Object* object, int code) {
  if (object == nullptr) return report(call, code);
  remember(call, code);
  raise(call, object, code);
  forget_noted();
  return code;
}

}  // namespace

// ---- noting -------------------------------------------------------------------------------------

ErrorClass error(int error_class, const char* format, ...) {
  char text[kTextBytes];  // the arguments may be the noted text
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (Noted* const noted = ThreadNoted::get(); noted != nullptr) {
    std::memcpy(noted->text, text, sizeof text);
    noted->code = error_class;
  }
  return ErrorClass(error_class);
}

const char* noted_text() {
  const Noted* const noted = ThreadNoted::find();
  return noted == nullptr ? "" : noted->text;
}

namespace {

// The engine's texts for a program that does not know the engine: they begin with the function that
// was called, "heddle_put: …", and some name another one, of which the last part remains.
void without_functions(const char* text, char (&out)[kTextBytes]) {
  constexpr std::string_view kPrefix = "heddle_";
  const auto is_of_name = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  std::string_view rest = text;
  if (rest.starts_with(kPrefix)) {
    const auto end = static_cast<std::size_t>(std::ranges::find_if_not(rest, is_of_name) - rest.begin());
    if (rest.substr(end).starts_with(": ")) rest.remove_prefix(end + 2);
  }
  std::size_t length = 0;
  for (char before = ' '; !rest.empty() && length + 1 < kTextBytes;) {
    if (!is_of_name(before) && rest.starts_with(kPrefix)) rest.remove_prefix(kPrefix.size());
    if (rest.empty()) break;
    before = out[length++] = rest.front();
    rest.remove_prefix(1);
  }
  out[length] = '\0';
}

}  // namespace

int error_of_status(heddle_status status) {
  if (status >= 0) return MPI_SUCCESS;
  int code = MPI_ERR_OTHER;
  switch (status) {
    case HEDDLE_ERR_PEER_FAILED:
      code = MPI_ERR_PROC_ABORTED;
      break;
    case HEDDLE_ERR_TRUNCATED:
      code = MPI_ERR_TRUNCATE;
      break;
    case HEDDLE_ERR_NO_MEMORY:
      code = MPI_ERR_NO_MEM;
      break;
    case HEDDLE_ERR_RANK:
      code = MPI_ERR_RANK;
      break;
    case HEDDLE_ERR_ARGUMENT:
      code = MPI_ERR_ARG;
      break;
    case HEDDLE_ERR_UNSUPPORTED:
      code = MPI_ERR_UNSUPPORTED_OPERATION;
      break;
    case HEDDLE_ERR_RANGE:
      code = MPI_ERR_RMA_RANGE;
      break;
    case HEDDLE_ERR_HANDLE:
    case HEDDLE_ERR_ALIGNMENT:
    case HEDDLE_ERR_STATE:
    case HEDDLE_ERR_PROTOCOL:
      code = MPI_ERR_INTERN;
      break;
    default:
      break;
  }
  const char* const text = heddle_last_error();
  char words[kTextBytes];
  without_functions(*text != '\0' ? text : heddle_status_name(status), words);
  return error(code, "%s", words);
}

ErrorClass null_argument(const char* name) {
  return error(MPI_ERR_ARG, "%s is a null pointer, where the function needs memory", name);
}

ErrorClass no_memory_for(const char* what) {
  return error(MPI_ERR_NO_MEM, "no memory for %s", what);
}

void end_job(Call call, const Comm* comm, int code) {
  char where[MPI_MAX_OBJECT_NAME + 64] = "";
  describe_rank(comm, where, sizeof where);
  end_job(call, code, where);
}

// ---- reporting ----------------------------------------------------------------------------------

int report(Call call, Comm* comm, int code) {
  return report_about(call, comm, code);
}
int report(Call call, Win* win, int code) {
  return report_about(call, win, code);
}
int report(Call call, MpiSession* session, int code) {
  return report_about(call, session, code);
}

int report(Call call, int code) {
  remember(call, code);
  if (g_self == nullptr) end_job(call, code, "");
  raise(call, g_self->errhandler, MPI_COMM_SELF, code, "the error handler of MPI_COMM_SELF");
  forget_noted();
  return code;
}

int report_file(Call call, int code) {
  remember(call, code);
  raise(call, g_file_errhandler, MPI_FILE_NULL, code, "MPI_FILE_NULL");
  forget_noted();
  return code;
}

// ---- error handlers -----------------------------------------------------------------------------

constinit Errhandler g_errors_are_fatal{};
constinit Errhandler g_errors_abort{Errhandler::Kind::abort};
constinit Errhandler g_errors_return{Errhandler::Kind::returns};

Errhandler* errhandler_of(MPI_Errhandler handle) {
  if (handle == MPI_ERRORS_ARE_FATAL) return &g_errors_are_fatal;
  if (handle == MPI_ERRORS_ABORT) return &g_errors_abort;
  if (handle == MPI_ERRORS_RETURN) return &g_errors_return;
  return g_errhandlers.find(handle);
}

MPI_Errhandler handle_of(Errhandler* errhandler) {
  if (errhandler == &g_errors_are_fatal) return MPI_ERRORS_ARE_FATAL;
  if (errhandler == &g_errors_abort) return MPI_ERRORS_ABORT;
  if (errhandler == &g_errors_return) return MPI_ERRORS_RETURN;
  return reinterpret_cast<MPI_Errhandler>(errhandler);
}

Errhandler* retain(Errhandler* errhandler) {
  if (!is_predefined(errhandler)) errhandler->references.fetch_add(1, std::memory_order_relaxed);
  return errhandler;
}

void release(Errhandler* errhandler) {
  if (is_predefined(errhandler)) return;
  if (errhandler->references.fetch_sub(1, std::memory_order_acq_rel) == 1) g_errhandlers.give_back(errhandler);
}

Errhandler* errhandler_at(std::uint32_t number) {
  return g_errhandlers.at(number);
}
std::uint32_t number_of(const Errhandler* errhandler) {
  return g_errhandlers.number(errhandler);
}

namespace {

int bad_errhandler(MPI_Errhandler handle) {
  if (handle == MPI_ERRHANDLER_NULL) return error(MPI_ERR_ERRHANDLER, "errhandler is MPI_ERRHANDLER_NULL");
  return error(MPI_ERR_ERRHANDLER, "errhandler %p: it is no error handler, or was freed", static_cast<void*>(handle));
}

int create_errhandler(Errhandler::Kind kind, const void* function, MPI_Errhandler* out, Errhandler** made) {
  if (function == nullptr) return null_argument("the function");
  if (out == nullptr) return null_argument("errhandler");
  Errhandler* const errhandler = g_errhandlers.take();
  if (errhandler == nullptr) return no_memory_for("an error handler");
  errhandler->kind = kind;
  *out = handle_of(errhandler);
  *made = errhandler;
  return MPI_SUCCESS;
}

const char* object_of(Errhandler::Kind kind) {
  switch (kind) {
    case Errhandler::Kind::comm:
      return "communicators";
    case Errhandler::Kind::win:
      return "windows";
    case Errhandler::Kind::file:
      return "files";
    case Errhandler::Kind::session:
      return "sessions";
    default:
      return "all objects";
  }
}

// Sets the handler of an object whose handlers are of `kind`.
int set_errhandler(Errhandler** place, Errhandler::Kind kind, MPI_Errhandler handle) {
  Errhandler* const errhandler = errhandler_of(handle);
  if (errhandler == nullptr) return bad_errhandler(handle);
  if (!is_predefined(errhandler) && errhandler->kind != kind) {
    return error(MPI_ERR_ERRHANDLER, "errhandler: it was created for %s, not for %s", object_of(errhandler->kind),
                 object_of(kind));
  }
  retain(errhandler);
  release(std::exchange(*place, errhandler));
  return MPI_SUCCESS;
}

int get_errhandler(Errhandler* errhandler, MPI_Errhandler* out) {
  if (out == nullptr) return null_argument("errhandler");
  *out = handle_of(retain(errhandler));
  return MPI_SUCCESS;
}

int bad_file() {
  return error(MPI_ERR_FILE, "file is not MPI_FILE_NULL, and Heddle has no MPI-IO: no file is open");
}

int free_errhandler(MPI_Errhandler* handle) {
  if (handle == nullptr) return null_argument("errhandler");
  Errhandler* const errhandler = errhandler_of(*handle);
  if (errhandler == nullptr) return bad_errhandler(*handle);
  release(errhandler);
  *handle = MPI_ERRHANDLER_NULL;
  return MPI_SUCCESS;
}

}  // namespace

int errhandler_free(Call call, MPI_Errhandler* errhandler) {
  return told(call, free_errhandler(errhandler));
}

int comm_create_errhandler(Call call, MPI_Comm_errhandler_function* comm_errhandler_fn, MPI_Errhandler* errhandler) {
  Errhandler* made = nullptr;
  const int code =
      create_errhandler(Errhandler::Kind::comm, reinterpret_cast<const void*>(comm_errhandler_fn), errhandler, &made);
  if (made != nullptr) made->fn.comm = comm_errhandler_fn;
  return told(call, code);
}

int win_create_errhandler(Call call, MPI_Win_errhandler_function* win_errhandler_fn, MPI_Errhandler* errhandler) {
  Errhandler* made = nullptr;
  const int code =
      create_errhandler(Errhandler::Kind::win, reinterpret_cast<const void*>(win_errhandler_fn), errhandler, &made);
  if (made != nullptr) made->fn.win = win_errhandler_fn;
  return told(call, code);
}

int file_create_errhandler(Call call, MPI_File_errhandler_function* file_errhandler_fn, MPI_Errhandler* errhandler) {
  Errhandler* made = nullptr;
  const int code =
      create_errhandler(Errhandler::Kind::file, reinterpret_cast<const void*>(file_errhandler_fn), errhandler, &made);
  if (made != nullptr) made->fn.file = file_errhandler_fn;
  return told(call, code);
}

int session_create_errhandler(Call call, MPI_Session_errhandler_function* session_errhandler_fn,
                              MPI_Errhandler* errhandler) {
  Errhandler* made = nullptr;
  const int code = create_errhandler(Errhandler::Kind::session, reinterpret_cast<const void*>(session_errhandler_fn),
                                     errhandler, &made);
  if (made != nullptr) made->fn.session = session_errhandler_fn;
  return told(call, code);
}

int comm_set_errhandler(Call call, MPI_Comm comm, MPI_Errhandler errhandler) {
  Comm* const object = comm_of(comm);
  if (object == nullptr) return told(call, bad_comm(comm));
  return told(call, object, set_errhandler(&object->errhandler, Errhandler::Kind::comm, errhandler));
}

int win_set_errhandler(Call call, MPI_Win win, MPI_Errhandler errhandler) {
  Win* const object = win_of(win);
  if (object == nullptr) return told(call, bad_win(win));
  return told(call, object, set_errhandler(&object->errhandler, Errhandler::Kind::win, errhandler));
}

int session_set_errhandler(Call call, MPI_Session session, MPI_Errhandler errhandler) {
  MpiSession* const object = session_of(session);
  if (object == nullptr) return told(call, bad_session(session));
  return told(call, object, set_errhandler(&object->errhandler, Errhandler::Kind::session, errhandler));
}

int file_set_errhandler(Call call, MPI_File file, MPI_Errhandler errhandler) {
  int code = file == MPI_FILE_NULL ? MPI_SUCCESS : bad_file();
  if (code == MPI_SUCCESS) code = set_errhandler(&g_file_errhandler, Errhandler::Kind::file, errhandler);
  return code == MPI_SUCCESS ? code : report_file(call, code);
}

int comm_get_errhandler(Call call, MPI_Comm comm, MPI_Errhandler* errhandler) {
  Comm* const object = comm_of(comm);
  if (object == nullptr) return told(call, bad_comm(comm));
  return told(call, object, get_errhandler(object->errhandler, errhandler));
}

int win_get_errhandler(Call call, MPI_Win win, MPI_Errhandler* errhandler) {
  Win* const object = win_of(win);
  if (object == nullptr) return told(call, bad_win(win));
  return told(call, object, get_errhandler(object->errhandler, errhandler));
}

int session_get_errhandler(Call call, MPI_Session session, MPI_Errhandler* errhandler) {
  MpiSession* const object = session_of(session);
  if (object == nullptr) return told(call, bad_session(session));
  return told(call, object, get_errhandler(object->errhandler, errhandler));
}

int file_get_errhandler(Call call, MPI_File file, MPI_Errhandler* errhandler) {
  int code = file == MPI_FILE_NULL ? MPI_SUCCESS : bad_file();
  if (code == MPI_SUCCESS) code = get_errhandler(g_file_errhandler, errhandler);
  return code == MPI_SUCCESS ? code : report_file(call, code);
}

int comm_call_errhandler(Call call, MPI_Comm comm, int errorcode) {
  Comm* const object = comm_of(comm);
  if (object == nullptr) return told(call, bad_comm(comm));
  raise(call, object, errorcode);
  return MPI_SUCCESS;
}

int win_call_errhandler(Call call, MPI_Win win, int errorcode) {
  Win* const object = win_of(win);
  if (object == nullptr) return told(call, bad_win(win));
  raise(call, object, errorcode);
  return MPI_SUCCESS;
}

int session_call_errhandler(Call call, MPI_Session session, int errorcode) {
  MpiSession* const object = session_of(session);
  if (object == nullptr) return told(call, bad_session(session));
  raise(call, object, errorcode);
  return MPI_SUCCESS;
}

int file_call_errhandler(Call call, MPI_File fh, int errorcode) {
  if (fh != MPI_FILE_NULL) return report_file(call, bad_file());
  raise(call, g_file_errhandler, MPI_FILE_NULL, errorcode, "MPI_FILE_NULL");
  return MPI_SUCCESS;
}

}  // namespace heddle::mpi
