/* Asks the machine and library at hand about points that uTofu's documentation leaves open. Prints
 * a table of answers, to be read beside docs/tofu.md. On the emulator the answers show what the
 * emulator was written to do; on a real machine they are facts.
 *
 *   probe               all questions that cannot do harm; the end of the table lists the others
 *   probe QUESTION...   those; the names are in the table. mrq-depth, edata, zero-length and
 *                       dead-stadd are asked only by name: the first ends the job by design, the
 *                       others may stop a queue for good.
 *
 * One process asks itself. Of two processes, on different nodes, the second helps with questions
 * about order. More than two are rejected. */
#define _POSIX_C_SOURCE 200809L
#include "probe.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct question {
  const char* name;
  void (*ask)(struct probe* probe);
  int harmless;
};

static const struct question kQuestions[] = {{"resources", ask_resources, 1},
                                             {"toq-depth", ask_toq_depth, 1},
                                             {"tcq-records", ask_tcq_records, 1},
                                             {"early-credits", ask_early_credits, 1},
                                             {"credits-per-slot", ask_credits_of_two_slots, 1},
                                             {"credits-of-get", ask_credits_of_get, 1},
                                             {"atomicity", ask_atomicity, 1},
                                             {"order", ask_order, 1},
                                             {"notices", ask_notices, 1},
                                             {"padding", ask_padding, 1},
                                             {"same-stadd", ask_same_stadd, 1},
                                             {"edata", ask_wide_edata, 0},
                                             {"zero-length", ask_zero_length, 0},
                                             {"dead-stadd", ask_dead_stadd, 0},
                                             {"mrq-depth", ask_mrq_depth, 0}};
enum { kQuestionCount = sizeof kQuestions / sizeof kQuestions[0] };

void answer(const char* question, const char* format, ...) {
  printf("| %-28s | ", question);
  va_list arguments;
  va_start(arguments, format);
  vprintf(format, arguments);
  va_end(arguments);
  printf(" |\n");
  fflush(stdout); /* printed answers remain, whatever the next question does */
}

