/* Heddle: communication for programs in which every thread communicates.  The C API.
 *
 * Words.  A *context* is one process's membership in a job. A *worker* is one queue of communication; threads post
 * to workers. A *region* is memory that may be reached by others; a *remote region* names one of a peer's regions
 * (or one's own). A *remote address* is a remote region and an offset in bytes, never a bare pointer.
 *
 * Results.  Every function returns a heddle_status unless it says otherwise:
 *   HEDDLE_DONE    finished already; no completion will follow
 *   HEDDLE_POSTED  accepted; the completion follows (from a call that makes progress)
 *   HEDDLE_AGAIN   no resource now; nothing happened; make progress and try again, or do something else
 *   negative       an error; heddle_last_error() tells this thread what was wrong and what to do
 * Functions named heddle_try_… return at once. The same name without try_ makes progress on the worker until the
 * operation is accepted; it never returns HEDDLE_AGAIN.
 *
 * Threads.  Functions on a context, a region, a remote region or a counter may be called by any thread at any time,
 * unless they say otherwise. Functions on an exclusive worker may be called by one thread at a time; handing a worker
 * to another thread needs a happens-before edge of the program's own (a join, a mutex, a barrier).
 * Closing a handle while another thread still uses it is an error of the program.
 *
 * Progress.  A worker moves only while some thread is in a call that makes progress on it: heddle_worker_progress,
 * the blocking forms, flush, quiet and the waits. Direct memory operations (on regions a peer can map, the shm
 * transport) need no progress at either side.
 *
 * Ownership.  Memory passed to a call as a parameter block (options, shapes, messages, completions) may be reused on
 * return. Memory holding data (sources, destinations, segment lists) belongs to the operation until its completion,
 * or until the call returns HEDDLE_DONE.
 *
 * fork.  A child of fork() does not inherit the membership: all its handles are closed handles.
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

/* ---- status ------------------------------------------------------------------------------------------------------ */

typedef enum heddle_status {
  HEDDLE_DONE = 0,
  HEDDLE_POSTED = 1,
  HEDDLE_AGAIN = 2,
  HEDDLE_ERR_ARGUMENT = -1,    /* a null pointer or a value outside its domain */
  HEDDLE_ERR_HANDLE = -2,      /* a handle that is closed, of another type, or never was one */
  HEDDLE_ERR_RANK = -3,        /* no such rank or worker */
  HEDDLE_ERR_RANGE = -4,       /* the access leaves the region */
  HEDDLE_ERR_ALIGNMENT = -5,   /* atomics and signals need natural alignment */
  HEDDLE_ERR_SIZE = -6,        /* larger than a stated limit */
  HEDDLE_ERR_NO_MEMORY = -7,   /* memory or another bounded resource is exhausted for good */
  HEDDLE_ERR_UNSUPPORTED = -8, /* not available in this build, on this transport, or in this sharing mode */
  HEDDLE_ERR_PEER_FAILED = -9, /* the peer died or left the job */
  HEDDLE_ERR_TIMEOUT = -10,
  HEDDLE_ERR_CONFIG = -11,    /* a HEDDLE_* variable that cannot be parsed */
  HEDDLE_ERR_VERSION = -12,   /* the peer, launcher or packed bytes are of another version */
  HEDDLE_ERR_BOOTSTRAP = -13, /* the launcher could not be reached or broke off */
  HEDDLE_ERR_STATE = -14,     /* not allowed here, such as progress from inside a handler */
  HEDDLE_ERR_SYSTEM = -15,    /* a system call failed; the message names it and errno */
  HEDDLE_ERR_PROTOCOL = -16,  /* bytes from a peer or of a packed region that are not well formed */
  HEDDLE_ERR_CANCELLED = -17  /* the worker was closed under the operation */
} heddle_status;

/* The constant's name, such as "HEDDLE_ERR_RANGE"; "HEDDLE_STATUS_UNKNOWN" for other values. Never null. */
HEDDLE_API const char* heddle_status_name(heddle_status status);

/* What went wrong in this thread's last call that returned an error, with the values, and what to do about it.
 * Never null; "" if there was none. Valid until this thread's next failing call. */
HEDDLE_API const char* heddle_last_error(void);

