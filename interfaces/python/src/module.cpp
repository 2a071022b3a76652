// heddle._heddle: the C API for Python. Programs import ../heddle/.
#include <nanobind/nanobind.h>

#include "calls.hpp"
#include "context.hpp"
#include "team.hpp"

NB_MODULE(_heddle, module) {
  using namespace heddle::python;
  // Objects that a program still has when it ends are no leaks of this module.
  nb::set_leak_warnings(false);
  module.doc() = "The C API of Heddle for Python; import heddle instead.";
  module.attr("ANY") = HEDDLE_ANY;
  int major = 0;
  int minor = 0;
  int patch = 0;
  heddle_version(&major, &minor, &patch);
  module.attr("library_version") = nb::make_tuple(major, minor, patch);
  bind_interpreter(module);
  bind_errors(module);
  bind_requests(module);
  nb::enum_<heddle_compare>(module, "Compare", "How wait_signal compares the word with the value.")
      .value("EQ", HEDDLE_EQ)
      .value("NE", HEDDLE_NE)
      .value("GT", HEDDLE_GT)
      .value("GE", HEDDLE_GE)
      .value("LT", HEDDLE_LT)
      .value("LE", HEDDLE_LE);
  bind_context(module);
  bind_teams(module);
}
