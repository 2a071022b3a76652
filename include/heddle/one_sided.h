/* Heddle: memory that peers can reach, and the one-sided operations on it: put, get and atomics.
 * Part of heddle.h, which includes it. */
#include "heddle/heddle.h" /* before the guard: it includes this part in its place */

#ifndef HEDDLE_ONE_SIDED_H
#define HEDDLE_ONE_SIDED_H

#ifdef __cplusplus
extern "C" {
#endif

/* ---- regions --------------------------------------------------------------------------------- */

/* How operations are executed. Peers on the node map allocated and adopted memory: the caller
 * executes every operation on it, and the owner need not do anything. Other registered memory of a
 * peer cannot be mapped: puts and gets use the kernel's copy where it is allowed. Worker 0 of the
 * owner serves all other operations: large transfers for which the kernel's copy is slower (they go
 * through bounce space), every transfer where the kernel forbids the copy, and all atomics and
 * signals. That worker must be open and make progress until they are complete. On loopback-messages
 * worker 0 serves every operation. A process's own memory is always direct on shm. */

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
   * memory. The bytes before and behind the whole pages stay ordinary registered memory: atomics
   * and signals there need the owner's progress */
  uint64_t adopt;
  /* not 0, with adopt: the memory begins at a page, and the rest of its last page is the caller's
   * too and moves with it, so all of the memory can be mapped. For memory that was allocated in
   * pages of its own: by mmap, or aligned_alloc with alignment and length multiples of the page */
  uint64_t whole_pages;
} heddle_region_options;

/* heddle_region_register with options; null: the defaults. Adopting memory moves it, and so does
 * the release of such a region: no thread may access the memory during either call. Data that a
 * thread writes meanwhile may be lost, or the call notices the write (STATE, nothing has changed).
 * The rest of the program's memory is safe. Only private anonymous memory that can be read and
 * written, such as malloc's, can be adopted, but no stack. If there is no whole page, or the
 * transport maps no memory of peers, the memory is only registered. Memory that is in a region of
 * another context must not be adopted. The child of a fork() has its own copy of pages that it has
 * written there. Pages that it has not written show the parent's contents, and after the release
 * any contents: the child should copy the data that it needs. A child of vfork(), _Fork() or
 * clone() shares the memory with the parent. While memory is adopted, MADV_DONTNEED does not empty
 * it, and locks (mlock) and advice have no effect on it. Released memory is private again, without
 * advice, locks and protection keys. If the program has unmapped or moved it before, the release
 * puts nothing there. If the system has no memory for it, it stays shared with the segment, and the
 * log says so. Release other regions of that memory first.
 * Errors: as for heddle_region_register; ARGUMENT (options->size; memory to adopt is in a region
 * already; whole_pages without adopt, or of memory within a page), UNSUPPORTED (memory to adopt is
 * of another kind), STATE (see above), SYSTEM. */
HEDDLE_API heddle_status heddle_region_register_with(heddle_context context, void* address, size_t bytes,
                                                     const heddle_region_options* options, heddle_region* region);
/* Call it only after every peer's last operation on the region. Allocated memory is freed;
 * registered memory stays the caller's. */
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
/* Makes a peer's region (or this rank's own) usable here, from the bytes that pack wrote. May wait
 * until the owner's transport is open.
 * Errors: PROTOCOL (not the bytes of a region, of another job, or a region of this rank that was
 * released), VERSION, RANK, PEER_FAILED, CONFIG (the owner uses another transport), NO_MEMORY,
 * SYSTEM. */
HEDDLE_API heddle_status heddle_region_unpack(heddle_context context, const void* buffer, size_t bytes,
                                              heddle_remote_region* remote);
/* Collective: every rank contributes a region and receives those of all ranks in all[size], its own
 * included. On an error no handle of all[] is open. In a job of more than HEDDLE_MEET_RANKS (64)
 * ranks a peer is met when its region is first accessed, not here: that access may return AGAIN,
 * and it reports any error of the peer. A blocking access inside a handler returns STATE if it
 * would have to wait, and may be tried again there. Deaths have the same outcome at all living
 * ranks: if a rank dies after all have exchanged, each living rank gets a handle for it, and
 * operations on that handle report PEER_FAILED.
 * Errors: as for heddle_context_exchange and heddle_region_unpack; ARGUMENT (a region of another
 * context). */
