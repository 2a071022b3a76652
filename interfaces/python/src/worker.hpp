// A worker as Python sees it. Its operations are in one_sided.cpp, messages.cpp, active.cpp.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>

#include "context.hpp"

namespace heddle::python {

class Worker : public std::enable_shared_from_this<Worker> {
 public:
  Worker(std::shared_ptr<Context> context, heddle_worker handle)
      : context_(std::move(context)), handle_(handle), home_(context_->add_home()) {}
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  [[nodiscard]] heddle_worker handle() const { return handle_; }
  [[nodiscard]] Retired& retired() const { return home_.retired; }
  [[nodiscard]] Users& users() const { return home_.users; }
  // One call of the library without the GIL, in a Use. Then completed operations are retired, which
  // may run Python code. Raises an error.
  template <class Call>
  heddle_status call(Call&& call) const {
    const heddle_status status = released(static_cast<Call&&>(call));
    const std::string text = status < 0 ? heddle_last_error() : "";
    retired().clear();
    if (status < 0) raise(status, text);
    return status;
  }
  [[nodiscard]] const std::shared_ptr<Context>& context() const { return context_; }

 private:
  std::shared_ptr<Context> context_;
  heddle_worker handle_;
  Home& home_;
};

// Called when no call of it begins any more, before it is closed. No event loop has its descriptors
// then.
void forget_descriptors(nb::handle worker_or_context);

void bind_workers(nb::module_& module, nb::class_<Context>& context);
void bind_one_sided(nb::class_<Worker>& worker);
void bind_messages(nb::module_& module, nb::class_<Worker>& worker);
void bind_partitioned(nb::module_& module, nb::class_<Worker>& worker);

// Active messages, whose handlers are Python functions.
//
// They are of class USER: they run in Worker.run_tasks. So no thread waits for the GIL while it is
// inside a worker, and a handler's exception comes out of that call.

void bind_handlers(nb::class_<Context>& context);
void bind_active(nb::module_& module, nb::class_<Worker>& worker);

}  // namespace heddle::python
