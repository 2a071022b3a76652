/* Heddle: communication for programs in which every thread communicates.  The C API.
 *
 * Words.  A *context* is one process's membership in a job. A *worker* is one queue of
 * communication; threads post to workers. A *region* is memory that peers can reach: allocated by
 * heddle_region_alloc, or the program's own, registered. A *remote region* names one of a peer's
 * regions (or one's own). A *remote address* is a remote region and an offset in bytes, never a
 * bare pointer. A remote region is *mapped* if this process can load and store there; an operation
 * on it is then *direct*.
 *
 * Results.  Every function returns a heddle_status unless it says otherwise:
 *   HEDDLE_DONE    finished already; no completion will follow (see counts_done of
 *                  heddle_counter_options)
 *   HEDDLE_POSTED  accepted; the completion follows (from a call that makes progress)
 *   HEDDLE_AGAIN   no resource now; nothing happened; make progress and try again, or do something
 *                  else
 *   negative       an error; heddle_last_error() tells this thread what was wrong and what to do
 * "Errors:" lists the errors of a function, without HEDDLE_ERR_. Every function that takes a handle
 * returns HANDLE for one that is not open, and every function that takes a pointer returns ARGUMENT
 * for null, unless it says that null is allowed; these two are not listed again. Functions that
 * allocate may return NO_MEMORY.
 * Functions named heddle_try_… return at once. The same name without try_ is the *blocking form*:
 * it makes progress on the worker until the operation is accepted, not until it is finished (it may
 * return HEDDLE_POSTED), and never returns HEDDLE_AGAIN. heddle_flush and heddle_quiet wait until
 * operations are complete. In collectives.h "blocking" means that the operation is finished.
 *
 * Threads.  Functions on a context, a region, a remote region or a counter may be called by any
 * thread at any time, unless they say otherwise. Functions on an exclusive worker may be called by
 * one thread at a time; to hand a worker to another thread, the program provides the happens-before
 * edge (a join, a mutex, a barrier). Closing a handle while another thread still uses it is an
 * error of the program. A thread must not be cancelled (pthread_cancel) inside a call of the
 * library.
 *
 * Progress.  A worker moves only while some thread is in a call that makes progress on it:
 *   - heddle_worker_progress, heddle_worker_wait and heddle_worker_arm
 *   - the blocking forms of operations (when the first attempt returns HEDDLE_AGAIN)
 *   - heddle_flush, heddle_quiet and heddle_worker_close (while operations are outstanding)
 *   - heddle_fence (when something is outstanding)
 *   - heddle_counter_wait, heddle_signal_wait, heddle_recv_wait, heddle_get_wait and
 *     heddle_fetch_atomic_wait (until what they wait for is there)
 *   - heddle_run_tasks
 *   - heddle_context_barrier with a worker (on that worker)
 *   - heddle_context_progress (on the workers that helpers may advance)
 *   - heddle_partitioned_test, heddle_partitioned_wait and heddle_parrived (on their worker)
 *   - heddle_context_leave (on all workers of the context)
 * No other call does: not the try_ functions, heddle_context_exchange, heddle_region_exchange, nor
 * a barrier without a worker. Inside a NETWORK handler, a completion callback or a function run by
 * heddle_run_on_engine, a call that would wait or make progress, on any worker, returns
 * HEDDLE_ERR_STATE: the lists of errors call this "inside a handler". USER handlers may do both.
 * Direct operations need no progress at either side.
 * A call that waits spins, then yields its core, and sleeps once it has waited for a millisecond.
 * Messages to its worker wake it. It notices other events, such as a direct put into the word that
 * it waits for, at its next look. Between looks it sleeps for a sixteenth of the time waited, but
 * not longer than 1 ms. Where n > 5 ranks share a core, this limit is n * 0.2 ms, and never more
 * than 100 ms.
 *
 * Structures with a size.  Set `size` to sizeof the structure. A smaller structure, from an older
 * header, is accepted: its missing fields take the defaults (statistics: it gets the fields that it
 * has). A larger one, from a newer header, is accepted if all fields that this library does not
 * know are zero (statistics that it does not count become zero); otherwise ARGUMENT. No version is
 * longer than 4096 bytes, or ends inside a field.
 *
 * Helpers.  With HEDDLE_PROGRESS (or `progress` of the context's options) other than "none", the
 * library has threads of its own, the helpers. They make progress on workers whose owners are
 * outside of calls, exclusive workers included, but not on workers opened with no_help. Handlers
 * and callbacks of a helped worker may then run on helpers, still one at a time per worker, and
 * never while its owner is inside a call on it.
 *
 * Ownership.  Memory passed to a call as a parameter block (options, shapes, messages, completions)
 * may be reused on return. Memory holding data (sources, destinations, segment lists) belongs to
 * the operation until its completion, or until the call returns HEDDLE_DONE.
 *
 * fork.  The child of a fork() is no member of the job: all its handles are closed.
 */
#ifndef HEDDLE_HEDDLE_H
#define HEDDLE_HEDDLE_H

#include <stddef.h>
#include <stdint.h>

#define HEDDLE_VERSION_MAJOR 0
#define HEDDLE_VERSION_MINOR 1
#define HEDDLE_VERSION_PATCH 0

#if defined(__GNUC__)
#define HEDDLE_API __attribute__((visibility("default")))
#else
#define HEDDLE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- status ---------------------------------------------------------------------------------- */

typedef enum heddle_status {
  HEDDLE_DONE = 0,
  HEDDLE_POSTED = 1,
  HEDDLE_AGAIN = 2,
  HEDDLE_ERR_ARGUMENT = -1,  /* a null pointer or a value outside its domain */
  HEDDLE_ERR_HANDLE = -2,    /* a handle that is closed, of another type, or never was one */
  HEDDLE_ERR_RANK = -3,      /* no such rank or worker */
  HEDDLE_ERR_RANGE = -4,     /* the access leaves the region */
  HEDDLE_ERR_ALIGNMENT = -5, /* atomics and signals need natural alignment */
  HEDDLE_ERR_SIZE = -6,      /* larger than a stated limit */
  /* memory or another bounded resource is exhausted; trying again does not help */
  HEDDLE_ERR_NO_MEMORY = -7,
  /* not available in this build, on this transport, or in this sharing mode */
  HEDDLE_ERR_UNSUPPORTED = -8,
  HEDDLE_ERR_PEER_FAILED = -9, /* the peer died or left the job */
  HEDDLE_ERR_TIMEOUT = -10,
  HEDDLE_ERR_CONFIG = -11, /* a HEDDLE_* variable that cannot be parsed or used */
  /* the peer, launcher or packed bytes are of another version, or the ranks differ in a setting
   * that must be the same in all (HEDDLE_MAX_WORKERS, HEDDLE_SHM_RING_BYTES,
   * HEDDLE_TAG_CREDIT_BYTES, HEDDLE_AM_USER_BYTES, HEDDLE_UCX_WINDOW_BYTES) */
  HEDDLE_ERR_VERSION = -12,
  HEDDLE_ERR_BOOTSTRAP = -13, /* the launcher could not be reached, or was lost */
  HEDDLE_ERR_STATE = -14,     /* not allowed here, such as progress from inside a handler */
  HEDDLE_ERR_SYSTEM = -15,    /* a system call failed; the message names it and errno */
  HEDDLE_ERR_PROTOCOL = -16,  /* malformed bytes, from a peer or in a packed region */
  /* the worker was closed before the operation completed, or the receive was cancelled */
  HEDDLE_ERR_CANCELLED = -17,
  HEDDLE_ERR_TRUNCATED = -18 /* the message was longer than the buffer, which has what fits */
} heddle_status;

