/* Heddle: active messages and tagged messages. Part of heddle.h, which includes it. */
#include "heddle/heddle.h" /* before the guard: it includes this part in its place */

#ifndef HEDDLE_MESSAGES_H
#define HEDDLE_MESSAGES_H

#ifdef __cplusplus
extern "C" {
#endif

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
  /* up to HEDDLE_AM_MAX_BYTES; a payload that exceeds one packet is sent in parts, or fetched by
   * the target */
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

/* heddle_am_class says what a handler may do. It must not throw: an exception ends the process
 * (std::terminate), and the other ranks see this as a failed peer. */
typedef void (*heddle_am_handler)(const heddle_am_arrival* message, void* arg);

/* One handler per number and context; null removes it. Register before peers may send (so before a
 * barrier): a message without a handler is dropped and counted. (A message of class USER looks for
 * its handler when its turn comes.) Any thread may call this, also while messages arrive: each
 * message gets one handler, with the argument that was registered with it. A handler that was
 * replaced or removed may still run, or begin to, after this call has returned, on threads that had
 * found it before. Keep the data that its argument points to until every thread that makes progress
 * on the context's workers has returned once from such a call. The call takes no memory, and
 * constant time, however often it is made.
 * Errors: ARGUMENT (handler number). */
HEDDLE_API heddle_status heddle_am_register(heddle_context context, uint32_t handler, heddle_am_handler fn, void* arg);

/* Makes progress once, then runs handlers of USER messages that have arrived at the worker: as many
 * as are there, `most` (> 0) at most. If there is none, it makes progress until one comes or the
 * time is over. Any thread that may use the worker may call it; in the sharing modes for several
 * threads, several may at a time. Returns how many handlers ran (0: the time is over), or a
 * negative heddle_status. Errors: STATE (inside a NETWORK handler or a completion callback),
 * ARGUMENT (most). */
HEDDLE_API int heddle_run_tasks(heddle_worker worker, uint32_t most, int64_t timeout_ns);

/* Sends an active message. No order is guaranteed between messages, or between messages and puts,
 * except by fence.
 *
 * Long payloads (more than HEDDLE_AM_EAGER_BYTES; `heddle info` tells the default of each
 * transport) are not copied here (rendezvous): the target fetches them from this process's memory
 * when it has room, while this process may compute. Only then may the source be reused, so
 * HEDDLE_WHEN_LOCAL and HEDDLE_WHEN_REMOTE are the same. Long messages may use at most three
 * quarters of the worker's operations: beyond that AGAIN. A message that the target has no room for
 * now (HEDDLE_AM_REASSEMBLY_BYTES) waits for room; a message of class USER waits for handlers
 * there.
 *
 * Errors: RANK (no such rank; a worker number that no worker can have), ARGUMENT (handler number,
 * null with a length, a counter of another worker or context), SIZE (header or payload too long),
 * HANDLE (worker or counter), PEER_FAILED, STATE (the blocking form inside a handler, if it would
 * have to wait). Reported by the completion, flush or quiet: PEER_FAILED, NO_MEMORY (the parts of
 * large messages exceed the target's HEDDLE_AM_REASSEMBLY_BYTES, or those of one rank half of it;
 * one long message exceeds it), CANCELLED (the target's worker was closed before a large message
 * had arrived, or this worker was). A message that is not long is dropped without an error if its
 * worker was closed. So is a message without a handler. */
HEDDLE_API heddle_status heddle_try_am(heddle_worker worker, heddle_peer target, const heddle_am_message* message,
                                       const heddle_completion* completion);
HEDDLE_API heddle_status heddle_am(heddle_worker worker, heddle_peer target, const heddle_am_message* message,
                                   const heddle_completion* completion);

/* ---- tagged messages ------------------------------------------------------------------------- */

/* The receiver says where a message goes: the message matches the earliest posted receive that fits
 * it, or waits for one. If several messages of one worker to one worker fit the same receive, they
 * are received in the order of sending, whatever their lengths. If several receives fit the same
 * message, they take messages in the order of posting. (In the sharing modes for several threads,
 * the order is that in which the calls took place.) There is no order between tagged messages and
 * active messages.
 *
 * Memory. An unexpected message (no posted receive fits it yet) is kept in the receiving worker's
 * memory, up to HEDDLE_TAG_CREDIT_BYTES for each sending worker. A message counts its length and
 * 176 bytes, rounded up to a multiple of 64, 256 bytes at least. When these credits are used up,
 * sends to that worker get AGAIN until something is received there; heddle_send of 2 KiB or more
 * tries for a while, and then sends the message as a long one. A long message counts 256 bytes.
 * Long messages have credits of their own, as many again, so two workers may both send before they
 * receive. A worker has at most three quarters of HEDDLE_WORKER_OPERATIONS of long messages under
 * way. If the receiver's memory is exhausted before that, the message is dropped, counted and
 * logged there, and not received; the sender of a long message gets NO_MEMORY.
 * Long messages (more than HEDDLE_TAG_EAGER_BYTES; by default, on one machine, more than 512 KiB,
 * or half of HEDDLE_TAG_CREDIT_BYTES if less, over networks more than one packet) go from buffer
 * to buffer once the receive is posted (rendezvous), so the sending and the receiving worker both
 * make progress until the message is complete. heddle_send also sends a message of more than 8 KiB
 * as a long one if there is no room on the way. So flush and quiet after a send of more than 8 KiB
 * may wait until it is received. A shorter message of more than 16 KiB goes in parts on one
 * machine: its sender makes progress until all have left, and its receiver until all have come. */

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
  /* HEDDLE_POSTED: the receive waits, or data is on its way. Otherwise its outcome, or the result
   * of the call that should have posted it (HEDDLE_AGAIN, an error). While another thread may be
   * inside the worker, read it only after the completion, by heddle_recv_wait, or by an atomic load
   * with acquire: once the status is not POSTED, the receive is the program's again */
  heddle_status status;
  /* status DONE or TRUNCATED: the source of the message; PEER_FAILED or CANCELLED: the source that
   * the receive waited for */
  heddle_peer source;
  uint64_t tag;
  uint64_t bytes;       /* the message's length, also if the buffer was shorter */
  uint64_t library[20]; /* used by the library only */
} heddle_receive;