/* The version of the library at run time. Any of the pointers may be null. */
HEDDLE_API void heddle_version(int* major, int* minor, int* patch);

/* ---- handles ----------------------------------------------------------------------------------------------------- */

/* Typed values, not pointers: copy them freely. {0} is the null handle. A closed handle stays invalid; its use is
 * answered with HEDDLE_ERR_HANDLE. */
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

#define HEDDLE_FOREVER ((int64_t)-1) /* as a timeout_ns */

/* ---- context ----------------------------------------------------------------------------------------------------- */

typedef struct heddle_context_options {
  size_t size;           /* sizeof(heddle_context_options), so that the structure can grow */
  const char* bootstrap; /* "auto" (or null), "local", "single", "inproc" */
  const char* transport; /* null: HEDDLE_TRANSPORT; "shm", "loopback", "fault+loopback", "fault+shm" */
  heddle_inproc_job job; /* for "inproc": the job, and which of its ranks this context is */
  uint32_t rank;
} heddle_context_options;

/* Joins the job that this process was started in: by `heddle run`, or a job of one if it was started by itself.
 * options may be null. Blocks until the launcher answers (not for the other ranks). Several contexts may live in one
 * process, but a process started by `heddle run` joins the launcher's job once.
 * Errors: CONFIG, BOOTSTRAP, VERSION, SYSTEM, NO_MEMORY, ARGUMENT (unknown bootstrap or transport). */
HEDDLE_API heddle_status heddle_context_join(const heddle_context_options* options, heddle_context* context);

/* Collective: waits until every living rank of the job leaves too, then closes the context and everything opened on
 * it. Workers make progress meanwhile, so no other thread may be in a call on this context. */
HEDDLE_API heddle_status heddle_context_leave(heddle_context context);

HEDDLE_API heddle_status heddle_context_rank(heddle_context context, uint32_t* rank);
HEDDLE_API heddle_status heddle_context_size(heddle_context context, uint32_t* size);

/* Collective over the job, through the launcher: for set-up, not for inner loops (tens of microseconds). One thread
 * of each rank calls it. While it waits it makes progress on `worker`; {0}: on none.
 * Errors: PEER_FAILED (a rank died; every living rank gets this), TIMEOUT (this rank has still arrived; call again to
 * go on waiting). */
HEDDLE_API heddle_status heddle_context_barrier(heddle_context context, heddle_worker worker, int64_t timeout_ns);

/* Collective: every rank gives `bytes` bytes (the same number everywhere, at most 1 MiB) and receives those of all
 * ranks, in rank order, in `all` (size × bytes). One exchange at a time per context. Errors as for the barrier. */
HEDDLE_API heddle_status heddle_context_exchange(heddle_context context, const void* mine, size_t bytes, void* all);

/* HEDDLE_DONE while `rank` is alive, HEDDLE_ERR_PEER_FAILED once it is known to have died or left. */
HEDDLE_API heddle_status heddle_context_peer_status(heddle_context context, uint32_t rank);

/* Ends the whole job: prints `message` (may be null) once with this rank's number, makes the launcher kill the other
 * ranks and exit with `code`, and exits this process with `code` (1–255; others become 1). Does not return, except for an
 * invalid handle. An inproc job marks every rank failed and aborts the process. */
HEDDLE_API heddle_status heddle_context_abort(heddle_context context, int code, const char* message);

/* A job of `size` ranks (1–1024) inside this process, for tests and simulations: give it to each of `size` contexts, each
 * joined by its own thread. close: after the contexts have left. */
HEDDLE_API heddle_status heddle_inproc_create(uint32_t size, heddle_inproc_job* job);
HEDDLE_API heddle_status heddle_inproc_close(heddle_inproc_job job);
/* Declares a rank dead, as the launcher does when a process dies. For tests of failure handling. */
HEDDLE_API heddle_status heddle_inproc_fail(heddle_inproc_job job, uint32_t rank);

/* ---- worker ------------------------------------------------------------------------------------------------------ */

typedef enum heddle_sharing {
  HEDDLE_SHARING_DEFAULT = 0,  /* what HEDDLE_SHARING says; exclusive unless set */
  HEDDLE_SHARING_EXCLUSIVE = 1 /* one thread at a time posts; no lock, no atomic read-modify-write on the path */
} heddle_sharing;

