#include <pthread.h>
#include <unistd.h>

#include <cmath>
#include <thread>

#include "calls.hpp"

namespace heddle::python {

std::atomic<std::uint32_t> Interpreter::taking_{0};
std::atomic<bool> Interpreter::ends_{false};

namespace {

std::thread::id g_ending;  // the thread that ends the interpreter; written before ends_

}  // namespace

void Interpreter::begin_taking() {
  taking_.fetch_add(1, std::memory_order_seq_cst);
  if (!ends_.load(std::memory_order_seq_cst) || g_ending == std::this_thread::get_id()) [[likely]]
    return;
  taking_.fetch_sub(1, std::memory_order_release);
  for (;;) ::pause();  // the process is about to end
}

void Interpreter::begin_end() {
  g_ending = std::this_thread::get_id();
  ends_.store(true, std::memory_order_seq_cst);
  PyThreadState* const state = PyEval_SaveThread();
  while (taking_.load(std::memory_order_seq_cst) != 0) std::this_thread::yield();
  PyEval_RestoreThread(state);
}

void Interpreter::begin_child() {
  taking_.store(0, std::memory_order_relaxed);
  ends_.store(false, std::memory_order_relaxed);
}

void bind_interpreter(nb::module_& module) {
  pthread_atfork(nullptr, nullptr, &Interpreter::begin_child);
  module.def("_begin_end", &Interpreter::begin_end);
  nb::module_::import_("atexit").attr("register")(module.attr("_begin_end"));
}

void raise(heddle_status status, const std::string& text) {
  const nb::object make = nb::module_::import_("heddle.errors").attr("exception_of");
  const nb::object error = make(static_cast<int>(status), text.c_str());
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

void raise(heddle_status status) {
  // The import may call back into the library, which has one text for each thread.
  raise(status, std::string(heddle_last_error()));
}

void raise(PyObject* type, const std::string& text) {
  PyErr_SetString(type, text.c_str());
  throw nb::python_error();
}

std::int64_t timeout_ns(const nb::object& seconds) {
  if (seconds.is_none()) return HEDDLE_FOREVER;
  const double value = PyFloat_AsDouble(seconds.ptr());
  if (value == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
  if (!(value >= 0)) {
    raise(HEDDLE_ERR_ARGUMENT, "a timeout is None or a number of seconds, 0 or more, not " + std::to_string(value));
  }
  constexpr double kMost = 9e9;  // seconds; more does not fit nanoseconds of 64 bits
  return value >= kMost ? HEDDLE_FOREVER : static_cast<std::int64_t>(std::ceil(value * 1e9));
}

namespace {

// An integer, as Python's own.
nb::object index_of(nb::handle value) {
  PyObject* const index = PyNumber_Index(value.ptr());
  if (index == nullptr) throw nb::python_error();
  return nb::steal(index);
}

[[noreturn]] void reject(nb::handle value, const char* what, const char* range) {
  raise(HEDDLE_ERR_ARGUMENT, std::string(what) + " is " + nb::str(value).c_str() + "; it is " + range);
}

}  // namespace

std::uint32_t number32(nb::handle value, const char* what) {
  const nb::object index = PyLong_CheckExact(value.ptr()) ? nb::borrow(value) : index_of(value);
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  if (overflow != 0 || number < 0 || number > UINT32_MAX) reject(value, what, "0 or more, below 2**32");
  return static_cast<std::uint32_t>(number);
}

std::uint64_t number64(nb::handle value, const char* what) {
  const nb::object index = PyLong_CheckExact(value.ptr()) ? nb::borrow(value) : index_of(value);
  const unsigned long long number = PyLong_AsUnsignedLongLong(index.ptr());
  if (number == static_cast<unsigned long long>(-1) && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    reject(value, what, "0 or more, below 2**64");
  }
  return number;
}

std::uint64_t word(nb::handle value, unsigned bits) {
  const nb::object index = index_of(value);
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  if (overflow == 0) {
    constexpr long long kHalf = 1LL << 31;
    if (bits == 32 && (number < -kHalf || number >= 2 * kHalf)) reject(value, "the value", "of 32 bits");
    return static_cast<std::uint64_t>(number) & (bits == 32 ? UINT32_MAX : UINT64_MAX);
  }
  if (bits == 32) reject(value, "the value", "of 32 bits");
  const unsigned long long large = PyLong_AsUnsignedLongLong(index.ptr());
  if (large == static_cast<unsigned long long>(-1) && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    reject(value, "the value", "of 64 bits");
  }
  return large;
}

void bind_errors(nb::module_& module) {
  nb::enum_<heddle_status>(module, "Status", nb::is_arithmetic(), "What a call of the library returned.")
      .value("DONE", HEDDLE_DONE)
      .value("POSTED", HEDDLE_POSTED)
      .value("AGAIN", HEDDLE_AGAIN)
      .value("ARGUMENT", HEDDLE_ERR_ARGUMENT)
      .value("HANDLE", HEDDLE_ERR_HANDLE)
      .value("RANK", HEDDLE_ERR_RANK)
      .value("RANGE", HEDDLE_ERR_RANGE)
      .value("ALIGNMENT", HEDDLE_ERR_ALIGNMENT)
      .value("SIZE", HEDDLE_ERR_SIZE)
      .value("NO_MEMORY", HEDDLE_ERR_NO_MEMORY)
      .value("UNSUPPORTED", HEDDLE_ERR_UNSUPPORTED)
      .value("PEER_FAILED", HEDDLE_ERR_PEER_FAILED)
      .value("TIMEOUT", HEDDLE_ERR_TIMEOUT)
      .value("CONFIG", HEDDLE_ERR_CONFIG)
      .value("VERSION", HEDDLE_ERR_VERSION)
      .value("BOOTSTRAP", HEDDLE_ERR_BOOTSTRAP)
      .value("STATE", HEDDLE_ERR_STATE)
      .value("SYSTEM", HEDDLE_ERR_SYSTEM)
      .value("PROTOCOL", HEDDLE_ERR_PROTOCOL)
      .value("CANCELLED", HEDDLE_ERR_CANCELLED)
      .value("TRUNCATED", HEDDLE_ERR_TRUNCATED);
}

}  // namespace heddle::python
