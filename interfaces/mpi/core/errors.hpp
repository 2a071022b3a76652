// How errors arise and reach the program. An inner function that finds an error notes a text about
// it and returns its MPI error class. The class is passed up to the function that the program
// called. That function reports it to the error handler of the object that the call was about.
//
//   inner       if (rank >= size) return error(MPI_ERR_RANK, "rank %d of 0-%d", rank, last);
//   outermost   return told(call, comm, inner(…));
#pragma once

#include <atomic>
#include <new>
#include <string>

#include <heddle/heddle.h>
#include "mpi/core/arguments.hpp"

namespace heddle::mpi {

struct Comm;
struct Win;
struct MpiSession;

// The class of an error. Compilers and analyzers see that it is never MPI_SUCCESS, so they know
// that the caller does not go on after the error.
class ErrorClass {
 public:
  explicit ErrorClass(int value) : value_(value) {}
  operator int() const {
    if (value_ == MPI_SUCCESS) __builtin_unreachable();
    return value_;
  }

 private:
  int value_;
};

// Notes the text for this thread, and returns the class.
[[gnu::cold, gnu::format(printf, 2, 3)]] ErrorClass error(int error_class, const char* format, ...);
// An argument must not be null.
[[gnu::cold]] ErrorClass null_argument(const char* name);
// `what`: the purpose of the memory, as it stands in the text: "an info".
[[gnu::cold]] ErrorClass no_memory_for(const char* what);
// The class of an engine's status, with the engine's text. DONE, POSTED and AGAIN are MPI_SUCCESS.
[[gnu::cold]] int error_of_status(heddle_status status);
inline int code_of(heddle_status status) {
  return status >= 0 ? MPI_SUCCESS : error_of_status(status);
}
// The text that error() noted last in this thread.
const char* noted_text();

// Reports the code to the handler of the object; a null object: to that of MPI_COMM_SELF. Returns
// the code if the handler returns. The default handler prints one line and ends the job.
[[gnu::cold]] int report(Call call, Comm* comm, int code);
[[gnu::cold]] int report(Call call, Win* win, int code);
[[gnu::cold]] int report(Call call, MpiSession* session, int code);
[[gnu::cold]] int report(Call call, int code);
// Prints the noted text, and ends the job, whatever the handler.
[[noreturn, gnu::cold]] void end_job(Call call, const Comm* comm, int code);

template <class Object>
inline int told(Call call, Object* object, int code) {
  return code == MPI_SUCCESS ? code : report(call, object, code);
}
inline int told(Call call, int code) {
  return code == MPI_SUCCESS ? code : report(call, code);
}

// Runs what allocates: body() returns a code, and may throw std::bad_alloc. `what`: as of
// no_memory_for().
template <class Body>
int guarded(const char* what, Body&& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return no_memory_for(what);
  }
}

// ---- error handlers -----------------------------------------------------------------------------

struct Errhandler {
  enum class Kind { fatal, abort, returns, comm, win, file, session };
  Kind kind = Kind::fatal;
  union {
    MPI_Comm_errhandler_function* comm;
    MPI_Win_errhandler_function* win;
    MPI_File_errhandler_function* file;
    MPI_Session_errhandler_function* session;
  } fn{nullptr};
  std::atomic<int> references{1};  // handles and objects; not counted of predefined ones
};
extern Errhandler g_errors_are_fatal;
extern Errhandler g_errors_abort;
extern Errhandler g_errors_return;
// Null: no error handler.
Errhandler* errhandler_of(MPI_Errhandler handle);
MPI_Errhandler handle_of(Errhandler* errhandler);
Errhandler* retain(Errhandler* errhandler);
void release(Errhandler* errhandler);
// The error handler of an integer handle that the program made.
Errhandler* errhandler_at(std::uint32_t number);
std::uint32_t number_of(const Errhandler* errhandler);

// Error classes and codes: those of the standard, and those that the program adds.

// A predefined class is its own code. MPI_ERR_UNKNOWN: no such code.
int class_of(int code);
// The name and text of a class of the standard, such as "MPI_ERR_RANK" and "no such rank in the
// group"; null: it is none.
const char* name_of_class(int code);
const char* text_of_class(int code);
// The text for MPI_Error_string. May throw std::bad_alloc.
std::string text_of(int code);
// The value of MPI_LASTUSEDCODE. Its place does not change.
int* last_used_code();

// The error that report() handed to the program last in this thread, and its text. MPI_Error_string
// adds this text to that of the class, so that a program which only prints the string says what was
// wrong.
void remember_reported(Call call, int code, const char* text);

// Reports to the error handler of MPI_FILE_NULL, which is that of all files, as there are none.
[[gnu::cold]] int report_file(Call call, int code);

}  // namespace heddle::mpi