/* Sends `bytes` bytes with a tag. heddle_send, too, waits only until the message is accepted: after
 * HEDDLE_POSTED the source belongs to the library until the completion. Completion: LOCAL, the
 * source may be reused; REMOTE, the message is in the target's memory (a long one: received);
 * MATCHED, a receive has taken the message. Such a message is a long one, whatever its length, and
 * the call never returns DONE. It completes when it was received, also by a receive that truncates
 * it, or when it was claimed and dropped. Flush, quiet and fence wait for that. It keeps its place
 * in the order of messages. AGAIN also while long messages under way use three quarters of the
 * worker's operations (HEDDLE_WORKER_OPERATIONS): the other operations are reserved for fetching
 * messages of its peers. Errors: RANK, ARGUMENT (null with a length, a counter of another worker or
 * context), HANDLE, SIZE (more than 2^56 bytes), PEER_FAILED, CANCELLED (the target worker was
 * closed), NO_MEMORY (a long message needs a region), STATE (the blocking form inside a handler, if
 * it would have to wait). Reported by the completion, flush or quiet: PEER_FAILED, CANCELLED (the
 * target or this worker was closed before a long message was received), PROTOCOL, NO_MEMORY. */
HEDDLE_API heddle_status heddle_try_send(heddle_worker worker, heddle_peer target, uint64_t tag, const void* data,
                                         size_t bytes, const heddle_completion* completion);
HEDDLE_API heddle_status heddle_send(heddle_worker worker, heddle_peer target, uint64_t tag, const void* data,
                                     size_t bytes, const heddle_completion* completion);

/* Posts a receive into data[bytes]. DONE: a message was there, *receive describes it; no completion
 * follows. POSTED: the receive waits; receive->status and the completion (may be null) tell its
 * outcome. Flush, quiet and fence do not wait for receives. Without a completion, wait by
 * heddle_recv_wait. Both forms return when the receive is posted; AGAIN and waiting concern only
 * the worker's command queue (offload, delegate, auto) or a busy worker (shared; auto: while a
 * helper is inside).
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
 * with CANCELLED if not with another outcome; see receive->status). */
HEDDLE_API heddle_status heddle_recv_wait(heddle_worker worker, heddle_receive* receive, int64_t timeout_ns);
/* Cancels a posted receive: it completes with CANCELLED, and its completion runs in this call.
 * Nothing happens if a message has matched it already. `receive` was passed to heddle_try_recv on
 * this worker, and its memory is still valid. DONE; try_: AGAIN if another thread is inside the
 * worker. Errors: STATE (the blocking form inside a handler, if it would wait). */
HEDDLE_API heddle_status heddle_try_recv_cancel(heddle_worker worker, heddle_receive* receive);
HEDDLE_API heddle_status heddle_recv_cancel(heddle_worker worker, heddle_receive* receive);

/* Looks for an unexpected message. DONE: found->source, tag and bytes describe the message that
 * such a receive would take. AGAIN: there is none (or another thread is inside the worker); make
 * progress. The call makes no progress itself. PEER_FAILED: there is none, and the rank that the
 * source names has failed. With any source the call returns AGAIN in this case, as receives from
 * any source go on waiting.
 * Other errors: as for heddle_try_recv. */
HEDDLE_API heddle_status heddle_try_probe(heddle_worker worker, const heddle_wanted* wanted, heddle_receive* found);
/* As heddle_try_probe. It also takes the message out of matching: no other receive gets it. Receive
 * it by heddle_try_recv_claimed with the same `found`; until then it counts as kept. */
HEDDLE_API heddle_status heddle_try_claim(heddle_worker worker, const heddle_wanted* wanted, heddle_receive* found);
/* Receives a claimed message; as heddle_try_recv. data null, bytes 0: the message is dropped, and
 * the call returns DONE.
 * Errors: as for heddle_try_recv; ARGUMENT (no message was claimed with it on this worker). */
HEDDLE_API heddle_status heddle_try_recv_claimed(heddle_worker worker, void* data, size_t bytes,
                                                 heddle_receive* claimed, const heddle_completion* completion);
HEDDLE_API heddle_status heddle_recv_claimed(heddle_worker worker, void* data, size_t bytes, heddle_receive* claimed,
                                             const heddle_completion* completion);

#ifdef __cplusplus
}
#endif
#endif /* HEDDLE_MESSAGES_H */
