/* Heddle: teams of ranks, and the operations that all of a team make together. Part of heddle.h,
 * which includes it.
 *
 * Words.  A *team* is some of the job's ranks in an order; its members are numbered 0 to size - 1,
 * and a rank that is passed to an operation of a team is such a number. A *collective operation* is
 * called by all members of a team, all of them the same operations of that team in the same order,
 * with arguments that agree. What has to agree: operation, bytes or count, root, reduction,
 * algorithm and segment_bytes; buffers need not.
 *
 * Three forms.
 *   heddle_broadcast(…)                      blocking: returns when this member's part is done
 *   heddle_broadcast_start(…, &collective)   nonblocking: begins, returns HEDDLE_POSTED;
 *                                            heddle_collective_test or _wait tells the end, and the
 *                                            handle is closed with that
 *   heddle_broadcast_init(…, &collective)    persistent: makes everything ready once; then
 *                                            heddle_collective_start and _wait (or _test) as often
 *                                            as wanted; heddle_collective_free. A start exchanges
 *                                            nothing, registers nothing and allocates nothing: it
 *                                            is the form for inner loops
 * Several operations of a team may be under way at once, in any form. They are begun in the same
 * order by all members: a start of a persistent operation may come at any place among those of
 * others.
 *
 * Memory.  Buffers belong to the operation from its start to its end (of a persistent one: between
 * init and free they may not be released, and between a start and its end not be touched).
 * Persistent and nonblocking operations reach memory of regions that the members allocated
 * (heddle_region_alloc) directly; other memory costs a copy more, as do the blocking forms. Buffers
 * may not overlap, unless in place:
 *   reduce, allreduce, scan              send == receive
 *   allgather; gather at the root        send is this member's block of receive
 *   scatter at the root                  receive is this member's block of send
 *   allgatherv; gatherv, scatterv at the root   likewise
 * A buffer that a member does not need (receive of a reduce or gather, send of a scatter, at
 * members other than the root) is not looked at and may be null. With 0 bytes nothing is moved and
 * buffers may be null; members may wait for each other all the same.
 *
 * Threads.  Any thread may call operations of a team, one at a time for each team; the order is
 * then that in which they are called. Different teams are independent. Of one collective handle one
 * thread at a time calls anything.
 *
 * Progress.  Blocking forms, heddle_collective_wait, heddle_collective_test and
 * heddle_context_progress move operations on, and so do helpers (HEDDLE_PROGRESS);
 * heddle_worker_progress does not. The other way round: who waits here moves no exclusive worker
 * on, so a peer that needs answers of such a worker (a long message, a get or an atomic that is not
 * direct) waits until its owner makes progress again. Where that may be, flush or quiet first and
 * meet in heddle_context_barrier, which takes the worker, or let helpers serve it.
 * heddle_context_leave does not look for members that wait in a team's operation: all end these
 * before any leaves.
 *
 * Failure.  If a member dies, every member that cannot finish without it gets PEER_FAILED, in this
 * operation and in later ones of the team: go on in a team without it that was made before; while
 * it is a member of the parent, or of the job, none can be made. Members that have not noticed it
 * yet may still reach buffers of the operation that has failed: until they have got PEER_FAILED
 * too, these are not used for anything else. Of a call that makes a team some of the living may
 * have the team, others PEER_FAILED: what they begin on it waits for ever, so those who survive
 * make another one, from a team that all of them have.
 * Arguments that differ between members are an ARGUMENT error of all of them that names a member
 * and its values; nothing has been moved then, and the team goes on. Persistent and nonblocking
 * operations find that always (nonblocking ones tell it as their end). The blocking form finds it
 * where all members call it with arguments with which they have not called it before; with known
 * ones it compares nothing: members that do not agree may then wait for ever, or get what another
 * call has given. Where the network's barrier gates run it (uTofu), it is an ARGUMENT error, and
 * the team's later blocking calls of few bytes fail with it. An argument that is wrong at one
 * member alone (a null pointer, a closed handle) is told to that member, and its call has not taken
 * place: the others wait until it makes a good one.
 *
 * Errors: inside a NETWORK handler or a completion callback all that wait or make progress return
 * STATE: what makes teams and operations, the blocking and nonblocking forms,
 * heddle_collective_test and _wait. What is collective returns PEER_FAILED. These two are not
 * listed again. */
