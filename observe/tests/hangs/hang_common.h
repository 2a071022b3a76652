/* Code that the programs of planted hangs share: options, random numbers, and the expected report
 * as one line of JSON. Everything is drawn from class and seed, so that all ranks, and --plan
 * without a job, draw the same. C11, also for C++. */
#ifndef HEDDLE_TESTS_HANG_COMMON_H
#define HEDDLE_TESTS_HANG_COMMON_H

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HANG_MOST_RANKS = 8 };

/* ---- random numbers -------------------------------------------------------------------------- */

typedef struct hang_random {
  uint64_t state;
} hang_random;

/* splitmix64 */
static inline uint64_t hang_next(hang_random* random) {
  uint64_t x = random->state += UINT64_C(0x9e3779b97f4a7c15);
  x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
  return x ^ (x >> 31);
}

static inline uint32_t hang_below(hang_random* random, uint32_t bound) {
  return (uint32_t)(hang_next(random) % bound);
}

/* low and high included */
static inline uint32_t hang_between(hang_random* random, uint32_t low, uint32_t high) {
  return low + hang_below(random, high - low + 1);
}

/* True in one case of `of`. */
static inline int hang_chance(hang_random* random, uint32_t of) {
  return hang_below(random, of) == 0;
}

/* A permutation of 0 … count - 1. */
static inline void hang_shuffle(hang_random* random, uint32_t* list, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) list[i] = i;
  for (uint32_t i = count; i > 1; --i) {
    const uint32_t j = hang_below(random, i);
    const uint32_t kept = list[i - 1];
    list[i - 1] = list[j];
    list[j] = kept;
  }
}

/* Different classes draw differently from one seed. `salt`: other streams of the same seed. */
static inline hang_random hang_seeded(const char* name, uint64_t seed, uint64_t salt) {
  uint64_t hash = UINT64_C(1469598103934665603);
  for (; *name != 0; ++name) hash = (hash ^ (unsigned char)*name) * UINT64_C(1099511628211);
  hang_random random = {hash ^ (seed * UINT64_C(0xd6e8feb86659fd93)) ^ (salt << 48)};
  (void)hang_next(&random);
  return random;
}

/* ---- options --------------------------------------------------------------------------------- */

typedef struct hang_class {
  const char* name;
  uint32_t fewest_ranks;
} hang_class;

typedef struct hang_options {
  const hang_class* chosen;
  uint64_t seed;
  uint32_t ranks; /* of --plan; 0: drawn */
  int plan;       /* print the truth and end, without a job */
  int faulty;     /* 0: the control, which ends by itself */
} hang_options;

static inline void hang_usage(const char* wrong) {
  fprintf(stderr, "wrong: %s\nusage: --class NAME --seed S [--fault planted|none] [--plan [--ranks N]] | --list\n",
          wrong);
  exit(2);
}

static inline hang_options hang_parse(int argc, char** argv, const hang_class* classes, uint32_t count) {
  hang_options options = {NULL, 0, 0, 0, 1};
  for (int i = 1; i < argc; ++i) {
    const char* name = argv[i];
    if (strcmp(name, "--list") == 0) {
      for (uint32_t j = 0; j < count; ++j) printf("%s\n", classes[j].name);
      exit(0);
    }
    if (strcmp(name, "--plan") == 0) {
      options.plan = 1;
      continue;
    }
    if (i + 1 == argc) hang_usage(name);
    const char* value = argv[++i];
    if (strcmp(name, "--class") == 0) {
      for (uint32_t j = 0; j < count; ++j) {
        if (strcmp(classes[j].name, value) == 0) options.chosen = &classes[j];
      }
      if (options.chosen == NULL) hang_usage(value);
    } else if (strcmp(name, "--seed") == 0) {
      options.seed = strtoull(value, NULL, 10);
    } else if (strcmp(name, "--ranks") == 0) {
      options.ranks = (uint32_t)strtoul(value, NULL, 10);
    } else if (strcmp(name, "--fault") == 0) {
      options.faulty = strcmp(value, "none") != 0;
    } else {
      hang_usage(name);
    }
  }
  if (options.chosen == NULL) hang_usage("no --class");
  return options;
}

/* The number of ranks that --plan says, so that the judge starts as many. */
static inline uint32_t hang_ranks(const hang_options* options) {
  if (options->ranks != 0) return options->ranks;
  hang_random random = hang_seeded(options->chosen->name, options->seed, 1);
  return hang_between(&random, options->chosen->fewest_ranks, HANG_MOST_RANKS);
}

static inline void hang_check_ranks(const hang_options* options, uint32_t ranks) {
  if (ranks >= options->chosen->fewest_ranks && ranks <= HANG_MOST_RANKS) return;
  fprintf(stderr, "wrong: %s needs %u to %d ranks\n", options->chosen->name, options->chosen->fewest_ranks,
          HANG_MOST_RANKS);
  exit(2);
}

/* ---- the truth ------------------------------------------------------------------------------- */

/* culprits: the ranks with the fault. accept: sets of ranks; a report must name one set. They are
 * the culprits by default, and sets that the evidence in the job cannot distinguish from them.
 * words: one pattern of each list must be in the sentence. */
typedef struct hang_truth {
  char culprits[64];
  char accept[256];
  char words[2048];
  char how[256];
  uint32_t step; /* of the fault, as hang_say counts */
} hang_truth;

