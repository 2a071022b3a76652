/* Heddle: partitioned send and receive. Part of heddle.h, which includes it.
 *
 * One message that many threads make in parts: each marks its part ready (heddle_pready), and a
 * part leaves as soon as it is ready. The receiver may begin with a part that has arrived
 * (heddle_parrived) before the others. Both sides are made once (heddle_psend_init,
 * heddle_precv_init) and run again and again: start, parts, wait. It is MPI-4's partitioned
 * communication, with the same names.
 *
 * Matching.  A send matches a receive by their workers and the tag: the first psend_init of worker
 * A to worker B with a tag matches B's first precv_init from A with that tag, the second matches
 * the second, and so on. These tags are separate from those of heddle_send. Neither call waits for
 * the other side; the side that comes first is kept. Matched sides stay together until they are
 * freed, and run n of one is run n of the other. The two sides may have different numbers of
 * partitions. The receiver may have more bytes in all than the sender. Then the sender's bytes go
 * to the beginning of the receiver's data, and the rest is not written. A part that gets none of
 * these bytes arrives with the last one.
 *
 * A run.  Both sides call heddle_partitioned_start, in any order. The sender marks each part ready
 * once; the part leaves then if the receiver has started this run, otherwise when the sender learns
 * of that start. The run completes for the sender when all parts are complete at the receiver, for
 * the receiver when all parts have arrived.
 *
 * Memory.  `data` belongs to the operation between init and free: it may not be released. During a
 * run the sender does not write a part that is marked ready; the receiver reads a part only after
 * it has arrived, and writes none. A receiver's data in a region (heddle_region_alloc, or
 * registered) is used as it is; init registers other memory. If the transport can, the sender
 * stores directly into allocated memory (see "regions" in one_sided.h), and the receiver does
 * nothing.
 *
 * Threads.  Any number of threads may call heddle_pready and heddle_parrived at once, for different
 * parts, if the worker's sharing mode allows it: with an exclusive worker only its thread, in the
 * other modes any thread. The start of the run must happen before these calls (a join, a barrier or
 * the begin of a task ensures that). One thread at a time calls init, start, test, wait or free of
 * a handle.
 *
 * Progress.  heddle_partitioned_test, heddle_partitioned_wait and heddle_parrived make progress on
 * the worker (parrived only when the part is not there yet). Parts that had to wait, for the
 * receiver or for the transport, leave when any thread makes progress on the sender's worker; with
 * helpers (HEDDLE_PROGRESS) or an executor (offload) no call of the program is needed. If the
 * sender does not store directly, the receiver's worker must make progress as well. heddle_flush
 * and heddle_quiet do not wait for parts that have not left.
 *
 * Failure.  If the peer's rank dies, start, test and wait return PEER_FAILED, and so do pready and
 * parrived once the death is known here. If the run of a receive has failed in this way, do not use
 * its buffer for anything else until the sender knows of the failure as well. A side whose peer has
 * freed its handle, or closed its worker, gets CANCELLED from a run that cannot complete without
 * the peer. If the sender has more bytes in all than the receiver, both sides get ARGUMENT, from
 * start, test or wait once they know of each other; nothing is moved. A failed operation stays
 * failed: free it. Closing a worker, or leaving its context, closes its handles as if they had been
 * freed. */
#include "heddle/heddle.h" /* before the guard: it includes this part in its place */

#ifndef HEDDLE_PARTITIONED_H
#define HEDDLE_PARTITIONED_H