typedef struct heddle_worker_options {
  size_t size;
  heddle_sharing sharing;
} heddle_worker_options;

/* Opens a worker. The workers of a context are numbered 0, 1, 2, … in the order of opening; a peer's worker is named
 * by that number. Numbers are not reused. options may be null. Errors: NO_MEMORY (more than HEDDLE_MAX_WORKERS). */
HEDDLE_API heddle_status heddle_worker_open(heddle_context context, const heddle_worker_options* options,
                                            heddle_worker* worker);

/* Waits for the worker's operations (as heddle_quiet), then closes it. Messages that arrive for it later are dropped. */
HEDDLE_API heddle_status heddle_worker_close(heddle_worker worker);
HEDDLE_API heddle_status heddle_worker_index(heddle_worker worker, uint32_t* index);

/* Advances the worker: receives messages and runs their handlers, answers peers, moves and completes operations.
 * Returns how many events it handled (0: nothing to do), or a negative heddle_status. */
HEDDLE_API int heddle_worker_progress(heddle_worker worker);

typedef struct heddle_worker_stats {
  size_t size;   /* in: sizeof(heddle_worker_stats) */
  uint64_t puts; /* operations accepted, by kind (strided, lists and signals count as puts or gets) */
  uint64_t gets;
  uint64_t atomics;
  uint64_t messages; /* active messages accepted */
  uint64_t bytes;    /* data bytes of all accepted operations */
  uint64_t direct;   /* operations done as direct loads and stores */
  uint64_t again;    /* HEDDLE_AGAIN returned */
  uint64_t polls;    /* calls of progress */
  uint64_t received; /* active messages whose handler ran */
  uint64_t dropped;  /* arrivals refused: malformed, unknown handler, out of range */
  uint64_t failed;   /* operations completed with an error */
} heddle_worker_stats;
HEDDLE_API heddle_status heddle_worker_stats_read(heddle_worker worker, heddle_worker_stats* stats);

/* ---- completions ------------------------------------------------------------------------------------------------- */

/* Runs once, from a call that makes progress on the worker. It may post; it may not call what makes progress (that
 * returns HEDDLE_ERR_STATE). status: HEDDLE_DONE or an error such as HEDDLE_ERR_PEER_FAILED. */
typedef void (*heddle_callback)(void* arg, heddle_status status);

typedef enum heddle_when {
  HEDDLE_WHEN_REMOTE =
      0,                /* put: visible at the target. get, fetching atomics: result is here. message: delivered to the
                             target's memory, its handler will run when the target makes progress */
  HEDDLE_WHEN_LOCAL = 1 /* the source may be reused */
} heddle_when;

/* What happens when an operation is finished: fn(arg, status) if fn is set; counter raised by one if counter is set.
 * A null pointer to a completion, or both unset: nothing (flush or quiet tell when it is finished). */
typedef struct heddle_completion {
  heddle_callback fn;
  void* arg;
  heddle_counter counter;
  heddle_when when;
} heddle_completion;

typedef struct heddle_counter_options {
  size_t size;
  heddle_worker worker; /* set: only this exclusive worker's operations raise it, which spares an atomic instruction */
} heddle_counter_options;

/* A counter starts at 0 and is raised by one for each operation that finished well. Operations that failed are counted
 * apart, with the first error. options may be null. free: after the last operation that names it has completed. */
HEDDLE_API heddle_status heddle_counter_create(heddle_context context, const heddle_counter_options* options,
                                               heddle_counter* counter);
HEDDLE_API heddle_status heddle_counter_free(heddle_counter counter);
/* HEDDLE_DONE with the value; if operations have failed, the first one's error (value is still stored). */
HEDDLE_API heddle_status heddle_counter_read(heddle_counter counter, uint64_t* value);
HEDDLE_API heddle_status heddle_counter_reset(heddle_counter counter);
/* Makes progress on the worker until the counter has reached `value`, an operation that names it has failed (that
 * error), or the time is over (TIMEOUT). */
HEDDLE_API heddle_status heddle_counter_wait(heddle_worker worker, heddle_counter counter, uint64_t value,
                                             int64_t timeout_ns);

/* ---- regions ----------------------------------------------------------------------------------------------------- */