static inline void hang_append(char* text, size_t room, const char* format, ...) {
  const size_t used = strlen(text);
  va_list list;
  va_start(list, format);
  const int more = vsnprintf(text + used, room - used, format, list);
  va_end(list);
  if (more < 0 || (size_t)more >= room - used) abort();
}

static inline void hang_blame(hang_truth* truth, uint32_t rank) {
  hang_append(truth->culprits, sizeof truth->culprits, "%s%u", truth->culprits[0] != 0 ? ", " : "", rank);
}

/* Naming this rank alone is as correct: the ranks' actions fit both. */
static inline void hang_accept(hang_truth* truth, uint32_t rank) {
  hang_append(truth->accept, sizeof truth->accept, ", [%u]", rank);
}

/* Patterns of Python's re, compared without case; the list ends with a null pointer. */
static inline void hang_words(hang_truth* truth, ...) {
  hang_append(truth->words, sizeof truth->words, "%s[", truth->words[0] != 0 ? ", " : "");
  va_list list;
  va_start(list, truth);
  const char* between = "";
  for (const char* word = va_arg(list, const char*); word != NULL; word = va_arg(list, const char*)) {
    hang_append(truth->words, sizeof truth->words, "%s\"", between);
    for (; *word != 0; ++word) {
      hang_append(truth->words, sizeof truth->words, *word == '\\' || *word == '"' ? "\\%c" : "%c", *word);
    }
    hang_append(truth->words, sizeof truth->words, "\"");
    between = ", ";
  }
  va_end(list);
  hang_append(truth->words, sizeof truth->words, "]");
}

/* A number that the sentence must have, decimal or hexadecimal. */
static inline void hang_number(hang_truth* truth, uint64_t number) {
  char decimal[32];
  char hexadecimal[32];
  snprintf(decimal, sizeof decimal, "\\b%llu\\b", (unsigned long long)number);
  snprintf(hexadecimal, sizeof hexadecimal, "\\b0x0*%llx\\b", (unsigned long long)number);
  hang_words(truth, decimal, hexadecimal, (const char*)NULL);
}

static inline void hang_print(const hang_options* options, uint32_t ranks, const hang_truth* truth) {
  printf(
      "{\"class\": \"%s\", \"seed\": %llu, \"ranks\": %u, \"culprits\": [%s], \"accept\": [[%s]%s], "
      "\"words\": [%s], \"step\": %u, \"how\": \"%s\"}\n",
      options->chosen->name, (unsigned long long)options->seed, ranks, truth->culprits, truth->culprits, truth->accept,
      truth->words, truth->step, truth->how);
  fflush(stdout);
}

/* Words that several classes require. Null-terminated, as arguments of hang_words. */
#define HANG_RECEIVE "recv|receiv|message"
#define HANG_SEND "send|sent|message"
#define HANG_OWN_CODE                                                                              \
  "comput|own code|outside|not (in|inside|within) |in no call|no call|has not called|no progress|" \
  "program|busy|running|sleep|does not call"
#define HANG_STOPPED "stopped|SIGSTOP|suspend|job control"
#define HANG_CYCLE                                                                           \
  "cycl|circle|circular|\\bring\\b|each other|deadlock|mutual|in turn|one another|the next|" \
  "(all|both)( of (them|these))? (wait|send|receiv)"
#define HANG_NO_MORE ((const char*)NULL)

/* ---- who does what --------------------------------------------------------------------------- */

/* A rank that is neither of the two. */
static inline uint32_t hang_other(hang_random* random, uint32_t ranks, uint32_t first, uint32_t second) {
  uint32_t rank = hang_below(random, ranks);
  while (rank == first || rank == second) rank = (rank + 1) % ranks;
  return rank;
}

/* A chain of ranks, each of which waits for the one before: the victim, and some ranks that are no
 * culprits. Returns their number. */
static inline uint32_t hang_chain(hang_random* random, uint32_t ranks, uint32_t victim, const uint32_t* culprits,
                                  uint32_t count, uint32_t* chain) {
  uint32_t order[HANG_MOST_RANKS];
  hang_shuffle(random, order, ranks);
  const uint32_t most = 1 + hang_below(random, ranks);
  uint32_t length = 0;
  chain[length++] = victim;
  for (uint32_t i = 0; i < ranks && length < most; ++i) {
    int free = order[i] != victim;
    for (uint32_t j = 0; j < count; ++j) free = free && order[i] != culprits[j];
    if (free) chain[length++] = order[i];
  }
  return length;
}

/* ---- what a program tells while it goes on --------------------------------------------------- */

static inline void hang_say(uint32_t rank, uint32_t step) {
  printf("rank %u: step %u\n", rank, step);
  fflush(stdout);
}

static inline void hang_fail(const char* what, const char* why) {
  fprintf(stderr, "wrong: %s: %s\n", what, why);
  fflush(stderr);
  _exit(99);
}

/* The program's own work, for ever: a computation, or a wait for a file that nobody writes. */
static inline void hang_own_work(int burns) {
  volatile uint64_t sum = 0;
  for (;;) {
    if (burns) {
      for (uint32_t i = 0; i < 1000000; ++i) sum = sum * 31 + i;
    } else if (access("/nonexistent/restart", F_OK) != 0) {
      usleep(2000);
    }
  }
}

#endif /* HEDDLE_TESTS_HANG_COMMON_H */