/* The constant's name, such as "HEDDLE_ERR_RANGE"; "HEDDLE_STATUS_UNKNOWN" for other values. Never
 * null. */
HEDDLE_API const char* heddle_status_name(heddle_status status);

/* What went wrong in this thread's last call that returned an error, with the values, and what to
 * do about it. Never null; "" if there was none. Valid until this thread's next failing call. */
HEDDLE_API const char* heddle_last_error(void);

/* The version of the library at run time. Any of the pointers may be null. */
HEDDLE_API void heddle_version(int* major, int* minor, int* patch);

/* ---- handles --------------------------------------------------------------------------------- */

/* Typed values, not pointers: copy them freely. {0} is the null handle. A closed handle stays
 * invalid; a call with it returns HEDDLE_ERR_HANDLE. */
typedef struct heddle_context {
  uint64_t id;
} heddle_context;
typedef struct heddle_worker {
  uint64_t id;
} heddle_worker;
typedef struct heddle_region {
  uint64_t id;
} heddle_region;
typedef struct heddle_remote_region {
  uint64_t id;
} heddle_remote_region;
typedef struct heddle_counter {
  uint64_t id;
} heddle_counter;
typedef struct heddle_inproc_job {
  uint64_t id;
} heddle_inproc_job;

#define HEDDLE_FOREVER ((int64_t)-1) /* as a timeout_ns, as is every negative one */

/* ---- context --------------------------------------------------------------------------------- */

typedef struct heddle_context_options {
  size_t size; /* sizeof(heddle_context_options), so that the structure can grow */
  /* "auto" (or null): HEDDLE_BOOTSTRAP; "local", "pmix", "pmi", "single", "inproc" */
  const char* bootstrap;
  /* null: HEDDLE_TRANSPORT; or a NAME that `heddle info transports` lists; "NEAR,FAR": NEAR within
   * a node, FAR between nodes, such as "shm,ucx"; "fault+NAME": with faults, for tests */
  const char* transport;
  heddle_inproc_job job; /* for "inproc": the job, and which of its ranks this context is */
  uint32_t rank;
  /* null: HEDDLE_PROGRESS; "none", "dedicated:N", "idle", "adaptive" (see the guide) */
  const char* progress;
} heddle_context_options;

/* Joins the job that this process was started in: by `heddle run`, by a launcher with PMIx (mpirun,
 * prterun, srun) or PMI-1 (mpiexec.hydra, srun), in this order, or a job of one if it was started
 * by itself. options may be null. Blocks until the launcher answers; with PMIx and PMI until all
 * ranks have joined. Several contexts may live in one process, but a process joins its launcher's
 * job once. If `heddle run` dies, so do its ranks. With PMIx and PMI the job depends on rank 0: if
 * it dies, each rank sees all others as failed; and its heddle_context_leave returns last
 * (docs/clusters.md says for which ranks it waits, and how long).
 * Errors: CONFIG (a variable that cannot be parsed or is out of its range, an unknown transport),
 * ARGUMENT (options.size, an unknown bootstrap), HANDLE and RANK (of an inproc job), BOOTSTRAP,
 * VERSION, PROTOCOL, SYSTEM, NO_MEMORY. */
HEDDLE_API heddle_status heddle_context_join(const heddle_context_options* options, heddle_context* context);

/* Collective. Waits for the operations of all workers (as heddle_quiet), then until every rank of
 * the job leaves too, then closes the context and everything opened on it. Workers make progress
 * meanwhile, so no other thread may be in a call on this context. It does not wait for ranks that
 * have died or left before; that is HEDDLE_DONE. After a barrier that timed out, leave first
 * finishes that barrier. Leave does not report errors of operations without a completion: call
 * heddle_quiet before. Messages that have not been handled or received are dropped: call
 * heddle_context_barrier with the worker before. A long tagged message, which its receiver
 * fetches, is an operation of the sender: leave waits until it is received.
 * How long: leave waits for a living rank until that rank leaves, however late. Once all ranks
 * leave, operations of which nothing has moved for 30 s (in a job of one rank 2 s) are cancelled:
 * they wait for what no rank will do any more, such as posting a receive or opening a worker. They
 * complete with CANCELLED, and a warning names the worker. Whatever moves on this rank's workers
 * meanwhile, its own operations or those of peers, prolongs that time, by 5 minutes at most. A rank
 * that is stopped after all have called leave delays the others, once they have no operations left,
 * by 6 minutes at most; then they leave with a warning.
 * Errors: STATE (inside a NETWORK handler, or a USER handler of one of its workers: the context
 * stays open; or another rank is in another collective, such as a barrier: the context is closed,
 * and that rank gets STATE as well), BOOTSTRAP (the launcher was lost: the context is closed). */
HEDDLE_API heddle_status heddle_context_leave(heddle_context context);

/* This context's rank, and the number of ranks in the job. */
HEDDLE_API heddle_status heddle_context_rank(heddle_context context, uint32_t* rank);
HEDDLE_API heddle_status heddle_context_size(heddle_context context, uint32_t* size);

/* Collective over the job. One thread of each rank calls it. While it waits it makes progress on
 * `worker`; {0}: on none. Over shared memory and with at most 64 ranks it takes microseconds from a
 * job's third collective on; otherwise it goes through the launcher (tens to hundreds of
 * microseconds with few ranks, about 1 s with 1024 ranks on two cores): use it for set-up, not in
 * inner loops.
 * Errors: PEER_FAILED (a rank died or left; every living rank gets this, once all living ranks have
 * arrived), TIMEOUT (this rank counts as arrived; call again to continue the wait), STATE (inside a
 * handler, or another thread is in a collective of this context), ARGUMENT (the worker belongs to
 * another context), BOOTSTRAP (the launcher was lost). */
HEDDLE_API heddle_status heddle_context_barrier(heddle_context context, heddle_worker worker, int64_t timeout_ns);

/* Collective: every rank contributes `bytes` bytes (the same number everywhere, 1 byte to 1 MiB)
 * and receives those of all ranks, in rank order, in `all` (size × bytes). One exchange at a time
 * per context. It makes no progress on workers.
 * Errors: as for the barrier, without TIMEOUT; SIZE (no bytes, too many, or not as many as a peer
 * contributed). */
HEDDLE_API heddle_status heddle_context_exchange(heddle_context context, const void* mine, size_t bytes, void* all);

/* HEDDLE_DONE while `rank` is alive, HEDDLE_ERR_PEER_FAILED once it is known to have died or left.
 * Errors: RANK. */
