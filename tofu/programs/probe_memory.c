/* When writes become visible, what notices carry, and what is not checked. */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probe.h"

enum { kAdds = 5000, kRounds = 150, kOrderWords = 2000 };

static void* add_by_processor(void* word) {
  for (int i = 0; i < kAdds; i++) {
    __atomic_fetch_add((uint64_t*)word, 1, __ATOMIC_SEQ_CST);
    if (i % 64 == 0) give_way();
  }
  return NULL;
}

void ask_atomicity(struct probe* probe) {
  uint64_t* const word = probe->memory;
  __atomic_store_n(word, 0, __ATOMIC_SEQ_CST);
  pthread_t processor;
  if (pthread_create(&processor, NULL, add_by_processor, word) != 0) wrong(&probe->meeting, "no thread");
  for (int i = 0; i < kAdds; i++) {
    POST(&probe->meeting, probe->vcq,
         utofu_armw8(probe->vcq, probe->own, UTOFU_ARMW_OP_ADD, 1, probe->stadd, 0,
                     UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, NULL));
    next_notice(&probe->meeting, probe->vcq);
  }
  pthread_join(processor, NULL);
  const uint64_t lost = 2 * kAdds - __atomic_load_n(word, __ATOMIC_SEQ_CST);
  if (lost == 0) {
    answer("atomicity, CPU against NIC", "nothing lost in %d + %d additions", kAdds, kAdds);
  } else {
    answer("atomicity, CPU against NIC", "NO: %" PRIu64 " of %d + %d additions lost", lost, kAdds, kAdds);
  }
  drain(probe);
}

/* Order. The sender fills words with the number of the round: by one long put, or by a long put and
 * then a short one into the last word. The watcher waits for the last word and checks whether all
 * others are there. */
enum { kEnd = 1, kOneRelaxed, kOneOrdered, kTwoRelaxed, kTwoOrdered };

struct order_card {
  utofu_vcq_id_t vcq;
  utofu_stadd_t stadd;
};

/* Layout of the probe's memory: watched words; the sender's words; the helper's mailbox. */
enum { kSourceAt = 3 * 1024, kMailboxAt = 7 * 1024 };

static void send_words(struct probe* probe, const struct order_card* to, int what, uint64_t round) {
  uint64_t* const source = probe->memory + kSourceAt;
  for (int i = 0; i < kOrderWords; i++) source[i] = round;
  const int ordered = what == kOneOrdered || what == kTwoOrdered;
  const int two = what == kTwoRelaxed || what == kTwoOrdered;
  const unsigned long flags = (ordered ? UTOFU_ONESIDED_FLAG_STRONG_ORDER : 0) | UTOFU_ONESIDED_FLAG_TCQ_NOTICE;
  const size_t words = two ? kOrderWords - 1 : kOrderWords;
  POST(&probe->meeting, probe->vcq,
       utofu_put(probe->vcq, to->vcq, probe->stadd + kSourceAt * sizeof(uint64_t), to->stadd, words * sizeof(uint64_t),
                 0, flags, NULL));
  if (two)
    POST(&probe->meeting, probe->vcq,
         utofu_put_piggyback8(probe->vcq, to->vcq, round, to->stadd + words * sizeof(uint64_t), 8, 0, flags, NULL));
  for (int i = 0; i < (two ? 2 : 1); i++) next_sent(&probe->meeting, probe->vcq);
}

static void exchange_cards(struct probe* probe, struct order_card cards[2]) {
  const struct order_card mine = {probe->own_raw, probe->stadd};
  struct order_card* const all = calloc((size_t)probe->meeting.size, sizeof *all);
  meet_all(&probe->meeting, &mine, sizeof mine, all);
  memcpy(cards, all, 2 * sizeof *cards);
  free(all);
  for (int i = 0; i < 2; i++) cards[i].vcq = reach(&probe->meeting, cards[i].vcq);
}

void serve_order(struct probe* probe) {
  struct order_card cards[2];
  exchange_cards(probe, cards);
  volatile uint64_t* const mailbox = probe->memory + kMailboxAt;
  for (uint64_t last = 0;;) {
    const uint64_t mail = peek(mailbox);
    if (mail == last) {
      give_way();
      continue;
    }
    last = mail;
    if (mail % 8 == kEnd) return;
    send_words(probe, &cards[0], (int)(mail % 8), mail / 8);
  }
}

static void post_mail(struct probe* probe, const struct order_card* helper, int what, uint64_t round) {
  POST(&probe->meeting, probe->vcq,
       utofu_put_piggyback8(probe->vcq, helper->vcq, round * 8 + (uint64_t)what,
                            helper->stadd + kMailboxAt * sizeof(uint64_t), 8, 0, UTOFU_ONESIDED_FLAG_TCQ_NOTICE, NULL));
  next_sent(&probe->meeting, probe->vcq);
}

