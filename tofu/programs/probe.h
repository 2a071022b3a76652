/* The parts of the probe: questions to the library and machine about points that uTofu's
 * documentation leaves open. */
#ifndef PROBE_H
#define PROBE_H

#include "meet.h"

struct probe {
  struct meeting meeting;
  utofu_vcq_hdl_t vcq; /* on the first TNI, plain */
  utofu_vcq_id_t own;
  utofu_vcq_id_t own_raw; /* the form found in notices */
  uint64_t* memory;       /* kProbeBytes, registered with vcq */
  utofu_stadd_t stadd;
};

enum { kProbeBytes = 1 << 16 };

/* A row of the table. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void answer(const char* question, const char* format, ...);

/* "ERR_BUSY" and so on, for codes that the probe meets. */
const char* code_name(int code);

/* Polls until something is found, or for PROBE_PATIENCE seconds (0.3 unless set). Returns the code
 * of the last poll. A machine that needs longer for one command counts as not executing it. */
int poll_tcq_a_while(const struct probe* probe, utofu_vcq_hdl_t vcq, void** cbdata);
int poll_mrq_a_while(const struct probe* probe, utofu_vcq_hdl_t vcq, struct utofu_mrq_notice* notice);

/* Polls both queues for a while, to empty them. */
void drain(const struct probe* probe);

/* probe_queues.c */
void ask_resources(struct probe* probe);
void ask_toq_depth(struct probe* probe);
void ask_mrq_depth(struct probe* probe);
void ask_tcq_records(struct probe* probe);
void ask_early_credits(struct probe* probe);
void ask_credits_of_two_slots(struct probe* probe);
void ask_credits_of_get(struct probe* probe);

/* probe_memory.c */
void ask_atomicity(struct probe* probe);
void ask_order(struct probe* probe);
void ask_notices(struct probe* probe);
void ask_padding(struct probe* probe);
void ask_wide_edata(struct probe* probe);
void ask_zero_length(struct probe* probe);
void ask_dead_stadd(struct probe* probe);
void ask_same_stadd(struct probe* probe);
/* The other process's part in ask_order, until it is told to end. */
void serve_order(struct probe* probe);

#endif
