/* A pipelined broadcast along a chain, executed by the network interfaces. Rank 0 puts the segments
 * of a message to rank 1. The arrival of a segment releases (SPS) the command that puts it to the
 * next rank; this command waits in a session-mode queue. After the start, no processor between the
 * first and the last rank does any work.
 *
 * Readiness travels in the opposite direction, through a second session-mode queue: a rank is ready
 * when it has posted its commands and its successor is ready. These are two events, so there are
 * two commands: a nop takes the credit of the first event, and the put behind it, which notifies
 * the predecessor, that of the second. A rank's own event is a put to itself. Commands are prepared
 * once and posted again for every broadcast.
 *
 *   bcast [BROADCASTS [SEGMENTS [BYTES]]]     prints "bcast: N broadcasts of N segments to N
 *                                             processes: right" */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meet.h"

enum { kMostSegments = 24, kDescriptor = 64 };

struct card {
  /* the target queue of segments; they release its commands, except at the last rank */
  utofu_vcq_id_t data;
  utofu_stadd_t buffer;
  utofu_vcq_id_t ready; /* the target queue of the successor's readiness */
  utofu_stadd_t word;
};

struct chain {
  struct meeting meeting;
  int first, last; /* whether this rank is */
  size_t segments, bytes;
  unsigned char* buffer;
  uint64_t* word;
  utofu_vcq_hdl_t plain, data, ready;
  utofu_vcq_id_t to_myself;
  utofu_stadd_t to_my_word;
  utofu_stadd_t buffer_stadd;
  struct {
    _Alignas(8) unsigned char bytes[(kMostSegments > 2 ? kMostSegments : 2) * kDescriptor];
    size_t size;
  } forward, report;
};

static void append(const struct chain* chain, unsigned char* commands, size_t* size, const unsigned char* command,
                   size_t bytes, int code, const char* what) {
  must(&chain->meeting, code, what);
  memcpy(commands + *size, command, bytes);
  *size += bytes;
}

static void prepare_forward(struct chain* chain, const struct card* next, int next_is_last, utofu_stadd_t own) {
  for (size_t segment = 0; segment < chain->segments; segment++) {
    const int is_end = segment + 1 == chain->segments;
    unsigned long flags = UTOFU_ONESIDED_FLAG_STRONG_ORDER;
    if (!next_is_last) flags |= UTOFU_ONESIDED_FLAG_SPS(1);
    if (next_is_last && is_end) flags |= UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE;
    if (is_end) flags |= UTOFU_ONESIDED_FLAG_TCQ_NOTICE;
    _Alignas(8) unsigned char command[kDescriptor];
    size_t bytes = 0;
    const int code = utofu_prepare_put(chain->data, reach(&chain->meeting, next->data), own + segment * chain->bytes,
                                       next->buffer + segment * chain->bytes, chain->bytes, 0, flags, command, &bytes);
    append(chain, chain->forward.bytes, &chain->forward.size, command, bytes, code, "utofu_prepare_put");
  }
}

static void prepare_report(struct chain* chain, const struct card* previous, int previous_is_first) {
  _Alignas(8) unsigned char command[kDescriptor];
  size_t bytes = 0;
  if (!chain->last) {
    const int code = utofu_prepare_nop(chain->ready, 0, command, &bytes);
    append(chain, chain->report.bytes, &chain->report.size, command, bytes, code, "utofu_prepare_nop");
  }
  const unsigned long flags = UTOFU_ONESIDED_FLAG_STRONG_ORDER | UTOFU_ONESIDED_FLAG_TCQ_NOTICE |
                              (previous_is_first ? UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE : UTOFU_ONESIDED_FLAG_SPS(1));
  const int code = utofu_prepare_put_piggyback8(chain->ready, reach(&chain->meeting, previous->ready), 1,
                                                previous->word, sizeof(uint64_t), 0, flags, command, &bytes);
  append(chain, chain->report.bytes, &chain->report.size, command, bytes, code, "utofu_prepare_put_piggyback8");
}

/* A rank in the middle receives segments and readiness in two session-mode queues. The first and
 * the last rank each have no commands that wait for one of them, and use their plain queue for
 * it. */