HEDDLE_API heddle_status heddle_context_peer_status(heddle_context context, uint32_t rank);

/* Ends the whole job: prints `message` (may be null) once with this rank's number, makes the
 * launcher kill the other ranks and exit with `code`, and exits this process with `code` (0–255;
 * others become 1). Does not return, except for an invalid handle. Code 0 means success: then
 * nothing is printed unless there is a message. An inproc job marks every rank failed and aborts
 * the process. */
HEDDLE_API heddle_status heddle_context_abort(heddle_context context, int code, const char* message);

/* A job of `size` ranks (1–1024) inside this process, for tests and simulations. Pass it to each of
 * `size` contexts, each joined by its own thread. Each rank is joined once.
 * Errors: ARGUMENT (a size outside 1–1024), NO_MEMORY. */
HEDDLE_API heddle_status heddle_inproc_create(uint32_t size, heddle_inproc_job* job);
/* To be called after the contexts have left. Errors: STATE (a context of the job is still open; the
 * job stays). */
HEDDLE_API heddle_status heddle_inproc_close(heddle_inproc_job job);
/* Declares a rank dead, as the launcher does when a process dies. For tests of failure handling.
 * Errors: RANK. */
HEDDLE_API heddle_status heddle_inproc_fail(heddle_inproc_job job, uint32_t rank);

/* ---- worker ---------------------------------------------------------------------------------- */

typedef enum heddle_sharing {
  HEDDLE_SHARING_DEFAULT = 0, /* what HEDDLE_SHARING says; auto unless set */
  /* one thread at a time uses it; no lock, no atomic read-modify-write on the path */
  HEDDLE_SHARING_EXCLUSIVE = 1,
  /* In the other modes any thread may call any function at any time, and every operation has the
   * same meaning. The caller does direct operations on allocated regions in all modes. The modes
   * differ in the rest: */
  /* the caller posts; while another thread is inside the worker, AGAIN after a moment. Progress
   * skips a busy worker */
  HEDDLE_SHARING_SHARED = 2,
  /* the caller puts a command into a queue; an executor thread of the library posts it and polls:
   * for overlap, and where posting is expensive. POSTED; AGAIN if the queue is full. The executor
   * also handles arrivals, without a call of the application, whatever HEDDLE_PROGRESS says. The
   * offload workers of a context share HEDDLE_EXECUTORS (1) such threads, which sleep when there is
   * nothing to do: a handler or call that takes long delays the other workers of its executor */
  HEDDLE_SHARING_OFFLOAD = 3,
  /* the thread inside the worker also executes the commands that others queue meanwhile: for many
   * threads without a spare core */
  HEDDLE_SHARING_DELEGATE = 4,
  HEDDLE_SHARING_MUTEX = 5, /* one lock around everything: the baseline to measure against */
  /* about as exclusive while one thread uses it, but safe: when several do, as shared. A thread
   * that finds another one's worker takes it over, which costs both about a microsecond
   * (membarrier); heddle_context_progress does so, too. When that is tried more than once a
   * millisecond for long, 64 times more, or with the sixteenth thread, all share the worker until
   * it is closed */
  HEDDLE_SHARING_AUTO = 6
} heddle_sharing;

/* Handlers and callbacks of a worker run one at a time in every mode, on the thread that is inside
 * the worker: one that makes progress or waits, one that posts (delegate, when it executes queued
 * commands), or the executor (offload). They may post on their own worker. In the queueing modes
 * (offload, delegate) an operation may return POSTED although it is small: the completion, flush or
 * quiet then reports its outcome; a message without a completion that was copied into the queue is
 * DONE. Flush, quiet and fence cover what all threads posted before the call; if other threads go
 * on posting, they may wait for those operations too. */

typedef enum heddle_choice { HEDDLE_CHOICE_DEFAULT = 0, HEDDLE_CHOICE_ON = 1, HEDDLE_CHOICE_OFF = 2 } heddle_choice;

typedef struct heddle_worker_options {
  size_t size;
  heddle_sharing sharing;
  /* not 0: neither helpers, whatever HEDDLE_PROGRESS says, nor heddle_context_progress advance the
   * worker. The executor of an offload worker still does */
  uint64_t no_help;
  /* small messages to one worker that wait while the transport is busy leave as one packet (see
   * heddle_try_am).
   * HEDDLE_CHOICE_DEFAULT: HEDDLE_AGGREGATION decides. This concerns sending only: every worker can
   * receive packets */
  heddle_choice aggregation;
} heddle_worker_options;

/* Opens a worker. The workers of a context are numbered 0, 1, 2, … in the order of opening; a
 * peer's worker is named by that number. Numbers are not reused. options may be null.
 * Where only one thread may call the transport's library, every worker is in offload mode, whatever
 * was asked for; heddle_worker_mode tells the mode.
 * Errors: NO_MEMORY (more than HEDDLE_MAX_WORKERS), ARGUMENT (options.size, options.aggregation),
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
 * then. Messages that arrive for the worker later are dropped, and so are USER messages that no
 * heddle_run_tasks has taken; a warning tells how many. No other thread may be in a call on the
 * worker; that includes a handler that its heddle_run_tasks runs.
 * Errors: STATE (inside a NETWORK handler, or a USER handler of this worker; it stays open);
 * TIMEOUT (it stays open); what heddle_quiet returns (the worker is closed nevertheless). */
HEDDLE_API heddle_status heddle_worker_close(heddle_worker worker);
/* The worker's number. */
HEDDLE_API heddle_status heddle_worker_index(heddle_worker worker, uint32_t* index);
/* The worker's sharing mode: the one that was asked for, or HEDDLE_SHARING_OFFLOAD where only one
 * thread may call the transport's library (HEDDLE_UTOFU_SINGLE_THREAD). Never
 * HEDDLE_SHARING_DEFAULT. */
HEDDLE_API heddle_status heddle_worker_mode(heddle_worker worker, heddle_sharing* mode);

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

/* For a program whose loop waits for descriptors (poll, epoll, libuv, asyncio): a descriptor that
 * becomes readable when the worker, armed by heddle_worker_arm, has to be looked at. The same one
 * at each call. It is the library's, which closes it when the worker is closed: take it out of your
 * loop before. Only wait for it to be readable; do not read it. The first call starts a thread,
 * which makes no progress: it sleeps, and makes the descriptor readable. Any thread, also in a
 * handler.
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
 * look, and arm again. It does so after a time, 50 us at first and a millisecond at most, where the
 * worker may need polls: while operations are under way, or another thread was inside it; and
 * always where the transport cannot ring (utofu) or the system has no membarrier.
 * AGAIN: it is not armed, and readable: something has moved since the last arming (at the first:
 * since the worker was opened), or progress will find something. Look, make progress, and arm
 * again. So a program that arms, then looks at what handlers and callbacks write, misses nothing.
 * What the worker does not see, such as a direct put, does not make it readable. Costs a few
 * microseconds. Threads: as heddle_worker_progress; several loops may wait for the
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
  uint64_t aggregated; /* messages of all kinds that left in packets of several */
  uint64_t packets;    /* those packets */
  /* messages that were only queued when they were posted, for a helper to send
   * (HEDDLE_SMALL_OFFLOAD) */
  uint64_t registered;
  uint64_t helped; /* of these, those that a helper has sent */
  /* long tagged messages sent that took a receive posted before (HEDDLE_TAG_READY) */
  uint64_t taken;
} heddle_worker_stats;
/* The counts since the worker was opened. Errors: ARGUMENT (stats->size). */
HEDDLE_API heddle_status heddle_worker_stats_read(heddle_worker worker, heddle_worker_stats* stats);

