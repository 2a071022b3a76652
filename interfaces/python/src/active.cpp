#include "worker.hpp"

#include <optional>
#include <string>

namespace heddle::python {
namespace {

struct Message {
  std::uint32_t source;
  std::uint32_t source_worker;
  nb::bytes header;
  nb::bytes payload;
};

// The exception that a handler on this thread has raised. run_one() throws it.
thread_local std::optional<nb::python_error> t_error;

void run_handler(const heddle_am_arrival& arrival, nb::handle handler) {
  try {
    const nb::object message =
        nb::cast(Message{arrival.source.rank, arrival.source.worker, nb::bytes(arrival.header, arrival.header_bytes),
                         nb::bytes(arrival.payload, arrival.payload_bytes)});
    handler(message);
  } catch (nb::python_error& error) {
    t_error.emplace(error);
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    t_error.emplace();
  }
}

void on_message(const heddle_am_arrival* arrival, void* handler) {
  with_gil([&] { run_handler(*arrival, nb::handle(static_cast<PyObject*>(handler))); });
}

nb::str repr(const Message& self) {
  return nb::str("<heddle.Message, {} bytes from worker {} of rank {}>")
      .format(nb::len(self.payload), self.source_worker, self.source);
}

std::uint32_t handler_number(nb::handle value) {
  const std::uint32_t number = number32(value, "the handler's number");
  if (number < HEDDLE_AM_HANDLERS) return number;
  raise(HEDDLE_ERR_ARGUMENT, "handlers are numbered 0 to 1023, not " + std::to_string(number));
}

void register_handler(Context& context, nb::handle number, const nb::object& handler) {
  const Use use(context.users(), kContextLeft);
  const std::uint32_t wanted = HEDDLE_AM_USER + handler_number(number);
  if (handler.is_none()) {
    check(heddle_am_register(context.handle(), wanted, nullptr, nullptr));
    return;
  }
  if (PyCallable_Check(handler.ptr()) == 0) raise(PyExc_TypeError, "a handler is a function of one message, or None");
  if (nb::cast<bool>(nb::module_::import_("inspect").attr("iscoroutinefunction")(handler))) {
    raise(PyExc_TypeError, "this handler is a coroutine function: heddle.aio.in_tasks makes a handler of it");
  }
  // A replaced handler may be running, or about to run.
  context.keep(handler);
  check(heddle_am_register(context.handle(), wanted, on_message, handler.ptr()));
}

nb::object am(Worker& self, nb::handle target, nb::handle handler, nb::handle payload, nb::handle header,
              nb::handle target_worker) {
  const std::uint32_t number = handler_number(handler);
  const heddle_peer to{number32(target, "the rank"), number32(target_worker, "the worker")};
  Draft draft(self);
  const Memory& memory = draft.take(payload, Access::read);
  const Memory head(header, Access::read);  // the call copies it
  if (head.bytes() > HEDDLE_AM_HEADER_BYTES) {
    raise(HEDDLE_ERR_SIZE, "a header has at most 64 bytes, not " + std::to_string(head.bytes()));
  }
  const heddle_am_message message{HEDDLE_AM_USER + number, static_cast<std::uint32_t>(head.bytes()), head.data(),
                                  memory.data(), memory.bytes()};
  return draft.post(
      HEDDLE_WHEN_LOCAL,
      [&](const heddle_completion* completion) { return heddle_try_am(self.handle(), to, &message, completion); },
      [&](const heddle_completion* completion) { return heddle_am(self.handle(), to, &message, completion); });
}

// Runs handlers one after the other, so that the exception of one is raised before the next begins.
// Returns how many ran: 0 or 1, or an error; TIMEOUT: none came.
heddle_status run_one(const Worker& self, std::int64_t ns) {
  const int ran = heddle_run_tasks(self.handle(), 1, ns);
  return ran == 0 ? HEDDLE_ERR_TIMEOUT : static_cast<heddle_status>(ran);
}

std::uint32_t run_tasks(const Worker& self, nb::handle most, const nb::object& timeout) {
  const Use use(self.users(), kWorkerClosed);
  const std::uint32_t wanted = number32(most, "the number of handlers");
  if (wanted == 0) raise(HEDDLE_ERR_ARGUMENT, "run_tasks runs 1 handler or more");
  std::int64_t limit_ns = timeout_ns(timeout);
  std::uint32_t ran = 0;
  for (; ran < wanted; ++ran, limit_ns = 0) {
    self.retired().clear();
    const heddle_status status =
        in_slices(self.users(), limit_ns, [&](std::int64_t slice_ns) { return run_one(self, slice_ns); });
    if (t_error) {
      nb::python_error error(*t_error);
      t_error.reset();
      throw error;
    }
    if (status == HEDDLE_ERR_TIMEOUT) break;
    check(status);
  }
  self.retired().clear();
  return ran;
}

}  // namespace

void bind_handlers(nb::class_<Context>& context) {
  context.def("on_message", &register_handler, nb::arg("number"), nb::arg("handler").none(),
              nb::sig("def on_message(self, number: typing.SupportsIndex, handler: "
                      "collections.abc.Callable[[Message], object] | None) -> None"),
              "Name the handler of active messages with this number (0 to 1023); None: nobody's.\n\n"
              "It runs in Worker.run_tasks with the message. Name it before peers send, such as before a barrier: a "
              "message without a handler is dropped. The handler is kept until the context has left.");
}

void bind_active(nb::module_& module, nb::class_<Worker>& worker) {
  nb::class_<Message>(module, "Message", "What the handler of an active message gets.")
      .def("__repr__", &repr)
      .def_ro("source", &Message::source, "The sender's rank.")
      .def_ro("source_worker", &Message::source_worker, "The sender's worker: where an answer goes.")
      .def_ro("header", &Message::header, "At most 64 bytes.")
      .def_ro("payload", &Message::payload, "The data, a copy.");
  worker
      .def("am", &am, nb::arg("target"), nb::arg("handler"), nb::arg("payload").none() = nb::bytes("", 0),
           nb::arg("header").none() = nb::bytes("", 0), nb::arg("target_worker") = 0,
           nb::sig("def am(self, target: typing.SupportsIndex, handler: typing.SupportsIndex, "
                   "payload: heddle.types.Buffer = b'', header: heddle.types.Buffer = b'', "
                   "target_worker: typing.SupportsIndex = 0) -> Request"),
           "Send an active message: the handler of this number runs at rank `target`, in its run_tasks.\n\n"
           "header: at most 64 bytes, copied at once. The request is complete when the payload may be changed.")
      .def("run_tasks", &run_tasks, nb::arg("most") = UINT32_MAX, nb::arg("timeout").none() = nb::none(),
           nb::sig("def run_tasks(self, most: typing.SupportsIndex = 4294967295, timeout: float | None = None) -> int"),
           "Run the handlers of messages that have arrived, `most` at most; wait for one if there is none.\n\n"
           "timeout: seconds. Returns how many ran (0: the time was over). Raises what a handler raises, at once; the "
           "messages behind it wait for the next call.");
}

}  // namespace heddle::python