#ifndef HEDDLE_COLLECTIVES_H
#define HEDDLE_COLLECTIVES_H

#include "heddle/heddle.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct heddle_team {
  uint64_t id;
} heddle_team;
typedef struct heddle_collective {
  uint64_t id;
} heddle_collective;

/* ---- teams ----------------------------------------------------------------------------------- */

#define HEDDLE_NO_COLOUR UINT32_MAX
#define HEDDLE_NO_RANK UINT32_MAX

/* A team of all ranks of the job, with their numbers. Collective over the job; one thread of each
 * rank calls it. Each call makes a team of its own. */
HEDDLE_API heddle_status heddle_team_world(heddle_context context, heddle_team* team);
/* Collective over the parent: members of one colour make a team, in the order of their keys, then
 * of their numbers in the parent. Colour HEDDLE_NO_COLOUR: this rank is in none; *team is the null
 * handle, and that is HEDDLE_DONE. */
HEDDLE_API heddle_status heddle_team_split(heddle_team parent, uint32_t colour, int64_t key, heddle_team* team);
/* Collective over the parent, with the same arguments everywhere: the members start, start +
 * stride, …, `size` of them, in that order. The stride may be negative. Members of the parent that
 * are none of them get the null handle, and HEDDLE_DONE.
 * Errors: RANK (a member that the parent does not have), ARGUMENT (size 0; stride 0 with a size
 * above 1). */
HEDDLE_API heddle_status heddle_team_strided(heddle_team parent, uint32_t start, int32_t stride, uint32_t size,
                                             heddle_team* team);
/* Collective over the parent, with the same arguments everywhere: the members ranks[0], ranks[1], …
 * in that order. Others as above.
 * Errors: RANK (a member that the parent does not have), ARGUMENT (count 0, a member twice). */
HEDDLE_API heddle_status heddle_team_subset(heddle_team parent, const uint32_t* ranks, uint32_t count,
                                            heddle_team* team);

/* This rank's number in the team, and how many members it has. */
HEDDLE_API heddle_status heddle_team_rank(heddle_team team, uint32_t* rank);
HEDDLE_API heddle_status heddle_team_size(heddle_team team, uint32_t* size);
/* Which member of `to` member `rank` of `from` is; HEDDLE_NO_RANK: none. Both are teams of one
 * context.
 * Errors: RANK (`from` has no such member), ARGUMENT (teams of different contexts). */
HEDDLE_API heddle_status heddle_team_translate(heddle_team from, uint32_t rank, heddle_team to, uint32_t* to_rank);
/* Local. When a member frees it, all have ended their operations of it (a barrier sees to that),
 * and none begins another. Leaving the context frees its teams.
 * Errors: STATE (operations of the team are open: wait for nonblocking ones, free persistent
 * ones). */
HEDDLE_API heddle_status heddle_team_free(heddle_team team);

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
 * they do not overlap. It must be associative and commutative: which partial results are combined,
 * and which of them stands on which side, depends on ranks, sizes and the algorithm, though not on
 * who was early. It runs in whatever thread of this process moves the operation on, one call at a
 * time for each operation; it calls nothing of Heddle. Elements that are not in the program's
 * memory are aligned as any type of element_bytes bytes may ask (16 at most). */
typedef void (*heddle_combine)(void* inout, const void* in, size_t bytes, const void* arg);

