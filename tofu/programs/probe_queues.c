/* The number of queues, their length, and what session-mode queues count. */
#include <stdio.h>
#include <stdlib.h>

#include "probe.h"

enum { kMostVcqs = 1024, kMostPosts = 1 << 22 };

/* Counts the VCQs of one kind on all TNIs together, and reports the error that ends the count. */
static void count_vcqs(struct probe* probe, const char* name, unsigned long flags) {
  static utofu_vcq_hdl_t vcqs[kMostVcqs];
  utofu_tni_id_t* tnis;
  size_t tni_count;
  must(&probe->meeting, utofu_get_onesided_tnis(&tnis, &tni_count), "utofu_get_onesided_tnis");
  size_t all = 0;
  size_t least = kMostVcqs;
  size_t most = 0;
  int why = UTOFU_SUCCESS;
  for (size_t i = 0; i < tni_count; i++) {
    size_t here = 0;
    while (all < kMostVcqs && (why = utofu_create_vcq(tnis[i], flags, &vcqs[all])) == UTOFU_SUCCESS) all++, here++;
    if (here < least) least = here;
    if (here > most) most = here;
  }
  answer(name, "%zu on %zu TNIs (%zu to %zu on one), then %s", all, tni_count, least, most, code_name(why));
  for (size_t i = 0; i < all; i++) must(&probe->meeting, utofu_free_vcq(vcqs[i]), "utofu_free_vcq");
  free(tnis);
}

void ask_resources(struct probe* probe) {
  answer("resources", "besides the probe's own plain VCQ:");
  count_vcqs(probe, "resources, plain VCQs", 0);
  count_vcqs(probe, "resources, exclusive VCQs", UTOFU_VCQ_FLAG_EXCLUSIVE);
  count_vcqs(probe, "resources, session-mode VCQs", UTOFU_VCQ_FLAG_SESSION_MODE);
}

/* Nothing is polled, so no slot becomes free. */
void ask_toq_depth(struct probe* probe) {
  long posted = 0;
  int code = UTOFU_SUCCESS;
  while (posted < kMostPosts && (code = utofu_nop(probe->vcq, 0, NULL)) == UTOFU_SUCCESS) posted++;
  if (code == UTOFU_SUCCESS) {
    answer("toq-depth", "more than %ld: places become free without poll_tcq", posted);
  } else {
    answer("toq-depth", "%ld places, then %s", posted, code_name(code));
  }
  void* cbdata;
  int later = UTOFU_ERR_BUSY;
  for (int i = 0; i < 1000000 && later == UTOFU_ERR_BUSY; i++) {
    const int poll = utofu_poll_tcq(probe->vcq, 0, &cbdata);
    if (poll != UTOFU_ERR_NOT_FOUND) must(&probe->meeting, poll, "utofu_poll_tcq");
    give_way();
    later = utofu_nop(probe->vcq, 0, NULL);
  }
  answer("toq-depth, after poll_tcq", "%s", code_name(later));
  drain(probe);
}

/* Ends the job: the last number printed is the depth, or a little less. */
void ask_mrq_depth(struct probe* probe) {
  for (long notices = 1;; notices++) {
    POST(&probe->meeting, probe->vcq,
         utofu_put_piggyback8(probe->vcq, probe->own, 1, probe->stadd, sizeof(uint64_t), 0,
                              UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE, NULL));
    size_t unread = 0;
    while (unread < (size_t)notices) {
      must(&probe->meeting, utofu_query_num_unread_mrq(probe->vcq, &unread), "utofu_query_num_unread_mrq");
      give_way();
    }
    if (notices % 16 == 0) answer("mrq-depth", "at least %ld", notices);
  }
}

static int count_tcq(const struct probe* probe) {
  void* cbdata;
  int records = 0;
  while (poll_tcq_a_while(probe, probe->vcq, &cbdata) == UTOFU_SUCCESS) records++;
  return records;
}

void ask_tcq_records(struct probe* probe) {
  const unsigned long flags = UTOFU_ONESIDED_FLAG_TCQ_NOTICE;
  uint64_t data[4] = {1, 2, 3, 4};
  must(&probe->meeting, utofu_put_piggyback(probe->vcq, probe->own, data, probe->stadd, 32, 0, flags, NULL),
       "utofu_put_piggyback");
  answer("tcq-records, piggyback 32 B", "%d", count_tcq(probe));
  must(&probe->meeting, utofu_cswap8(probe->vcq, probe->own, 1, 2, probe->stadd, 0, flags, NULL), "utofu_cswap8");
  answer("tcq-records, cswap8", "%d", count_tcq(probe));
  const unsigned long both = flags | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE;
  must(&probe->meeting,
       utofu_put_stride(probe->vcq, probe->own, probe->stadd, probe->stadd + 4096, 8, 64, 3, 0, both, NULL),
       "utofu_put_stride");
  answer("tcq-records, 3 strides", "%d", count_tcq(probe));
  struct utofu_mrq_notice notice;
  int notices = 0;
  while (poll_mrq_a_while(probe, probe->vcq, &notice) == UTOFU_SUCCESS) notices++;
  answer("tcq-records, and notices", "%d", notices);
}

