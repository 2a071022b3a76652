/* What a uTofu program needs besides uTofu: its rank, the size, and a way to exchange ids before
 * any of them is known. On a real machine the launcher and MPI or PMIx provide this. These programs
 * use environment variables and a directory that all processes see, so that they need only
 * <utofu.h>.
 *
 *   MEET_DIR      the directory, empty at the start, private to this job
 *   MEET_RANK, MEET_SIZE; if unset UTOFU_EMU_RANK and UTOFU_EMU_PROCESSES, or OMPI_COMM_WORLD_RANK
 *   and _SIZE, or
 *                 PMI_RANK and PMI_SIZE. Without any of them the process runs alone and needs no
 *                 directory.
 *
 * launch.py sets them for processes of one machine. `heddle run --utofu` sets rank and size; the
 * directory is made with `--env MEET_DIR=$(mktemp -d)`. Any failure ends the process with a message
 * and status 2. The launcher ends a process that waits for one that has gone. */
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

/* All-gather: block r of `all` becomes `mine` of rank r. It returns only when all ranks have called
 * it, so it is a barrier too. All ranks make the same calls with the same size. */
void meet_all(struct meeting* meeting, const void* mine, size_t bytes, void* all);

/* A barrier. */
void meet_everybody(struct meeting* meeting);

/* A command-line argument as a whole number from `least` to `most`; otherwise calls misused(). */
uint64_t whole_number(const char* word, uint64_t least, uint64_t most, const char* usage);

/* Ends the process with status 2 and prints "usage: " and the text. */
#if defined(__GNUC__)
__attribute__((noreturn))
#endif
void misused(const char* usage);

/* More rounds than anybody waits for; multiplying it does not overflow. */
enum { kMostRounds = 1000000000, kMostPutBytes = (1 << 24) - 1 };

/* Ends the process with status 2 and a line "rank R: what: error -4" if `code` is not
 * UTOFU_SUCCESS. */
void must(const struct meeting* meeting, int code, const char* what);

/* Ends the process with status 1 and the message: a check has failed. */
#if defined(__GNUC__)
__attribute__((noreturn, format(printf, 2, 3)))
#endif
void wrong(const struct meeting* meeting, const char* format, ...);

/* Reads memory that a NIC writes while a processor polls it. Loads after it see at least the data
 * of that time. */
uint64_t peek(const volatile uint64_t* word);

/* Posts again while the queue of commands is full (UTOFU_ERR_BUSY); polling it makes room. The
 * expression is evaluated each time. It must not ask for TCQ_NOTICE, since completions are dropped
 * here. */
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

/* Yields the core: there may be more processes than cores. */
void give_way(void);

/* Waits for the next notice, for any time; ends the process if it carries an error. */
struct utofu_mrq_notice next_notice(const struct meeting* meeting, utofu_vcq_hdl_t vcq);

/* Waits until a command posted with TCQ_NOTICE has completed; returns its cbdata. */
void* next_sent(const struct meeting* meeting, utofu_vcq_hdl_t vcq);

/* A VCQ on the n-th of this process's TNIs (modulo their number). */
utofu_vcq_hdl_t open_vcq(const struct meeting* meeting, size_t n, unsigned long flags);

/* The id of an own VCQ, to be sent to others; and the id of another's VCQ, prepared for use (with
 * the default path). */
utofu_vcq_id_t id_of(const struct meeting* meeting, utofu_vcq_hdl_t vcq);
utofu_vcq_id_t reach(const struct meeting* meeting, utofu_vcq_id_t told);

/* Zeroed memory, aligned to 256 bytes. */
void* get_memory(const struct meeting* meeting, size_t bytes);
utofu_stadd_t register_memory(const struct meeting* meeting, utofu_vcq_hdl_t vcq, void* memory, size_t bytes);
/* Ends these registrations too; no process may be using them. */
void close_vcq(const struct meeting* meeting, utofu_vcq_hdl_t vcq, const utofu_stadd_t* registered, size_t count);

/* The emulator has a timing model that follows a run from call to call. These functions return the
 * model's time for this thread, and tell it that this thread has just seen, by polling memory, the
 * data written there (the model sees calls, but not loads). If the library has no model, or it is
 * off, they return 0 and do nothing. */
uint64_t model_now_ns(void);
void model_saw(const volatile void* address);

/* Byte i of a message of a sequence: differs between messages and between bytes. */
unsigned char pattern(uint64_t message, size_t i);

#endif