/* Memory of `bytes` bytes (> 0), zeroed, page-aligned, that peers on the node can map: operations on it are direct loads and
 * stores. */
HEDDLE_API heddle_status heddle_region_alloc(heddle_context context, size_t bytes, heddle_region* region);
/* The caller's memory. It must stay mapped until the region is released. */
HEDDLE_API heddle_status heddle_region_register(heddle_context context, void* address, size_t bytes,
                                                heddle_region* region);
/* After every peer's last operation on it. Allocated memory is returned; registered memory stays the caller's. */
HEDDLE_API heddle_status heddle_region_release(heddle_region region);
HEDDLE_API heddle_status heddle_region_address(heddle_region region, void** address, size_t* bytes);

#define HEDDLE_PACKED_REGION_BYTES 128 /* the most that pack writes */
/* The region's name as bytes, to be sent to any rank of the job by any means. *bytes: in the room, out the length. */
HEDDLE_API heddle_status heddle_region_pack(heddle_region region, void* buffer, size_t* bytes);
/* Errors: PROTOCOL (not the bytes of a region), VERSION, RANK, PEER_FAILED. */
HEDDLE_API heddle_status heddle_region_unpack(heddle_context context, const void* buffer, size_t bytes,
                                              heddle_remote_region* remote);
/* Collective: every rank gives a region and receives those of all ranks in all[size], its own included. */
HEDDLE_API heddle_status heddle_region_exchange(heddle_context context, heddle_region region,
                                                heddle_remote_region* all);
HEDDLE_API heddle_status heddle_remote_region_release(heddle_remote_region remote);
HEDDLE_API heddle_status heddle_remote_region_rank(heddle_remote_region remote, uint32_t* rank);
HEDDLE_API heddle_status heddle_remote_region_bytes(heddle_remote_region remote, uint64_t* bytes);

typedef struct heddle_remote {
  heddle_remote_region region;
  uint64_t offset; /* bytes from the region's start */
} heddle_remote;

/* A pointer for direct loads and stores to the remote address, or HEDDLE_ERR_UNSUPPORTED where it cannot be mapped. */
HEDDLE_API heddle_status heddle_remote_pointer(heddle_remote remote, void** address);

/* ---- put and get ------------------------------------------------------------------------------------------------- */

/* Copies `bytes` bytes from source to the remote address. Naturally aligned 1-, 2-, 4- and 8-byte puts and gets are single
 * accesses on direct memory. No order between operations except by fence, flush and quiet. completion may be null. */
HEDDLE_API heddle_status heddle_try_put(heddle_worker worker, const void* source, size_t bytes, heddle_remote target,
                                        const heddle_completion* completion);
HEDDLE_API heddle_status heddle_try_get(heddle_worker worker, void* target, size_t bytes, heddle_remote source,
                                        const heddle_completion* completion);
HEDDLE_API heddle_status heddle_put(heddle_worker worker, const void* source, size_t bytes, heddle_remote target,
                                    const heddle_completion* completion);
HEDDLE_API heddle_status heddle_get(heddle_worker worker, void* target, size_t bytes, heddle_remote source,
                                    const heddle_completion* completion);

/* `blocks` blocks of `block_bytes`; block i starts at i × local_stride / i × remote_stride bytes from the start. Strides are
 * at least block_bytes. */
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
/* Scatter (put) or gather (get) of `count` segments as one operation with one completion. The list itself must stay as
 * it is until the completion. */
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
/* A put whose signal is changed after its data is visible: who sees the signal (by heddle_signal_wait or an acquire load)
 * sees the data. */
HEDDLE_API heddle_status heddle_try_put_signal(heddle_worker worker, const void* source, size_t bytes,
                                               heddle_remote target, const heddle_signal* signal,
                                               const heddle_completion* completion);
HEDDLE_API heddle_status heddle_put_signal(heddle_worker worker, const void* source, size_t bytes, heddle_remote target,
                                           const heddle_signal* signal, const heddle_completion* completion);

typedef enum heddle_compare {
  HEDDLE_EQ = 0,
  HEDDLE_NE = 1,
  HEDDLE_GT = 2,
  HEDDLE_GE = 3,
  HEDDLE_LT = 4,
  HEDDLE_LE = 5
} heddle_compare;
/* Makes progress on the worker until *word (local memory, 8-byte aligned) compares true with `value` as unsigned numbers,
 * or TIMEOUT. Acquire. */
