// How an error becomes an exception: of the class that heddle.errors has for its status.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>

#include "gil.hpp"
#include "heddle/heddle.h"

namespace heddle::python {

namespace nb = nanobind;

// With the GIL. The text of the first function is that of this thread's last failing call.
[[noreturn]] void raise(heddle_status status);
[[noreturn]] void raise(heddle_status status, const std::string& text);
// Python's own exceptions: TypeError if an object is no memory, BufferError for memory of the wrong
// kind.
[[noreturn]] void raise(PyObject* type, const std::string& text);

// Not negative: passes it on. With the GIL.
inline heddle_status check(heddle_status status) {
  if (status < 0) [[unlikely]]
    raise(status);
  return status;
}

// Runs `call` without the GIL. The text of an error stays with the thread, until Python code runs.
template <class Call>
heddle_status released(Call&& call) {
  return without_gil([&]() -> heddle_status { return call(); });
}
template <class Call>
heddle_status checked_released(Call&& call) {
  return check(released(static_cast<Call&&>(call)));
}

// Nanoseconds from seconds; None: without limit. Less than 0 or not a number: ArgumentError.
std::int64_t timeout_ns(const nb::object& seconds);

// Numbers from any object that Python accepts as an integer, including NumPy's. TypeError: it is
// none. ArgumentError: out of its range; `what` names it.
std::uint32_t number32(nb::handle value, const char* what);
std::uint64_t number64(nb::handle value, const char* what);
// A word of 32 or 64 bits; negative ones as their two's complement.
std::uint64_t word(nb::handle value, unsigned bits);

void bind_errors(nb::module_& module);

}  // namespace heddle::python