/* ---- completions ----------------------------------------------------------------------------- */

/* Runs once, on the thread that is inside the worker: usually in a call that makes progress on it;
 * also on an executor or helper, in a call that posts (delegate), or in heddle_recv_cancel. It may
 * post; it may not make progress
 * (such a call returns HEDDLE_ERR_STATE). status: HEDDLE_DONE or an error such as
 * HEDDLE_ERR_PEER_FAILED. */
typedef void (*heddle_callback)(void* arg, heddle_status status);

typedef enum heddle_when {
  /* put: visible at the target. get, fetching atomics: result is here. message: delivered to the
   * target's memory, its handler will run when the target makes progress */
  HEDDLE_WHEN_REMOTE = 0,
  /* the source may be reused. A message of at most 56 bytes, header included, is copied when it is
   * accepted: DONE says so, and an error that it meets on its way is told by flush and quiet */
  HEDDLE_WHEN_LOCAL = 1
} heddle_when;

/* What happens when an operation is finished: fn(arg, status) runs if fn is set; the counter is
 * raised by one if counter is set. A null pointer to a completion, or both unset: nothing (flush
 * and quiet tell when the operation is finished).
 * An operation that returns HEDDLE_DONE runs no fn, and raises only a counter that was created with
 * counts_done. So some checks are made only if a completion follows: that this worker may raise the
 * counter (else ARGUMENT; with counts_done this is always checked), and all checks of the
 * completion if there is nothing to transfer (zero bytes) or the operation is done at once. A
 * correct program would pass these checks: whether a region is direct depends on the machine. */
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
 * has failed (that error), or the time is over (TIMEOUT). Errors: these, and STATE (inside a
 * handler, when it is not reached yet). */
HEDDLE_API heddle_status heddle_counter_wait(heddle_worker worker, heddle_counter counter, uint64_t value,
                                             int64_t timeout_ns);

/* Runs fn(arg) once while no other thread is inside the worker: on the executor thread (offload),
 * on the thread that is inside (delegate), or on the caller. For calls that must not run at the
 * same time as the library's own, such as those of an MPI that is not thread-safe; all such calls
 * through one offload worker run on one thread. fn may post on the worker, but not wait. Where only
 * one thread may call the transport's library (HEDDLE_UTOFU_SINGLE_THREAD), that thread runs fn,
 * whichever the worker: so an MPI over the same library never runs at the same time as Heddle's
 * calls. Then nothing of the process communicates while fn runs.
 * DONE: fn has run. POSTED: it will; the completion follows. try_: AGAIN if a queue is full or the
 * worker is busy.
 * Errors: ARGUMENT (fn is null). */
HEDDLE_API heddle_status heddle_try_run_on_engine(heddle_worker worker, void (*fn)(void* arg), void* arg,
                                                  const heddle_completion* completion);
HEDDLE_API heddle_status heddle_run_on_engine(heddle_worker worker, void (*fn)(void* arg), void* arg,
                                              const heddle_completion* completion);

/* ---- regions --------------------------------------------------------------------------------- */

/* Who does the work. Peers on the node map allocated and adopted memory: the caller does every
 * operation on it, and the owner need not do anything. Other registered memory of a peer cannot be
 * mapped: puts and gets use the kernel's copy where it is allowed. Worker 0 of the owner serves
 * what the kernel's copy cannot do or is slower at (large transfers, which go through bounce space;
 * everything where the kernel forbids the copy), and all atomics and signals. It must be open and
 * make progress until they are complete. On loopback-messages worker 0 serves every operation.
 * One's own memory is always direct on shm. */

/* Memory of `bytes` bytes (> 0), zeroed, page-aligned, that peers on the node can map: operations
 * on it are direct loads and stores. Errors: SIZE (0 bytes), NO_MEMORY (the segment, the regions of
 * a context or the handles are used up), SYSTEM. */
HEDDLE_API heddle_status heddle_region_alloc(heddle_context context, size_t bytes, heddle_region* region);
/* The caller's memory, to be read and written. It must stay mapped until the region is released.
 * Errors: SIZE (0 bytes, or beyond the address space), NO_MEMORY (too many regions or handles). */
HEDDLE_API heddle_status heddle_region_register(heddle_context context, void* address, size_t bytes,
                                                heddle_region* region);
typedef struct heddle_region_options {
  size_t size;
  /* not 0: the memory is *adopted*. Its whole pages move into memory that peers on the node can
   * map, and keep their addresses and contents: operations on them are then as fast as on allocated
   * memory. What lies before and behind the whole pages stays ordinary registered memory */
  uint64_t adopt;
} heddle_region_options;

/* heddle_region_register with options; null: the defaults. To adopt memory, and to release such a
 * region, moves it: no thread may access it during either call. What a thread writes meanwhile may
 * be lost, or is noticed (STATE, nothing has changed); the rest of the program's memory is safe.
 * Only private anonymous memory that can be read and written, such as malloc's, can be adopted, and
 * no stack. It is registered only where there is no whole page, or where the transport maps no
 * memory of peers. Memory that a region of another context has must not be adopted. What the child
 * of a fork() writes there is its own, but pages that it has not written show what the parent has
 * there, and after the release anything: copy what it needs. A child of vfork(), _Fork() or clone()
 * shares the memory with the parent. Meanwhile MADV_DONTNEED does not empty the memory, and locks
 * (mlock) and advice are without effect on it. Released memory is private again, without advice,
 * locks and protection keys. If the program has unmapped or moved it before, then nothing is put
 * there; if the system has no memory for it, then it stays shared with the segment, and the log
 * says so. Release other regions of that memory first.
 * Errors: as for heddle_region_register; ARGUMENT (options->size; memory to adopt is in a region
 * already), UNSUPPORTED (memory to adopt is of another kind), STATE (see above), SYSTEM. */
HEDDLE_API heddle_status heddle_region_register_with(heddle_context context, void* address, size_t bytes,
                                                     const heddle_region_options* options, heddle_region* region);
/* Only after every peer's last operation on the region. Allocated memory is freed; registered
 * memory stays the caller's. */
HEDDLE_API heddle_status heddle_region_release(heddle_region region);
/* Where the region lies in this process, and its length; either pointer may be null. The address of
 * an allocated region is valid until the region is released or its context is left; that of a
 * registered one is the caller's own. */
HEDDLE_API heddle_status heddle_region_address(heddle_region region, void** address, size_t* bytes);

