/* Heddle: communication for programs in which every thread communicates.  The C API.
 *
 * Parts.  This header has the rules that hold for all functions, status codes, handles and the
 * context. It includes worker.h (workers, completions, order), one_sided.h (regions, put, get,
 * atomics), messages.h (active and tagged messages), collectives.h, partitioned.h and diagnosis.h.
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
 *   - heddle_worker_progress, heddle_worker_wait, heddle_worker_wait_for and heddle_worker_arm
 *   - the blocking forms of operations (when the first attempt returns HEDDLE_AGAIN)
 *   - heddle_flush, heddle_quiet and heddle_worker_close (while operations are outstanding)
 *   - heddle_fence (when something is outstanding)
 *   - heddle_counter_wait, heddle_signal_wait, heddle_recv_wait, heddle_get_wait and
 *     heddle_fetch_atomic_wait (until the awaited value or message is there)
 *   - heddle_run_tasks, and heddle_context_progress (on the workers that helpers may advance)
 *   - heddle_partitioned_test, heddle_partitioned_wait and heddle_parrived (on their worker)
 *   - heddle_context_leave (on all workers of the context)
 *   - while they wait for other ranks: heddle_context_barrier, heddle_context_exchange,
 *     heddle_region_exchange, calls that make teams, collectives (on the workers that helpers may
 *     advance, and on exclusive ones that the calling thread has opened, or was the last to use)
 * No other call does. Inside a NETWORK handler, a completion callback or a function run by
 * heddle_run_on_engine, a call that would wait or make progress, on any worker, returns
 * HEDDLE_ERR_STATE: the lists of errors call this "inside a handler". USER handlers may do both.
 * Direct operations need no progress at either side.
 * A call that waits spins, then yields its core, and sleeps once it has waited for a millisecond.
 * Messages to its worker wake it, and so does what other ranks do for a collective that it waits
 * for. It notices other events, such as a direct put into the word that it waits for, at its next
 * look. Between looks it sleeps for a sixteenth of the time waited, but not longer than 1 ms. If
 * n > 5 ranks share a core, this limit is n * 0.2 ms, and never more than 100 ms. Where nothing but
 * such a message or step can end the wait, it sleeps as long as it has waited, up to 20 ms.
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
#define HEDDLE_VERSION_MINOR 3
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
   * HEDDLE_TAG_CREDIT_BYTES, HEDDLE_AM_USER_BYTES, HEDDLE_NETWORK_WINDOW_BYTES) */
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

/* The message of this thread's last call that returned an error: what went wrong, with the values,
 * and what to do about it. Never null; "" if there was none. Valid until this thread's next failing
 * call. */
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
 * Errors: CONFIG (a variable that cannot be parsed or is out of its range, an unknown transport, or
 * another transport than that of a rank on another node), ARGUMENT (options.size, an unknown
 * bootstrap), HANDLE and RANK (of an inproc job), BOOTSTRAP, VERSION, PROTOCOL, SYSTEM,
 * NO_MEMORY. */
HEDDLE_API heddle_status heddle_context_join(const heddle_context_options* options, heddle_context* context);

/* Collective. Waits for the operations of all workers (as heddle_quiet), then until every rank of
 * the job leaves too, then closes the context and everything opened on it. Workers make progress
 * meanwhile, so no other thread may be in a call on this context. It does not wait for ranks that
 * have died or left before; it returns HEDDLE_DONE nevertheless. After a barrier that timed out,
 * leave first finishes that barrier. Leave does not report errors of operations without a
 * completion: call heddle_quiet before. Messages that have not been handled or received are
 * dropped: call heddle_context_barrier with the worker before. A long tagged message is an
 * operation of the sender until its receiver has fetched it: leave waits until it is received.
 * How long: leave waits for a living rank until that rank leaves, however late. Once all ranks
 * leave, operations that have not moved for 30 s (in a job of one rank 2 s) are cancelled: they
 * wait for something that no rank will do any more, such as posting a receive or opening a worker.
 * They complete with CANCELLED, and a warning names the worker. Any operation that moves on this
 * rank's workers meanwhile, its own or a peer's, prolongs that time, by 5 minutes at most. A rank
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
 * `worker` more often than on others; {0}: on none more often. Over shared memory and with at most
 * 64 ranks it takes microseconds from a job's third collective on; otherwise it goes through the
 * launcher (tens to hundreds of microseconds with few ranks, about 1 s with 1024 ranks on two
 * cores): use it for set-up, not in inner loops.
 * Errors: PEER_FAILED (a rank died or left; every living rank gets this, once all living ranks have
 * arrived), TIMEOUT (this rank counts as arrived; call again to continue the wait), STATE (inside a
 * handler, or another thread is in a collective of this context), ARGUMENT (the worker belongs to
 * another context), BOOTSTRAP (the launcher was lost). */
HEDDLE_API heddle_status heddle_context_barrier(heddle_context context, heddle_worker worker, int64_t timeout_ns);

/* Collective: every rank contributes `bytes` bytes (the same number everywhere, 1 byte to 1 MiB)
 * and receives those of all ranks, in rank order, in `all` (size × bytes). One exchange at a time
 * per context.
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

#ifdef __cplusplus
}
#endif

/* Workers, completions, and the order of operations. */
#include "heddle/worker.h" /* IWYU pragma: export */
/* Regions, put, get and atomics. */
#include "heddle/one_sided.h" /* IWYU pragma: export */
/* Active and tagged messages. */
#include "heddle/messages.h" /* IWYU pragma: export */
/* What a program tells reports about jobs that hang. */
#include "heddle/diagnosis.h" /* IWYU pragma: export */
/* Teams and collective operations. */
#include "heddle/collectives.h" /* IWYU pragma: export */
/* Partitioned send and receive. */
#include "heddle/partitioned.h" /* IWYU pragma: export */

#endif /* HEDDLE_HEDDLE_H */
