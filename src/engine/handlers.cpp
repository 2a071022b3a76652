#include "engine/handlers.hpp"

#include <mutex>

#include "engine/core.hpp"

namespace heddle::engine {

thread_local constinit const Core* detail::t_inside [[gnu::tls_model("initial-exec")]] = nullptr;
thread_local constinit const RunningTask* detail::t_tasks [[gnu::tls_model("initial-exec")]] = nullptr;

bool RunningTask::of(const Core& core) {
  const RunningTask* task = detail::t_tasks;
  while (task != nullptr && &task->core_ != &core) task = task->before_;
  return task != nullptr;
}

bool RunningTask::of(const Job& job) {
  const RunningTask* task = detail::t_tasks;
  while (task != nullptr && &task->core_.job != &job) task = task->before_;
  return task != nullptr;
}

// The object that it reads may be gone by then. The memory still belongs to the thread's stack, and
// its content is only compared.
[[gnu::noinline, gnu::no_sanitize_thread, gnu::no_sanitize_address]] const Core* RunningTask::peek(
    const RunningTask* const* place) {
  const RunningTask* const task = *const_cast<const RunningTask* const volatile*>(place);
  return task == nullptr ? nullptr : &task->core_;
}

base::Status reject_wait(const char* call) {
  return base::fail(
      HEDDLE_ERR_STATE,
      "%s waits, which is not allowed inside a NETWORK handler or completion callback; post with try_ there "
      "and wait outside, or give the handler a number of class USER (HEDDLE_AM_USER + n)",
      call);
}

base::Status reject_progress() {
  return base::fail(HEDDLE_ERR_STATE,
                    "progress was asked for from inside a NETWORK handler or completion callback; post with try_ there "
                    "and wait outside, or give the handler a number of class USER (HEDDLE_AM_USER + n)");
}

base::Status reject_end(const char* call) {
  return base::fail(
      HEDDLE_ERR_STATE,
      "%s from a USER handler of that worker or context, which heddle_run_tasks goes on with; call it when "
      "heddle_run_tasks has returned",
      call);
}

namespace {

// The addresses of the variables that say what a thread is inside of.
struct Places {
  const Core* const* inside;
  const RunningTask* const* tasks;
  bool operator==(const Places&) const = default;
};

Places own_places() {
  return {&detail::t_inside, &detail::t_tasks};
}

// A thread in the list, until it ends. The list is in memory that nobody allocates or destroys:
// threads may end after main, and a program's ThreadSanitizer sees no more than the mutex.
struct Listed {
  bool is = false;
  Places places{};
  Listed* next = nullptr;
  ~Listed();
};
thread_local Listed t_listed;

constinit std::mutex g_handlers_mutex;
constinit Listed* g_first = nullptr;  // guarded by it

Listed::~Listed() {
  if (!is) return;
  const std::lock_guard lock(g_handlers_mutex);
  Listed** link = &g_first;
  while (*link != this) link = &(*link)->next;
  *link = next;
}

// The thread writes it meanwhile; ThreadSanitizer is told nothing, as by base::peek().
[[gnu::noinline, gnu::no_sanitize_thread]] const Core* peek(const Core* const* place) {
  return *const_cast<const Core* const volatile*>(place);
}

}  // namespace

void look_at_this_thread() noexcept {
  if (t_listed.is) return;
  const std::lock_guard lock(g_handlers_mutex);
  t_listed.is = true;
  t_listed.places = own_places();
  t_listed.next = g_first;
  g_first = &t_listed;
}

Running running(const Core& core) {
  const Places mine = own_places();
  const std::lock_guard lock(g_handlers_mutex);
  Running found;
  for (const Listed* thread = g_first; thread != nullptr; thread = thread->next) {
    const Places& places = thread->places;
    if (places == mine) continue;
    found.handler = found.handler || peek(places.inside) == &core;
    found.task = found.task || RunningTask::peek(places.tasks) == &core;
  }
  return found;
}

}  // namespace heddle::engine
