// Communication contexts: the Heddle worker that an operation uses, order and completion, and the
// barrier of all PEs.
//
// A context has its own worker. The worker is exclusive if one thread at a time uses it (options
// PRIVATE and SERIALIZED, or a program below SHMEM_THREAD_MULTIPLE), else shared. When there are no
// more workers, the context shares the default context's worker: this is correct, but quiet
// completes more than the program asked for. When a context is destroyed, its worker is kept for
// the next context of its kind.
#pragma once

#include <shmemx.h>

#include "openshmem/patience.hpp"
#include "openshmem/state.hpp"

namespace heddle::shmem {

// Open the default context at the start; close all contexts at the end.
void open_default_context(Call call);
void close_contexts(Call call);

// Null: no memory.
ShmemContext* open_context(Call call, long options, const Members& members, shmem_team_t team);
void close_context(Call call, ShmemContext& context);

// Implements shmem_ctx_create and shmem_team_create_ctx: 0, or 1 and SHMEM_CTX_INVALID.
int create_context(Call call, long options, const Members& members, shmem_team_t team, shmem_ctx_t* ctx);
// When a team is destroyed: destroys its contexts that are not private.
void close_shareable_contexts(Call call, shmem_team_t team);

int ctx_create(Call call, long options, shmem_ctx_t* ctx);
void ctx_destroy(Call call, shmem_ctx_t ctx);

// Hints. They are checked and otherwise ignored: direct operations leave nothing to combine.
void ctx_session_start(Call call, shmem_ctx_t ctx, long options, const shmemx_ctx_session_config_t* config,
                       long config_mask);
void ctx_session_stop(Call call, shmem_ctx_t ctx);

void quiet_posted(Call call, ShmemContext& context);
void fence_posted(Call call, ShmemContext& context);

template <class C>
inline void quiet(Call call, C&& handle) {
  ShmemContext& context = context_of(handle);
  // Only operations posted to the worker need a wait. A context that has never posted has direct
  // stores only. An invalid context has nothing to wait for, and the standard says that this is no
  // error.
  if (context.posted.load(std::memory_order_relaxed) || g_state.n_pes == 0) [[unlikely]] {
    quiet_posted(call, context);
  }
  full_fence();
}
template <class C>
inline void fence(Call call, C&& handle) {
  ShmemContext& context = context_of(handle);
  if (context.posted.load(std::memory_order_relaxed) || g_state.n_pes == 0) [[unlikely]] {
    fence_posted(call, context);
  }
  store_fence();
}

void quiet_pes(Call call, ShmemContext& context, const int* target_pes, std::size_t npes);
template <class C>
inline void pe_quiet(Call call, C&& context, const int* target_pes, std::size_t npes) {
  quiet_pes(call, context_of(context), target_pes, npes);
}

// Collective over all PEs. barrier_all also completes the operations of the default context.
void barrier_all(Call call);
void sync_all(Call call);

}  // namespace heddle::shmem