/* How elements are combined: by `op` of `type`, or by a function. The results of an allreduce are
 * the same on all members to the last bit (but for which NaN a NaN is), as far as a function is
 * commutative to the last bit. Not so from one number of ranks to another. */
typedef struct heddle_reduction {
  heddle_type type;   /* 0 where there is fn */
  heddle_operator op; /* 0 where there is fn */
  heddle_combine fn;  /* null: op of type */
  /* of fn; both live until the operation has ended, of a persistent one until it is freed */
  const void* arg;
  size_t element_bytes; /* of fn: an element's size; 0 else */
} heddle_reduction;

/* ---- one operation --------------------------------------------------------------------------- */

typedef struct heddle_collective_options {
  size_t size; /* sizeof(heddle_collective_options), so that the structure can grow */
  /* null: chosen, by HEDDLE_COLLECTIVE_… first; else one of this operation, see `heddle info` */
  const char* algorithm;
  uint64_t segment_bytes; /* of pipelines: the most bytes of one step; 0: chosen */
} heddle_collective_options;

/* Begins a run of a persistent operation; returns without waiting for anybody: HEDDLE_POSTED. The
 * run needs the other members' starts. Any thread, also in a handler or callback; one at a time.
 * An operation of which a run has failed stays failed: each later start returns that error; free
 * it, and make another.
 * Errors: STATE (a run is under way: wait for it; or the operation is not persistent),
 * PEER_FAILED. */
HEDDLE_API heddle_status heddle_collective_start(heddle_collective collective);
/* Makes progress once. DONE: the run has ended (or none was begun, and none has failed): the
 * results are there. AGAIN: it goes on. An error is how the run has failed. An operation that is
 * not persistent is closed by DONE and by an error of the run. */
HEDDLE_API heddle_status heddle_collective_test(heddle_collective collective);
/* Makes progress until the run has ended, and returns as heddle_collective_test. Errors: also
 * TIMEOUT (it goes on; call again). */
HEDDLE_API heddle_status heddle_collective_wait(heddle_collective collective, int64_t timeout_ns);
/* Of a persistent operation between runs. Local; no member starts the operation once another has
 * freed it (a barrier between the last wait and the free sees to that).
 * Errors: STATE (a run is under way; or the operation is not persistent: wait for it). */
HEDDLE_API heddle_status heddle_collective_free(heddle_collective collective);
/* Which algorithm it runs, such as "broadcast.binomial"; the text lives as long as the library.
 * "barrier.gates", "reduce.gates" and "allreduce.gates" are what barrier gates run (see
 * heddle_collective_offloaded): no names for options. */
HEDDLE_API heddle_status heddle_collective_algorithm(heddle_collective collective, const char** name);

/* 1: the network's interface runs it, and no thread of this process is needed between a start and
 * its end; else 0. So it is with persistent operations by a ..._session algorithm over uTofu, as
 * long as there are session-mode VCQs for all members (HEDDLE_UTOFU_SESSIONS). While it is open the
 * interface knows the buffer: it is not to be unmapped. After PEER_FAILED it may be, but what has
 * been begun may still be read and written by the interface. So it is too with persistent barriers,
 * and reduces and allreduces of few words, for which no algorithm is named, as long as there are
 * barrier gates for all members (HEDDLE_UTOFU_GATES): six elements of integers (but for products),
 * six of floating point (least and greatest), or 48 bytes of band, bor and bxor. Buffers are then
 * read by the start, and written by test or wait. */
HEDDLE_API heddle_status heddle_collective_offloaded(heddle_collective collective, int* offloaded);

/* For reports of a run that does not end: a member that it waits for at this moment, which may
 * itself be waiting for others. HEDDLE_NO_RANK: no run is under way, or it is not known (the
 * interface runs it, members list their blocks, more than 256 members, it is being moved on just
 * now). Not for loops: it looks at what all members do.
 * Errors: NO_MEMORY. */
HEDDLE_API heddle_status heddle_collective_awaited(heddle_collective collective, uint32_t* member);