/* The number of rounds in which the last word was there before another one. */
static int early_rounds(struct probe* probe, const struct order_card* helper, int what, uint64_t* round) {
  volatile uint64_t* const watched = probe->memory;
  const struct order_card myself = {probe->own, probe->stadd};
  int early = 0;
  for (int i = 0; i < kRounds; i++, ++*round) {
    if (helper) {
      post_mail(probe, helper, what, *round);
    } else {
      send_words(probe, &myself, what, *round);
    }
    while (peek(&watched[kOrderWords - 1]) != *round) give_way();
    int missing = 0;
    for (int word = 0; word < kOrderWords; word++) missing += watched[word] != *round;
    early += missing > 0;
    for (int word = 0; word < kOrderWords; word++)
      while (peek(&watched[word]) != *round) give_way();
  }
  return early;
}

void ask_order(struct probe* probe) {
  const int helped = probe->meeting.size > 1;
  struct order_card cards[2];
  if (helped) exchange_cards(probe, cards);
  const char* const between = helped ? "from another process" : "from oneself";
  static const struct {
    const char* name;
    int what;
  } kCases[] = {{"order, one put", kOneRelaxed},
                {"order, one put, STRONG", kOneOrdered},
                {"order, put and flag", kTwoRelaxed},
                {"order, put and flag, STRONG", kTwoOrdered}};
  uint64_t round = 1000;
  for (size_t i = 0; i < sizeof kCases / sizeof kCases[0]; i++) {
    const int early = early_rounds(probe, helped ? &cards[1] : NULL, kCases[i].what, &round);
    answer(kCases[i].name, "%s, last word too early in %d of %d rounds", between, early, kRounds);
  }
  if (helped) post_mail(probe, &cards[1], kEnd, round);
}

/* An address, as its distance from the expected one where it is near. */
static void place(char* text, size_t bytes, utofu_stadd_t stadd, utofu_stadd_t base) {
  if (stadd >= base && stadd < base + kProbeBytes) {
    snprintf(text, bytes, "start%+lld", (long long)(stadd - base));
  } else {
    snprintf(text, bytes, "%#" PRIx64, stadd);
  }
}

static void tell_notices(struct probe* probe, const char* what, int count, utofu_stadd_t target) {
  static const char* const kTypes[] = {"LCL_PUT", "RMT_PUT", "LCL_GET", "RMT_GET", "LCL_ARMW", "RMT_ARMW"};
  for (int i = 0; i < count; i++) {
    struct utofu_mrq_notice notice;
    memset(&notice, 0, sizeof notice);
    const int code = poll_mrq_a_while(probe, probe->vcq, &notice);
    char name[64];
    if (code != UTOFU_SUCCESS || notice.notice_type > UTOFU_MRQ_TYPE_RMT_ARMW) {
      answer("notices", "of %s: %s, type %d", what, code_name(code), notice.notice_type);
      continue;
    }
    char local[32];
    char remote[32];
    char value[32];
    place(local, sizeof local, notice.lcl_stadd, probe->stadd);
    place(remote, sizeof remote, notice.rmt_stadd, target);
    place(value, sizeof value, notice.rmt_value, target);
    snprintf(name, sizeof name, "notices, %s", kTypes[notice.notice_type]);
    answer(name, "of %s: vcq %s, edata %#" PRIx64 ", lcl %s, rmt %s, rmt_value %s", what,
           notice.vcq_id == probe->own_raw ? "raw" : "other", notice.edata, local, remote, value);
  }
}

void ask_notices(struct probe* probe) {
  const unsigned long flags = UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE | UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE;
  const utofu_stadd_t target = probe->stadd + 4096;
  must(&probe->meeting, utofu_put(probe->vcq, probe->own, probe->stadd, target, 24, 0x5A, flags, NULL), "utofu_put");
  tell_notices(probe, "put of 24 B", 2, target);
  must(&probe->meeting, utofu_get(probe->vcq, probe->own, probe->stadd, target, 24, 0x5B, flags, NULL), "utofu_get");
  tell_notices(probe, "get of 24 B", 2, target);
  must(&probe->meeting, utofu_armw8(probe->vcq, probe->own, UTOFU_ARMW_OP_SWAP, 7, target, 0x5C, flags, NULL),
       "utofu_armw8");
  tell_notices(probe, "swap8", 2, target);
  drain(probe);
}