struct session {
  utofu_vcq_hdl_t vcq;
  utofu_vcq_id_t id;
  utofu_stadd_t stadd; /* of the probe's memory */
};

static int open_session(struct probe* probe, struct session* session, const char* question) {
  utofu_tni_id_t* tnis;
  size_t count;
  must(&probe->meeting, utofu_get_onesided_tnis(&tnis, &count), "utofu_get_onesided_tnis");
  const int code = utofu_create_vcq(tnis[count - 1], UTOFU_VCQ_FLAG_SESSION_MODE, &session->vcq);
  free(tnis);
  if (code != UTOFU_SUCCESS) {
    answer(question, "no session-mode VCQ to be had: %s", code_name(code));
    return 0;
  }
  session->id = reach(&probe->meeting, id_of(&probe->meeting, session->vcq));
  session->stadd = register_memory(&probe->meeting, session->vcq, probe->memory, kProbeBytes);
  return 1;
}

static void close_session(struct probe* probe, struct session* session) {
  must(&probe->meeting, utofu_dereg_mem(session->vcq, session->stadd, 0), "utofu_dereg_mem");
  must(&probe->meeting, utofu_free_vcq(session->vcq), "utofu_free_vcq");
}

static void send_credit(struct probe* probe, const struct session* session) {
  POST(&probe->meeting, probe->vcq,
       utofu_put_piggyback8(probe->vcq, session->id, 0, session->stadd, 8, 0,
                            UTOFU_ONESIDED_FLAG_SPS(1) | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, NULL));
  next_notice(&probe->meeting, probe->vcq); /* the data is stored and the credit has arrived */
}

void ask_early_credits(struct probe* probe) {
  struct session session;
  if (!open_session(probe, &session, "early-credits")) return;
  send_credit(probe, &session); /* before any command is posted */
  must(&probe->meeting, utofu_nop(session.vcq, UTOFU_ONESIDED_FLAG_TCQ_NOTICE, NULL), "utofu_nop");
  void* cbdata;
  const int code = poll_tcq_a_while(probe, session.vcq, &cbdata);
  answer("early-credits", "%s", code == UTOFU_SUCCESS ? "kept" : "lost");
  if (code != UTOFU_SUCCESS) {
    send_credit(probe, &session);
    next_sent(&probe->meeting, session.vcq);
  }
  close_session(probe, &session);
}

void ask_credits_of_two_slots(struct probe* probe) {
  struct session session;
  if (!open_session(probe, &session, "credits-per-slot")) return;
  uint64_t data[4] = {1, 2, 3, 4};
  must(&probe->meeting,
       utofu_put_piggyback(session.vcq, probe->own, data, probe->stadd, 32, 0, UTOFU_ONESIDED_FLAG_TCQ_NOTICE, NULL),
       "utofu_put_piggyback");
  int credits = 0;
  void* cbdata;
  do {
    send_credit(probe, &session);
    credits++;
  } while (poll_tcq_a_while(probe, session.vcq, &cbdata) == UTOFU_ERR_NOT_FOUND && credits < 4);
  answer("credits-per-slot", "a piggyback of 32 bytes needs %d credits", credits);
  close_session(probe, &session);
}

/* A get with SPS(1) to the session-mode VCQ: does the credit count at the target? */
void ask_credits_of_get(struct probe* probe) {
  struct session session;
  if (!open_session(probe, &session, "credits-of-get")) return;
  void* cbdata;
  must(&probe->meeting, utofu_nop(session.vcq, UTOFU_ONESIDED_FLAG_TCQ_NOTICE, NULL), "utofu_nop");
  POST(&probe->meeting, probe->vcq,
       utofu_get(probe->vcq, session.id, probe->stadd, session.stadd + 4096, 8, 0,
                 UTOFU_ONESIDED_FLAG_SPS(1) | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, NULL));
  next_notice(&probe->meeting, probe->vcq);
  const int at_target = poll_tcq_a_while(probe, session.vcq, &cbdata) == UTOFU_SUCCESS;
  answer("credits-of-get", "%s", at_target ? "count where the data is read" : "do not count where the data is read");
  if (!at_target) {
    send_credit(probe, &session);
    next_sent(&probe->meeting, session.vcq);
  }
  close_session(probe, &session);
}