HEDDLE_API heddle_status heddle_region_exchange(heddle_context context, heddle_region region,
                                                heddle_remote_region* all);
/* Operations on it that are under way fail with HEDDLE_ERR_HANDLE, unless all their parts were
 * posted already. The region's resources are freed after the last of them. */
HEDDLE_API heddle_status heddle_remote_region_release(heddle_remote_region remote);
/* The owner's rank, and the region's length. */
HEDDLE_API heddle_status heddle_remote_region_rank(heddle_remote_region remote, uint32_t* rank);
HEDDLE_API heddle_status heddle_remote_region_bytes(heddle_remote_region remote, uint64_t* bytes);

typedef struct heddle_remote {
  heddle_remote_region region;
  uint64_t offset; /* bytes from the region's start */
} heddle_remote;

/* A pointer for direct loads, stores and atomic instructions to the remote address. Valid until the
 * remote region is released here or its context is left. It stays valid after the owner has died,
 * with the contents that its memory had then. It must not be used after the owner has released the
 * region. heddle_fence orders the program's stores through it; flush and quiet concern operations
 * only. After heddle_region_exchange in a large job the first call may wait until the owner has
 * been met. In a handler, where it cannot wait, it returns STATE in this case, and may be tried
 * again. Errors (then *address is null): UNSUPPORTED (it cannot be mapped here: use put and get),
 * PEER_FAILED (the owner has died or left, and it was not mapped before), RANGE, HANDLE (also:
 * released while the call waited); errors of the owner as for heddle_region_unpack. For adopted
 * memory it is a pointer within the whole pages (see heddle_remote_mapped). */
HEDDLE_API heddle_status heddle_remote_pointer(heddle_remote remote, void** address);
/* *mapped: 1 if all of the `bytes` bytes at the remote address are mapped, so that operations on
 * them are direct; else 0, also when the owner has died or left. The whole pages of adopted memory
 * are mapped. Until the owner has been met, this function waits and fails as heddle_remote_pointer
 * does. */
HEDDLE_API heddle_status heddle_remote_mapped(heddle_remote remote, size_t bytes, int* mapped);

/* ---- put and get ----------------------------------------------------------------------------- */

/* Copies `bytes` bytes from source to the remote address. Naturally aligned 1-, 2-, 4- and 8-byte
 * puts and gets are single accesses on direct memory. There is no order between operations except
 * by fence, flush and quiet. completion may be null. source or target may be null if there are no
 * bytes. Errors, of this and of every operation on remote memory below:
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
/* As heddle_get; it also waits, with progress, until the data is here. Returns DONE or the
 * operation's error. Direct memory is read at once. Errors: those that heddle_get returns or its
 * completion reports; STATE (inside a handler, where it is not direct: nothing has happened). */
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
 * and those of any rank through heddle_remote_pointer; on utofu it is not. The word is naturally
 * aligned. 32-bit operations use the low half of operand, compare and result. heddle_atomic returns
 * no result. COMPARE_SWAP exists only in the fetching form; the other operations ignore `compare`.
 * Errors: as for put and get; ALIGNMENT (the offset is no multiple of the width; for registered
 * memory the completion also reports it, if the address is no multiple of the width), ARGUMENT
 * (unknown op, COMPARE_SWAP without fetch, no result in fetch). */
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
/* As heddle_atomic; the old value is stored in *fetch->result. */
HEDDLE_API heddle_status heddle_try_fetch_atomic(heddle_worker worker, heddle_atomic_op op, heddle_remote target,
                                                 const heddle_fetch* fetch, const heddle_completion* completion);
HEDDLE_API heddle_status heddle_fetch_atomic(heddle_worker worker, heddle_atomic_op op, heddle_remote target,
                                             const heddle_fetch* fetch, const heddle_completion* completion);
/* As heddle_fetch_atomic; it also waits, with progress, until *fetch->result is there. Returns DONE
 * or the operation's error. Operations on direct memory are done at once. Errors: those that
 * heddle_fetch_atomic returns or its completion reports; STATE (inside a handler, where it is not
 * direct: nothing has happened). */
HEDDLE_API heddle_status heddle_fetch_atomic_wait(heddle_worker worker, heddle_atomic_op op, heddle_remote target,
                                                  const heddle_fetch* fetch);

#ifdef __cplusplus
}
#endif
#endif /* HEDDLE_ONE_SIDED_H */