/* A separate line: which part of it does a padded put of 8 bytes write? */
void ask_padding(struct probe* probe) {
  enum { kLine = 256, kAt = 1024 };
  unsigned char* const line = (unsigned char*)probe->memory + kAt;
  memset(line - kLine, 0xEE, 3 * kLine);
  must(&probe->meeting,
       utofu_put_piggyback8(
           probe->vcq, probe->own, 0x1111111111111111u, probe->stadd + kAt + 64, 8, 0,
           UTOFU_ONESIDED_FLAG_PADDING | UTOFU_ONESIDED_FLAG_CACHE_INJECTION | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE,
           NULL),
       "utofu_put_piggyback8");
  next_notice(&probe->meeting, probe->vcq);
  int inside = 0;
  int outside = 0;
  for (int i = -kLine; i < 2 * kLine; i++) {
    if ((i >= 64 && i < 72) || line[i] == 0xEE) continue;
    if (i >= 0 && i < kLine)
      inside++;
    else
      outside++;
  }
  answer("padding", "8 bytes put: %d more bytes of the line are changed, %d bytes beside it", inside, outside);
  drain(probe);
}

static void tell_fate(struct probe* probe, const char* question, int code) {
  if (code != UTOFU_SUCCESS) {
    answer(question, "refused by the call: %s", code_name(code));
    return;
  }
  void* cbdata;
  answer(question, "accepted; poll_tcq: %s", code_name(poll_tcq_a_while(probe, probe->vcq, &cbdata)));
  struct utofu_mrq_notice notice;
  memset(&notice, 0, sizeof notice);
  const int poll = poll_mrq_a_while(probe, probe->vcq, &notice);
  answer(question, "poll_mrq: %s, edata %#" PRIx64, code_name(poll), notice.edata);
}

void ask_wide_edata(struct probe* probe) {
  const unsigned long flags = UTOFU_ONESIDED_FLAG_TCQ_NOTICE | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE;
  tell_fate(probe, "edata", utofu_put_piggyback8(probe->vcq, probe->own, 1, probe->stadd, 8, 0x1FF, flags, NULL));
}

void ask_zero_length(struct probe* probe) {
  const unsigned long flags = UTOFU_ONESIDED_FLAG_TCQ_NOTICE | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE;
  tell_fate(probe, "zero-length",
            utofu_put(probe->vcq, probe->own, probe->stadd, probe->stadd + 64, 0, 0, flags, NULL));
}

void ask_dead_stadd(struct probe* probe) {
  uint64_t* const memory = get_memory(&probe->meeting, 1 << 16);
  const utofu_stadd_t dead = register_memory(&probe->meeting, probe->vcq, memory, 1 << 16);
  must(&probe->meeting, utofu_dereg_mem(probe->vcq, dead, 0), "utofu_dereg_mem");
  const unsigned long flags = UTOFU_ONESIDED_FLAG_TCQ_NOTICE | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE;
  tell_fate(probe, "dead-stadd", utofu_put_piggyback8(probe->vcq, probe->own, 1, dead, 8, 0, flags, NULL));
  free(memory);
}

/* The same memory registered with every VCQ of a TNI: which VCQs get the same address, and do they
 * share one CQ? */
void ask_same_stadd(struct probe* probe) {
  enum { kMost = 16 };
  utofu_tni_id_t* tnis;
  size_t tni_count;
  must(&probe->meeting, utofu_get_onesided_tnis(&tnis, &tni_count), "utofu_get_onesided_tnis");
  utofu_vcq_hdl_t vcqs[kMost];
  utofu_stadd_t stadds[kMost];
  utofu_cq_id_t cqs[kMost];
  int count = 0;
  while (count < kMost && utofu_create_vcq(tnis[tni_count - 1], 0, &vcqs[count]) == UTOFU_SUCCESS) {
    uint8_t coords[6];
    utofu_tni_id_t tni;
    uint16_t extra;
    must(&probe->meeting, utofu_query_vcq_info(id_of(&probe->meeting, vcqs[count]), coords, &tni, &cqs[count], &extra),
         "utofu_query_vcq_info");
    stadds[count] = register_memory(&probe->meeting, vcqs[count], probe->memory, kProbeBytes);
    count++;
  }
  int same_cq[2] = {0, 0};
  int other_cq[2] = {0, 0};
  for (int i = 0; i < count; i++)
    for (int j = 0; j < i; j++) ++(cqs[i] == cqs[j] ? same_cq : other_cq)[stadds[i] == stadds[j]];
  answer("same-stadd", "pairs of VCQs on one CQ: %d same, %d not; on two CQs: %d same, %d not", same_cq[1], same_cq[0],
         other_cq[1], other_cq[0]);
  for (int i = 0; i < count; i++) {
    must(&probe->meeting, utofu_dereg_mem(vcqs[i], stadds[i], 0), "utofu_dereg_mem");
    must(&probe->meeting, utofu_free_vcq(vcqs[i]), "utofu_free_vcq");
  }
  free(tnis);
}
