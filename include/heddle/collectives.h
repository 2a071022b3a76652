/* Heddle: teams of ranks, and the operations that all members of a team make together. Part of
 * heddle.h, which includes it.
 *
 * Words.  A *team* is some of the job's ranks in an order; its members are numbered 0 to size - 1,
 * and a rank that is passed to an operation of a team is such a number. All members of a team call
 * a *collective operation*: they call the same operations of that team in the same order, with
 * arguments that agree. These must agree: operation, bytes or count, root, reduction, algorithm and
 * segment_bytes; buffers need not.
 *
 * Three forms.
 *   heddle_broadcast(…)                      blocking: returns when this member's part is done
 *   heddle_broadcast_start(…, &collective)   nonblocking: begins, returns HEDDLE_POSTED;
 *                                            heddle_collective_test or _wait reports the
 *                                            completion, and closes the handle
 *   heddle_broadcast_init(…, &collective)    persistent: makes everything ready once; then
 *                                            heddle_collective_start and _wait (or _test) any
 *                                            number of times; then heddle_collective_free. A start
 *                                            exchanges nothing, registers nothing and allocates
 *                                            nothing: use this form in inner loops
 * Several operations of a team may be under way at once, in any form. All members begin them in the
 * same order; only the start of a persistent operation may come at any place among the starts of
 * others.
 *
 * Memory.  Buffers belong to the operation from its start to its completion (persistent: they may
 * not be released between init and free, nor touched between a start and its completion).
 * Persistent and nonblocking operations reach memory of regions that the members allocated
 * (heddle_region_alloc) directly; other memory costs one more copy, and so do the blocking forms.
 * Buffers may not overlap, unless in place:
 *   reduce, allreduce, scan              send == receive
 *   allgather; gather at the root        send is this member's block of receive
 *   scatter at the root                  receive is this member's block of send
 *   allgatherv; gatherv, scatterv at the root   likewise
 * A buffer that a member does not need (receive of a reduce or gather, send of a scatter, at
 * members other than the root) is ignored and may be null. With 0 bytes nothing is moved and
 * buffers may be null; members may still wait for each other.
 *
 * Threads.  Any thread may call operations of a team, one at a time for each team; the order of the
 * calls is the order of the operations. Different teams are independent. One thread at a time may
 * use a collective handle.
 *
 * Progress.  Blocking forms, heddle_collective_wait, heddle_collective_test and
 * heddle_context_progress move operations on, and so do helpers (HEDDLE_PROGRESS);
 * heddle_worker_progress does not. Conversely, a thread that waits here makes progress on workers
 * of the context (heddle.h, "Progress"), its own exclusive ones included: peers get answers (to a
 * long message, a get or an atomic that is not direct), and handlers may run. Exclusive workers of
 * other threads do not move until these threads make progress, or helpers serve them.
 * heddle_team_set_waits names a worker that gets it more often. heddle_context_leave does not look
 * for members that wait in a team's operation: all members complete their operations before any of
 * them leaves.
 *
 * Failure.  If a member dies, every member that cannot finish without it gets PEER_FAILED, in this
 * operation and in later ones of the team. Continue in a team without it that was made before, or
 * that is built from offers of the living (heddle_team_build): no team can be made from a parent,
 * or a job, that has the dead member. Members that have not noticed the death yet may still access
 * buffers of the failed operation: until they have got PEER_FAILED too, do not use these buffers
 * for anything else. When a member dies during a call that makes a team, some of the living may get
 * the team, others PEER_FAILED: operations on such a team wait for ever, so the survivors make
 * another one, from a team that all of them have.
 * Arguments that differ between members are an ARGUMENT error at all of them. The message names a
 * member and its values. Nothing has been moved then, and the team stays usable. Persistent and
 * nonblocking operations always find such differences (nonblocking ones report them on completion).
 * The blocking form finds them if all members call it with arguments that they have not used
 * before. With arguments used before it compares nothing: members that do not agree may then wait
 * for ever, or get the data of another call. If the network's barrier gates run the operation
 * (uTofu), the difference is an ARGUMENT error, and the team's later blocking calls of few bytes
 * fail with it. An argument that is wrong at one member only (a null pointer, a closed handle) is
 * an error at that member, and its call has not taken place: the others wait until it makes a valid
 * call.
 *
 * Errors: inside a NETWORK handler or a completion callback, all functions that wait or make
 * progress return STATE: those that make teams and operations, the blocking and nonblocking forms,
 * heddle_collective_test and _wait. All collective functions may return PEER_FAILED. These two are
 * not listed again. */