#ifdef __cplusplus
extern "C" {
#endif

/* A handle, as those in heddle.h. */
typedef struct heddle_partitioned {
  uint64_t id;
} heddle_partitioned;

#define HEDDLE_MOST_PARTITIONS (1U << 20) /* of one operation */
/* sends of one worker to another that wait for their receives */
#define HEDDLE_MOST_UNMATCHED 1024

/* The sending side: `partitions` parts of `bytes` bytes each, one after the other in data, to the
 * receives of worker `target` with this tag. Local. With 0 bytes only the arrival is signalled, and
 * data may be null.
 * Errors: ARGUMENT (data is null; no partitions), SIZE (more than HEDDLE_MOST_PARTITIONS, or than
 * 2^48 bytes in all), RANK (no such rank; a worker number that no worker can have), PEER_FAILED,
 * NO_MEMORY (also: HEDDLE_MOST_UNMATCHED sends wait at the target for a receive; make progress, or
 * let the target post some), STATE (inside a handler or callback). */
HEDDLE_API heddle_status heddle_psend_init(heddle_worker worker, const void* data, uint32_t partitions, size_t bytes,
                                           heddle_peer target, uint64_t tag, heddle_partitioned* send);
/* The receiving side of a send by worker `source` to this worker with this tag. Local.
 * Errors: as for heddle_psend_init, and those of heddle_region_register. */
HEDDLE_API heddle_status heddle_precv_init(heddle_worker worker, void* data, uint32_t partitions, size_t bytes,
                                           heddle_peer source, uint64_t tag, heddle_partitioned* receive);

/* Begins a run; waits for no peer: DONE. A receiver's start notifies the sender. Also allowed
 * inside a handler or callback of its worker.
 * Errors: STATE (a run is under way: wait for it; start of a receive inside a handler or callback
 * of another worker), PEER_FAILED, CANCELLED (the peer has freed its side), ARGUMENT (more
 * bytes than the receiver has), NO_MEMORY, PROTOCOL. */
HEDDLE_API heddle_status heddle_partitioned_start(heddle_partitioned operation);
/* Part `partition` of this run is ready: the program does not touch it until the run has completed.
 * Waits for no peer: DONE. Takes no lock if the receiver has started and its memory is reached
 * directly. Any thread (see the top), also in a handler or callback. In a handler of another worker
 * than the send's, a part that the worker does not take now leaves with the next test or wait.
 * Errors: ARGUMENT (no such partition; a receive), STATE (marked in this run already; no run is
 * under way), and known errors of the run (wait reports them as well). */
HEDDLE_API heddle_status heddle_pready(heddle_partitioned send, uint32_t partition);
/* Parts low to high, high included. STATE: one of them was marked already; those before it are
 * marked now. */
HEDDLE_API heddle_status heddle_pready_range(heddle_partitioned send, uint32_t low, uint32_t high);
/* DONE: the receiver's part `partition` of this run has arrived completely, and may be read (or no
 * run was begun yet, or the run has completed). AGAIN: not yet. Any thread (see the top). Inside a
 * handler it makes no progress.
 * Errors: ARGUMENT (no such partition; a send), and the error of the run. */
HEDDLE_API heddle_status heddle_parrived(heddle_partitioned receive, uint32_t partition);
/* The bytes that a run moves. For a send these are all of its own bytes. For a receive they are the
 * bytes of the matched send, which are known when a run has completed; before that the number is 0.
 * Errors: ARGUMENT (bytes is null). */
HEDDLE_API heddle_status heddle_partitioned_bytes(heddle_partitioned operation, uint64_t* bytes);
/* Makes progress once. DONE: the run has completed (or none was begun). AGAIN: it goes on. Errors:
 * the error that ended the run: PEER_FAILED, CANCELLED, ARGUMENT (more bytes than the receiver
 * has), NO_MEMORY, those of puts (see heddle_put_signal); STATE (inside a handler or callback). */
HEDDLE_API heddle_status heddle_partitioned_test(heddle_partitioned operation);
/* Makes progress until the run has completed, and returns as heddle_partitioned_test. A sender's
 * run does not complete before all its parts are marked. Errors: also TIMEOUT (it goes on; call
 * again). */
HEDDLE_API heddle_status heddle_partitioned_wait(heddle_partitioned operation, int64_t timeout_ns);
/* Call it between runs. Local; after it the peer can complete no run. A freed send that is not
 * matched yet still matches a receive, which then gets CANCELLED.
 * Errors: STATE (a run is under way; inside a handler or callback). */
HEDDLE_API heddle_status heddle_partitioned_free(heddle_partitioned operation);

#ifdef __cplusplus
}
#endif
#endif /* HEDDLE_PARTITIONED_H */
