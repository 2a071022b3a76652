#include "openshmem/contexts.hpp"

#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "openshmem/checks.hpp"
#include "openshmem/rma.hpp"
#include "openshmem/teams.hpp"

namespace heddle::shmem {
namespace {

constexpr long kOptions = SHMEM_CTX_SERIALIZED | SHMEM_CTX_PRIVATE | SHMEM_CTX_NOSTORE;

// Contexts are few and rarely made, so one lock protects all of this. A destroyed context is kept
// until its memory is needed for another one, so that its use can be detected.
struct Books {
  std::mutex mutex;
  std::vector<std::unique_ptr<ShmemContext>> all;
  std::vector<ShmemContext*> destroyed;
  std::vector<heddle_worker> idle_exclusive;
  std::vector<heddle_worker> idle_shared;
};
Books g_books;

bool is_exclusive(long options) {
  return g_state.thread_level != SHMEM_THREAD_MULTIPLE || (options & (SHMEM_CTX_SERIALIZED | SHMEM_CTX_PRIVATE)) != 0;
}

// A thread that waits on one worker answers peers on all: they may wait for any of them.
heddle_worker_options options_of(bool exclusive) {
  heddle_worker_options wanted{};
  wanted.size = sizeof wanted;
  wanted.sharing = exclusive ? HEDDLE_SHARING_EXCLUSIVE : HEDDLE_SHARING_SHARED;
  wanted.attends = 1;
  return wanted;
}

// False: there are no more workers, or none of this kind.
bool take_worker(bool exclusive, heddle_worker* worker) {
  std::vector<heddle_worker>& idle = exclusive ? g_books.idle_exclusive : g_books.idle_shared;
  if (!idle.empty()) {
    *worker = idle.back();
    idle.pop_back();
    return true;
  }
  const heddle_worker_options wanted = options_of(exclusive);
  return heddle_worker_open(g_state.job, &wanted, worker) == HEDDLE_DONE;
}

void set(ShmemContext& context, const Members& members, heddle_worker worker, long options, bool owns,
         shmem_team_t team) {
  context.members = members;
  context.worker = worker;
  // under HEDDLE_CHECK=full always true, so that quiet and fence run their checks
  context.posted.store(checks_everything(), std::memory_order_relaxed);
  context.owner = this_thread();
  context.options = options;
  context.owns_worker = owns;
  context.team = team;
}

}  // namespace

void open_default_context(Call call) {
  heddle_worker worker{};
  const heddle_worker_options wanted = options_of(is_exclusive(0));
  must(call, heddle_worker_open(g_state.job, &wanted, &worker));
  set(default_context(), {0, 1, g_state.n_pes}, worker, 0, true, SHMEM_TEAM_WORLD);
}

void close_contexts(Call call) {
  const std::lock_guard lock(g_books.mutex);
  // Leaving the job closes the workers. A program may leave contexts open.
  for (const std::unique_ptr<ShmemContext>& context : g_books.all) {
    if (context->members.size == 0 || !context->posted.load(std::memory_order_relaxed)) continue;
    must(call, heddle_quiet(context->worker));  // must wait, whichever thread owns the worker
  }
  g_books.all.clear();
  g_books.destroyed.clear();
  g_books.idle_exclusive.clear();
  g_books.idle_shared.clear();
  default_context().members.size = 0;
}

ShmemContext* open_context(Call /*call*/, long options, const Members& members, shmem_team_t team) {
  const std::lock_guard lock(g_books.mutex);
  ShmemContext* context = nullptr;
  if (!g_books.destroyed.empty()) {
    context = g_books.destroyed.back();
    g_books.destroyed.pop_back();
  } else {
    std::unique_ptr<ShmemContext> made(new (std::nothrow) ShmemContext{});
    if (made == nullptr) return nullptr;
    context = made.get();
    g_books.all.push_back(std::move(made));
  }
  heddle_worker worker = default_context().worker;
  const bool owns = take_worker(is_exclusive(options), &worker);
  set(*context, members, owns ? worker : default_context().worker, options, owns, team);
  return context;
}

void close_context(Call call, ShmemContext& context) {
  quiet(call, context);
  const std::lock_guard lock(g_books.mutex);
  if (context.owns_worker) {
    (is_exclusive(context.options) ? g_books.idle_exclusive : g_books.idle_shared).push_back(context.worker);
  }
  context.members.size = 0;
  // First in, first out: the context that was destroyed first is reused first.
  g_books.destroyed.insert(g_books.destroyed.begin(), &context);
}

int create_context(Call call, long options, const Members& members, shmem_team_t team, shmem_ctx_t* ctx) {
  *ctx = SHMEM_CTX_INVALID;
  if ((options & ~kOptions) != 0) return 1;
  ShmemContext* context = open_context(call, options, members, team);
  if (context == nullptr) return 1;
  *ctx = reinterpret_cast<shmem_ctx_t>(context);
  return 0;
}

void close_shareable_contexts(Call call, shmem_team_t team) {
  std::vector<ShmemContext*> closing;
  {
    const std::lock_guard lock(g_books.mutex);
    for (const std::unique_ptr<ShmemContext>& context : g_books.all) {
      const bool shareable = (context->options & SHMEM_CTX_PRIVATE) == 0;
      if (context->members.size != 0 && context->team == team && shareable) closing.push_back(context.get());
    }
  }
  for (ShmemContext* context : closing) close_context(call, *context);
}

int ctx_create(Call call, long options, shmem_ctx_t* ctx) {
  check_initialized(call);
  if (ctx == nullptr) fail(call, "ctx is null");
  return create_context(call, options, {0, 1, g_state.n_pes}, SHMEM_TEAM_WORLD, ctx);
}

void ctx_destroy(Call call, shmem_ctx_t ctx) {
  check_initialized(call);
  if (ctx == SHMEM_CTX_INVALID) return;
  if (ctx == SHMEM_CTX_DEFAULT) fail(call, "ctx is SHMEM_CTX_DEFAULT, which lives as long as the library");
  ShmemContext& context = context_of(ctx);
  if (context.members.size == 0) fail(call, "ctx %p was destroyed before", reinterpret_cast<void*>(ctx));
  close_context(call, context);
}

void ctx_session_start(Call call, shmem_ctx_t ctx, long /*options*/, const shmemx_ctx_session_config_t* config,
                       long config_mask) {
  ctx_session_stop(call, ctx);  // the same checks of ctx
  if (ctx == SHMEM_CTX_INVALID || (config_mask & SHMEMX_CTX_SESSION_TOTAL_OPS) == 0) return;
  if (config == nullptr) {
    fail(call, "config is null, but config_mask is %#lx", static_cast<unsigned long>(config_mask));
  }
}

void ctx_session_stop(Call call, shmem_ctx_t ctx) {
  check_initialized(call);
  if (ctx == SHMEM_CTX_INVALID) return;
  const ShmemContext& context = context_of(ctx);
  if (context.members.size == 0) fail(call, "ctx %p was destroyed before", reinterpret_cast<void*>(ctx));
  if (checks_everything()) check_thread(call, context);
}

void quiet_posted(Call call, ShmemContext& context) {
  check_initialized(call);
  if (checks_everything()) check_thread(call, context);
  if (context.posted.load(std::memory_order_relaxed)) must(call, heddle_quiet(context.worker));
}

void fence_posted(Call call, ShmemContext& context) {
  check_initialized(call);
  if (checks_everything()) check_thread(call, context);
  if (context.posted.load(std::memory_order_relaxed)) must(call, heddle_fence(context.worker));
}

void quiet_pes(Call call, ShmemContext& context, const int* target_pes, std::size_t npes) {
  check_initialized(call);
  if (checks_everything()) check_thread(call, context);
  for (std::size_t i = 0; i < npes; ++i) {
    const int world = checked_pe(call, context, target_pes[i]);
    if (!context.posted.load(std::memory_order_relaxed)) continue;
    must(call, heddle_flush(context.worker, static_cast<std::uint32_t>(world)));
  }
  full_fence();
}

void barrier_all(Call call) {
  check_initialized(call);
  check_alike(call, world_team(), call, {});
  quiet(call, World{});
  sync(call, world_team());
}

void sync_all(Call call) {
  check_initialized(call);
  check_alike(call, world_team(), kSyncAll, {});
  sync(call, world_team());
}

}  // namespace heddle::shmem
