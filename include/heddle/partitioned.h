/* Heddle: partitioned send and receive. Part of heddle.h, which includes it.
 *
 * One message that is made in parts, by many threads: each marks its part ready (heddle_pready),
 * and a part leaves as soon as it is ready. The receiver may begin with a part when it has come
 * (heddle_parrived), before the rest has. Both sides are made once (heddle_psend_init,
 * heddle_precv_init) and run again and again: start, parts, wait. It is what MPI-4 calls
 * partitioned communication, by the same names.
 *
 * Matching.  A send matches a receive by their workers and the tag: the first psend_init of a
 * worker to a worker with a tag matches that one's first precv_init from it with that tag, the
 * second the second, and so on. These tags are apart from those of heddle_send. Neither call waits
 * for the other side; whichever comes first is kept. Once matched, two sides stay together until
 * they are freed, and run n of one is run n of the other. The two sides may cut the message
 * differently: the number of partitions is each side's own, the bytes in all have to agree.
 *
 * A run.  heddle_partitioned_start at both sides, in any order. The sender marks each part ready
 * once; it leaves then if the receiver has started this run, else when it learns of that. The run
 * ends for the sender when all parts are complete at the receiver, for the receiver when all parts
 * are there.
 *
 * Memory.  `data` belongs to the operation between init and free: it may not be released. Between
 * start and the end of a run the sender does not write a part that is marked ready; the receiver
 * reads a part only after it has arrived, and writes none. Data of the receiver in a region
 * (heddle_region_alloc, or registered) is reached there; other memory is registered at init. In
 * allocated memory the sender stores directly, where the transport can (see "Regions"), without the
 * receiver doing anything.
 *
 * Threads.  heddle_pready and heddle_parrived may be called by any number of threads at once, each
 * for other parts, as far as the worker's sharing mode lets them: with an exclusive worker by its
 * one thread, in the other modes by any. They must have seen the start of the run (a join, a
 * barrier, a task's begin sees to that). Of init, start, test, wait and free one thread at a time
 * calls one for each handle.
 *
 * Progress.  heddle_partitioned_test, heddle_partitioned_wait and heddle_parrived make progress on
 * the worker (parrived only when the part is not there yet). Parts that had to wait, for the
 * receiver or for the transport, leave when anybody makes progress on the sender's worker: with
 * helpers (HEDDLE_PROGRESS) or an executor (offload) without a call of the program. Where memory is
 * not reached directly, the receiver's worker takes part in receiving as well. heddle_flush and
 * heddle_quiet do not wait for parts that have not left.
 *
 * Failure.  If the peer's rank dies, start, test and wait return PEER_FAILED, and so do pready and
 * parrived once it is known here; the buffer of a receive whose run has failed so is not used for
 * anything else until the sender knows as well. A side whose peer has freed its handle, or closed
 * its worker, gets CANCELLED from a run that cannot end without it. If the totals differ both sides
 * get ARGUMENT, from start, test or wait once they know of each other; nothing is moved. An
 * operation that has failed stays so: free it. If a worker is closed, or its context left, its
 * handles are closed, as if they had been freed. */
#ifndef HEDDLE_PARTITIONED_H
#define HEDDLE_PARTITIONED_H

#include "heddle/heddle.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct heddle_partitioned {
  uint64_t id;
} heddle_partitioned;

#define HEDDLE_MOST_PARTITIONS (1U << 20) /* of one operation */
/* sends of a worker that wait for their receive, for each worker they go to */
#define HEDDLE_MOST_UNMATCHED 1024

/* The sending side: `partitions` parts of `bytes` bytes each, one after the other in data, to the
 * receives of worker `target` with this tag. Local. With 0 bytes nothing but the arrival is told,
 * and data may be null.
 * Errors: ARGUMENT (data is null; no partitions), SIZE (more than HEDDLE_MOST_PARTITIONS, or than
 * 2^48 bytes in all), RANK (no such rank; a worker number that no worker can have), PEER_FAILED,
 * NO_MEMORY (also: HEDDLE_MOST_UNMATCHED sends wait at the target for a receive; make progress, or
 * let the target post some), STATE (inside a handler or callback). */
HEDDLE_API heddle_status heddle_psend_init(heddle_worker worker, const void* data, uint32_t partitions, size_t bytes,
                                           heddle_peer target, uint64_t tag, heddle_partitioned* send);
/* The receiving side, of what worker `source` sends to this worker with this tag. Local.
 * Errors: as for heddle_psend_init, and those of heddle_region_register. */
HEDDLE_API heddle_status heddle_precv_init(heddle_worker worker, void* data, uint32_t partitions, size_t bytes,
                                           heddle_peer source, uint64_t tag, heddle_partitioned* receive);

/* Begins a run; waits for no peer: DONE. A receiver's start tells the sender. Also inside a handler
 * or callback of its worker.
 * Errors: STATE (a run is under way: wait for it; a receive's, inside a handler or callback of
 * another worker), PEER_FAILED, CANCELLED (the peer has freed its side), ARGUMENT (the totals
 * differ), NO_MEMORY, PROTOCOL. */
HEDDLE_API heddle_status heddle_partitioned_start(heddle_partitioned operation);
/* Part `partition` of this run is ready: the sender does not touch it until the run has ended.
 * Waits for no peer: DONE. It takes no lock where the receiver is there and its memory is reached
 * directly. Any thread (see the top), also in a handler or callback; in one of another worker than
 * the send's, what the worker does not take now leaves with the next test or wait.
 * Errors: ARGUMENT (no such partition; a receive), STATE (marked in this run already; no run is
 * under way), and those of the run that are known (told by wait as well). */
HEDDLE_API heddle_status heddle_pready(heddle_partitioned send, uint32_t partition);
/* Parts low to high, high included. STATE: one of them was marked already; those before it are
 * marked now. */
HEDDLE_API heddle_status heddle_pready_range(heddle_partitioned send, uint32_t low, uint32_t high);
/* DONE: the receiver's part `partition` of this run is all there, and may be read (or no run was
 * begun yet, or the run is over). AGAIN: not yet. Any thread (see the top). Inside a handler it
 * makes no progress.
 * Errors: ARGUMENT (no such partition; a send), and how the run has failed. */
HEDDLE_API heddle_status heddle_parrived(heddle_partitioned receive, uint32_t partition);
/* Makes progress once. DONE: the run has ended (or none was begun). AGAIN: it goes on. Errors: how
 * the run has failed, which ends it: PEER_FAILED, CANCELLED, ARGUMENT (the totals differ),
 * NO_MEMORY, those of puts (see heddle_put_signal); STATE (inside a handler or callback). */
HEDDLE_API heddle_status heddle_partitioned_test(heddle_partitioned operation);
/* Makes progress until the run has ended, and returns as heddle_partitioned_test. A sender's run
 * does not end before all its parts are marked. Errors: also TIMEOUT (it goes on; call again). */
HEDDLE_API heddle_status heddle_partitioned_wait(heddle_partitioned operation, int64_t timeout_ns);
/* Between runs. Local; the peer can complete no run after it. A send that has no receive yet still
 * takes one, which then gets CANCELLED.
 * Errors: STATE (a run is under way; inside a handler or callback). */
HEDDLE_API heddle_status heddle_partitioned_free(heddle_partitioned operation);

#ifdef __cplusplus
}
#endif
#endif /* HEDDLE_PARTITIONED_H */