#define HEDDLE_PACKED_REGION_BYTES 128 /* the most that pack writes */
/* Writes the region's name as bytes, which may be sent to any rank of the job by any means. *bytes:
 * the buffer's size before the call, the length after it.
 * Errors: SIZE (the buffer is too small; HEDDLE_PACKED_REGION_BYTES always suffice). */
HEDDLE_API heddle_status heddle_region_pack(heddle_region region, void* buffer, size_t* bytes);
/* Makes a peer's region (or one's own) usable here, from what pack wrote. May wait until the
 * owner's transport is open.
 * Errors: PROTOCOL (not the bytes of a region, of another job, or one's own region that was
 * released), VERSION, RANK, PEER_FAILED, CONFIG (the owner uses another transport), NO_MEMORY,
 * SYSTEM. */
HEDDLE_API heddle_status heddle_region_unpack(heddle_context context, const void* buffer, size_t bytes,
                                              heddle_remote_region* remote);
/* Collective: every rank contributes a region and receives those of all ranks in all[size], its own
 * included. It makes no progress on workers. On an error no handle of all[] is open. In a job of
 * more than HEDDLE_MEET_RANKS (64) ranks a peer is met when its region is first accessed, not here:
 * that access may return AGAIN, and reports what is wrong with the peer; a blocking one is refused
 * in a handler if it would have to wait, and may be tried again there.
 * Errors: as for heddle_context_exchange and heddle_region_unpack; ARGUMENT (a region of another
 * context). */
HEDDLE_API heddle_status heddle_region_exchange(heddle_context context, heddle_region region,
                                                heddle_remote_region* all);
/* Operations on it that are under way fail with HEDDLE_ERR_HANDLE, unless all their parts were
 * posted already; what the region needs is freed after the last of them. */
HEDDLE_API heddle_status heddle_remote_region_release(heddle_remote_region remote);
/* The owner's rank, and the region's length. */
HEDDLE_API heddle_status heddle_remote_region_rank(heddle_remote_region remote, uint32_t* rank);
HEDDLE_API heddle_status heddle_remote_region_bytes(heddle_remote_region remote, uint64_t* bytes);

typedef struct heddle_remote {
  heddle_remote_region region;
  uint64_t offset; /* bytes from the region's start */
} heddle_remote;

/* A pointer for direct loads, stores and atomic instructions to the remote address. Valid until the
 * remote region is released here or its context is left; also after the owner has died, with what
 * its memory held then. It must not be used after the owner has released the region. What the
 * program stores through it heddle_fence orders; flush and quiet are about operations. After
 * heddle_region_exchange in a large job the first call may wait until the owner has been met; in a
 * handler, where it cannot wait, it returns STATE then, and may be tried again. Errors (then
 * *address is null): UNSUPPORTED (it cannot be mapped here: use put and get), PEER_FAILED (the
 * owner has died or left, and it was not mapped before), RANGE, HANDLE (also: released while the
 * call waited); what is wrong with the owner, as of heddle_region_unpack. For adopted memory it is
 * a pointer within the whole pages (see heddle_remote_mapped). */
HEDDLE_API heddle_status heddle_remote_pointer(heddle_remote remote, void** address);
/* *mapped: 1 if all of the `bytes` bytes at the remote address are mapped, so that operations on
 * them are direct; else 0, also when the owner has died or left. Of adopted memory the whole pages
 * are. Waits, and fails, as heddle_remote_pointer does until the owner has been met. */
HEDDLE_API heddle_status heddle_remote_mapped(heddle_remote remote, size_t bytes, int* mapped);

/* ---- put and get ----------------------------------------------------------------------------- */

/* Copies `bytes` bytes from source to the remote address. Naturally aligned 1-, 2-, 4- and 8-byte
 * puts and gets are single accesses on direct memory. No order between operations except by fence,
 * flush and quiet. completion may be null. source or target may be null if there are no bytes.
 * Errors, of this and of every operation on remote memory below:
 *   - returned by the call (nothing has happened): RANGE, PEER_FAILED (the owner is known to have
 *     died or left), ARGUMENT (worker and remote region, or completion, do not belong together;
 *     direct operations do not check this), HANDLE (also of the completion's counter), STATE (a
 *     blocking form inside a handler of the worker that would have to wait)
 *   - reported by the completion, or by flush and quiet if there is none, or returned if known at
 *     once: PEER_FAILED (the owner died), RANGE or HANDLE (the owner has released the region, if it
 *     is not mapped, or unmapped its memory and the kernel's copy finds that: an owner that serves
 *     it dies of its own SIGSEGV; or this rank has released the remote region),
 *     CANCELLED (the owner's worker 0, which had to serve it, or this worker was closed),
 *     UNSUPPORTED (neither the kernel's copy nor bounce space is available), NO_MEMORY, SYSTEM */
HEDDLE_API heddle_status heddle_try_put(heddle_worker worker, const void* source, size_t bytes, heddle_remote target,
                                        const heddle_completion* completion);
HEDDLE_API heddle_status heddle_try_get(heddle_worker worker, void* target, size_t bytes, heddle_remote source,
                                        const heddle_completion* completion);
HEDDLE_API heddle_status heddle_put(heddle_worker worker, const void* source, size_t bytes, heddle_remote target,
                                    const heddle_completion* completion);
HEDDLE_API heddle_status heddle_get(heddle_worker worker, void* target, size_t bytes, heddle_remote source,
                                    const heddle_completion* completion);
/* As heddle_get, and waits, with progress, until the data is here. Returns DONE or the operation's
 * error. Direct memory is read at once. Errors: those that heddle_get returns or its completion
 * reports; STATE (inside a handler, where it is not direct: nothing has happened). */
HEDDLE_API heddle_status heddle_get_wait(heddle_worker worker, void* target, size_t bytes, heddle_remote source);

/* `blocks` blocks of `block_bytes`; block i starts i × local_stride bytes (at the remote side i ×
 * remote_stride) after the first. Strides are at least block_bytes. Errors: as for put and get;
 * ARGUMENT (smaller strides, or an extent of more than 64 bits). */
typedef struct heddle_strided {
  uint64_t block_bytes;
  uint64_t blocks;
  uint64_t local_stride;
  uint64_t remote_stride;
} heddle_strided;
HEDDLE_API heddle_status heddle_try_put_strided(heddle_worker worker, const void* source, heddle_remote target,
                                                const heddle_strided* shape, const heddle_completion* completion);
HEDDLE_API heddle_status heddle_try_get_strided(heddle_worker worker, void* target, heddle_remote source,
                                                const heddle_strided* shape, const heddle_completion* completion);
HEDDLE_API heddle_status heddle_put_strided(heddle_worker worker, const void* source, heddle_remote target,
                                            const heddle_strided* shape, const heddle_completion* completion);
HEDDLE_API heddle_status heddle_get_strided(heddle_worker worker, void* target, heddle_remote source,
                                            const heddle_strided* shape, const heddle_completion* completion);

/* One piece of a list. Pieces of one list may lie on several ranks. */
typedef struct heddle_segment {
  void* local; /* not written by put */
  uint64_t bytes;
  heddle_remote remote;
} heddle_segment;
/* Scatter (put) or gather (get) of `count` segments as one operation with one completion. The list
 * itself must not change until the completion. Errors: as for put and get, HANDLE and RANGE of any
 * segment before anything is moved; SIZE (the bytes do not fit 64 bits). segments may be null if
 * count is 0. */
