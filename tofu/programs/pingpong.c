/* Ping-pong of many threads, as in the measurements of UCX on Fugaku: thread t of a rank plays with
 * thread t of its partner. Adjacent threads share a VCQ if there are more threads than VCQs.
 * Messages up to 32 bytes go by piggyback; the receiver polls the last word of the message. Every
 * message is checked.
 *
 *   pingpong [THREADS [VCQS [MOST_BYTES [ROUNDS]]]]
 *
 * prints for each size half the time of a round trip, in wall-clock time and, if the library has a
 * timing model that is switched on, in the model's time. */
#define _POSIX_C_SOURCE 200809L /* pthread_barrier_t */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "meet.h"

enum { kMostThreads = 256 };

struct player {
  struct game* game;
  int number;
  pthread_t thread;
  utofu_vcq_hdl_t vcq;
  utofu_vcq_id_t partner;
  utofu_stadd_t partner_inbox;
  volatile uint64_t* inbox;
  uint64_t* outbox;
  utofu_stadd_t outbox_stadd;
  utofu_stadd_t inbox_stadd;
  atomic_uint_fast64_t sent; /* incremented by the thread of the VCQ that polls the completion */
  uint64_t posted;
  uint64_t serial; /* of messages in both directions */
  double wall_us, model_us;
};

struct game {
  struct meeting meeting;
  int threads, vcqs;
  uint64_t rounds;
  size_t most_words, words;
  pthread_barrier_t all_threads;
  struct player players[kMostThreads];
};

struct card {
  utofu_vcq_id_t vcq;
  utofu_stadd_t inbox;
};