/* ---- operations ------------------------------------------------------------------------------ */

/* Each in three forms; see the top. `bytes` and `count` (of elements) are those of one block, which
 * is what one member gives or gets of one other. `options` may be null.
 * Errors: RANK (root is no member), ARGUMENT (a null buffer; buffers that overlap, see Memory; an
 * algorithm that does not exist, is of another operation or cannot do this; arguments that differ
 * between members), UNSUPPORTED (an operator that does not take the type, see heddle_reduction),
 * SIZE (more than 2^48 bytes in all), ALIGNMENT (a buffer that is not aligned as the reduction's
 * type), NO_MEMORY (raise HEDDLE_COLLECTIVE_BYTES). */

/* Nobody leaves before all have come. */
HEDDLE_API heddle_status heddle_barrier(heddle_team team);
HEDDLE_API heddle_status heddle_barrier_start(heddle_team team, heddle_collective* collective);
HEDDLE_API heddle_status heddle_barrier_init(heddle_team team, const heddle_collective_options* options,
                                             heddle_collective* collective);

/* The root's data[bytes] in data[bytes] of all. */
HEDDLE_API heddle_status heddle_broadcast(heddle_team team, void* data, size_t bytes, uint32_t root);
HEDDLE_API heddle_status heddle_broadcast_start(heddle_team team, void* data, size_t bytes, uint32_t root,
                                                heddle_collective* collective);
HEDDLE_API heddle_status heddle_broadcast_init(heddle_team team, void* data, size_t bytes, uint32_t root,
                                               const heddle_collective_options* options, heddle_collective* collective);

/* send[count] of all, combined element by element, in receive[count] of the root. */
HEDDLE_API heddle_status heddle_reduce(heddle_team team, const void* send, void* receive, size_t count,
                                       const heddle_reduction* reduction, uint32_t root);
HEDDLE_API heddle_status heddle_reduce_start(heddle_team team, const void* send, void* receive, size_t count,
                                             const heddle_reduction* reduction, uint32_t root,
                                             heddle_collective* collective);
HEDDLE_API heddle_status heddle_reduce_init(heddle_team team, const void* send, void* receive, size_t count,
                                            const heddle_reduction* reduction, uint32_t root,
                                            const heddle_collective_options* options, heddle_collective* collective);

/* The same, in receive[count] of all. */
HEDDLE_API heddle_status heddle_allreduce(heddle_team team, const void* send, void* receive, size_t count,
                                          const heddle_reduction* reduction);
HEDDLE_API heddle_status heddle_allreduce_start(heddle_team team, const void* send, void* receive, size_t count,
                                                const heddle_reduction* reduction, heddle_collective* collective);
HEDDLE_API heddle_status heddle_allreduce_init(heddle_team team, const void* send, void* receive, size_t count,
                                               const heddle_reduction* reduction,
                                               const heddle_collective_options* options, heddle_collective* collective);

/* send[bytes] of all, one block after the other in the order of members, in receive[size × bytes]
 * of the root. */
HEDDLE_API heddle_status heddle_gather(heddle_team team, const void* send, void* receive, size_t bytes, uint32_t root);
HEDDLE_API heddle_status heddle_gather_start(heddle_team team, const void* send, void* receive, size_t bytes,
                                             uint32_t root, heddle_collective* collective);
HEDDLE_API heddle_status heddle_gather_init(heddle_team team, const void* send, void* receive, size_t bytes,
                                            uint32_t root, const heddle_collective_options* options,
                                            heddle_collective* collective);

/* The same, in receive[size × bytes] of all. */
HEDDLE_API heddle_status heddle_allgather(heddle_team team, const void* send, void* receive, size_t bytes);
HEDDLE_API heddle_status heddle_allgather_start(heddle_team team, const void* send, void* receive, size_t bytes,
                                                heddle_collective* collective);