HEDDLE_API heddle_status heddle_try_put_list(heddle_worker worker, const heddle_segment* segments, size_t count,
                                             const heddle_completion* completion);
HEDDLE_API heddle_status heddle_try_get_list(heddle_worker worker, const heddle_segment* segments, size_t count,
                                             const heddle_completion* completion);
HEDDLE_API heddle_status heddle_put_list(heddle_worker worker, const heddle_segment* segments, size_t count,
                                         const heddle_completion* completion);
HEDDLE_API heddle_status heddle_get_list(heddle_worker worker, const heddle_segment* segments, size_t count,
                                         const heddle_completion* completion);

typedef enum heddle_signal_op { HEDDLE_SIGNAL_SET = 0, HEDDLE_SIGNAL_ADD = 1 } heddle_signal_op;
/* A 64-bit word, 8-byte aligned, on the same rank as the data. */
typedef struct heddle_signal {
  heddle_remote word;
  uint64_t value;
  heddle_signal_op op;
} heddle_signal;
/* A put that changes the signal's word after its data is visible: a thread that sees the signal (by
 * heddle_signal_wait or an acquire load) sees the data. If the put of the data fails, the word does
 * not change.
 * Errors: as for put and get, also of the word; ALIGNMENT (offset no multiple of 8), ARGUMENT
 * (unknown op, word and data on different ranks). */
HEDDLE_API heddle_status heddle_try_put_signal(heddle_worker worker, const void* source, size_t bytes,
                                               heddle_remote target, const heddle_signal* signal,
                                               const heddle_completion* completion);
HEDDLE_API heddle_status heddle_put_signal(heddle_worker worker, const void* source, size_t bytes, heddle_remote target,
                                           const heddle_signal* signal, const heddle_completion* completion);
/* The same for blocks (see heddle_strided): the signal follows the last block. Errors: as for
 * put_strided and put_signal. */
HEDDLE_API heddle_status heddle_try_put_strided_signal(heddle_worker worker, const void* source, heddle_remote target,
                                                       const heddle_strided* shape, const heddle_signal* signal,
                                                       const heddle_completion* completion);
HEDDLE_API heddle_status heddle_put_strided_signal(heddle_worker worker, const void* source, heddle_remote target,
                                                   const heddle_strided* shape, const heddle_signal* signal,
                                                   const heddle_completion* completion);

typedef enum heddle_compare {
  HEDDLE_EQ = 0,
  HEDDLE_NE = 1,
  HEDDLE_GT = 2,
  HEDDLE_GE = 3,
  HEDDLE_LT = 4,
  HEDDLE_LE = 5
} heddle_compare;
/* Makes progress on the worker until *word (local memory, 8-byte aligned) compares true with
 * `value` as unsigned numbers, or the time is over (TIMEOUT). Acquire. It does not notice the death
 * of the peer that should write the word: pass a time limit.
 * Errors: TIMEOUT, ALIGNMENT, ARGUMENT (unknown compare), STATE (inside a handler, when it is not
 * true yet). */
HEDDLE_API heddle_status heddle_signal_wait(heddle_worker worker, const uint64_t* word, heddle_compare compare,
                                            uint64_t value, int64_t timeout_ns);

/* ---- atomics --------------------------------------------------------------------------------- */

typedef enum heddle_atomic_op {
  HEDDLE_ADD32 = 0,
  HEDDLE_AND32 = 1,
  HEDDLE_OR32 = 2,
  HEDDLE_XOR32 = 3,
  HEDDLE_SWAP32 = 4,
  HEDDLE_COMPARE_SWAP32 = 5,
  HEDDLE_ADD64 = 8,
  HEDDLE_AND64 = 9,
  HEDDLE_OR64 = 10,
  HEDDLE_XOR64 = 11,
  HEDDLE_SWAP64 = 12,
  HEDDLE_COMPARE_SWAP64 = 13
} heddle_atomic_op;

/* An operation is atomic with respect to all other Heddle atomics on the same word, from any rank.
 * On allocated regions it is also atomic with respect to atomic instructions, those of the owner
 * and those of any rank through heddle_remote_pointer; not so on utofu. The word is naturally
 * aligned. 32-bit operations use the low half of operand, compare and result. heddle_atomic returns
 * no result. COMPARE_SWAP exists only in the fetching form; the other operations ignore `compare`.
 * Errors: as for put and get; ALIGNMENT (the offset is no multiple of the width; for registered
 * memory the completion also reports it, if the address is none), ARGUMENT (unknown op,
 * COMPARE_SWAP without fetch, no result in fetch). */
HEDDLE_API heddle_status heddle_try_atomic(heddle_worker worker, heddle_atomic_op op, heddle_remote target,
                                           uint64_t operand, const heddle_completion* completion);
HEDDLE_API heddle_status heddle_atomic(heddle_worker worker, heddle_atomic_op op, heddle_remote target,
                                       uint64_t operand, const heddle_completion* completion);

typedef struct heddle_fetch {
  uint64_t operand;
  uint64_t compare;
  /* receives the old value, 4 or 8 bytes; the operation owns it until the completion */
  void* result;
} heddle_fetch;
HEDDLE_API heddle_status heddle_try_fetch_atomic(heddle_worker worker, heddle_atomic_op op, heddle_remote target,
                                                 const heddle_fetch* fetch, const heddle_completion* completion);
HEDDLE_API heddle_status heddle_fetch_atomic(heddle_worker worker, heddle_atomic_op op, heddle_remote target,
                                             const heddle_fetch* fetch, const heddle_completion* completion);
/* As heddle_fetch_atomic, and waits, with progress, until *fetch->result is there. Returns DONE or
 * the operation's error. Operations on direct memory are done at once. Errors: those that
 * heddle_fetch_atomic returns or its completion reports; STATE (inside a handler, where it is not
 * direct: nothing has happened). */
HEDDLE_API heddle_status heddle_fetch_atomic_wait(heddle_worker worker, heddle_atomic_op op, heddle_remote target,
                                                  const heddle_fetch* fetch);

/* ---- active messages ------------------------------------------------------------------------- */

#define HEDDLE_AM_HANDLERS 1024   /* handler numbers of each class: 0 … 1023 */
#define HEDDLE_AM_HEADER_BYTES 64 /* the most a header may have */

/* The class of a handler, and of the messages to it, follows from its number: number n of class
 * NETWORK is n, number n of class USER is HEDDLE_AM_USER + n.
 * NETWORK: runs on any thread that makes progress on the worker, helpers and executors of the
 *   library included, while the message is still in the receive buffer. Must be short; may post
 *   with try_ functions, but neither wait nor make progress: a call that would do so, on any
 *   worker, returns STATE.
 * USER: the message is stored on arrival, and its handler runs later on a thread that calls
 *   heddle_run_tasks. It may block, wait, make progress, and call everything except closing its own
 *   worker and leaving that context. Handlers begin in the order of arrival at the worker; with
 *   several threads they run at the same time, and their order is not guaranteed.
 * The store is bounded by credits: each worker may have HEDDLE_AM_USER_BYTES of USER messages on
 * their way to, or waiting in, each worker of its peers. A message counts its payload (256 bytes at
 * least), its header and 192 bytes, at most half of the credits. Without credits, further USER
 * messages (and only these) get AGAIN, until handlers there have returned. So USER handlers that
 * send USER messages to each other in a cycle should use heddle_try_am, and call heddle_run_tasks
 * while it returns AGAIN. */