static double now_us(void) {
  struct timespec now;
  timespec_get(&now, TIME_UTC);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void collect_sent(struct player* player) {
  void* cbdata;
  const int code = utofu_poll_tcq(player->vcq, 0, &cbdata);
  if (code == UTOFU_ERR_NOT_FOUND || code == UTOFU_ERR_BUSY) return;
  must(&player->game->meeting, code, "utofu_poll_tcq");
  atomic_fetch_add(&((struct player*)cbdata)->sent, 1);
}

static void throw_ball(struct player* player, uint64_t serial) {
  const size_t words = player->game->words;
  const size_t bytes = words * sizeof(uint64_t);
  const unsigned long flags = UTOFU_ONESIDED_FLAG_STRONG_ORDER | UTOFU_ONESIDED_FLAG_TCQ_NOTICE;
  /* the outbox is free */
  while (atomic_load(&player->sent) != player->posted) collect_sent(player);
  for (size_t i = 0; i + 1 < words; i++) player->outbox[i] = pattern(serial, i);
  player->outbox[words - 1] = serial;
  int code;
  do {
    if (bytes <= 32) {
      code = utofu_put_piggyback(player->vcq, player->partner, player->outbox, player->partner_inbox, bytes, 0, flags,
                                 player);
    } else {
      code =
          utofu_put(player->vcq, player->partner, player->outbox_stadd, player->partner_inbox, bytes, 0, flags, player);
    }
    if (code == UTOFU_ERR_BUSY) collect_sent(player), give_way();
  } while (code == UTOFU_ERR_BUSY);
  must(&player->game->meeting, code, "put");
  player->posted++;
}

static void catch_ball(struct player* player, uint64_t serial) {
  const size_t words = player->game->words;
  while (peek(&player->inbox[words - 1]) != serial) give_way();
  model_saw(&player->inbox[words - 1]);
  for (size_t i = 0; i + 1 < words; i++)
    if (player->inbox[i] != pattern(serial, i))
      wrong(&player->game->meeting, "thread %d, message %" PRIu64 " damaged in word %zu", player->number, serial, i);
}

static void play(struct player* player) {
  struct game* const game = player->game;
  const double wall = now_us();
  const double model = (double)model_now_ns();
  for (uint64_t round = 0; round < game->rounds; round++, player->serial += 2) {
    if (game->meeting.rank % 2 == 0) {
      throw_ball(player, player->serial);
      catch_ball(player, player->serial + 1);
    } else {
      catch_ball(player, player->serial);
      throw_ball(player, player->serial + 1);
    }
  }
  player->wall_us = (now_us() - wall) / (double)game->rounds / 2;
  player->model_us = ((double)model_now_ns() - model) / 1e3 / (double)game->rounds / 2;
  while (atomic_load(&player->sent) != player->posted) collect_sent(player), give_way();
}

static void report(const struct game* game) {
  double wall = 0;
  double model = 0;
  for (int i = 0; i < game->threads; i++) {
    wall += game->players[i].wall_us / game->threads;
    model += game->players[i].model_us / game->threads;
  }
  printf("%8zu bytes %10.2f us on the wall", game->words * sizeof(uint64_t), wall);
  if (model > 0) printf(" %10.3f us in the model", model);
  putchar('\n');
}

static void* run(void* argument) {
  struct player* const player = argument;
  struct game* const game = player->game;
  for (size_t words = 1; words <= game->most_words; words *= 4) {
    pthread_barrier_wait(&game->all_threads);
    if (player->number == 0) {
      game->words = words;
      meet_everybody(&game->meeting);
    }
    pthread_barrier_wait(&game->all_threads);
    play(player);
    pthread_barrier_wait(&game->all_threads);
    if (player->number == 0 && game->meeting.rank == 0) report(game);
  }
  return NULL;
}

static void join(struct game* game) {
  struct meeting* const meeting = &game->meeting;
  meet_begin(meeting);
  if (meeting->size % 2 != 0) wrong(meeting, "every player needs a partner: an even number of processes");
  const size_t bytes = game->most_words * sizeof(uint64_t);
  utofu_vcq_hdl_t vcqs[kMostThreads];
  const unsigned long kind = game->vcqs < game->threads ? UTOFU_VCQ_FLAG_THREAD_SAFE : 0;
  for (int i = 0; i < game->vcqs; i++) vcqs[i] = open_vcq(meeting, (size_t)i, kind | UTOFU_VCQ_FLAG_EXCLUSIVE);
  struct card mine[kMostThreads] = {{0, 0}};
  struct card* const all = calloc((size_t)meeting->size, sizeof mine);
  for (int i = 0; i < game->threads; i++) {
    struct player* const player = &game->players[i];
    player->game = game;
    player->number = i;
    player->serial = 1000; /* a value that pattern() never returns */
    player->vcq = vcqs[i * game->vcqs / game->threads];
    player->inbox = get_memory(meeting, bytes);
    player->outbox = get_memory(meeting, bytes);
    player->outbox_stadd = register_memory(meeting, player->vcq, player->outbox, bytes);
    mine[i].vcq = id_of(meeting, player->vcq);
    player->inbox_stadd = register_memory(meeting, player->vcq, (void*)player->inbox, bytes);
    mine[i].inbox = player->inbox_stadd;
  }
  meet_all(meeting, mine, sizeof mine, all);
  for (int i = 0; i < game->threads; i++) {
    const struct card* const partner = &all[(meeting->rank ^ 1) * kMostThreads + i];
    game->players[i].partner = reach(meeting, partner->vcq);
    game->players[i].partner_inbox = partner->inbox;
  }
  free(all);
}

int main(int argc, char** argv) {
  static struct game game; /* all zero */
  static const char kUsage[] = "pingpong [THREADS [VCQS [MOST_BYTES [ROUNDS]]]]";
  if (argc > 5) misused(kUsage);
  game.threads = argc > 1 ? (int)whole_number(argv[1], 1, kMostThreads, kUsage) : 1;
  game.vcqs = argc > 2 ? (int)whole_number(argv[2], 1, (uint64_t)game.threads, kUsage) : game.threads;
  game.most_words = (argc > 3 ? whole_number(argv[3], 8, kMostPutBytes, kUsage) : 65536) / sizeof(uint64_t);
  game.rounds = argc > 4 ? whole_number(argv[4], 1, kMostRounds, kUsage) : 200;
  join(&game);
  pthread_barrier_init(&game.all_threads, NULL, (unsigned)game.threads);
  if (game.meeting.rank == 0) printf("pingpong: %d threads on %d VCQs\n", game.threads, game.vcqs);
  for (int i = 1; i < game.threads; i++)
    if (pthread_create(&game.players[i].thread, NULL, run, &game.players[i]) != 0)
      wrong(&game.meeting, "no thread number %d", i);
  run(&game.players[0]);
  for (int i = 1; i < game.threads; i++) pthread_join(game.players[i].thread, NULL);
  pthread_barrier_destroy(&game.all_threads);
  meet_everybody(&game.meeting);
  for (int i = 0; i < game.threads; i++) {
    const struct player* const player = &game.players[i];
    must(&game.meeting, utofu_dereg_mem(player->vcq, player->inbox_stadd, 0), "utofu_dereg_mem");
    must(&game.meeting, utofu_dereg_mem(player->vcq, player->outbox_stadd, 0), "utofu_dereg_mem");
    const int last_of_vcq = i + 1 == game.threads || player[1].vcq != player->vcq;
    if (last_of_vcq) must(&game.meeting, utofu_free_vcq(player->vcq), "utofu_free_vcq");
  }
  if (game.meeting.rank == 0) printf("pingpong: right\n");
  return 0;
}
