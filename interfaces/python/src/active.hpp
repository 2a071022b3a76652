// Active messages, whose handlers are Python functions.
//
// They are of class USER: they run in Worker.run_tasks. So no thread waits for the GIL while it is
// inside a worker, and a handler's exception comes out of that call.
#pragma once

#include <nanobind/nanobind.h>

#include "worker.hpp"

namespace heddle::python {

void bind_handlers(nb::class_<Context>& context);
void bind_active(nb::module_& module, nb::class_<Worker>& worker);

}  // namespace heddle::python