static void join(struct chain* chain) {
  struct meeting* const meeting = &chain->meeting;
  meet_begin(meeting);
  chain->first = meeting->rank == 0;
  chain->last = meeting->rank == meeting->size - 1;
  chain->plain = open_vcq(meeting, 0, 0);
  chain->data = chain->first || chain->last ? chain->plain : open_vcq(meeting, 1, UTOFU_VCQ_FLAG_SESSION_MODE);
  chain->ready = chain->first || chain->last ? chain->plain : open_vcq(meeting, 2, UTOFU_VCQ_FLAG_SESSION_MODE);
  chain->buffer = get_memory(meeting, chain->segments * chain->bytes);
  chain->word = get_memory(meeting, sizeof *chain->word);
  const struct card mine = {
      .data = id_of(meeting, chain->data),
      .buffer = register_memory(meeting, chain->data, chain->buffer, chain->segments * chain->bytes),
      .ready = id_of(meeting, chain->ready),
      .word = register_memory(meeting, chain->ready, chain->word, sizeof *chain->word)};
  chain->to_myself = reach(meeting, mine.ready);
  chain->to_my_word = mine.word;
  chain->buffer_stadd = mine.buffer;
  struct card* const all = calloc((size_t)meeting->size, sizeof *all);
  meet_all(meeting, &mine, sizeof mine, all);
  if (!chain->last) prepare_forward(chain, &all[meeting->rank + 1], meeting->rank + 2 == meeting->size, mine.buffer);
  if (!chain->first) prepare_report(chain, &all[meeting->rank - 1], meeting->rank == 1);
  free(all);
}

static void start(struct chain* chain, uint64_t broadcast) {
  struct meeting* const meeting = &chain->meeting;
  if (chain->first) {
    for (size_t i = 0; i < chain->segments * chain->bytes; i++) chain->buffer[i] = pattern(broadcast, i);
    if (chain->last) return;
    /* all other ranks are ready */
    const struct utofu_mrq_notice notice = next_notice(meeting, chain->plain);
    if (notice.notice_type != UTOFU_MRQ_TYPE_RMT_PUT) wrong(meeting, "notice of type %d", notice.notice_type);
  }
  if (!chain->last)
    must(meeting, utofu_post_toq(chain->data, chain->forward.bytes, chain->forward.size, chain), "post the segments");
  if (chain->first) return;
  must(meeting, utofu_post_toq(chain->ready, chain->report.bytes, chain->report.size, chain), "post the report");
  if (!chain->last) /* one of the two events for which the report waits */
    must(meeting,
         utofu_put_piggyback8(
             chain->plain, chain->to_myself, 0, chain->to_my_word, sizeof(uint64_t), 0,
             UTOFU_ONESIDED_FLAG_STRONG_ORDER | UTOFU_ONESIDED_FLAG_TCQ_NOTICE | UTOFU_ONESIDED_FLAG_SPS(1), chain),
         "start oneself");
}

static void finish(struct chain* chain, uint64_t broadcast) {
  struct meeting* const meeting = &chain->meeting;
  if (!chain->first) {
    if (next_sent(meeting, chain->ready) != chain) wrong(meeting, "the wrong command was completed");
    if (!chain->last) next_sent(meeting, chain->plain);
  }
  /* the last segment was passed on, so all segments had arrived */
  if (!chain->last) next_sent(meeting, chain->data);
  if (chain->last && !chain->first) {
    const struct utofu_mrq_notice notice = next_notice(meeting, chain->plain);
    if (notice.notice_type != UTOFU_MRQ_TYPE_RMT_PUT) wrong(meeting, "notice of type %d", notice.notice_type);
  }
  for (size_t i = 0; i < chain->segments * chain->bytes; i++)
    if (chain->buffer[i] != pattern(broadcast, i))
      wrong(meeting, "broadcast %" PRIu64 " differs in byte %zu", broadcast, i);
}

static void leave(struct chain* chain) {
  meet_everybody(&chain->meeting);
  const utofu_stadd_t registered[] = {chain->buffer_stadd, chain->to_my_word};
  if (chain->data == chain->plain) { /* all three are the same queue */
    close_vcq(&chain->meeting, chain->plain, registered, 2);
    return;
  }
  close_vcq(&chain->meeting, chain->data, &registered[0], 1);
  close_vcq(&chain->meeting, chain->ready, &registered[1], 1);
  close_vcq(&chain->meeting, chain->plain, NULL, 0);
}

int main(int argc, char** argv) {
  static const char kUsage[] = "bcast [BROADCASTS [SEGMENTS [BYTES]]]";
  if (argc > 4) misused(kUsage);
  const uint64_t broadcasts = argc > 1 ? whole_number(argv[1], 1, kMostRounds, kUsage) : 20;
  static struct chain chain; /* all zero */
  chain.segments = argc > 2 ? whole_number(argv[2], 1, kMostSegments, kUsage) : 8;
  chain.bytes = argc > 3 ? whole_number(argv[3], 1, kMostPutBytes, kUsage) : 4000;
  join(&chain);
  for (uint64_t broadcast = 1; broadcast <= broadcasts; broadcast++) {
    start(&chain, broadcast);
    if (!(chain.first && chain.last)) finish(&chain, broadcast);
  }
  leave(&chain);
  if (chain.first)
    printf("bcast: %" PRIu64 " broadcasts of %zu segments to %d processes: right\n", broadcasts, chain.segments,
           chain.meeting.size);
  return 0;
}