const char* code_name(int code) {
  static const struct {
    int code;
    const char* name;
  } kNames[] = {{UTOFU_SUCCESS, "SUCCESS"},
                {UTOFU_ERR_NOT_FOUND, "nothing"},
                {UTOFU_ERR_BUSY, "ERR_BUSY"},
                {UTOFU_ERR_USED, "ERR_USED"},
                {UTOFU_ERR_FULL, "ERR_FULL"},
                {UTOFU_ERR_NOT_AVAILABLE, "ERR_NOT_AVAILABLE"},
                {UTOFU_ERR_NOT_SUPPORTED, "ERR_NOT_SUPPORTED"},
                {UTOFU_ERR_TCQ_LENGTH, "ERR_TCQ_LENGTH"},
                {UTOFU_ERR_TCQ_DESC, "ERR_TCQ_DESC"},
                {UTOFU_ERR_TCQ_STADD, "ERR_TCQ_STADD"},
                {UTOFU_ERR_MRQ_RMT_STADD, "ERR_MRQ_RMT_STADD"},
                {UTOFU_ERR_MRQ_RMT_MEMORY, "ERR_MRQ_RMT_MEMORY"},
                {UTOFU_ERR_MRQ_RMT_LENGTH, "ERR_MRQ_RMT_LENGTH"},
                {UTOFU_ERR_INVALID_SIZE, "ERR_INVALID_SIZE"},
                {UTOFU_ERR_INVALID_EDATA, "ERR_INVALID_EDATA"},
                {UTOFU_ERR_INVALID_STADD, "ERR_INVALID_STADD"}};
  for (size_t i = 0; i < sizeof kNames / sizeof kNames[0]; i++)
    if (kNames[i].code == code) return kNames[i].name;
  static char number[32];
  snprintf(number, sizeof number, "%d", code);
  return number;
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double patience(void) {
  const char* const asked = getenv("PROBE_PATIENCE");
  return asked ? atof(asked) : 0.3;
}

int poll_tcq_a_while(const struct probe* probe, utofu_vcq_hdl_t vcq, void** cbdata) {
  (void)probe;
  int code;
  for (const double end = seconds() + patience(); (code = utofu_poll_tcq(vcq, 0, cbdata)) == UTOFU_ERR_NOT_FOUND;) {
    if (seconds() > end) break;
    give_way();
  }
  return code;
}

int poll_mrq_a_while(const struct probe* probe, utofu_vcq_hdl_t vcq, struct utofu_mrq_notice* notice) {
  (void)probe;
  int code;
  for (const double end = seconds() + patience(); (code = utofu_poll_mrq(vcq, 0, notice)) == UTOFU_ERR_NOT_FOUND;) {
    if (seconds() > end) break;
    give_way();
  }
  return code;
}

void drain(const struct probe* probe) {
  void* cbdata;
  struct utofu_mrq_notice notice;
  while (poll_tcq_a_while(probe, probe->vcq, &cbdata) != UTOFU_ERR_NOT_FOUND) {
  }
  while (utofu_poll_mrq(probe->vcq, 0, &notice) != UTOFU_ERR_NOT_FOUND) {
  }
}

static void ask_machine(struct probe* probe) {
  int tofu[2];
  int utofu[2];
  uint8_t coords[6];
  utofu_query_tofu_version(&tofu[0], &tofu[1]);
  utofu_query_utofu_version(&utofu[0], &utofu[1]);
  must(&probe->meeting, utofu_query_my_coords(coords), "utofu_query_my_coords");
  answer("versions", "Tofu %d.%d, uTofu %d.%d", tofu[0], tofu[1], utofu[0], utofu[1]);
  answer("coordinates", "%d %d %d %d %d %d", coords[0], coords[1], coords[2], coords[3], coords[4], coords[5]);
}

static void begin(struct probe* probe) {
  meet_begin(&probe->meeting);
  if (probe->meeting.size > 2) {
    fprintf(stderr, "probe: there are %d processes; start one, or two on different nodes\n", probe->meeting.size);
    exit(2);
  }
  probe->vcq = open_vcq(&probe->meeting, 0, 0);
  probe->memory = get_memory(&probe->meeting, kProbeBytes);
  probe->stadd = register_memory(&probe->meeting, probe->vcq, probe->memory, kProbeBytes);
  probe->own_raw = id_of(&probe->meeting, probe->vcq);
  probe->own = reach(&probe->meeting, probe->own_raw);
}

static void tell_what_was_left(void) {
  printf("not asked, since they may do harm, but by name:");
  for (int q = 0; q < kQuestionCount; q++)
    if (!kQuestions[q].harmless) printf(" %s", kQuestions[q].name);
  printf("\n");
}

static int named(const char* name, int count, char** names) {
  for (int i = 0; i < count; i++)
    if (strcmp(name, names[i]) == 0) return 1;
  return 0;
}

int main(int argc, char** argv) {
  for (int i = 1; i < argc; i++) {
    int known = 0;
    for (int q = 0; q < kQuestionCount; q++) known = known || strcmp(argv[i], kQuestions[q].name) == 0;
    if (known) continue;
    fprintf(stderr, "probe: no question is called %s; there are", argv[i]);
    for (int q = 0; q < kQuestionCount; q++) fprintf(stderr, " %s", kQuestions[q].name);
    fputc('\n', stderr);
    return 2;
  }
  static struct probe probe;
  begin(&probe);
  if (probe.meeting.rank == 0) {
    ask_machine(&probe);
    for (int q = 0; q < kQuestionCount; q++)
      if (argc > 1 ? named(kQuestions[q].name, argc - 1, argv + 1) : kQuestions[q].harmless) kQuestions[q].ask(&probe);
    if (argc == 1) tell_what_was_left();
  } else if (probe.meeting.rank == 1 && (argc == 1 || named("order", argc - 1, argv + 1))) {
    serve_order(&probe);
  }
  meet_everybody(&probe.meeting);
  close_vcq(&probe.meeting, probe.vcq, &probe.stadd, 1);
  return 0;
}
