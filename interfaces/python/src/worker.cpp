#include "worker.hpp"

#include <nanobind/stl/shared_ptr.h>

#include <algorithm>
#include <string>
#include <utility>

namespace heddle::python {

void forget_descriptors(nb::handle object) {
  const nb::str name("heddle.aio");
  const nb::object aio = nb::steal(PyImport_GetModule(name.ptr()));
  if (aio.is_valid()) aio.attr("_closing")(object);
}

namespace {

std::shared_ptr<Worker> open_worker(Context& context, heddle_sharing sharing, bool help) {
  const Use use(context.users(), kContextLeft);
  heddle_worker_options options{};
  options.size = sizeof options;
  options.sharing = sharing;
  options.no_help = help ? 0 : 1;
  heddle_worker worker{};
  checked_released([&] { return heddle_worker_open(context.handle(), &options, &worker); });
  return std::make_shared<Worker>(context.shared_from_this(), worker);
}

int progress(const Worker& self) {
  const Use use(self.users(), kWorkerClosed);
  int events = 0;
  self.call([&] {
    events = heddle_worker_progress(self.handle());
    return static_cast<heddle_status>(std::min(events, 0));
  });
  return events;
}

bool wait(const Worker& self, const nb::object& timeout) {
  const Use use(self.users(), kWorkerClosed);
  const std::int64_t ns = timeout_ns(timeout);
  heddle_status status = HEDDLE_DONE;
  const auto wait_once = [&](std::int64_t slice_ns) {
    status = heddle_worker_wait(self.handle(), slice_ns);
    return status;
  };
  // Without a limit it returns after a moment anyway.
  const heddle_status last = ns < 0 ? released([&] { return wait_once(ns); }) : in_slices(self.users(), ns, wait_once);
  const std::string text = last < 0 ? heddle_last_error() : "";
  self.retired().clear();
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
  if (last == HEDDLE_ERR_TIMEOUT) return false;
  if (last < 0) raise(last, text);
  return true;
}

void close_handle(nb::handle object) {
  const Worker& self = nb::cast<const Worker&>(object);
  if (t_calls > 0) raise(HEDDLE_ERR_STATE, "a worker is not closed inside a handler");
  if (!self.users().begin_close()) return;
  try {
    forget_descriptors(object);
  } catch (...) {
    self.users().reopen();
    throw;
  }
  bool returns = true;
  const heddle_status status = released([&] {
    returns = self.users().wait();
    return returns ? heddle_worker_close(self.handle()) : HEDDLE_ERR_STATE;
  });
  if (!returns) {
    self.users().reopen();
    raise(status, kInterpreterEnds);
  }
  const std::string text = status < 0 ? heddle_last_error() : "";
  self.retired().clear();
  if (status == HEDDLE_ERR_TIMEOUT) self.users().reopen();
  if (status < 0) raise(status, text);
}

std::uint32_t index_of(const Worker& self) {
  const Use use(self.users(), kWorkerClosed);
  std::uint32_t index = 0;
  check(heddle_worker_index(self.handle(), &index));
  return index;
}

heddle_sharing mode_of(const Worker& self) {
  const Use use(self.users(), kWorkerClosed);
  heddle_sharing mode{};
  check(heddle_worker_mode(self.handle(), &mode));
  return mode;
}

int descriptor_of(const Worker& self) {
  const Use use(self.users(), kWorkerClosed);
  int descriptor = -1;
  check(heddle_worker_descriptor(self.handle(), &descriptor));
  return descriptor;
}

bool arm(const Worker& self) {
  const Use use(self.users(), kWorkerClosed);
  return self.call([&] { return heddle_worker_arm(self.handle()); }) == HEDDLE_DONE;
}

nb::str repr(const Worker& self) {
  if (self.users().closing()) return nb::str("<heddle.Worker, closed>");
  return nb::str("<heddle.Worker {} of rank {}>").format(index_of(self), self.context()->rank());
}

constexpr std::pair<const char*, std::uint64_t heddle_worker_stats::*> kStats[] = {
    {"puts", &heddle_worker_stats::puts},
    {"gets", &heddle_worker_stats::gets},
    {"atomics", &heddle_worker_stats::atomics},
    {"messages", &heddle_worker_stats::messages},
    {"bytes", &heddle_worker_stats::bytes},
    {"direct", &heddle_worker_stats::direct},
    {"again", &heddle_worker_stats::again},
    {"polls", &heddle_worker_stats::polls},
    {"received", &heddle_worker_stats::received},
    {"dropped", &heddle_worker_stats::dropped},
    {"failed", &heddle_worker_stats::failed},
    {"sends", &heddle_worker_stats::sends},
    {"receives", &heddle_worker_stats::receives},
    {"kept", &heddle_worker_stats::kept},
    {"tasks", &heddle_worker_stats::tasks},
    {"stored", &heddle_worker_stats::stored},
    {"registered", &heddle_worker_stats::registered},
    {"helped", &heddle_worker_stats::helped},
    {"taken", &heddle_worker_stats::taken}};

nb::dict stats_of(const Worker& self) {
  const Use use(self.users(), kWorkerClosed);
  heddle_worker_stats stats{};
  stats.size = sizeof stats;
  checked_released([&] { return heddle_worker_stats_read(self.handle(), &stats); });
  nb::dict all;
  for (const auto& [name, member] : kStats) all[name] = stats.*member;
  return all;
}

}  // namespace

void bind_workers(nb::module_& module, nb::class_<Context>& context) {
  nb::enum_<heddle_sharing>(module, "Sharing", "Which threads may use a worker, and how.")
      .value("DEFAULT", HEDDLE_SHARING_DEFAULT, "What HEDDLE_SHARING says; AUTO unless set.")
      .value("EXCLUSIVE", HEDDLE_SHARING_EXCLUSIVE, "One thread at a time: the fastest. Not checked.")
      .value("SHARED", HEDDLE_SHARING_SHARED, "Any thread; the caller posts.")
      .value("OFFLOAD", HEDDLE_SHARING_OFFLOAD, "Any thread; a thread of the library posts and polls.")
      .value("DELEGATE", HEDDLE_SHARING_DELEGATE, "Any thread; who is inside executes what others queue.")
      .value("AUTO", HEDDLE_SHARING_AUTO, "About as fast as EXCLUSIVE while one thread uses it; any thread may.");
  nb::class_<Worker> worker(
      module, "Worker", nb::is_weak_referenceable(),
      "A queue of communication: threads post operations to it.\n\n"
      "Any thread may use it, unless it was opened with Sharing.EXCLUSIVE. Operations return a "
      "Request; they have taken their memory by then, and the call has not waited for peers unless "
      "resources were short. It stays open until close(), or until the context leaves.");
  worker.def("progress", &progress, "Advance the worker; return how many events it handled.")
      .def("wait", &wait, nb::arg("timeout").none() = nb::none(),
           nb::sig("def wait(self, timeout: float | None = None) -> bool"),
           "Make progress until something of this worker has moved, or some other thing may have happened.\n\n"
           "For loops: while not finished: worker.wait(). timeout: seconds. False: the time was over.")
      .def("close", &close_handle,
           "Wait for the worker's operations and for other threads' calls, then close it. Its descriptor is closed, "
           "too.\n\n"
           "Returns at once if another thread closes it. TimedOut: peers do not do their part (HEDDLE_CLOSE_TIMEOUT); "
           "it stays open.")
      .def(
          "__enter__", [](nb::handle self) { return nb::borrow(self); }, nb::sig("def __enter__(self) -> Worker"))
      .def(
          "__exit__", [](nb::handle self, const nb::args&) { close_handle(self); },
          nb::sig("def __exit__(self, *args: object) -> None"))
      .def("__repr__", &repr)
      .def_prop_ro("index", &index_of, "Its number: peers name it by its rank and this number.")
      .def_prop_ro("sharing", &mode_of, "Its sharing mode.")
      .def_prop_ro("context", &Worker::context, "The context that it was opened on.")
      .def("fileno", &descriptor_of,
           "A descriptor for select, poll and epoll: readable once the armed worker has to be looked at.\n\n"
           "The library's own: do not read or close it, and take it out of the loop before the worker is closed.")
      .def("arm", &arm,
           "True: the descriptor becomes readable when something of the worker moves. False: something has moved; make "
           "progress, and arm again. Call fileno() before.")
      .def("stats", &stats_of, nb::sig("def stats(self) -> dict[str, int]"),
           "What was counted since it was opened, such as puts, messages, received, dropped, bytes.");
  context.def("worker", &open_worker, nb::arg("sharing") = HEDDLE_SHARING_DEFAULT, nb::kw_only(),
              nb::arg("help") = true,
              "Open a worker. Those of a rank are numbered 0, 1, 2, … in the order of opening.\n\n"
              "help: False: helper threads leave it alone.");
  bind_one_sided(worker);
  bind_messages(module, worker);
  bind_active(module, worker);
  bind_partitioned(module, worker);
}

}  // namespace heddle::python
