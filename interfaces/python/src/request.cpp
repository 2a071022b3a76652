#include "request.hpp"

#include <nanobind/stl/shared_ptr.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "worker.hpp"

namespace heddle::python {
namespace {

// One per thread. A plain variable, so that a single load reaches it; Cleaner empties it.
thread_local constinit RunningOperation* t_spare [[gnu::tls_model("initial-exec")]] = nullptr;
struct Cleaner {
  ~Cleaner() { delete std::exchange(t_spare, nullptr); }
};
thread_local Cleaner t_cleaner;

PyObject* g_done = nullptr;

// Threads without the GIL would all count its references on one line. As CPython makes None
// (Objects/object.c, _Py_SetImmortal), and nanobind its types.
void make_immortal([[maybe_unused]] PyObject* object) {
#if defined(Py_GIL_DISABLED)
  if (PyObject_IS_GC(object)) PyObject_GC_UnTrack(object);
  object->ob_tid = _Py_UNOWNED_TID;
  object->ob_ref_local = _Py_IMMORTAL_REFCNT_LOCAL;
  object->ob_ref_shared = 0;
#endif
}

}  // namespace

// ---- operations that are complete ---------------------------------------------------------------

// The objects to release and the function to call when an operation is retired.
struct Retired::Left {
  Memory memory;
  std::array<PyObject*, 2> remotes{};
  PyObject* callback = nullptr;

