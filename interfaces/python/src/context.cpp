#include "context.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <string>

#include "region.hpp"
#include "worker.hpp"

namespace heddle::python {

Context::Context(const heddle_context_options& options) {
  checked_released([&] { return heddle_context_join(&options, &handle_); });
  check(heddle_context_rank(handle_, &rank_));
  check(heddle_context_size(handle_, &size_));
  open_.store(true, std::memory_order_release);
}

Context::~Context() {
  if (!open()) return;
  // Operations may still complete into these, and peers use this memory.
  for (auto& home : homes_) static_cast<void>(home.release());
  for (auto& region : regions_) static_cast<void>(new std::shared_ptr<OpenRegion>(region));
  for (auto& memory : memory_) static_cast<void>(new std::shared_ptr<void>(memory));
}

// ---- leaving ------------------------------------------------------------------------------------

bool Context::exported() {
  const std::scoped_lock lock(mutex_);
  return std::any_of(regions_.begin(), regions_.end(),
                     [](const auto& region) { return region->exports.load(std::memory_order_relaxed) > 0; });
}

// No new arrays in them. False: there are some, and nothing has changed. Nobody releases one
// meanwhile.
bool Context::try_close_regions() {
  const std::scoped_lock lock(mutex_);
  const auto close = [](const auto& region) {
    int none = 0;
    return region->exports.compare_exchange_strong(none, -1, std::memory_order_acquire);
  };
  const auto exported = std::find_if_not(regions_.begin(), regions_.end(), close);
  if (exported == regions_.end()) return true;
  std::for_each(regions_.begin(), exported, [](const auto& region) { region->exports.store(0); });
  return false;
}

void Context::reject_exports() {
  raise(PyExc_BufferError,
        "arrays, memory views or receives under way lie in regions (of Context.alloc, or memoryview(region)), whose "
        "memory "
        "goes when the context leaves: delete or cancel them before (del array), or take arrays that outlive it: "
        "Context.zeros(shape, dtype), or your own by Context.register(array, adopt=True)");
}

// The context stays open.
void Context::reopen() {
  {
    const std::scoped_lock lock(mutex_);
    for (const auto& region : regions_) {
      int closed = -1;
      region->exports.compare_exchange_strong(closed, 0);
    }
  }
  for (Home* const home : homes()) home->users.reopen();
  users_.reopen();
}

// Without the GIL: no call begins any more. TIMEOUT: threads are in calls that never return.
// AGAIN: arrays lie in regions.
heddle_status Context::leave_when_idle(std::string* text) {
  if (!users_.wait()) return HEDDLE_ERR_TIMEOUT;
  const std::vector<Home*> homes = this->homes();  // one more, if a worker was being opened
  for (Home* const home : homes) static_cast<void>(home->users.begin_close());
  for (Home* const home : homes) {
    if (!home->users.wait()) return HEDDLE_ERR_TIMEOUT;
  }
  if (!try_close_regions()) return HEDDLE_AGAIN;
  const heddle_status status = heddle_context_leave(handle_);
  if (status < 0) *text = heddle_last_error();
  return status;
}

void Context::leave(nb::handle self) {
  if (t_calls > 0) raise(HEDDLE_ERR_STATE, "a context does not leave inside a handler");
  if (!open()) return;
  retire();  // operations that have completed may still have arrays
  if (exported()) {
    nb::module_::import_("gc").attr("collect")();  // arrays in cycles that nobody reaches
    if (exported()) reject_exports();
  }
  if (!users_.begin_close()) raise(HEDDLE_ERR_STATE, "another thread leaves this context");
  for (Home* const home : homes()) static_cast<void>(home->users.begin_close());
  try {
    forget_descriptors(self);
  } catch (...) {
    reopen();
    throw;
  }
  std::string text;
  const heddle_status status = released([&] { return leave_when_idle(&text); });
  // It stays open in these cases only.
  const bool stays = status == HEDDLE_AGAIN || status == HEDDLE_ERR_TIMEOUT ||
                     (status == HEDDLE_ERR_STATE && heddle_context_peer_status(handle_, rank_) != HEDDLE_ERR_HANDLE);
  if (stays) {
    reopen();
    if (status == HEDDLE_AGAIN) reject_exports();
    raise(HEDDLE_ERR_STATE, status == HEDDLE_ERR_TIMEOUT ? kInterpreterEnds : text);
  }
  open_.store(false, std::memory_order_release);
  release_all();
  if (status < 0) raise(status, text);
}

// Releasing an object may run Python code, which may call this context.
void Context::release_all() {
  std::vector<nb::object> handlers;
  std::vector<std::shared_ptr<void>> memory;
  std::vector<std::shared_ptr<OpenRegion>> regions;
  {
    const std::scoped_lock lock(mutex_);
    released_ = true;
    handlers.swap(handlers_);
    memory.swap(memory_);
    regions.swap(regions_);
  }
  for (auto& region : regions) region->memory.release();
  retire();
}

Home& Context::add_home() {
  const std::scoped_lock lock(mutex_);
  return *homes_.emplace_back(std::make_unique<Home>());
}

std::vector<Home*> Context::homes() {
  const std::scoped_lock lock(mutex_);
  std::vector<Home*> all;
  for (const auto& home : homes_) all.push_back(home.get());
  return all;
}

void Context::retire() {
  for (Home* const home : homes()) home->retired.clear();
}

void Context::keep(nb::object handler) {
  const std::scoped_lock lock(mutex_);
  handlers_.push_back(std::move(handler));
}

void Context::keep(std::shared_ptr<void> memory) {
  const std::scoped_lock lock(mutex_);
  if (!released_) memory_.push_back(std::move(memory));
}

std::shared_ptr<OpenRegion> Context::add_region() {
  const std::scoped_lock lock(mutex_);
  return regions_.emplace_back(std::make_shared<OpenRegion>());
}

void Context::remove_region(const OpenRegion* region) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(regions_, [region](const auto& one) { return one.get() == region; });
}

