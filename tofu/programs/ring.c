/* A token goes round a ring of processes for a number of laps. The receiver waits in one of two
 * ways: it polls the last word of the message in memory (STRONG_ORDER: that word is written last),
 * or a notice in the message receive queue. The token carries a payload of many packets, checked at
 * each stop.
 *
 *   ring [LAPS [WORDS]]         prints "ring: N laps of N processes, N words: right" */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meet.h"

struct card {
  utofu_vcq_id_t vcq;
  utofu_stadd_t inbox;
};

struct ring {
  struct meeting meeting;
  utofu_vcq_hdl_t vcq;
  utofu_vcq_id_t right;
  /* two slots: token n goes to slot n % 2, so that it does not overwrite one that is being read */
  utofu_stadd_t right_inbox;
  volatile uint64_t* inbox;
  uint64_t* outbox;
  utofu_stadd_t registered[2]; /* inbox, outbox */
  size_t words;                /* of a token: payload and, last, its number */
};

static void join(struct ring* ring, size_t words) {
  meet_begin(&ring->meeting);
  ring->words = words;
  const size_t bytes = words * sizeof(uint64_t);
  ring->vcq = open_vcq(&ring->meeting, 0, 0);
  ring->inbox = get_memory(&ring->meeting, 2 * bytes);
  ring->outbox = get_memory(&ring->meeting, bytes);
  ring->registered[0] = register_memory(&ring->meeting, ring->vcq, (void*)ring->inbox, 2 * bytes);
  ring->registered[1] = register_memory(&ring->meeting, ring->vcq, ring->outbox, bytes);
  const struct card mine = {id_of(&ring->meeting, ring->vcq), ring->registered[0]};
  struct card* const all = calloc((size_t)ring->meeting.size, sizeof *all);
  meet_all(&ring->meeting, &mine, sizeof mine, all);
  const struct card right = all[(ring->meeting.rank + 1) % ring->meeting.size];
  ring->right = reach(&ring->meeting, right.vcq);
  ring->right_inbox = right.inbox;
  free(all);
}

/* Puts token `number` to the right neighbour, and waits until the outbox may be reused. */
static void pass(struct ring* ring, uint64_t number, int with_notice) {
  const size_t bytes = ring->words * sizeof(uint64_t);
  for (size_t i = 0; i + 1 < ring->words; i++) ring->outbox[i] = pattern(number, i);
  ring->outbox[ring->words - 1] = number;
  unsigned long flags = UTOFU_ONESIDED_FLAG_STRONG_ORDER | UTOFU_ONESIDED_FLAG_TCQ_NOTICE;
  if (with_notice) flags = UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE | UTOFU_ONESIDED_FLAG_TCQ_NOTICE;
  must(&ring->meeting,
       utofu_put(ring->vcq, ring->right, ring->registered[1], ring->right_inbox + number % 2 * bytes, bytes,
                 number & 0xFF, flags, ring),
       "utofu_put");
  if (next_sent(&ring->meeting, ring->vcq) != ring) wrong(&ring->meeting, "the wrong command was completed");
}

static void await(struct ring* ring, uint64_t number, int with_notice) {
  volatile uint64_t* const slot = ring->inbox + number % 2 * ring->words;
  if (with_notice) {
    const struct utofu_mrq_notice notice = next_notice(&ring->meeting, ring->vcq);
    if (notice.notice_type != UTOFU_MRQ_TYPE_RMT_PUT) wrong(&ring->meeting, "notice of type %d", notice.notice_type);
    if (notice.edata != (number & 0xFF))
      wrong(&ring->meeting, "notice of %" PRIu64 " instead of %" PRIu64, notice.edata, number & 0xFF);
    if (slot[ring->words - 1] != number) wrong(&ring->meeting, "notice before the data of token %" PRIu64, number);
  } else {
    while (peek(&slot[ring->words - 1]) != number) give_way();
  }
  for (size_t i = 0; i + 1 < ring->words; i++)
    if (slot[i] != pattern(number, i)) wrong(&ring->meeting, "token %" PRIu64 " damaged in word %zu", number, i);
}

static void laps(struct ring* ring, uint64_t first, uint64_t laps, int with_notice) {
  const uint64_t last = first + laps * (uint64_t)ring->meeting.size;
  /* Rank n mod size passes token n: its number says how often it was passed. */
  for (uint64_t number = first + (uint64_t)ring->meeting.rank; number < last; number += (uint64_t)ring->meeting.size) {
    if (number != first) await(ring, number - 1, with_notice);
    pass(ring, number, with_notice);
  }
  if (ring->meeting.rank == 0) await(ring, last - 1, with_notice);
  meet_everybody(&ring->meeting);
}

int main(int argc, char** argv) {
  static const char kUsage[] = "ring [LAPS [WORDS]]";
  if (argc > 3) misused(kUsage);
  const uint64_t rounds = argc > 1 ? whole_number(argv[1], 1, kMostRounds, kUsage) : 20;
  const size_t words = argc > 2 ? whole_number(argv[2], 1, kMostPutBytes / sizeof(uint64_t), kUsage) : 3000;
  struct ring ring;
  join(&ring, words);
  /* not zero, the memory's initial value; rank 0 passes it */
  const uint64_t first = 2 * (uint64_t)ring.meeting.size;
  laps(&ring, first, rounds, 0);
  laps(&ring, first + rounds * (uint64_t)ring.meeting.size, rounds, 1);
  close_vcq(&ring.meeting, ring.vcq, ring.registered, 2);
  free((void*)ring.inbox);
  free(ring.outbox);
  if (ring.meeting.rank == 0)
    printf("ring: %" PRIu64 " laps of %d processes, %zu words: right\n", 2 * rounds, ring.meeting.size, words);
  return 0;
}
