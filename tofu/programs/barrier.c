/* Barrier gates: a network of gates over all processes, then barriers and reductions on it, with
 * each result checked. For a power of two it is wired by recursive doubling; for another number
 * (or, with "tree", for any) as a tree: wiring.h.
 *
 *   barrier [ROUNDS [tree]]      prints "barrier: N rounds of N processes by doubling: right" */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meet.h"
#include "wiring.h"

struct network {
  struct meeting meeting;
  utofu_vbg_id_t ids[kMostGates]; /* ids[0]: the start gate */
  int count;
  int doubling;
};

static utofu_vbg_id_t name_of(const utofu_vbg_id_t* all, int rank, int gate) {
  return rank == kNoGate ? UTOFU_VBG_ID_NULL : all[rank * kMostGates + gate];
}

static void join(struct network* network, int tree) {
  meet_begin(&network->meeting);
  const int rank = network->meeting.rank;
  const int size = network->meeting.size;
  network->doubling = !tree && (size & (size - 1)) == 0;
  struct gate_wiring wiring[kMostGates];
  network->count = network->doubling ? wire_doubling(rank, size, wiring) : wire_tree(rank, size, wiring);

  utofu_tni_id_t* tnis;
  size_t tni_count;
  must(&network->meeting, utofu_get_barrier_tnis(&tnis, &tni_count), "utofu_get_barrier_tnis");
  if (tni_count == 0) wrong(&network->meeting, "no TNI with barrier gates");
  must(&network->meeting, utofu_alloc_vbg(tnis[0], (size_t)network->count, 0, network->ids), "utofu_alloc_vbg");
  free(tnis);

  utofu_vbg_id_t* const all = calloc((size_t)size * kMostGates, sizeof *all);
  meet_all(&network->meeting, network->ids, sizeof network->ids, all);
  struct utofu_vbg_setting settings[kMostGates];
  memset(settings, 0, sizeof settings);
  for (int gate = 0; gate < network->count; gate++) {
    const struct gate_wiring* const wires = &wiring[gate];
    settings[gate].vbg_id = network->ids[gate];
    settings[gate].src_lcl_vbg_id = name_of(all, wires->src_local == kNoGate ? kNoGate : rank, wires->src_local);
    settings[gate].src_rmt_vbg_id = name_of(all, wires->src_rank, wires->src_gate);
    settings[gate].dst_lcl_vbg_id = name_of(all, wires->dst_local == kNoGate ? kNoGate : rank, wires->dst_local);
    settings[gate].dst_rmt_vbg_id = name_of(all, wires->dst_rank, wires->dst_gate);
    memset(settings[gate].dst_path_coords, UTOFU_PATH_COORD_NULL, sizeof settings[gate].dst_path_coords);
  }
  must(&network->meeting, utofu_set_vbg(settings, (size_t)network->count), "utofu_set_vbg");
  free(all);
  meet_everybody(&network->meeting); /* all gates are set before any signal is sent */
}

/* The same function of rank, round and place on every process, so that each can compute the values
 * of the others. */
static uint64_t given(int rank, uint64_t round, int place) {
  uint64_t x =
      (uint64_t)rank * 0x9E3779B97F4A7C15u + round * 0xBF58476D1CE4E5B9u + (uint64_t)place * 0x94D049BB133111EBu;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9u;
  return x ^ (x >> 32);
}

static uint64_t combined(enum utofu_reduce_op op, uint64_t a, uint64_t b) {
  if (op == UTOFU_REDUCE_OP_BAND) return a & b;
  if (op == UTOFU_REDUCE_OP_BOR) return a | b;
  if (op == UTOFU_REDUCE_OP_BXOR) return a ^ b;
  if (op == UTOFU_REDUCE_OP_MAX) return a > b ? a : b;
  return a + b;
}

static void reduce_words(const struct network* network, enum utofu_reduce_op op, uint64_t round) {
  enum { kWords = 6 };
  uint64_t data[kWords];
  uint64_t expected[kWords];
  for (int i = 0; i < kWords; i++) {
    data[i] = given(network->meeting.rank, round, i);
    expected[i] = given(0, round, i);
    for (int rank = 1; rank < network->meeting.size; rank++)
      expected[i] = combined(op, expected[i], given(rank, round, i));
  }
  must(&network->meeting, utofu_reduce_uint64(network->ids[0], op, data, kWords, 0), "utofu_reduce_uint64");
  memset(data, 0, sizeof data);
  int code;
  while ((code = utofu_poll_reduce_uint64(network->ids[0], 0, data)) == UTOFU_ERR_NOT_COMPLETED) give_way();
  must(&network->meeting, code, "utofu_poll_reduce_uint64");
  for (int i = 0; i < kWords; i++)
    if (data[i] != expected[i])
      wrong(&network->meeting, "operation %d, round %" PRIu64 ", word %d: %" PRIx64 " instead of %" PRIx64, (int)op,
            round, i, data[i], expected[i]);
}

static void reduce_location(const struct network* network, uint64_t round) {
  uint64_t data[2] = {given(network->meeting.rank, round, 0) % 16, (uint64_t)network->meeting.rank};
  uint64_t expected[2] = {0, 0};
  for (int rank = network->meeting.size - 1; rank >= 0; rank--)
    if (given(rank, round, 0) % 16 >= expected[0]) {
      expected[0] = given(rank, round, 0) % 16;
      expected[1] = (uint64_t)rank;
    }
  must(&network->meeting, utofu_reduce_uint64(network->ids[0], UTOFU_REDUCE_OP_MAXLOC, data, 2, 0), "MAXLOC");
  int code;
  while ((code = utofu_poll_reduce_uint64(network->ids[0], 0, data)) == UTOFU_ERR_NOT_COMPLETED) give_way();
  must(&network->meeting, code, "utofu_poll_reduce_uint64");
  /* It is not specified which location is returned if several processes have the maximum; it must
   * be one of theirs. */
  if (data[0] != expected[0] || data[1] >= (uint64_t)network->meeting.size ||
      given((int)data[1], round, 0) % 16 != expected[0])
    wrong(&network->meeting, "the maximum is %" PRIu64 " at %" PRIu64 " instead of %" PRIu64 " at %" PRIu64, data[0],
          data[1], expected[0], expected[1]);
}