#include "heddle/heddle.h" /* before the guard: it includes this part in its place */

#ifndef HEDDLE_COLLECTIVES_H
#define HEDDLE_COLLECTIVES_H

#ifdef __cplusplus
extern "C" {
#endif

/* Handles, like those in heddle.h. */
typedef struct heddle_team {
  uint64_t id;
} heddle_team;
typedef struct heddle_collective {
  uint64_t id;
} heddle_collective;

/* ---- teams ----------------------------------------------------------------------------------- */

#define HEDDLE_NO_COLOUR UINT32_MAX /* colour for heddle_team_split: in no team */
#define HEDDLE_NO_RANK UINT32_MAX   /* in place of a rank: there is none */

/* A team of all ranks of the job, with their numbers. Collective over the job; one thread of each
 * rank calls it. Each call makes a new team. */
HEDDLE_API heddle_status heddle_team_world(heddle_context context, heddle_team* team);
/* Collective over the parent: members of one colour make a team, in the order of their keys, then
 * of their numbers in the parent. Colour HEDDLE_NO_COLOUR: this rank is in no team; *team is the
 * null handle, and the call returns HEDDLE_DONE. */
HEDDLE_API heddle_status heddle_team_split(heddle_team parent, uint32_t colour, int64_t key, heddle_team* team);
/* Collective over the parent, with the same arguments everywhere: the members start, start +
 * stride, …, `size` of them, in that order. The stride may be negative. Other members of the parent
 * get the null handle, and HEDDLE_DONE.
 * Errors: RANK (a member that the parent does not have), ARGUMENT (size 0; stride 0 with a size
 * above 1). */
HEDDLE_API heddle_status heddle_team_strided(heddle_team parent, uint32_t start, int32_t stride, uint32_t size,
                                             heddle_team* team);
/* Collective over the parent, with the same arguments everywhere: the members ranks[0], ranks[1], …
 * in that order. Other members as above.
 * Errors: RANK (a member that the parent does not have), ARGUMENT (count 0, a member twice). */
HEDDLE_API heddle_status heddle_team_subset(heddle_team parent, const uint32_t* ranks, uint32_t count,
                                            heddle_team* team);

/* A team of any ranks of the job without a parent, for a program that has other means to carry a
 * few bytes from each member to all others. Each member makes an offer, which writes a record of
 * HEDDLE_TEAM_RECORD_BYTES bytes; the program gives the records of all members to all of them; each
 * member builds the team. All three calls are local: they wait for nobody and may be made by any
 * thread, several at once; heddle_team_world has been called before in this context.
 *   heddle_team_offer(context, size, mine);
 *   (each member gets the records of all, by messages, say)
 *   heddle_team_build(context, ranks, size, records, &team);
 * A member may begin operations of the team as soon as it has built it, whether or not others have:
 * these find what came when they build theirs. Nobody tells a member that another could not build
 * the team: it would wait in its first operation for ever. So if a call may fail at one member
 * alone, the members must tell each other afterwards whether all have built the team; if one has
 * not, the others free the team and do not use it. */
#define HEDDLE_TEAM_RECORD_BYTES 64
/* Reserves the part of this rank's memory (HEDDLE_COLLECTIVE_BYTES) that a team of `size` members
 * needs, until a team built with the offer is freed or the offer is withdrawn. It also writes the
 * record, for one team. The record may lie anywhere. With NO_MEMORY and STATE a record is written,
 * too: give it to the others nevertheless, so that heddle_team_build fails with this error at all
 * members.
 * Errors: NO_MEMORY (free teams, or raise HEDDLE_COLLECTIVE_BYTES), STATE (heddle_team_world has
 * not been called), ARGUMENT (size 0, or above the number of ranks). */
HEDDLE_API heddle_status heddle_team_offer(heddle_context context, uint32_t size, void* record);
/* Gives back an offer of this rank that no heddle_team_build has got, and that no other member will
 * use. The call also returns DONE for the record of an offer that has failed.
 * Errors: ARGUMENT (it is no offer of this context, or was used or withdrawn before). */
HEDDLE_API heddle_status heddle_team_withdraw(heddle_context context, const void* record);
/* Makes the team of ranks[0], ranks[1], … of the job, in that order, one of which is this rank.
 * records: size x HEDDLE_TEAM_RECORD_BYTES bytes, in the order of the ranks. All members pass the
 * same. This rank's offer is used up, also by an error. An error in the arguments or records gives
 * its memory back; after another error its memory stays in use until the context is left, since
 * other members may have begun to use the team. The offer stays only if an argument is null or size
 * out of range, this rank is not among the ranks, or its record is not there as it was written.
 * Errors: the error that kept a member from offering; STATE (heddle_team_world has not been
 * called); RANK (no such rank); ARGUMENT (a rank twice, this rank missing or its offer used before,
 * records in another order or of a team of another size); PROTOCOL (no record, or one of another
 * job); NO_MEMORY. */
HEDDLE_API heddle_status heddle_team_build(heddle_context context, const uint32_t* ranks, uint32_t size,
                                           const void* records, heddle_team* team);

/* This rank's number in the team, and how many members it has. */
HEDDLE_API heddle_status heddle_team_rank(heddle_team team, uint32_t* rank);
HEDDLE_API heddle_status heddle_team_size(heddle_team team, uint32_t* size);
/* *to_rank: the number in `to` of member `rank` of `from`; HEDDLE_NO_RANK: it is no member of `to`.
 * Both are teams of one context.
 * Errors: RANK (`from` has no such member), ARGUMENT (teams of different contexts). */
HEDDLE_API heddle_status heddle_team_translate(heddle_team from, uint32_t rank, heddle_team to, uint32_t* to_rank);
/* Local. Before a member frees the team, all members have completed their operations on it (a
 * barrier ensures that), and none begins another. Leaving the context frees its teams.
 * Errors: STATE (operations of the team are open: wait for nonblocking ones, free persistent
 * ones). */
HEDDLE_API heddle_status heddle_team_free(heddle_team team);

/* How threads wait in calls on a team: for a library on top of Heddle. */
typedef struct heddle_team_waits {
  size_t size; /* sizeof(heddle_team_waits); see heddle.h */
  /* It gets progress more often than the other workers (see Progress), whatever its sharing mode
   * and no_help: for peers that need its answers soon. A message to it ends a sleep. Threads that
   * wait on the team must be such as may use the worker. 0: none. */
  heddle_worker worker;
  /* Called as often as the worker gets progress, by the thread that waits, outside of workers:
   * makes progress on what only the caller knows of. It may post, and call what returns at once;
   * blocking calls on the team, and heddle_team_free of it, return STATE. Returns a positive number
   * if something has moved; a negative one if nothing has, though there is something: the thread
   * sleeps for moments only; 0: there is nothing that no message to the worker would tell of.
   * Null: the same. */
  int (*progress)(void* arg);
  /* In reports: what is awaited, as for heddle_wait_note; facts->call is set already. Null, or
   * cause COLLECTIVE and no team: the team's operation. */
  void (*tell)(void* arg, struct heddle_wait_facts* facts);
  void* arg;
} heddle_team_waits;

/* From now on blocking calls on the team, and heddle_collective_wait for its operations, wait so.
 * Local: members may differ. Null: as at first. The caller sees to it that no call on the team is
 * under way, and that the worker is not closed before the team is freed, or is told of another.
 * Errors: HANDLE (team, worker), ARGUMENT (the worker is of another context; size). */
HEDDLE_API heddle_status heddle_team_set_waits(heddle_team team, const heddle_team_waits* waits);

/* ---- reductions ------------------------------------------------------------------------------ */

typedef enum heddle_type {
  HEDDLE_INT8 = 1,
  HEDDLE_INT16 = 2,
  HEDDLE_INT32 = 3,
  HEDDLE_INT64 = 4,
  HEDDLE_UINT8 = 5,
  HEDDLE_UINT16 = 6,
  HEDDLE_UINT32 = 7,
  HEDDLE_UINT64 = 8,
  HEDDLE_FLOAT = 9,
  HEDDLE_DOUBLE = 10,
  HEDDLE_COMPLEX_FLOAT = 11, /* two floats: real, imaginary */
  HEDDLE_COMPLEX_DOUBLE = 12
} heddle_type;

typedef enum heddle_operator {
  HEDDLE_SUM = 1,     /* every type; integers wrap around */
  HEDDLE_PRODUCT = 2, /* every type; integers wrap around */
  HEDDLE_MIN = 3,     /* integers, float, double: NaN if one is NaN; -0 is less than +0 */
  HEDDLE_MAX = 4,
  HEDDLE_BAND = 5, /* integers: bit by bit */
  HEDDLE_BOR = 6,
  HEDDLE_BXOR = 7,
  HEDDLE_LAND = 8, /* integers: zero is false, the result is 0 or 1 */
  HEDDLE_LOR = 9,
  HEDDLE_LXOR = 10
} heddle_operator;

/* Combines `bytes` bytes, a multiple of element_bytes, of `in` into `inout`, element by element;
 * they do not overlap. It must be associative and commutative: the ranks, the sizes and the
 * algorithm determine which partial results are combined and which one is the left operand; the
 * order of arrival does not. It runs on any thread of this process that moves the operation on, one
 * call at a time for each operation; it must not call Heddle. Elements outside the program's memory
 * have the alignment that any type of element_bytes bytes may need (16 at most). */
typedef void (*heddle_combine)(void* inout, const void* in, size_t bytes, const void* arg);

/* How elements are combined: by `op` of `type`, or by a function. The results of an allreduce are
 * the same on all members to the last bit (except for the bits of a NaN), provided that a function
 * is commutative to the last bit. With another number of ranks they may differ. */
typedef struct heddle_reduction {
  heddle_type type;   /* 0 if fn is set */
  heddle_operator op; /* 0 if fn is set */
  heddle_combine fn;  /* null: op of type */
  /* for fn; both must live until the operation has completed, for a persistent one until it is
   * freed */
  const void* arg;
  size_t element_bytes; /* for fn: an element's size; else 0 */
} heddle_reduction;

/* ---- one operation --------------------------------------------------------------------------- */

typedef struct heddle_collective_options {
  size_t size; /* sizeof(heddle_collective_options), so that the structure can grow */
  /* null: the library chooses, by HEDDLE_COLLECTIVE_… first; else an algorithm of this operation,
   * see `heddle info` */
  const char* algorithm;
  uint64_t segment_bytes; /* pipelines: most bytes of one step; 0: the library chooses */
} heddle_collective_options;

/* Begins a run of a persistent operation; waits for no member: HEDDLE_POSTED. The run needs the
 * other members' starts. Any thread, also in a handler or callback; one at a time.
 * After a run has failed, the operation stays failed, and each later start returns that error: free
 * it, and make another.
 * Errors: STATE (a run is under way: wait for it; or the operation is not persistent),
 * PEER_FAILED. */
HEDDLE_API heddle_status heddle_collective_start(heddle_collective collective);
/* Makes progress once. DONE: the run has completed (or none was begun, and none has failed): the
 * results are there. AGAIN: the run goes on. Otherwise the error of the run. DONE and an error of
 * the run close an operation that is not persistent. */
HEDDLE_API heddle_status heddle_collective_test(heddle_collective collective);
/* Makes progress until the run has completed, and returns as heddle_collective_test. Errors: also
 * TIMEOUT (the run goes on; call again). */
HEDDLE_API heddle_status heddle_collective_wait(heddle_collective collective, int64_t timeout_ns);
/* Call it for a persistent operation between runs. Local; no member may start the operation once
 * another has freed it (a barrier between the last wait and the free ensures that).
 * Errors: STATE (a run is under way; or the operation is not persistent: wait for it). */
HEDDLE_API heddle_status heddle_collective_free(heddle_collective collective);
/* The algorithm that the operation runs, such as "broadcast.binomial"; the text lives as long as
 * the library. "barrier.gates", "reduce.gates" and "allreduce.gates" mean barrier gates (see
 * heddle_collective_offloaded): these names are not valid in options. */
HEDDLE_API heddle_status heddle_collective_algorithm(heddle_collective collective, const char** name);

/* 1: the network's interface runs the operation, and no thread of this process is needed between a
 * start and its completion; else 0. It is 1 for:
 * - persistent operations by a ..._session algorithm over uTofu, as long as there are session-mode
 *   VCQs for all members (HEDDLE_UTOFU_SESSIONS). While the operation is open the interface knows
 *   the buffer, which must not be unmapped. After PEER_FAILED it may be unmapped, but the interface
 *   may still read and write as far as it has begun to.
 * - persistent barriers, and reduces and allreduces of few words, for which no algorithm is named,
 *   as long as there are barrier gates for all members (HEDDLE_UTOFU_GATES): six elements of
 *   integers (no products), six of floating point (only min and max), or 48 bytes of band, bor and
 *   bxor. The start then reads the buffers, and test or wait writes them. */
HEDDLE_API heddle_status heddle_collective_offloaded(heddle_collective collective, int* offloaded);

/* For reports of a run that does not complete: a member that the run waits for at this moment. That
 * member may itself wait for others. HEDDLE_NO_RANK: no run is under way, or the member is not
 * known (the interface runs the operation, members list their blocks, more than 256 members,
 * another thread is moving the run on just now). Do not use it in loops: the call examines the
 * state of all members.
 * Errors: NO_MEMORY. */
HEDDLE_API heddle_status heddle_collective_awaited(heddle_collective collective, uint32_t* member);

/* ---- operations ------------------------------------------------------------------------------ */

/* Each in three forms; see the top. `bytes` and `count` (of elements) are those of one block: the
 * data that one member sends to, or receives from, one other. `options` may be null.
 * Errors: RANK (root is no member), ARGUMENT (a null buffer; buffers that overlap, see Memory; an
 * algorithm that does not exist, is of another operation or does not support these arguments;
 * arguments that differ between members), UNSUPPORTED (the operator does not support the type, see
 * heddle_operator), SIZE (more than 2^48 bytes in all), ALIGNMENT (a buffer that is not aligned as
 * the reduction's type), NO_MEMORY (raise HEDDLE_COLLECTIVE_BYTES). */

/* No member completes the barrier before all members have called it. */
HEDDLE_API heddle_status heddle_barrier(heddle_team team);
HEDDLE_API heddle_status heddle_barrier_start(heddle_team team, heddle_collective* collective);
HEDDLE_API heddle_status heddle_barrier_init(heddle_team team, const heddle_collective_options* options,
                                             heddle_collective* collective);

/* The root's data[bytes] is copied to data[bytes] of all members. */
HEDDLE_API heddle_status heddle_broadcast(heddle_team team, void* data, size_t bytes, uint32_t root);
HEDDLE_API heddle_status heddle_broadcast_start(heddle_team team, void* data, size_t bytes, uint32_t root,
                                                heddle_collective* collective);
HEDDLE_API heddle_status heddle_broadcast_init(heddle_team team, void* data, size_t bytes, uint32_t root,
                                               const heddle_collective_options* options, heddle_collective* collective);

/* receive[count] of the root gets send[count] of all members, combined element by element. */
HEDDLE_API heddle_status heddle_reduce(heddle_team team, const void* send, void* receive, size_t count,
                                       const heddle_reduction* reduction, uint32_t root);
HEDDLE_API heddle_status heddle_reduce_start(heddle_team team, const void* send, void* receive, size_t count,
                                             const heddle_reduction* reduction, uint32_t root,
                                             heddle_collective* collective);
HEDDLE_API heddle_status heddle_reduce_init(heddle_team team, const void* send, void* receive, size_t count,
                                            const heddle_reduction* reduction, uint32_t root,
                                            const heddle_collective_options* options, heddle_collective* collective);

/* The same, into receive[count] of all members. */
HEDDLE_API heddle_status heddle_allreduce(heddle_team team, const void* send, void* receive, size_t count,
                                          const heddle_reduction* reduction);
HEDDLE_API heddle_status heddle_allreduce_start(heddle_team team, const void* send, void* receive, size_t count,
                                                const heddle_reduction* reduction, heddle_collective* collective);
HEDDLE_API heddle_status heddle_allreduce_init(heddle_team team, const void* send, void* receive, size_t count,
                                               const heddle_reduction* reduction,
                                               const heddle_collective_options* options, heddle_collective* collective);

/* receive[size × bytes] of the root gets send[bytes] of all members, in the order of members. */
HEDDLE_API heddle_status heddle_gather(heddle_team team, const void* send, void* receive, size_t bytes, uint32_t root);
HEDDLE_API heddle_status heddle_gather_start(heddle_team team, const void* send, void* receive, size_t bytes,
                                             uint32_t root, heddle_collective* collective);
HEDDLE_API heddle_status heddle_gather_init(heddle_team team, const void* send, void* receive, size_t bytes,
                                            uint32_t root, const heddle_collective_options* options,
                                            heddle_collective* collective);

/* The same, into receive[size × bytes] of all members. */
HEDDLE_API heddle_status heddle_allgather(heddle_team team, const void* send, void* receive, size_t bytes);
HEDDLE_API heddle_status heddle_allgather_start(heddle_team team, const void* send, void* receive, size_t bytes,
                                                heddle_collective* collective);
HEDDLE_API heddle_status heddle_allgather_init(heddle_team team, const void* send, void* receive, size_t bytes,
                                               const heddle_collective_options* options, heddle_collective* collective);

/* receive[bytes] of member i gets block i of the root's send[size × bytes]. */
HEDDLE_API heddle_status heddle_scatter(heddle_team team, const void* send, void* receive, size_t bytes, uint32_t root);
HEDDLE_API heddle_status heddle_scatter_start(heddle_team team, const void* send, void* receive, size_t bytes,
                                              uint32_t root, heddle_collective* collective);
HEDDLE_API heddle_status heddle_scatter_init(heddle_team team, const void* send, void* receive, size_t bytes,
                                             uint32_t root, const heddle_collective_options* options,
                                             heddle_collective* collective);

/* Block j of send[size × bytes] of member i becomes block i of receive[size × bytes] of member
 * j. */
HEDDLE_API heddle_status heddle_alltoall(heddle_team team, const void* send, void* receive, size_t bytes);
HEDDLE_API heddle_status heddle_alltoall_start(heddle_team team, const void* send, void* receive, size_t bytes,
                                               heddle_collective* collective);
HEDDLE_API heddle_status heddle_alltoall_init(heddle_team team, const void* send, void* receive, size_t bytes,
                                              const heddle_collective_options* options, heddle_collective* collective);

/* receive[count] of member i gets block i of send[size × count] of all members, combined. */
HEDDLE_API heddle_status heddle_reduce_scatter(heddle_team team, const void* send, void* receive, size_t count,
                                               const heddle_reduction* reduction);
HEDDLE_API heddle_status heddle_reduce_scatter_start(heddle_team team, const void* send, void* receive, size_t count,
                                                     const heddle_reduction* reduction, heddle_collective* collective);
HEDDLE_API heddle_status heddle_reduce_scatter_init(heddle_team team, const void* send, void* receive, size_t count,
                                                    const heddle_reduction* reduction,
                                                    const heddle_collective_options* options,
                                                    heddle_collective* collective);

/* receive[count] of member i gets send[count] of members 0 to i, combined. */
HEDDLE_API heddle_status heddle_scan(heddle_team team, const void* send, void* receive, size_t count,
                                     const heddle_reduction* reduction);
HEDDLE_API heddle_status heddle_scan_start(heddle_team team, const void* send, void* receive, size_t count,
                                           const heddle_reduction* reduction, heddle_collective* collective);
HEDDLE_API heddle_status heddle_scan_init(heddle_team team, const void* send, void* receive, size_t count,
                                          const heddle_reduction* reduction, const heddle_collective_options* options,
                                          heddle_collective* collective);

/* ---- operations on blocks of any lengths ----------------------------------------------------- */

/* The places of the blocks in a buffer: block i has counts[i] elements, and begins displacements[i]
 * elements after the buffer's address. The lists are read during the call only. Memory between the
 * blocks is not touched. Blocks of a receive buffer must not overlap each other, nor those of the
 * send buffer; those of a send buffer may overlap. */
typedef struct heddle_blocks {
  const size_t* counts;        /* one for each block; 0: nothing is moved. No blocks: may be null */
  const size_t* displacements; /* likewise; null: one block after the other */
  size_t element_bytes;
} heddle_blocks;

/* Each in three forms, as those above. The blocking form exchanges the members' lists anew in each
 * call: in loops the persistent form is far faster. The two members of a block must list the same
 * length in bytes. Otherwise the operation is an ARGUMENT error at all members, and nothing has
 * been moved; at these two members the message has both lengths. Displacements and element_bytes
 * may differ between members.
 * Errors: as above; ARGUMENT also: null lists, or element_bytes 0; SIZE also: a block that ends
 * beyond 2^48 bytes. */

/* Block i of receive of all members gets send of member i. There is one block for each member, of
 * the same length at all members. */
HEDDLE_API heddle_status heddle_allgatherv(heddle_team team, const void* send, void* receive,
                                           const heddle_blocks* blocks);
HEDDLE_API heddle_status heddle_allgatherv_start(heddle_team team, const void* send, void* receive,
                                                 const heddle_blocks* blocks, heddle_collective* collective);
HEDDLE_API heddle_status heddle_allgatherv_init(heddle_team team, const void* send, void* receive,
                                                const heddle_blocks* blocks, const heddle_collective_options* options,
                                                heddle_collective* collective);

/* Block j of send of member i becomes block i of receive of member j. Both sides have as many
 * blocks as there are members. */
HEDDLE_API heddle_status heddle_alltoallv(heddle_team team, const void* send, const heddle_blocks* send_blocks,
                                          void* receive, const heddle_blocks* receive_blocks);
HEDDLE_API heddle_status heddle_alltoallv_start(heddle_team team, const void* send, const heddle_blocks* send_blocks,
                                                void* receive, const heddle_blocks* receive_blocks,
                                                heddle_collective* collective);
HEDDLE_API heddle_status heddle_alltoallv_init(heddle_team team, const void* send, const heddle_blocks* send_blocks,
                                               void* receive, const heddle_blocks* receive_blocks,
                                               const heddle_collective_options* options, heddle_collective* collective);

/* send[bytes] of member i becomes block i of receive of the root. Only the root needs receive and
 * blocks: one block for each member. */
HEDDLE_API heddle_status heddle_gatherv(heddle_team team, const void* send, size_t bytes, void* receive,
                                        const heddle_blocks* blocks, uint32_t root);
HEDDLE_API heddle_status heddle_gatherv_start(heddle_team team, const void* send, size_t bytes, void* receive,
                                              const heddle_blocks* blocks, uint32_t root,
                                              heddle_collective* collective);
HEDDLE_API heddle_status heddle_gatherv_init(heddle_team team, const void* send, size_t bytes, void* receive,
                                             const heddle_blocks* blocks, uint32_t root,
                                             const heddle_collective_options* options, heddle_collective* collective);

/* Block i of send of the root becomes receive[bytes] of member i. Only the root needs send and
 * blocks. */
HEDDLE_API heddle_status heddle_scatterv(heddle_team team, const void* send, const heddle_blocks* blocks, void* receive,
                                         size_t bytes, uint32_t root);
HEDDLE_API heddle_status heddle_scatterv_start(heddle_team team, const void* send, const heddle_blocks* blocks,
                                               void* receive, size_t bytes, uint32_t root,
                                               heddle_collective* collective);
HEDDLE_API heddle_status heddle_scatterv_init(heddle_team team, const void* send, const heddle_blocks* blocks,
                                              void* receive, size_t bytes, uint32_t root,
                                              const heddle_collective_options* options, heddle_collective* collective);

/* ---- operations among neighbours ------------------------------------------------------------- */

/* The members from which a member receives blocks, and those to which it sends blocks; read during
 * the call only. Each member has its own lists. If i names j as a target, j names i as a source,
 * the same number of times. A member may be named several times, and may name itself: the k-th
 * block that i sends to j is the k-th that j receives from i, in the order of their lists. So on a
 * torus with two members along an axis, list targets as (before, behind) and sources as (behind,
 * before): the member before receives its block from behind. An empty list may be null. */
typedef struct heddle_neighbors {
  const uint32_t* sources;
  size_t source_count;
  const uint32_t* targets;
  size_t target_count;
} heddle_neighbors;

/* Collective over the whole team: members without neighbours call it too. Errors: as above (lists
 * that do not name each other count as lengths that differ); RANK (a neighbour that the team does
 * not have). In loops (halos) use the persistent form: if two members can map each other's regions,
 * a block goes straight from one member's buffer into the other's, and only neighbours wait for
 * each other. */

/* Block i of send goes to targets[i]; block i of receive comes from sources[i]. */
HEDDLE_API heddle_status heddle_neighbor_alltoallv(heddle_team team, const heddle_neighbors* neighbors,
                                                   const void* send, const heddle_blocks* send_blocks, void* receive,
                                                   const heddle_blocks* receive_blocks);
HEDDLE_API heddle_status heddle_neighbor_alltoallv_start(heddle_team team, const heddle_neighbors* neighbors,
                                                         const void* send, const heddle_blocks* send_blocks,
                                                         void* receive, const heddle_blocks* receive_blocks,
                                                         heddle_collective* collective);
HEDDLE_API heddle_status heddle_neighbor_alltoallv_init(heddle_team team, const heddle_neighbors* neighbors,
                                                        const void* send, const heddle_blocks* send_blocks,
                                                        void* receive, const heddle_blocks* receive_blocks,
                                                        const heddle_collective_options* options,
                                                        heddle_collective* collective);

/* The same with blocks of `bytes` bytes, one after the other in the order of the lists. */
HEDDLE_API heddle_status heddle_neighbor_alltoall(heddle_team team, const heddle_neighbors* neighbors, const void* send,
                                                  void* receive, size_t bytes);
HEDDLE_API heddle_status heddle_neighbor_alltoall_start(heddle_team team, const heddle_neighbors* neighbors,
                                                        const void* send, void* receive, size_t bytes,
                                                        heddle_collective* collective);
HEDDLE_API heddle_status heddle_neighbor_alltoall_init(heddle_team team, const heddle_neighbors* neighbors,
                                                       const void* send, void* receive, size_t bytes,
                                                       const heddle_collective_options* options,
                                                       heddle_collective* collective);

/* send[bytes] goes to all targets; block i of receive comes from sources[i]. */
HEDDLE_API heddle_status heddle_neighbor_allgather(heddle_team team, const heddle_neighbors* neighbors,
                                                   const void* send, void* receive, size_t bytes);
HEDDLE_API heddle_status heddle_neighbor_allgather_start(heddle_team team, const heddle_neighbors* neighbors,
                                                         const void* send, void* receive, size_t bytes,
                                                         heddle_collective* collective);
HEDDLE_API heddle_status heddle_neighbor_allgather_init(heddle_team team, const heddle_neighbors* neighbors,
                                                        const void* send, void* receive, size_t bytes,
                                                        const heddle_collective_options* options,
                                                        heddle_collective* collective);

#ifdef __cplusplus
}
#endif
#endif /* HEDDLE_COLLECTIVES_H */
