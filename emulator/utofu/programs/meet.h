/* What a uTofu program needs besides uTofu: who am I, how many are we, and a way to exchange ids
 * before any of them is known. On a machine that is the business of the launcher and of MPI or
 * PMIx; these programs do with an environment and a directory that all processes see, so that they
 * need nothing but <utofu.h>.
 *
 *   MEET_DIR      the directory, empty at the start, private to this job
 *   MEET_RANK, MEET_SIZE; if unset UTOFU_EMU_RANK and UTOFU_EMU_PROCESSES, or OMPI_COMM_WORLD_RANK
 *   and _SIZE, or
 *                 PMI_RANK and PMI_SIZE. Without any of them the process is alone and needs no
 *                 directory.
 *
 * launch.py sets them for processes of one machine; under `heddle run --utofu` rank and size are
 * known, and the directory is made with `--env MEET_DIR=$(mktemp -d)`. Whatever fails ends the
 * process with a message and status 2; who waits for a process that has gone is ended by the
 * launcher. */
#ifndef MEET_H
#define MEET_H

#include <stddef.h>
#include <stdint.h>
#include <utofu.h>

struct meeting {
  int rank;
  int size;
  const char* directory;
  unsigned round;
};

void meet_begin(struct meeting* meeting);

/* All-gather: block r of `all` becomes what rank r gave as `mine`. Nobody returns before all have
 * called it, so it is a barrier as well. Everybody makes the same calls with the same size. */
void meet_all(struct meeting* meeting, const void* mine, size_t bytes, void* all);

/* A barrier. */
void meet_everybody(struct meeting* meeting);

/* A word of the command line as a whole number from `least` to `most`; misused() if it is none. */
uint64_t whole_number(const char* word, uint64_t least, uint64_t most, const char* usage);

/* Ends the process with status 2 and "usage: " with the text: how the program is to be called. */
#if defined(__GNUC__)
__attribute__((noreturn))
#endif
void misused(const char* usage);

/* More than anybody has the time for, and far from overflow when it is multiplied. */
enum { kMostRounds = 1000000000, kMostPutBytes = (1 << 24) - 1 };

/* Ends the process with status 2 and a line "rank R: what: error -4" if `code` is not
 * UTOFU_SUCCESS. */
void must(const struct meeting* meeting, int code, const char* what);

/* Ends the process with status 1 and the message: what was verified did not hold. */
#if defined(__GNUC__)
__attribute__((noreturn, format(printf, 2, 3)))
#endif
void wrong(const struct meeting* meeting, const char* format, ...);

/* Memory that a NIC writes while a processor polls it: the value read is at least as old as
 * everything read after. */
uint64_t peek(const volatile uint64_t* word);

/* Posts again and again while the queue of commands is full (UTOFU_ERR_BUSY): the queue's places
 * become free by polling it. The expression is evaluated anew each time; it must not ask for
 * TCQ_NOTICE, since notices are thrown away here. */
#define POST(meeting, vcq, call)                                                          \
  do {                                                                                    \
    int post_code_;                                                                       \
    while ((post_code_ = (call)) == UTOFU_ERR_BUSY) {                                     \
      void* post_cbdata_;                                                                 \
      const int post_poll_ = utofu_poll_tcq(vcq, 0, &post_cbdata_);                       \
      if (post_poll_ != UTOFU_ERR_NOT_FOUND) must(meeting, post_poll_, "utofu_poll_tcq"); \
      give_way();                                                                         \
    }                                                                                     \
    must(meeting, post_code_, #call);                                                     \
  } while (0)

/* The core to somebody else for a moment: there may be more processes than cores. */
void give_way(void);

/* The next notice, in whatever time; ends the process if it carries an error. */
struct utofu_mrq_notice next_notice(const struct meeting* meeting, utofu_vcq_hdl_t vcq);

/* Until a command posted with TCQ_NOTICE is done: its cbdata. */
void* next_sent(const struct meeting* meeting, utofu_vcq_hdl_t vcq);

/* A VCQ on the n-th of this process's TNIs (modulo their number). */
utofu_vcq_hdl_t open_vcq(const struct meeting* meeting, size_t n, unsigned long flags);

/* The id of one's own VCQ, to be told to others; and of another's, made ready to be used (the
 * default path). */
utofu_vcq_id_t id_of(const struct meeting* meeting, utofu_vcq_hdl_t vcq);
utofu_vcq_id_t reach(const struct meeting* meeting, utofu_vcq_id_t told);

/* Zeroed, aligned to 256 bytes. */
void* get_memory(const struct meeting* meeting, size_t bytes);
utofu_stadd_t register_memory(const struct meeting* meeting, utofu_vcq_hdl_t vcq, void* memory, size_t bytes);
/* Ends these registrations with it; nobody may be using them any more. */
void close_vcq(const struct meeting* meeting, utofu_vcq_hdl_t vcq, const utofu_stadd_t* registered, size_t count);

/* The emulator has a timing model that follows a run from call to call. These do nothing, and give
 * 0, with a library that has none or has it switched off: what it says now, for this thread; and
 * that this thread has just seen, by polling memory, what was written there (the model can see
 * calls, but not loads). */
uint64_t model_now_ns(void);
void model_saw(const volatile void* address);

/* Byte i of a message of a sequence: differs from message to message and from byte to byte. */
unsigned char pattern(uint64_t message, size_t i);

#endif