  // Python has the operation's result from here on.
  static Left of(RunningOperation* one) {
    Left left{std::move(one->memory), std::exchange(one->remotes, {}),
              one->callback.exchange(RunningOperation::retired(), std::memory_order_acq_rel)};
    one->drop();
    return left;
  }
  // Python code may run.
  void clear() {
    memory.release();
    for (PyObject*& remote : remotes) Py_CLEAR(remote);
    if (callback == nullptr) return;
    const nb::object function = nb::steal(callback);
    PyObject* const result = PyObject_CallNoArgs(function.ptr());
    if (result == nullptr) PyErr_WriteUnraisable(function.ptr());
    Py_XDECREF(result);
  }
};

// All of them are retired before any Python code runs, since that code may ask for any of them.
void Retired::clear_all() {
  RunningOperation* one = first_.exchange(nullptr, std::memory_order_acquire);
  if (one == nullptr) return;
  if (one->next == nullptr) {  // as nearly always
    Left::of(one).clear();
    return;
  }
  std::vector<Left> all;
  while (one != nullptr) {
    RunningOperation* const next = one->next;
    all.push_back(Left::of(one));
    one = next;
  }
  // In the order of completion, which is the reverse of the list.
  for (auto left = all.rbegin(); left != all.rend(); ++left) left->clear();
}

RunningOperation* RunningOperation::take() {
  RunningOperation* const spare = std::exchange(t_spare, nullptr);
  return spare != nullptr ? spare : new RunningOperation;
}

void RunningOperation::recycle(RunningOperation* operation) {
  if (t_spare != nullptr) {
    delete operation;
    return;
  }
  static_cast<void>(&t_cleaner);  // which is made for this thread
  operation->callback.store(nullptr, std::memory_order_relaxed);
  operation->receives = false;
  t_spare = operation;
}

// ---- posting ------------------------------------------------------------------------------------

Draft::Draft(Worker& worker)
    : worker_(worker), use_(worker.users(), kWorkerClosed), operation_(RunningOperation::take()) {
  worker.retired().clear();
  operation_->references.store(2, std::memory_order_relaxed);
  operation_->status.store(HEDDLE_POSTED, std::memory_order_relaxed);
  operation_->home = &worker.retired();
}

void Draft::completed(void* argument, heddle_status status) {
  auto* operation = static_cast<RunningOperation*>(argument);
  operation->status.store(status, std::memory_order_release);
  operation->home->add(operation);
}

std::unique_ptr<Request> Draft::request() {
  return std::make_unique<Request>(std::exchange(operation_, nullptr), worker_.shared_from_this());
}

Request Draft::kept() {
  return {std::exchange(operation_, nullptr), worker_.shared_from_this()};
}

nb::object Draft::given_away() {
  return nb::cast(request().release(), nb::rv_policy::take_ownership);
}

void Draft::end(heddle_status status) {
  operation_->status.store(status, std::memory_order_relaxed);
  operation_->release();
  operation_->callback.store(RunningOperation::retired(), std::memory_order_relaxed);
  operation_->references.store(1, std::memory_order_relaxed);
}

nb::object Draft::done() {
  return nb::borrow(g_done);
}

// ---- what Python has of them --------------------------------------------------------------------

void Request::check() const {
  const heddle_status now = status();
  if (now >= 0) return;
  if (now == HEDDLE_ERR_TRUNCATED) {
    raise(now, "a message of " + std::to_string(operation_->receive.bytes) +
                   " bytes was longer than the buffer, which has what fits");
  }
  // By the time of this call the thread that ran the completion may have had other errors.
  raise(now, now == HEDDLE_ERR_PEER_FAILED ? "the other rank has died or left the job before the operation was complete"
             : now == HEDDLE_ERR_CANCELLED ? "the receive was cancelled, or a worker was closed before it was complete"
                                           : heddle_status_name(now));
}

const heddle_receive& Request::received() const {
  if (operation_ == nullptr || !operation_->receives) {
    raise(HEDDLE_ERR_STATE, "this is no receive: only a receive knows source, tag and length of a message");
  }
  if (!done()) raise(HEDDLE_ERR_STATE, "the receive has not completed: await it, or call wait()");
  return operation_->receive;
}

// It is done. The thread that has completed it puts it on the list at once, and the thread that
// takes it from there retires it.
void Request::retire() const {
  while (operation_ != nullptr) {
    operation_->home->clear();
    if (operation_->callback.load(std::memory_order_acquire) == RunningOperation::retired()) return;
    released([] {
      std::this_thread::yield();
      return HEDDLE_DONE;
    });
  }
}

void Request::on_done(nb::object function) const {
  const bool removes = function.is_none();
  if (!removes && PyCallable_Check(function.ptr()) == 0) raise(PyExc_TypeError, "a function is wanted, or None");
  if (done()) {
    retire();
    if (!removes) function();
    return;
  }
  PyObject* const wanted = removes ? nullptr : function.release().ptr();
  for (PyObject* now = operation_->callback.load(std::memory_order_acquire);;) {
    const bool retired = now == RunningOperation::retired();
    if (!retired && now != nullptr && !removes) {
      Py_DECREF(wanted);
      raise(HEDDLE_ERR_STATE, "another task, or function, waits for this request already");
    }
    if (retired) {
      if (removes) return;
      nb::steal(wanted)();
      return;
    }
    if (operation_->callback.compare_exchange_weak(now, wanted, std::memory_order_acq_rel)) {
      Py_XDECREF(now);
      return;
    }
  }
}

void Request::cancel() const {
  if (operation_ == nullptr || !operation_->receives || done()) return;
  const Use use(worker_->users(), kWorkerClosed);
  worker_->call([&] { return heddle_recv_cancel(worker_->handle(), &operation_->receive); });
}

bool Request::cancel_and_wait() const {
  if (!done()) {
    cancel();
    if (!done()) {
      const Use use(worker_->users(), kWorkerClosed);
      in_slices(worker_->users(), -1, [&](std::int64_t slice_ns) { return wait_slice(slice_ns); });
    }
  }
  if (!done()) return true;
  retire();
  return status() != HEDDLE_ERR_CANCELLED;
}

bool Request::test() const {
  if (!done()) {
    const Use use(worker_->users(), kWorkerClosed);
    worker_->call([&] { return static_cast<heddle_status>(std::min(heddle_worker_progress(worker_->handle()), 0)); });
  }
  if (!done()) return false;
  retire();
  check();
  return true;
}

heddle_status Request::wait_slice(std::int64_t slice_ns) const {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + std::chrono::nanoseconds(slice_ns);
  for (std::int64_t left_ns = slice_ns; !done();) {
    const heddle_status moved = heddle_worker_wait(worker_->handle(), left_ns);
    if (done()) break;
    if (moved != HEDDLE_DONE) return moved;
    // Something else has moved the worker.
    left_ns = std::chrono::nanoseconds(end - Clock::now()).count();
    if (left_ns <= 0) return HEDDLE_ERR_TIMEOUT;
  }
  return HEDDLE_DONE;
}

heddle_status Request::wait_for(std::int64_t limit_ns) const {
  if (done()) return HEDDLE_DONE;
  const Use use(worker_->users(), kWorkerClosed);
  return in_slices(worker_->users(), limit_ns, [&](std::int64_t slice_ns) { return wait_slice(slice_ns); });
}

void Request::wait(const nb::object& seconds) const {
  const heddle_status status = wait_for(timeout_ns(seconds));
  if (status == HEDDLE_ERR_TIMEOUT) {
    raise(status, "the operation has not completed within " + std::string(nb::str(seconds).c_str()) +
                      " s; it goes on, and can be waited for again");
  }
  python::check(status);
  retire();
  check();
}

nb::str Request::repr() const {
  const heddle_status now = status();
  std::string text = "<heddle.Request ";
  text += operation_ != nullptr && operation_->receives ? "receive, " : "";
  text += now == HEDDLE_POSTED ? "under way" : now == HEDDLE_DONE ? "done" : heddle_status_name(now);
  if (now == HEDDLE_DONE && operation_ != nullptr && operation_->receives) {
    text += ": " + std::to_string(operation_->receive.bytes) + " bytes from rank " +
            std::to_string(operation_->receive.source.rank) + ", tag " + std::to_string(operation_->receive.tag);
  }
  text += ">";
  return nb::str(text.c_str());
}

void bind_requests(nb::module_& module) {
  nb::class_<Request>(module, "Request", nb::is_weak_referenceable(),
                      "An operation that was posted. Its memory stays until it is complete, whether or not the request "
                      "is kept.\n\nAwait it under asyncio, or call wait(). Any thread.")
      .def_prop_ro("done", &Request::done, "Whether it is complete, by success or an error. Makes no progress.")
      .def_prop_ro("status", &Request::status, "Status.POSTED while it is under way; then its outcome.")
      .def("wait", &Request::wait, nb::arg("timeout").none() = nb::none(),
           nb::sig("def wait(self, timeout: float | None = None) -> None"),
           "Make progress until the operation is complete; raise its error.\n\n"
           "timeout: seconds, or None. TimedOut: it goes on, and can be waited for again.")
      .def("test", &Request::test, "Make progress once; whether the operation is complete. Raises its error.")
      .def("check", &Request::check, "Raise the error with which the operation has completed, if it was one.")
      .def("cancel", &Request::cancel,
           "Cancel a receive, which then completes with CancelledError. Nothing happens if a message has come for it, "
           "or "
           "if it is no receive.")
      .def("on_done", &Request::on_done, nb::arg("function").none(),
           nb::sig("def on_done(self, function: collections.abc.Callable[[], object] | None) -> None"),
           "Call the function once the operation is complete, on the thread whose call finds that; now if it is.\n\n"
           "One function at a time, and an await has one; None: nobody any more.")
      .def_prop_ro("worker", &Request::worker, nb::sig("def worker(self, /) -> Worker | None"),
                   "The worker that it was posted on; None: it was done at once.")
      .def(
          "__await__",
          [](nb::handle self) {
            return nb::module_::import_("heddle.aio").attr("wait_for_request")(self).attr("__await__")();
          },
          nb::sig("def __await__(self) -> collections.abc.Generator[typing.Any, None, Request]"),
          "Wait under asyncio; the result is the request. Cancelling the await cancels a receive.")
      .def("__repr__", &Request::repr)
      .def_prop_ro(
          "source", [](const Request& self) { return self.received().source.rank; },
          "Of a receive that is complete: the sender's rank.")
      .def_prop_ro(
          "source_worker", [](const Request& self) { return self.received().source.worker; },
          "Of a receive that is complete: the sender's worker.")
      .def_prop_ro(
          "tag", [](const Request& self) { return self.received().tag; },
          "Of a receive that is complete: the message's tag.")
      .def_prop_ro(
          "nbytes", [](const Request& self) { return self.received().bytes; },
          "Of a receive that is complete: the message's length in bytes, also if the buffer was shorter.");
  // It is never freed, since operations may still be posted when the module's attributes are gone.
  g_done = nb::cast(new Request(nullptr, nullptr), nb::rv_policy::take_ownership).release().ptr();
  make_immortal(g_done);
}

}  // namespace heddle::python
