/* Heddle: facts that a program, or a library on top of Heddle, adds to reports about jobs that hang
 * and to the picture of a traced job. Part of heddle.h, which includes it. */
#include "heddle/heddle.h" /* before the guard: it includes this part in its place */

#ifndef HEDDLE_DIAGNOSIS_H
#define HEDDLE_DIAGNOSIS_H

#ifdef __cplusplus
extern "C" {
#endif

/* When nothing has moved in a job for HEDDLE_HANG_SECONDS, its launcher asks each rank what its
 * threads wait for, and names the cause (docs/hangs.md). Heddle's own waits answer by themselves. A
 * wait in a loop of the program, or of a library on top of Heddle, answers by heddle_wait_note. */

/* The event that ends a wait. */
typedef enum heddle_wait_cause {
  HEDDLE_WAIT_UNKNOWN = 0,    /* only the text says it */
  HEDDLE_WAIT_ANSWER = 1,     /* `rank` has to make progress */
  HEDDLE_WAIT_MESSAGE = 3,    /* `rank` (HEDDLE_ANY: anybody) has to send a message with the tag */
  HEDDLE_WAIT_RECEIVE = 4,    /* `rank` has to receive a message with the tag */
  HEDDLE_WAIT_COLLECTIVE = 7, /* the other members of the team have to make this call */
  HEDDLE_WAIT_WORD = 8,       /* somebody has to write a word of this rank's memory */
  HEDDLE_WAIT_LOCK = 9        /* `rank` (HEDDLE_ANY: it is not known who) holds it */
} heddle_wait_cause;

#define HEDDLE_WAIT_TEXT 200 /* bytes of the texts, with the 0 at their end */
#define HEDDLE_WAIT_NAME 80

typedef struct heddle_wait_facts {
  size_t size;                 /* as given: sizeof of the library's version; do not change it */
  const char* call;            /* "shmem_wait_until"; stays until the next call of this thread */
  char text[HEDDLE_WAIT_TEXT]; /* what is awaited, as a clause: "tag 7 from rank 0" */
  heddle_wait_cause cause;
  uint32_t rank;              /* of the job; HEDDLE_ANY at first */
  char tag[HEDDLE_WAIT_NAME]; /* MESSAGE, RECEIVE: as heddle_context_name_tags words it */
  /* COLLECTIVE: a number that all members have, and no other team. 0: it is a collective of a
   * heddle_team, on which this thread waits within its wait; number, team_name and operation then
   * describe it further */
  uint64_t team;
  /* COLLECTIVE: number of the call on the team, from 1; 0: not known. LOCK: the lock's key. WORD: a
   * number that is the same at all ranks for the same place of a symmetric memory; 0: there is
   * none */
  uint64_t number;
  uint32_t members;                 /* of the team */
  char team_name[HEDDLE_WAIT_NAME]; /* "MPI_COMM_WORLD" */
  char operation[HEDDLE_WAIT_NAME]; /* "allreduce" */
} heddle_wait_facts;

/* Sets the fields that it knows; the others are 0, empty or HEDDLE_ANY. It may call no function of
 * Heddle. */
typedef void (*heddle_tell_wait)(void* arg, heddle_wait_facts* facts);

/* The calling thread waits in a loop of its own, in which it makes progress on the worker. Call it
 * in each round that has time for it, such as before each sleep or heddle_worker_wait: it takes a
 * lock and a system call, and answers a report that is being made. `tell` is called by this
 * function (when the wait begins, now and then while it lasts, and for each report), or by a call
 * of the same thread that waits, and not after heddle_wait_end.
 * Errors: ARGUMENT (tell is null). */
HEDDLE_API heddle_status heddle_wait_note(heddle_worker worker, heddle_tell_wait tell, void* arg);
/* The wait that was noted with `arg` is over. Call it once after one or more heddle_wait_note. If
 * noted waits are nested, the outermost one counts. */
HEDDLE_API heddle_status heddle_wait_end(heddle_worker worker, const void* arg);

/* The keys of the locks that this rank holds, for HEDDLE_WAIT_LOCK: writes at most `most` keys, and
 * returns how many. Any thread may call it, also within a call of Heddle; it may call no function
 * of Heddle. Null: none. If a lock's key is not 0, the list of its holder must have the key: if all
 * ranks but one answer without it, that one holds the lock. */
typedef size_t (*heddle_list_held)(uint64_t* keys, size_t most);
HEDDLE_API heddle_status heddle_context_list_held(heddle_context context, heddle_list_held function);

/* Gives the words for message tags in reports: writes at most `bytes` bytes with the 0 at their
 * end, such as "tag 7 of MPI_COMM_WORLD", for the bits of `tag` that `mask` has. Any thread may
 * call it, also within a call of Heddle; it may call no function of Heddle. Null: reports print
 * tags as numbers. */
typedef void (*heddle_name_tag)(uint64_t tag, uint64_t mask, char* text, size_t bytes);
HEDDLE_API heddle_status heddle_context_name_tags(heddle_context context, heddle_name_tag function);

/* A slice on the calling thread's track in the picture of a job that is traced (`heddle run
 * --trace`, HEDDLE_TRACE): from here until heddle_trace_end with the same name; slices nest. 1: it
 * was noted. 0: the job is not traced; the call then checks nothing else. `name` is not copied, and
 * must not change until the context is closed: use a literal. A process has room for 400 names of
 * 127 bytes. `text` describes this slice further, such as its arguments; it may be null, and its
 * first 127 bytes are kept.
 * Any thread. Errors: HANDLE; ARGUMENT (name is null). */
HEDDLE_API int heddle_trace_begin(heddle_context context, const char* name, const char* text);
HEDDLE_API heddle_status heddle_trace_end(heddle_context context, const char* name);

#ifdef __cplusplus
}
#endif

#endif /* HEDDLE_DIAGNOSIS_H */
