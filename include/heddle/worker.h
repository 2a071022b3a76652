/* Heddle: workers, the completions of operations, and their order. Part of heddle.h, which includes
 * it. */
#include "heddle/heddle.h" /* before the guard: it includes this part in its place */

#ifndef HEDDLE_WORKER_H
#define HEDDLE_WORKER_H

#ifdef __cplusplus
extern "C" {
#endif

/* ---- worker ---------------------------------------------------------------------------------- */

/* The sharing mode says which threads may call functions on a worker. In all modes but EXCLUSIVE
 * any thread may, at any time. Every operation has the same meaning in all modes, and the caller
 * executes direct operations on allocated regions itself. The modes differ in the rest. */
typedef enum heddle_sharing {
  HEDDLE_SHARING_DEFAULT = 0, /* the mode of HEDDLE_SHARING; auto unless set */
  /* one thread at a time uses it; no lock, no atomic read-modify-write on the path */
  HEDDLE_SHARING_EXCLUSIVE = 1,
  /* the caller posts; while another thread is inside the worker, a call returns AGAIN after a
   * moment. Progress skips a busy worker */
  HEDDLE_SHARING_SHARED = 2,
  /* the caller puts a command into a queue; an executor thread of the library posts it and polls:
   * for overlap, and where posting is expensive. POSTED; AGAIN if the queue is full. The executor
   * also handles arrivals, without a call of the application, whatever HEDDLE_PROGRESS says. The
   * offload workers of a context share one such thread, which sleeps when there is nothing to do: a
   * long handler or call delays the other workers. Where threads share cores and wait on the
   * worker, the executor stands aside for them, and callers post by themselves */
  HEDDLE_SHARING_OFFLOAD = 3,
  /* the thread inside the worker also executes the commands that others queue meanwhile: for many
   * threads without a spare core */
  HEDDLE_SHARING_DELEGATE = 4,
  HEDDLE_SHARING_MUTEX = 5, /* since 0.3: as HEDDLE_SHARING_SHARED. New programs do not use it */
  /* about as fast as exclusive while one thread uses it, but safe; when several threads use it, it
   * works as delegate. A thread takes over a worker that another thread has, which costs both about
   * a microsecond (membarrier); heddle_context_progress does so, too. All threads share the worker
   * until it is closed when takeovers are tried more than once a millisecond for long (64 tries
   * beyond that rate), or by the sixteenth thread */
  HEDDLE_SHARING_AUTO = 6
} heddle_sharing;

/* Handlers and callbacks of a worker run one at a time in every mode, on the thread that is inside
 * the worker: one that makes progress or waits, one that posts (delegate and auto, when it executes
 * queued commands), or the executor (offload). They may post on their own worker. In the queueing
 * modes (offload, delegate, auto) an operation may return POSTED although it is small: the
 * completion, flush or quiet then reports its outcome. A message without a completion that was
 * copied into the queue returns DONE. Flush, quiet and fence cover what all threads posted before
 * the call; if other threads go on posting, they may wait for those operations too. */

typedef enum heddle_choice { HEDDLE_CHOICE_DEFAULT = 0, HEDDLE_CHOICE_ON = 1, HEDDLE_CHOICE_OFF = 2 } heddle_choice;

typedef struct heddle_worker_options {
  size_t size;
  heddle_sharing sharing;
  /* not 0: neither helpers, whatever HEDDLE_PROGRESS says, nor heddle_context_progress advance the
   * worker. The executor of an offload worker still does */
  uint64_t no_help;
  /* without effect since 0.3: networks gather small messages by themselves */
  heddle_choice aggregation;
  /* a pointer of the program, which heddle_worker_user returns. A handler has the same argument on
   * all workers, and finds the data of one worker, such as its thread's, by this pointer */
  void* user;
  /* not 0: a thread that waits on this worker also makes progress on the other workers of the
   * context, as a wait for other ranks does (heddle.h, Progress). For a thread that uses several
   * workers: peers may need any of them while it waits on one. An event that moves another worker
   * also ends heddle_worker_wait. A heddle_worker_progress on this worker that finds nothing
   * looks at the others too, now and then, and returns their events */
  uint64_t attends;
} heddle_worker_options;

/* Opens a worker. The workers of a context are numbered 0, 1, 2, … in the order of opening; a
 * peer's worker is named by that number. Numbers are not reused. options may be null.
 * If only one thread may call the transport's library, every worker is in offload mode, whatever
 * was asked for; heddle_worker_mode returns the mode.
 * Errors: NO_MEMORY (more than HEDDLE_MAX_WORKERS), ARGUMENT (options.size),
 * UNSUPPORTED (an unknown sharing mode), CONFIG (HEDDLE_WORKER_OPERATIONS out of range), SYSTEM
 * (offload: no thread could be started). */
HEDDLE_API heddle_status heddle_worker_open(heddle_context context, const heddle_worker_options* options,
                                            heddle_worker* worker);

/* Waits for the worker's operations (as heddle_quiet), then, for 2 s at most, until the transport
 * has taken this worker's replies to requests of peers (gets, atomics, long messages), then closes
 * it. If the number of its unfinished operations does not fall for HEDDLE_CLOSE_TIMEOUT (60 s), it
 * returns TIMEOUT and the worker stays open with all its operations: call again later, or leave the
 * context, which ends the rest. The usual reason: their target ranks live and do not do their part
 * (post a receive, open a worker, make progress). The memory of the operations must live until
 * then. Receives end with CANCELLED, also those whose message is still coming. Messages that arrive
 * for the worker later are dropped, and so are USER messages that no heddle_run_tasks has taken; a
 * warning tells how many. No other thread may be in a call on the worker; that includes a handler
 * that its heddle_run_tasks runs.
 * Errors: STATE (inside a NETWORK handler, or a USER handler of this worker; it stays open);
 * TIMEOUT (it stays open); what heddle_quiet returns (the worker is closed nevertheless). */
HEDDLE_API heddle_status heddle_worker_close(heddle_worker worker);
/* The worker's number. */
HEDDLE_API heddle_status heddle_worker_index(heddle_worker worker, uint32_t* index);
/* The worker's sharing mode: the one that was asked for, or HEDDLE_SHARING_OFFLOAD if only one
 * thread may call the transport's library (HEDDLE_UTOFU_SINGLE_THREAD). Never
 * HEDDLE_SHARING_DEFAULT. */
HEDDLE_API heddle_status heddle_worker_mode(heddle_worker worker, heddle_sharing* mode);

/* *user: the pointer that was heddle_worker_options.user; null if there was none. Costs
 * nanoseconds. Any thread, also in a handler:
 *   heddle_worker_user(message->worker, &mine); */
HEDDLE_API heddle_status heddle_worker_user(heddle_worker worker, void** user);

/* Advances the worker: receives messages and runs their handlers, answers peers, moves and
 * completes operations. Returns how many events it handled (0: nothing to do, or another thread is
 * inside the worker), or a negative heddle_status. Errors: STATE (inside a handler). */
HEDDLE_API int heddle_worker_progress(heddle_worker worker);

/* For a program's own loop:
 *   while (!finished) heddle_worker_wait(worker, HEDDLE_FOREVER);
 * Advances the worker as heddle_worker_progress does. If nothing moves, it waits as all calls do
 * (see Progress) until something has moved or the time is over; timeout_ns 0: it advances the
 * worker once.
 * DONE: something has moved: a message was handled, an operation advanced or completed, a peer has
 * died. It does not matter which thread moved it: this one, an executor, a helper or another thread
 * that uses the worker. Everything counts since this thread's last wait on this worker returned (at
 * the first wait: since the worker was opened). So a program that checks what handlers and
 * callbacks of the worker write, and then waits, misses nothing. The call may return at once
 * although nothing happens during it: check, and wait again.
 * TIMEOUT: nothing has moved.
 * Events that the worker does not see, such as a direct put, another worker's callback or a write
 * by a thread of the program, do not end the wait. With HEDDLE_FOREVER it returns DONE all the
 * same, after about a millisecond and then after each sleep, which takes a sixteenth of the time
 * waited (at most as long as said under Progress): so the loop above is right whatever it waits
 * for. For a word in memory heddle_signal_wait is faster. A thread that waits on more workers than
 * one process may open (several contexts) may return early from some of these waits.
 * Errors: TIMEOUT, STATE (inside a handler). */
HEDDLE_API heddle_status heddle_worker_wait(heddle_worker worker, int64_t timeout_ns);

/* What heddle_worker_wait_for waits for. */
struct heddle_wait_facts;
typedef struct heddle_wait_condition {
  size_t size; /* sizeof(heddle_wait_condition); see heddle.h */
  /* Looks whether the wait is over. DONE or an error: it is, and the call returns that. AGAIN: not
   * yet. POSTED: not yet either, but this look has moved something, and the next may. It runs on
   * the waiting thread, outside of the worker: it may make progress on this and other workers,
   * post, and wait for a short time. */
  heddle_status (*ready)(void* arg);
  void* arg;
  const char* call; /* in reports: "MPI_Recv"; a literal. Null: this function's name */
  /* In reports: what is awaited, as for heddle_wait_note, with `call` set. Null: nobody knows. */
  void (*tell)(void* arg, struct heddle_wait_facts* facts);
  /* Null, or a word that ready() may change: while it is not 0, only messages to the worker, and
   * the ends of its operations, make the condition true. What comes then ends a rest, so the rests
   * may be longer than a sixteenth: up to 20 ms. */
  const int* rings;
} heddle_wait_condition;

/* For a library on top of Heddle that waits for something of its own: calls ready() until it ends
 * the wait, and advances the worker in between. It rests as all calls do (see Progress): ready() is
 * called before each rest, and messages to the worker end the rest. Whatever else makes the
 * condition true, such as a word that a peer writes, is noticed after the rest, which takes a
 * sixteenth of the time waited (see `rings`). With heddle_worker_options.attends it advances the
 * other workers too. Reports about jobs that hang show the wait as that of `call`.
 * Returns what ready() has returned; TIMEOUT: the time is over (timeout_ns 0: ready() was called
 * once). The exclusive worker's thread, or any thread.
 * Errors: ARGUMENT (ready is null), TIMEOUT, STATE (inside a handler). */
HEDDLE_API heddle_status heddle_worker_wait_for(heddle_worker worker, const heddle_wait_condition* condition,
                                                int64_t timeout_ns);

/* For a program whose loop waits for descriptors (poll, epoll, libuv, asyncio): returns a
 * descriptor that becomes readable when the worker, armed by heddle_worker_arm, needs attention.
 * Each call returns the same one. It belongs to the library, which closes it when the worker is
 * closed: take it out of your loop before. Only wait for it to be readable; do not read it. The
 * first call starts a thread, which makes no progress: it sleeps, and makes the descriptor
 * readable. Any thread, also in a handler.
 *   struct pollfd one = {descriptor, POLLIN, 0};
 *   while (!finished) {
 *     int events = heddle_worker_progress(worker);
 *     if (events < 0) break;
 *     if (events == 0 && heddle_worker_arm(worker) == HEDDLE_DONE && !finished) poll(&one, 1, -1);
 *   }
 * Errors: SYSTEM (no descriptor or no thread left). */
HEDDLE_API heddle_status heddle_worker_descriptor(heddle_worker worker, int* descriptor);
/* DONE: the descriptor is not readable now, and becomes so when something of the worker moves, or
 * has to be moved by progress: a message arrives, an operation advances or completes, a peer dies,
 * whichever thread notices it. It may become readable although nothing has happened: make progress,
 * look, and arm again. It does so after a time, 50 us at first and a millisecond at most, if the
 * worker may need polls: while operations are under way, or if another thread was inside it; always
 * if the transport cannot ring (utofu) or the system has no membarrier.
 * AGAIN: it is not armed, and readable: something has moved since the last arming (at the first:
 * since the worker was opened), or progress will find something. Look, make progress, and arm
 * again. So a program that arms, then looks at what handlers and callbacks write, misses nothing.
 * Events that the worker does not see, such as a direct put, do not make it readable. The call
 * costs a few microseconds. Threads: as heddle_worker_progress; several loops may wait for the
 * descriptor: all see that it is readable, and each arms it again.
 * Errors: STATE (inside a handler; heddle_worker_descriptor has not been called). */
HEDDLE_API heddle_status heddle_worker_arm(heddle_worker worker);

/* Advances every worker of the context that helpers may advance; it skips a busy worker (one that a
 * thread is inside of) and never waits for it. Any thread. Helpers may advance the workers that are
 * not exclusive, and, where HEDDLE_PROGRESS is not "none", the exclusive ones, but no worker opened
 * with no_help. Returns how many events it handled, or a negative heddle_status. */
HEDDLE_API int heddle_context_progress(heddle_context context);

typedef struct heddle_worker_stats {
  size_t size; /* set by the caller: sizeof(heddle_worker_stats) */
  /* operations accepted, by kind (strided, lists and signals count as puts or gets) */
  uint64_t puts;
  uint64_t gets;
  uint64_t atomics;
  uint64_t messages; /* active messages accepted */
  uint64_t bytes;    /* data bytes of all accepted operations */
  uint64_t direct;   /* operations done as direct loads and stores */
  uint64_t again;    /* HEDDLE_AGAIN returned */
  uint64_t polls;    /* calls of progress */
  uint64_t received; /* active messages whose handler ran */
  /* arrivals that were dropped: malformed, without a handler, out of range, or no memory for
   * them */
  uint64_t dropped;
  uint64_t failed;   /* operations completed with an error */
  uint64_t sends;    /* tagged messages accepted */
  uint64_t receives; /* receives that got a message */
  uint64_t kept;     /* unexpected tagged messages: kept until they are received */
  /* USER messages whose handler was run by heddle_run_tasks; these are not in `received` */
  uint64_t tasks;
  uint64_t stored;     /* USER messages that wait for heddle_run_tasks now */
  uint64_t aggregated; /* 0 since 0.3 */
  uint64_t packets;    /* 0 since 0.3 */
  /* messages that were only queued when they were posted, for a helper to send
   * (HEDDLE_SMALL_OFFLOAD) */
  uint64_t registered;
  uint64_t helped; /* of these, those that a helper has sent */
  /* long tagged messages sent that were offered, and whose data the receiver then asked for: the
   * two copied at the same time */
  uint64_t taken;
} heddle_worker_stats;
/* The counts since the worker was opened. Errors: ARGUMENT (stats->size). */
HEDDLE_API heddle_status heddle_worker_stats_read(heddle_worker worker, heddle_worker_stats* stats);

/* ---- completions ----------------------------------------------------------------------------- */

/* Runs once, on the thread that is inside the worker: usually in a call that makes progress on it;
 * also on an executor or helper, in a call that posts (delegate, auto), or in heddle_recv_cancel.
 * It may post; it may not make progress (such a call returns HEDDLE_ERR_STATE). status: HEDDLE_DONE
 * or an error such as HEDDLE_ERR_PEER_FAILED. */
typedef void (*heddle_callback)(void* arg, heddle_status status);

typedef enum heddle_when {
  /* put: visible at the target. get, fetching atomics: result is here. message: delivered to the
   * target's memory, its handler will run when the target makes progress */
  HEDDLE_WHEN_REMOTE = 0,
  /* the source may be reused. A message of at most 56 bytes, header included, is copied when it is
   * accepted: the call returns DONE, and flush and quiet report later errors of the message */
  HEDDLE_WHEN_LOCAL = 1,
  /* heddle_send and heddle_try_send only; elsewhere ARGUMENT. A receive of the target has matched
   * the message and has received it, or has dropped it (heddle_try_recv_claimed): the message goes
   * as a long one, whatever its length, also without data (messages.h) */
  HEDDLE_WHEN_MATCHED = 2
} heddle_when;

/* What happens when an operation is finished: fn(arg, status) runs if fn is set; the counter is
 * raised by one if counter is set. A null pointer to a completion, or both unset: nothing (flush
 * and quiet tell when the operation is finished).
 * An operation that returns HEDDLE_DONE runs no fn, and raises only a counter that was created with
 * counts_done. So some checks are made only if a completion follows: that this worker may raise the
 * counter (else ARGUMENT; with counts_done this is always checked), that `when` is one of this
 * operation (else ARGUMENT), and all checks of the completion if there is nothing to transfer (zero
 * bytes) or the operation is done at once. A correct program would pass these checks: whether a
 * region is direct depends on the machine. */
typedef struct heddle_completion {
  heddle_callback fn;
  void* arg;
  heddle_counter counter;
  heddle_when when;
} heddle_completion;

typedef struct heddle_counter_options {
  size_t size;
  /* set: only this exclusive worker's operations raise it, which spares an atomic instruction. If
   * the worker is not exclusive, or is helped, the counter is like any other */
  heddle_worker worker;
  /* not 0: operations that return HEDDLE_DONE raise it too, before they return. So it reaches the
   * number of accepted operations, and the program need not count those that returned
   * HEDDLE_POSTED */
  uint64_t counts_done;
} heddle_counter_options;

/* A counter starts at 0. Each operation that completes without an error raises it by one (with
 * counts_done: also if it is done at once). Operations that failed are counted separately, with the
 * first error. options may be null. free: operations that still name the counter complete as if
 * they had none.
 * Errors: create ARGUMENT (options->size, a worker of another context), NO_MEMORY. */
HEDDLE_API heddle_status heddle_counter_create(heddle_context context, const heddle_counter_options* options,
                                               heddle_counter* counter);
HEDDLE_API heddle_status heddle_counter_free(heddle_counter counter);
/* HEDDLE_DONE with the value; if operations have failed, the first one's error (value is still
 * stored). */
HEDDLE_API heddle_status heddle_counter_read(heddle_counter counter, uint64_t* value);
/* Sets the counter to 0 and forgets failures. No operation that names it may be outstanding. */
HEDDLE_API heddle_status heddle_counter_reset(heddle_counter counter);
/* Makes progress on the worker until the counter has reached `value`, an operation that names it
 * has failed (that error), or the time is over (TIMEOUT). Errors: these, STATE (inside a handler,
 * when it is not reached yet), and HANDLE, also if a callback frees the counter meanwhile. */
HEDDLE_API heddle_status heddle_counter_wait(heddle_worker worker, heddle_counter counter, uint64_t value,
                                             int64_t timeout_ns);

/* Runs fn(arg) once while no other thread is inside the worker: on the executor thread (offload),
 * on the thread that is inside (delegate, auto), or on the caller. It is for calls that must not
 * run at the same time as the library's own, such as those of an MPI that is not thread-safe. All
 * such calls through one offload worker run on one thread. fn may post on the worker, but not wait.
 * If only one thread may call the transport's library (HEDDLE_UTOFU_SINGLE_THREAD), that thread
 * runs fn, whichever the worker: so an MPI over the same library never runs at the same time as
 * Heddle's calls. Then nothing of the process communicates while fn runs.
 * DONE: fn has run. POSTED: fn will run; the completion follows. try_: AGAIN if a queue is full or
 * the worker is busy.
 * Errors: ARGUMENT (fn is null). */
HEDDLE_API heddle_status heddle_try_run_on_engine(heddle_worker worker, void (*fn)(void* arg), void* arg,
                                                  const heddle_completion* completion);
HEDDLE_API heddle_status heddle_run_on_engine(heddle_worker worker, void (*fn)(void* arg), void* arg,
                                              const heddle_completion* completion);

/* ---- order and completion of everything ------------------------------------------------------ */

/* For puts, gets and atomics "take effect" and "complete at the target" mean that memory has
 * changed. For a message they mean that it is delivered to the target worker's memory, not that its
 * handler has run. Handlers of one target worker run in the order that fences define; messages to
 * different workers of a rank are handled when those workers make progress, in any order. */

/* Operations posted on the worker after the fence take effect, at each target, after those posted
 * before it. Waits (with progress) if something is outstanding. Flush and quiet report errors of
 * operations; the fence does not.
 * Errors: STATE (inside a handler, when something is outstanding). */
HEDDLE_API heddle_status heddle_fence(heddle_worker worker);
/* Waits (with progress) until all operations posted on the worker to `rank` are complete at the
 * target. Returns the first error of those operations that had no completion; it is reported once.
 * The error of a list over several ranks is reported for each rank whose part failed or was not
 * begun since another part had failed, and for all its ranks if that is not known.
 * Errors: that one; PEER_FAILED (the rank has failed: data put to it may be lost); RANK; STATE
 * (the waiting forms, inside a handler, when something is outstanding). */
HEDDLE_API heddle_status heddle_flush(heddle_worker worker, uint32_t rank);
/* HEDDLE_AGAIN: not yet */
HEDDLE_API heddle_status heddle_try_flush(heddle_worker worker, uint32_t rank);
/* As heddle_flush, for all ranks. The failure of a rank is an error only if an operation to it has
 * failed. Direct operations do not fail when their target dies later: ask heddle_flush or
 * heddle_context_peer_status about that rank. */
HEDDLE_API heddle_status heddle_quiet(heddle_worker worker);
HEDDLE_API heddle_status heddle_try_quiet(heddle_worker worker);

#ifdef __cplusplus
}
#endif
#endif /* HEDDLE_WORKER_H */
