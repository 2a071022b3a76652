/* Functions for the wrappers that make_calls.py writes, one for each function of MPI or OpenSHMEM.
 * The wrappers note each call in the picture of a traced job, and call the real function. Hidden
 * functions of either library of wrappers; all may be called by any thread.
 *
 * Until Heddle's library of the interface has joined its job, and if there is none, the wrappers
 * only pass the calls on. */
#pragma once

#include <dlfcn.h>
#include <heddle/heddle.h>
#include <stdint.h>

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif
/* Called by the library of the interface, which finds it by dlsym. Its job is joined; the arguments
 * are the functions that note its calls. With a context of 0, the job is about to be left. No call
 * of another thread may be in progress then. */
void HEDDLE_CALLS_HOOK(heddle_context context, int (*begin)(heddle_context, const char*, const char*),
                       heddle_status (*end)(heddle_context, const char*));
#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

/* The context of the job; 0: there is none. */
extern uint64_t heddle_calls_context;
#define HEDDLE_CALLS_ON (__atomic_load_n(&heddle_calls_context, __ATOMIC_RELAXED) != 0)

/* The real function behind the wrapper `name`: the one that the program in `caller` would call
 * without the wrapper. Kept in *place. If there is none, ends the process with a line that says
 * why. */
void* heddle_calls_find(void** place, const char* name, const void* caller);
#define HEDDLE_CALLS_REAL(name)                           \
  static void* place;                                     \
  void* real = __atomic_load_n(&place, __ATOMIC_RELAXED); \
  if (__builtin_expect(real == 0, 0)) real = heddle_calls_find(&place, name, __builtin_return_address(0))

/* Notes that a call begins. `format` has the names of arguments, each with a letter for what
 * follows of it: "count=i comm=H". i: long long. u: unsigned long long. f: double. p: const void*.
 * Others, which are long long: a number that may have a name in heddle_calls_names; a capital's are
 * shown in hexadecimal where they have none.
 * Returns what heddle_calls_end takes. */
uint64_t heddle_calls_begin(const char* name, const char* format, ...);
void heddle_calls_end(const char* name, uint64_t begun);

/* Programs make many calls in a row that look whether something has happened. Only the first one is
 * noted, and the one that finds something, after it has returned. heddle_calls_again: whether the
 * calling thread's last call was this one, and found nothing. */
int heddle_calls_again(const char* name);
void heddle_calls_polled(const char* name, int found);

/* Around a call in which the job may be joined or left, and that is noted for as long as there is a
 * job. */
void heddle_calls_enter(const char* name);
void heddle_calls_leave(const char* name);

/* Made: the numbers from `first` on that have names, by the letter of the format; 0 at its end. */
struct heddle_calls_names {
  char letter;
  long long first;
  long long count;
  const char* const* names; /* null: it has none */
};
extern const struct heddle_calls_names heddle_calls_names[];