/* Multiples of 1/8 far below 2^50: their sum is exact in any order. */
static void reduce_doubles(const struct network* network, uint64_t round) {
  enum { kNumbers = 3 };
  double data[kNumbers];
  double expected[kNumbers] = {0, 0, 0};
  for (int i = 0; i < kNumbers; i++) {
    data[i] = (double)(int32_t)given(network->meeting.rank, round, i) / 8;
    for (int rank = 0; rank < network->meeting.size; rank++) expected[i] += (double)(int32_t)given(rank, round, i) / 8;
  }
  must(&network->meeting, utofu_reduce_double(network->ids[0], UTOFU_REDUCE_OP_BFPSUM, data, kNumbers, 0), "BFPSUM");
  int code;
  while ((code = utofu_poll_reduce_double(network->ids[0], 0, data)) == UTOFU_ERR_NOT_COMPLETED) give_way();
  must(&network->meeting, code, "utofu_poll_reduce_double");
  for (int i = 0; i < kNumbers; i++)
    if (data[i] != expected[i])
      wrong(&network->meeting, "sum %d of round %" PRIu64 " is %.17g instead of %.17g", i, round, data[i], expected[i]);
}

/* No process leaves before all have entered: each writes the round that it enters into the others'
 * memory, and after the barrier all must have written it. */
struct board {
  utofu_vcq_hdl_t vcq;
  volatile uint64_t* entered; /* by rank */
  utofu_stadd_t registered;
  utofu_vcq_id_t* vcqs;
  utofu_stadd_t* boards;
};

static void open_board(struct network* network, struct board* board) {
  const size_t size = (size_t)network->meeting.size;
  board->vcq = open_vcq(&network->meeting, 0, 0);
  board->entered = get_memory(&network->meeting, size * sizeof(uint64_t));
  board->registered = register_memory(&network->meeting, board->vcq, (void*)board->entered, size * sizeof(uint64_t));
  const uint64_t mine[2] = {id_of(&network->meeting, board->vcq), board->registered};
  uint64_t* const all = calloc(2 * size, sizeof *all);
  meet_all(&network->meeting, mine, sizeof mine, all);
  board->vcqs = calloc(size, sizeof *board->vcqs);
  board->boards = calloc(size, sizeof *board->boards);
  for (size_t rank = 0; rank < size; rank++) {
    board->vcqs[rank] = reach(&network->meeting, all[2 * rank]);
    board->boards[rank] = all[2 * rank + 1] + (size_t)network->meeting.rank * sizeof(uint64_t);
  }
  free(all);
}

static void check_barrier(const struct network* network, const struct board* board, uint64_t round) {
  const int size = network->meeting.size;
  for (int rank = 0; rank < size; rank++)
    POST(&network->meeting, board->vcq,
         utofu_put_piggyback8(board->vcq, board->vcqs[rank], round, board->boards[rank], sizeof(uint64_t), 0,
                              UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, NULL));
  /* the others have it in their memory */
  for (int rank = 0; rank < size; rank++) next_notice(&network->meeting, board->vcq);
  must(&network->meeting, utofu_barrier(network->ids[0], 0), "utofu_barrier");
  int code;
  while ((code = utofu_poll_barrier(network->ids[0], 0)) == UTOFU_ERR_NOT_COMPLETED) give_way();
  must(&network->meeting, code, "utofu_poll_barrier");
  for (int rank = 0; rank < size; rank++)
    if (peek(&board->entered[rank]) < round)
      wrong(&network->meeting, "left barrier %" PRIu64 " before rank %d had entered it", round, rank);
}

int main(int argc, char** argv) {
  static const char kUsage[] = "barrier [ROUNDS [tree]]";
  if (argc > 3 || (argc > 2 && strcmp(argv[2], "tree") != 0)) misused(kUsage);
  const uint64_t rounds = argc > 1 ? whole_number(argv[1], 1, kMostRounds, kUsage) : 20;
  struct network network;
  struct board board;
  join(&network, argc > 2);
  open_board(&network, &board);
  static const enum utofu_reduce_op kOps[] = {UTOFU_REDUCE_OP_BAND, UTOFU_REDUCE_OP_BOR, UTOFU_REDUCE_OP_BXOR,
                                              UTOFU_REDUCE_OP_MAX, UTOFU_REDUCE_OP_SUM};
  for (uint64_t round = 1; round <= rounds; round++) {
    check_barrier(&network, &board, round);
    for (size_t i = 0; i < sizeof kOps / sizeof kOps[0]; i++) reduce_words(&network, kOps[i], round);
    reduce_location(&network, round);
    reduce_doubles(&network, round);
  }
  meet_everybody(&network.meeting); /* afterwards no signal is in flight */
  must(&network.meeting, utofu_free_vbg(network.ids, (size_t)network.count), "utofu_free_vbg");
  close_vcq(&network.meeting, board.vcq, &board.registered, 1);
  free((void*)board.entered);
  free(board.vcqs);
  free(board.boards);
  if (network.meeting.rank == 0)
    printf("barrier: %" PRIu64 " rounds of %d processes by %s: right\n", rounds, network.meeting.size,
           network.doubling ? "doubling" : "tree");
  return 0;
}