HEDDLE_API heddle_status heddle_signal_wait(heddle_worker worker, const uint64_t* word, heddle_compare compare,
                                            uint64_t value, int64_t timeout_ns);

/* ---- atomics ----------------------------------------------------------------------------------------------------- */

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

/* Atomic towards every other Heddle atomic on the same word, from any rank, and towards the owner's own atomic instructions
 * on allocated regions. The word is naturally aligned. 32-bit operations use the low half of operand, compare and result.
 * try_atomic: without result. COMPARE_SWAP is only in the fetching form; `compare` is ignored by the others. */
HEDDLE_API heddle_status heddle_try_atomic(heddle_worker worker, heddle_atomic_op op, heddle_remote target,
                                           uint64_t operand, const heddle_completion* completion);
HEDDLE_API heddle_status heddle_atomic(heddle_worker worker, heddle_atomic_op op, heddle_remote target,
                                       uint64_t operand, const heddle_completion* completion);

typedef struct heddle_fetch {
  uint64_t operand;
  uint64_t compare;
  void* result; /* receives the old value, 4 or 8 bytes; the operation owns it until the completion */
} heddle_fetch;
HEDDLE_API heddle_status heddle_try_fetch_atomic(heddle_worker worker, heddle_atomic_op op, heddle_remote target,
                                                 const heddle_fetch* fetch, const heddle_completion* completion);
HEDDLE_API heddle_status heddle_fetch_atomic(heddle_worker worker, heddle_atomic_op op, heddle_remote target,
                                             const heddle_fetch* fetch, const heddle_completion* completion);

/* ---- active messages --------------------------------------------------------------------------------------------- */

#define HEDDLE_AM_HANDLERS 1024   /* handler numbers 0 … 1023 */
#define HEDDLE_AM_HEADER_BYTES 64 /* the most a header may have */

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
  size_t payload_bytes; /* up to HEDDLE_AM_MAX_BYTES; above the eager limit it is split and reassembled */
} heddle_am_message;

typedef struct heddle_am_arrival {
  heddle_worker worker; /* where it arrived */
  heddle_peer source;
  uint32_t handler;
  uint32_t header_bytes;
  const void* header; /* header and payload are valid until the handler returns, 8-byte aligned, read-only */
  const void* payload;
  size_t payload_bytes;
} heddle_am_arrival;

/* Runs in the thread that makes progress on the worker. It must not block; it may post try_ operations, but not call what
 * makes progress (HEDDLE_ERR_STATE). It must not throw. */
typedef void (*heddle_am_handler)(const heddle_am_arrival* message, void* arg);

/* One handler per number and context; null takes it back. Register before peers may send (the barrier after joining). */
HEDDLE_API heddle_status heddle_am_register(heddle_context context, uint32_t handler, heddle_am_handler fn, void* arg);

/* Sends an active message. No order is guaranteed between messages, or between messages and puts, except by fence. */
HEDDLE_API heddle_status heddle_try_am(heddle_worker worker, heddle_peer target, const heddle_am_message* message,
                                       const heddle_completion* completion);
HEDDLE_API heddle_status heddle_am(heddle_worker worker, heddle_peer target, const heddle_am_message* message,
                                   const heddle_completion* completion);

/* ---- order and completion of everything ------------------------------------------------------------------------------ */

/* Operations posted on the worker after the fence take effect, at each target, after those posted before it. */
HEDDLE_API heddle_status heddle_fence(heddle_worker worker);
/* Waits (with progress) until all operations posted on the worker to `rank` are complete at the target. Returns the first
 * error of those among them that had no completion of their own to tell it. */
HEDDLE_API heddle_status heddle_flush(heddle_worker worker, uint32_t rank);
HEDDLE_API heddle_status heddle_try_flush(heddle_worker worker, uint32_t rank); /* HEDDLE_AGAIN: not yet */
/* The same for all ranks. */
HEDDLE_API heddle_status heddle_quiet(heddle_worker worker);
HEDDLE_API heddle_status heddle_try_quiet(heddle_worker worker);

#ifdef __cplusplus
}
#endif
#endif /* HEDDLE_HEDDLE_H */