typedef enum heddle_am_class { HEDDLE_AM_NETWORK = 0, HEDDLE_AM_USER = 1024 } heddle_am_class;

/* A worker of a peer. Messages to a worker that is not open yet wait for it. */
typedef struct heddle_peer {
  uint32_t rank;
  uint32_t worker;
} heddle_peer;

typedef struct heddle_am_message {
  uint32_t handler;
  uint32_t header_bytes; /* 0–64, carried inline */
  const void* header;
  const void* payload;
  /* up to HEDDLE_AM_MAX_BYTES; what exceeds one packet is sent in parts, or fetched by the
   * target */
  size_t payload_bytes;
} heddle_am_message;

typedef struct heddle_am_arrival {
  heddle_worker worker; /* where it arrived */
  heddle_peer source;
  uint32_t handler;
  uint32_t header_bytes;
  /* header and payload are valid until the handler returns, 8-byte aligned, read-only */
  const void* header;
  const void* payload;
  size_t payload_bytes;
} heddle_am_arrival;

/* What it may do: see heddle_am_class. It must not throw: an exception ends the process
 * (std::terminate), and the other ranks see this as a failed peer. */
typedef void (*heddle_am_handler)(const heddle_am_arrival* message, void* arg);

/* One handler per number and context; null removes it. Register before peers may send (so before a
 * barrier): a message without a handler (of class USER: when its turn comes) is dropped and
 * counted. Any thread may call this, also while messages arrive: each message gets one handler,
 * with the argument that was registered with it. A handler that was replaced or removed may still
 * run, or begin to, after this call has returned, on threads that had found it before: what its
 * argument points to must stay until all threads that make progress on the context's workers have
 * returned from that once. Takes no memory, and constant time, however often it is called.
 * Errors: ARGUMENT (handler number). */
HEDDLE_API heddle_status heddle_am_register(heddle_context context, uint32_t handler, heddle_am_handler fn, void* arg);

/* Makes progress once, then runs handlers of USER messages that have arrived at the worker: as many
 * as are there, `most` (> 0) at most. If there is none, it makes progress until one comes or the
 * time is over. Any thread that may use the worker; in the sharing modes for several threads,
 * several at a time. Returns how many handlers ran (0: the time is over), or a negative
 * heddle_status. Errors: STATE (inside a NETWORK handler or a completion callback), ARGUMENT
 * (most). */
HEDDLE_API int heddle_run_tasks(heddle_worker worker, uint32_t most, int64_t timeout_ns);

/* Sends an active message. No order is guaranteed between messages, or between messages and puts,
 * except by fence.
 *
 * Aggregation (HEDDLE_AGGREGATION, heddle_worker_options). Without it, a call returns AGAIN when
 * the transport does not take the message now. With it, a small message, active or tagged (2 KiB at
 * most), is copied then, and leaves in one packet with others to the same worker once the transport
 * takes it: the call returns POSTED, the source may be reused, and this worker needs progress until
 * the message has left. The messages that wait are bounded: beyond that AGAIN. Order and
 * completions are as without it.
 *
 * Long payloads (more than HEDDLE_AM_EAGER_BYTES; `heddle info` tells the default of each
 * transport) are not copied here (rendezvous): the target fetches them from this process's memory
 * when it has room, while this process may compute. Only then may the source be reused, so
 * HEDDLE_WHEN_LOCAL and HEDDLE_WHEN_REMOTE are the same. Long messages may use at most three
 * quarters of the worker's operations: beyond that AGAIN. A message that the target has no room for
 * now (HEDDLE_AM_REASSEMBLY_BYTES) waits for room; of class USER, for handlers there.
 *
 * Errors: RANK (no such rank; a worker number that no worker can have), ARGUMENT (handler number,
 * null with a length, a counter of another worker or context), SIZE (header or payload too long),
 * HANDLE (worker or counter), PEER_FAILED, STATE (the blocking form inside a handler, if it would
 * have to wait). Reported by the completion, flush or quiet: PEER_FAILED, NO_MEMORY (the parts of
 * large messages exceed the target's HEDDLE_AM_REASSEMBLY_BYTES, or those of one rank half of it;
 * one long message exceeds it), CANCELLED (the target's worker was closed before a large message
 * had arrived, or this worker was). A message that is not long, to a worker that was closed, is
 * dropped without an error, and so is a message without a handler. */
HEDDLE_API heddle_status heddle_try_am(heddle_worker worker, heddle_peer target, const heddle_am_message* message,
                                       const heddle_completion* completion);
HEDDLE_API heddle_status heddle_am(heddle_worker worker, heddle_peer target, const heddle_am_message* message,
                                   const heddle_completion* completion);

/* ---- tagged messages ------------------------------------------------------------------------- */

/* The receiver says where a message goes: the message matches the earliest posted receive that fits
 * it, or waits for one. Messages of one worker to one worker that the same receive could take are
 * received in the order of sending, whatever their lengths; receives that could take the same
 * message take messages in the order of posting. (In the sharing modes for several threads, the
 * order is that in which the calls took place.) There is no order between tagged messages and
 * active messages.
 *
 * Memory. An unexpected message (no posted receive fits it yet) is kept in the receiving worker's
 * memory, up to HEDDLE_TAG_CREDIT_BYTES for each sending worker. A message counts its length and
 * 176 bytes, rounded up to a multiple of 64, 256 bytes at least. When these credits are used up,
 * sends to that worker get AGAIN until something is received there; heddle_send of 2 KiB or more
 * tries for a while, and then sends it as a long one. A long one counts 256 bytes, and long ones
 * may use as many credits again, so two workers may both send before they receive. A worker has at
 * most three quarters of HEDDLE_WORKER_OPERATIONS of long ones under way. If the receiver's memory
 * is exhausted before that, the message is dropped, counted and logged there, and not received; the
 * sender of a long one gets NO_MEMORY.
 * Long messages (more than HEDDLE_TAG_EAGER_BYTES) go from buffer to buffer once the receive is
 * posted (rendezvous), so the sending and the receiving worker both make progress until the message
 * is complete. Those of more than 8 KiB are sent as long ones, too, where copies take long (not if
 * HEDDLE_TAG_EAGER_BYTES is set), and by heddle_send where there is no room on the way. So flush
 * and quiet after a send of more than 8 KiB may wait until it is received. If the receive was
 * posted before, for one worker and the whole tag, the sender may copy while the receiver does not
 * (HEDDLE_TAG_READY): until the receive has completed, its buffer belongs to the library, and is
 * registered memory to the transport. */