HEDDLE_API heddle_status heddle_allgather_init(heddle_team team, const void* send, void* receive, size_t bytes,
                                               const heddle_collective_options* options, heddle_collective* collective);

/* Block i of the root's send[size × bytes], in receive[bytes] of member i. */
HEDDLE_API heddle_status heddle_scatter(heddle_team team, const void* send, void* receive, size_t bytes, uint32_t root);
HEDDLE_API heddle_status heddle_scatter_start(heddle_team team, const void* send, void* receive, size_t bytes,
                                              uint32_t root, heddle_collective* collective);
HEDDLE_API heddle_status heddle_scatter_init(heddle_team team, const void* send, void* receive, size_t bytes,
                                             uint32_t root, const heddle_collective_options* options,
                                             heddle_collective* collective);

/* Block j of send[size × bytes] of member i is block i of receive[size × bytes] of member j. */
HEDDLE_API heddle_status heddle_alltoall(heddle_team team, const void* send, void* receive, size_t bytes);
HEDDLE_API heddle_status heddle_alltoall_start(heddle_team team, const void* send, void* receive, size_t bytes,
                                               heddle_collective* collective);
HEDDLE_API heddle_status heddle_alltoall_init(heddle_team team, const void* send, void* receive, size_t bytes,
                                              const heddle_collective_options* options, heddle_collective* collective);

/* Block i of send[size × count] of all, combined, in receive[count] of member i. */
HEDDLE_API heddle_status heddle_reduce_scatter(heddle_team team, const void* send, void* receive, size_t count,
                                               const heddle_reduction* reduction);
HEDDLE_API heddle_status heddle_reduce_scatter_start(heddle_team team, const void* send, void* receive, size_t count,
                                                     const heddle_reduction* reduction, heddle_collective* collective);
HEDDLE_API heddle_status heddle_reduce_scatter_init(heddle_team team, const void* send, void* receive, size_t count,
                                                    const heddle_reduction* reduction,
                                                    const heddle_collective_options* options,
                                                    heddle_collective* collective);

/* send[count] of members 0 to i, combined, in receive[count] of member i. */
HEDDLE_API heddle_status heddle_scan(heddle_team team, const void* send, void* receive, size_t count,
                                     const heddle_reduction* reduction);
HEDDLE_API heddle_status heddle_scan_start(heddle_team team, const void* send, void* receive, size_t count,
                                           const heddle_reduction* reduction, heddle_collective* collective);
HEDDLE_API heddle_status heddle_scan_init(heddle_team team, const void* send, void* receive, size_t count,
                                          const heddle_reduction* reduction, const heddle_collective_options* options,
                                          heddle_collective* collective);

/* ---- operations on blocks of any lengths ----------------------------------------------------- */

/* Where the blocks of a buffer are: block i has counts[i] elements, and begins displacements[i]
 * elements behind the buffer's address. The lists are read during the call only. What is between
 * the blocks is not touched. Blocks of a receiving buffer do not overlap each other, nor those of
 * the sending one; those of a sending buffer may overlap. */
typedef struct heddle_blocks {
  const size_t* counts;        /* one for each block; no elements: nothing is moved */
  const size_t* displacements; /* likewise; null: one block after the other */
  size_t element_bytes;
} heddle_blocks;

/* Each in three forms, as those above; of these, the blocking form tells what members list anew in
 * each call: in loops the persistent form is far faster. The length in bytes that one member lists
 * for a block is what the other one lists; if it is not, the operation is an ARGUMENT error of all
 * members, of the two with both lengths, and nothing has been moved. Displacements and elements are
 * each member's own affair.
 * Errors: as above; ARGUMENT also: null lists, or an element of no bytes; SIZE also: a block that
 * ends beyond 2^48 bytes. */

/* Block i of receive of all is send of member i. There is a block for each member; the same lengths
 * at all of them. */