namespace {

const char* text_or_null(const std::optional<std::string>& text) {
  return text ? text->c_str() : nullptr;
}

std::shared_ptr<Context> join(const std::optional<std::string>& transport, const std::optional<std::string>& progress,
                              const std::optional<std::string>& bootstrap) {
  heddle_context_options options{};
  options.size = sizeof options;
  options.transport = text_or_null(transport);
  options.progress = text_or_null(progress);
  options.bootstrap = text_or_null(bootstrap);
  return std::make_shared<Context>(options);
}

std::vector<nb::bytes> exchange_bytes(Context& context, const nb::bytes& mine) {
  const Use use(context.users(), kContextLeft);
  std::vector<char> all(mine.size() * context.size());
  checked_released([&] { return heddle_context_exchange(context.handle(), mine.c_str(), mine.size(), all.data()); });
  std::vector<nb::bytes> parts;
  for (std::uint32_t rank = 0; rank < context.size(); ++rank) {
    parts.emplace_back(static_cast<const void*>(all.data() + rank * mine.size()), mine.size());
  }
  return parts;
}

void barrier(Context& self, const Worker* worker, const nb::object& timeout) {
  const Use use(self.users(), kContextLeft);
  std::optional<Use> of_worker;
  if (worker != nullptr) of_worker.emplace(worker->users(), kWorkerClosed);
  const heddle_worker on = worker == nullptr ? heddle_worker{} : worker->handle();
  const auto wait = [&](std::int64_t slice_ns) { return heddle_context_barrier(self.handle(), on, slice_ns); };
  const Users* const of_worker_too = worker != nullptr ? &worker->users() : nullptr;
  const heddle_status status = in_slices(self.users(), timeout_ns(timeout), wait, of_worker_too);
  const std::string text = status < 0 ? heddle_last_error() : "";
  if (worker != nullptr) worker->retired().clear();
  if (status < 0) raise(status, text);
}

bool is_alive(Context& self, nb::handle rank) {
  const Use use(self.users(), kContextLeft);
  const heddle_status status = heddle_context_peer_status(self.handle(), number32(rank, "the rank"));
  if (status == HEDDLE_ERR_PEER_FAILED) return false;
  check(status);
  return true;
}

nb::str repr(const Context& self) {
  if (!self.open()) return nb::str("<heddle.Context, left>");
  return nb::str("<heddle.Context, rank {} of {}>").format(self.rank(), self.size());
}

void leave(nb::handle object) {
  nb::cast<Context&>(object).leave(object);
}

// After an error of this rank the others may never come, so the context is not left. The job learns
// of the error when this process ends.
void exit_context(nb::handle self, const nb::object& type, const nb::object&, const nb::object&) {
  if (type.is_none()) leave(self);
}

}  // namespace