#define HEDDLE_ANY UINT32_MAX

/* Which messages a receive takes: those from `source` whose tag equals `tag` in the bits of
 * `mask`. */
typedef struct heddle_wanted {
  /* a worker of a rank; {rank, HEDDLE_ANY}: any of its workers; {HEDDLE_ANY, HEDDLE_ANY}: any
   * worker of any rank */
  heddle_peer source;
  uint64_t tag;
  uint64_t mask; /* UINT64_MAX: the whole tag. 0: any tag */
} heddle_wanted;

/* A receive and its outcome. It lies in the program's memory, belongs to the library from
 * heddle_try_recv until the receive has completed, and must not be moved meanwhile. It need not be
 * initialised. */
typedef struct heddle_receive {
  /* HEDDLE_POSTED: the receive waits, or data is on its way; otherwise its outcome, or what the
   * call returned that should have posted it (HEDDLE_AGAIN, an error). While another thread may be
   * inside the worker, read it only after the completion, or by heddle_recv_wait */
  heddle_status status;
  /* status DONE or TRUNCATED: what came; PEER_FAILED or CANCELLED: the source it waited for */
  heddle_peer source;
  uint64_t tag;
  uint64_t bytes;       /* the message's length, also if the buffer was shorter */
  uint64_t library[20]; /* the library's own */
} heddle_receive;

/* Sends `bytes` bytes with a tag. heddle_send, too, waits only until the message is accepted: after
 * HEDDLE_POSTED the source belongs to the library until the completion. Completion: LOCAL, the
 * source may be reused; REMOTE, the message is in the target's memory (a long one: received). AGAIN
 * also while long messages under way use three quarters of the worker's operations
 * (HEDDLE_WORKER_OPERATIONS): the other operations are reserved to fetch the messages of its peers.
 * Errors: RANK, ARGUMENT (null with a length, a counter of another worker or context), HANDLE, SIZE
 * (more than 2^56 bytes), PEER_FAILED, CANCELLED (the target worker was closed), NO_MEMORY (a long
 * message needs a region), STATE (the blocking form inside a handler, if it would have to wait).
 * Reported by the completion, flush or quiet: PEER_FAILED, CANCELLED (the target or this worker was
 * closed before a long message was received), PROTOCOL, NO_MEMORY. */
HEDDLE_API heddle_status heddle_try_send(heddle_worker worker, heddle_peer target, uint64_t tag, const void* data,
                                         size_t bytes, const heddle_completion* completion);
HEDDLE_API heddle_status heddle_send(heddle_worker worker, heddle_peer target, uint64_t tag, const void* data,
                                     size_t bytes, const heddle_completion* completion);

/* Posts a receive into data[bytes]. DONE: a message was there, *receive describes it; no completion
 * follows. POSTED: the receive waits; receive->status and the completion (may be null) tell its
 * outcome. Flush, quiet and fence do not wait for receives. Without a completion, wait by
 * heddle_recv_wait. Both forms return when the receive is posted; AGAIN and waiting concern only
 * the worker's command queue (offload, delegate) or a busy worker (shared; auto: while a helper is
 * inside).
 * Errors: RANK, ARGUMENT (null with a length, {HEDDLE_ANY, a worker}, a counter of another worker
 * or context), HANDLE, STATE. Returned, or reported by receive->status and the completion:
 * TRUNCATED (the message is longer than the buffer, which is full), PEER_FAILED (the source's rank
 * has failed; its messages that were not received are dropped; receives from any source go on
 * waiting), CANCELLED (cancelled, or the worker or, for a long message, its sender was closed),
 * NO_MEMORY, SYSTEM, PROTOCOL. */
HEDDLE_API heddle_status heddle_try_recv(heddle_worker worker, const heddle_wanted* wanted, void* data, size_t bytes,
                                         heddle_receive* receive, const heddle_completion* completion);
HEDDLE_API heddle_status heddle_recv(heddle_worker worker, const heddle_wanted* wanted, void* data, size_t bytes,
                                     heddle_receive* receive, const heddle_completion* completion);
/* Makes progress on the worker until the receive has completed, and returns its outcome: DONE or an
 * error of the receive. TIMEOUT: it is still posted; wait again, or cancel it before the structure
 * is used for another receive. The completion of the receive may still be about to run. Errors:
 * these, STATE (inside a handler, when the receive has not completed), ARGUMENT (the call that
 * should have posted it returned AGAIN), HANDLE (the worker is closed: its receives have completed,
 * with CANCELLED if not otherwise, and receive->status tells). */
HEDDLE_API heddle_status heddle_recv_wait(heddle_worker worker, heddle_receive* receive, int64_t timeout_ns);
/* Cancels a posted receive: it completes with CANCELLED, and its completion runs in this call.
 * Nothing happens if a message has matched it already. `receive` was passed to heddle_try_recv on
 * this worker, and its memory is still valid. DONE; try_: AGAIN if another thread is inside the
 * worker. Errors: STATE (the blocking form inside a handler, if it would wait). */
HEDDLE_API heddle_status heddle_try_recv_cancel(heddle_worker worker, heddle_receive* receive);
HEDDLE_API heddle_status heddle_recv_cancel(heddle_worker worker, heddle_receive* receive);

/* Looks for an unexpected message. DONE: found->source, tag and bytes describe the message that
 * such a receive would take. AGAIN: there is none (or another thread is inside the worker); make
 * progress. The call makes no progress itself.
 * Errors: as for heddle_try_recv. */
HEDDLE_API heddle_status heddle_try_probe(heddle_worker worker, const heddle_wanted* wanted, heddle_receive* found);
/* As heddle_try_probe, and takes the message out of matching: no other receive gets it. Receive it
 * by heddle_try_recv_claimed with the same `found`; until then it counts as kept. */
HEDDLE_API heddle_status heddle_try_claim(heddle_worker worker, const heddle_wanted* wanted, heddle_receive* found);
/* Receives a claimed message; as heddle_try_recv. data null, bytes 0: the message is dropped, which
 * is DONE.
 * Errors: as for heddle_try_recv; ARGUMENT (no message was claimed with it on this worker). */
HEDDLE_API heddle_status heddle_try_recv_claimed(heddle_worker worker, void* data, size_t bytes,
                                                 heddle_receive* claimed, const heddle_completion* completion);
HEDDLE_API heddle_status heddle_recv_claimed(heddle_worker worker, void* data, size_t bytes, heddle_receive* claimed,
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
/* The same for all ranks. The failure of a rank is an error only if an operation to it has failed.
 * Direct operations do not fail when their target dies later: ask heddle_flush or
 * heddle_context_peer_status about that rank. */
HEDDLE_API heddle_status heddle_quiet(heddle_worker worker);
HEDDLE_API heddle_status heddle_try_quiet(heddle_worker worker);

#ifdef __cplusplus
}
#endif

/* Teams and collective operations. */
#include "heddle/collectives.h" /* IWYU pragma: export */
/* Partitioned send and receive. */
#include "heddle/partitioned.h" /* IWYU pragma: export */

#endif /* HEDDLE_HEDDLE_H */
