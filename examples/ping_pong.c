/* Active messages: ranks 0 and 1 (or a job of one rank with itself) send a ball to and fro. The
 * handler that receives the ball sends it back; if the send is refused at that moment, the main
 * loop sends it later. */
#include <heddle/heddle.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { kBall = 1, kThrows = 1000 };

typedef struct Player {
  heddle_peer other;
  uint64_t caught; /* throws that this player received; the ball carries the number of all throws */
  uint64_t ball;
  int to_throw; /* the ball is here */
} Player;

static void check(heddle_status status, const char* what) {
  if (status >= 0) return;
  fprintf(stderr, "%s: %s: %s\n", what, heddle_status_name(status), heddle_last_error());
  exit(1);
}

static void throw_ball(heddle_worker worker, Player* player) {
  const heddle_am_message message = {
      .handler = kBall, .header_bytes = sizeof player->ball, .header = &player->ball, .payload = NULL};
  const heddle_status status = heddle_try_am(worker, player->other, &message, NULL);
  check(status, "throw");
  player->to_throw = status == HEDDLE_AGAIN;
}

static void catch_ball(const heddle_am_arrival* message, void* arg) {
  Player* player = arg;
  player->ball = *(const uint64_t*)message->header + 1;
  player->caught++;
  if (player->ball <= kThrows) throw_ball(message->worker, player);
}

int main(void) {
  heddle_context context;
  check(heddle_context_join(NULL, &context), "join");
  uint32_t rank = 0;
  uint32_t size = 0;
  check(heddle_context_rank(context, &rank), "rank");
  check(heddle_context_size(context, &size), "size");
  Player player = {.other = {.rank = rank ^ 1U, .worker = 0}, .ball = 1};
  if (size == 1) player.other.rank = 0;
  check(heddle_am_register(context, kBall, catch_ball, &player), "register");
  heddle_worker worker;
  check(heddle_worker_open(context, NULL, &worker), "worker");
  /* all ranks have registered their handlers */
  check(heddle_context_barrier(context, worker, HEDDLE_FOREVER), "barrier");

  /* Ranks take turns: each of two catches half of the throws, a single rank all of them. */
  const uint64_t mine = size == 1 ? kThrows : kThrows / 2;
  if (rank < 2) {
    player.to_throw = rank == 0;
    while (player.caught < mine || player.to_throw) {
      if (player.to_throw) throw_ball(worker, &player);
      if (player.caught < mine || player.to_throw) check(heddle_worker_wait(worker, HEDDLE_FOREVER), "wait");
    }
    printf("rank %" PRIu32 " caught the ball %" PRIu64 " times\n", rank, player.caught);
  }
  check(heddle_context_leave(context), "leave");
  return 0;
}