void bind_context(nb::module_& module) {
  nb::class_<Context> context(
      module, "Context",
      "This process's membership in the job that it was started in, or in a job of one.\n\n"
      "As a context manager it leaves at the end of the block, unless by an exception. What was "
      "opened on it is closed then. Any thread may use it.");
  context
      .def(nb::new_(&join), nb::kw_only(), nb::arg("transport").none() = nb::none(),
           nb::arg("progress").none() = nb::none(), nb::arg("bootstrap").none() = nb::none(),
           "Join the job; wait until the launcher answers.\n\n"
           "transport: such as 'shm' or 'shm,ucx'; None: HEDDLE_TRANSPORT decides.\n"
           "progress: 'none', 'dedicated:N', 'idle', 'adaptive'; None: HEDDLE_PROGRESS decides.\n"
           "bootstrap: 'single' for a job of one, whatever has started this process; None: HEDDLE_BOOTSTRAP decides.\n"
           "JobError: there is no such job, its launcher is lost, or a setting has a wrong value.")
      .def_prop_ro("rank", &Context::rank, "This process's number in the job, from 0.")
      .def_prop_ro("size", &Context::size, "The number of processes in the job.")
      .def_prop_ro("is_open", &Context::open, "False once it has left.")
      .def("leave", &leave,
           "Wait until every rank leaves, then close everything opened on the context. Collective over the job.\n\n"
           "BufferError: arrays lie in regions of alloc(); nothing has happened.")
      .def("__repr__", &repr)
      .def("__enter__", [](const std::shared_ptr<Context>& self) { return self; })
      .def("__exit__", &exit_context, nb::arg("type").none(), nb::arg("value").none(), nb::arg("traceback").none(),
           nb::sig("def __exit__(self, type: builtins.type[BaseException] | None, value: BaseException | None, "
                   "traceback: types.TracebackType | None) -> None"))
      .def("exchange_bytes", &exchange_bytes, nb::arg("mine"),
           "Give bytes, equally many in all ranks (1 to 1 MiB), and get those of all. Collective over the job.")
      .def("barrier", &barrier, nb::arg("worker").none() = nb::none(), nb::arg("timeout").none() = nb::none(),
           nb::sig("def barrier(self, worker: Worker | None = None, timeout: float | None = None) -> None"),
           "Wait until all ranks have come, with progress meanwhile, on `worker` above all. Collective over the job; "
           "for "
           "set-up.\n\n"
           "PeerFailedError: a rank has died or left. TimedOut: this rank counts as arrived; call again.")
      .def("is_alive", &is_alive, nb::arg("rank"), nb::sig("def is_alive(self, rank: typing.SupportsIndex) -> bool"),
           "False once the rank is known to have died or left.")
      .def(
          "abort",
          [](Context& self, int code, const std::string& message) {
            const Use use(self.users(), kContextLeft);
            if (code < 0 || code > 255)
              raise(HEDDLE_ERR_ARGUMENT, "an exit code is 0 to 255, not " + std::to_string(code));
            check(heddle_context_abort(self.handle(), code, message.c_str()));
          },
          nb::arg("code") = 1, nb::arg("message") = "", "End the whole job with this exit code (0 to 255).");
  bind_regions(module, context);
  bind_workers(module, context);
  bind_handlers(context);
}

}  // namespace heddle::python