HEDDLE_API heddle_status heddle_allgatherv(heddle_team team, const void* send, void* receive,
                                           const heddle_blocks* blocks);
HEDDLE_API heddle_status heddle_allgatherv_start(heddle_team team, const void* send, void* receive,
                                                 const heddle_blocks* blocks, heddle_collective* collective);
HEDDLE_API heddle_status heddle_allgatherv_init(heddle_team team, const void* send, void* receive,
                                                const heddle_blocks* blocks, const heddle_collective_options* options,
                                                heddle_collective* collective);

/* Block j of send of member i is block i of receive of member j. There are as many blocks on both
 * sides as members. */
HEDDLE_API heddle_status heddle_alltoallv(heddle_team team, const void* send, const heddle_blocks* send_blocks,
                                          void* receive, const heddle_blocks* receive_blocks);
HEDDLE_API heddle_status heddle_alltoallv_start(heddle_team team, const void* send, const heddle_blocks* send_blocks,
                                                void* receive, const heddle_blocks* receive_blocks,
                                                heddle_collective* collective);
HEDDLE_API heddle_status heddle_alltoallv_init(heddle_team team, const void* send, const heddle_blocks* send_blocks,
                                               void* receive, const heddle_blocks* receive_blocks,
                                               const heddle_collective_options* options, heddle_collective* collective);

/* send[bytes] of member i is block i of receive of the root, which alone needs receive and blocks:
 * one for each member. */
HEDDLE_API heddle_status heddle_gatherv(heddle_team team, const void* send, size_t bytes, void* receive,
                                        const heddle_blocks* blocks, uint32_t root);
HEDDLE_API heddle_status heddle_gatherv_start(heddle_team team, const void* send, size_t bytes, void* receive,
                                              const heddle_blocks* blocks, uint32_t root,
                                              heddle_collective* collective);
HEDDLE_API heddle_status heddle_gatherv_init(heddle_team team, const void* send, size_t bytes, void* receive,
                                             const heddle_blocks* blocks, uint32_t root,
                                             const heddle_collective_options* options, heddle_collective* collective);

/* Block i of send of the root, which alone needs send and blocks, is receive[bytes] of member i. */
HEDDLE_API heddle_status heddle_scatterv(heddle_team team, const void* send, const heddle_blocks* blocks, void* receive,
                                         size_t bytes, uint32_t root);
HEDDLE_API heddle_status heddle_scatterv_start(heddle_team team, const void* send, const heddle_blocks* blocks,
                                               void* receive, size_t bytes, uint32_t root,
                                               heddle_collective* collective);
HEDDLE_API heddle_status heddle_scatterv_init(heddle_team team, const void* send, const heddle_blocks* blocks,
                                              void* receive, size_t bytes, uint32_t root,
                                              const heddle_collective_options* options, heddle_collective* collective);

/* ---- operations among neighbours ------------------------------------------------------------- */

/* Whom a member takes blocks from and whom it gives blocks to, as members of the team; read during
 * the call only. Each member has lists of its own; where one names another as a target, that one
 * names it as a source, as often. A member may be named several times, and may name itself: the
 * k-th block that i gives to j is the k-th that j takes from i, in the order of their lists. So on
 * a torus with two members along an axis, list targets as (before, behind) and sources as (behind,
 * before): what goes to the one before is what that one takes from behind. A list of none may be
 * null. */
typedef struct heddle_neighbors {
  const uint32_t* sources;
  size_t source_count;
  const uint32_t* targets;
  size_t target_count;
} heddle_neighbors;

/* Collective over the team all the same: members without neighbours call it too. Errors: as above,
 * where lists that do not name each other count as lengths that differ; RANK (a neighbour that the
 * team does not have). In loops (halos) use the persistent form: between members that can map each
 * other's regions a block goes straight from one member's buffer into the other's, and nobody but
 * neighbours waits for each other. */

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

/* send[bytes] to all targets; block i of receive comes from sources[i]. */
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
