/* A persistent broadcast over Tofu, in the times of the emulator's timing model.
 *
 *   heddle_tofu_broadcast [ALGORITHM [BYTES,… [SEGMENT [RUNS [ROOT]]]]]
 *
 * One operation after the other, of so many bytes each, from one root after the other. Every run is started and waited for, and its
 * bytes are checked. Told: whether the interface carried it out; how long a run took in the model, from one start to the next, at the rank
 * where that was longest; and what that TNI of a rank that put most put in a run, in thirds of the bytes, at most and in the mean of all
 * ranks. One third is what a link carries.
 *
 * For `heddle run --utofu SHAPE` with UTOFU_EMU_MODEL=1. The times are a model's guess; those on the wall would be those of threads
 * that play network interfaces, and are not told. */
#define _GNU_SOURCE /* RTLD_NOLOAD */
#include <dlfcn.h>
#include <heddle/collectives.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kTnis = 6 };

struct emulator {
  uint64_t (*model_now)(void);
  uint64_t (*put_bytes)(unsigned tni);
};

/* Of one rank; of all it is the most that is told. */
struct figures {
  uint64_t software; /* 1: it ran there */
  uint64_t model_ns;
  uint64_t tni_bytes; /* of a run, by the TNI that put most */
  uint64_t wrong;     /* bytes */
};

static void check(heddle_status status, const char* what) {
  if (status >= 0) return;
  fprintf(stderr, "%s: %s: %s\n", what, heddle_status_name(status), heddle_last_error());
  exit(1);
}

static struct emulator find_emulator(void) {
  struct emulator found = {NULL, NULL};
  void* const library = dlopen("libtofucom.so", RTLD_NOW | RTLD_NOLOAD);
  if (!library) return found;
  const char* const on = getenv("UTOFU_EMU_MODEL");
  if (on && strcmp(on, "0") != 0) *(void**)&found.model_now = dlsym(library, "utofu_emu_model_now_ns");
  *(void**)&found.put_bytes = dlsym(library, "utofu_emu_put_bytes");
  return found;
}

static unsigned char byte_of(uint64_t run, size_t i) {
  return (unsigned char)(run * 31 + i * 7 + (i >> 9));
}

static uint64_t put_bytes(const struct emulator* emulator, unsigned tni) {
  return emulator->put_bytes ? emulator->put_bytes(tni) : 0;
}

static void play(heddle_collective made, unsigned char* data, size_t bytes, uint64_t runs, int is_root,
                 struct figures* mine) {
  for (uint64_t run = 1; run <= runs; run++) {
    for (size_t i = 0; i < bytes; i++) data[i] = is_root ? byte_of(run, i) : 0;
    check(heddle_collective_start(made), "heddle_collective_start");
    check(heddle_collective_wait(made, HEDDLE_FOREVER), "heddle_collective_wait");
    for (size_t i = 0; i < bytes; i++) mine->wrong += data[i] != byte_of(run, i);
  }
}

static void measure(heddle_team team, heddle_collective made, unsigned char* data, size_t bytes, uint64_t runs,
                    int is_root, struct figures* mine) {
  const struct emulator emulator = find_emulator();
  uint64_t before[kTnis];
  check(heddle_barrier(team), "heddle_barrier");
  for (unsigned tni = 0; tni < kTnis; tni++) before[tni] = put_bytes(&emulator, tni);
  const uint64_t began = emulator.model_now ? emulator.model_now() : 0;
  play(made, data, bytes, runs, is_root, mine);
  mine->model_ns = (emulator.model_now ? emulator.model_now() - began : 0) / runs;
  for (unsigned tni = 0; tni < kTnis; tni++) {
    const uint64_t carried = (put_bytes(&emulator, tni) - before[tni]) / runs;
    if (carried > mine->tni_bytes) mine->tni_bytes = carried;
  }
}

/* 0: all bytes were right, at all ranks. */
static int broadcast(heddle_team team, const char* algorithm, size_t bytes, uint64_t segment, uint64_t runs,
                     uint32_t root) {
  uint32_t rank = 0;
  uint32_t size = 0;
  check(heddle_team_rank(team, &rank), "heddle_team_rank");
  check(heddle_team_size(team, &size), "heddle_team_size");
  unsigned char* const data = malloc(bytes);
  if (!data) return 1;
  const heddle_collective_options options = {sizeof options, algorithm, segment};
  heddle_collective made;
  check(heddle_broadcast_init(team, data, bytes, root % size, &options, &made), "heddle_broadcast_init");
  int offloaded = 0;
  check(heddle_collective_offloaded(made, &offloaded), "heddle_collective_offloaded");
  struct figures mine = {!offloaded, 0, 0, 0};
  measure(team, made, data, bytes, runs, rank == root % size, &mine);
  struct figures most;
  uint64_t all_tnis = 0;
  const heddle_reduction greatest = {HEDDLE_UINT64, HEDDLE_MAX, NULL, NULL, 0};
  const heddle_reduction sum = {HEDDLE_UINT64, HEDDLE_SUM, NULL, NULL, 0};
  check(heddle_allreduce(team, &mine.tni_bytes, &all_tnis, 1, &sum), "heddle_allreduce");
  check(heddle_allreduce(team, &mine, &most, sizeof mine / sizeof(uint64_t), &greatest), "heddle_allreduce");
  if (rank == 0) {
    printf("%s, %zu bytes, %" PRIu32 " ranks: by %s", algorithm, bytes, size,
           most.software ? "software" : "the interface");
    if (most.model_ns > 0 && !most.software) printf(", %.1f us in the model", (double)most.model_ns / 1e3);
    if (most.tni_bytes > 0)
      printf(", %.2f thirds by one TNI at most, %.2f in the mean", 3.0 * (double)most.tni_bytes / (double)bytes,
             3.0 * (double)all_tnis / (double)bytes / size);
    printf(": %s\n", most.wrong ? "wrong" : "right");
  }
  check(heddle_barrier(team), "heddle_barrier");
  check(heddle_collective_free(made), "heddle_collective_free");
  free(data);
  return most.wrong != 0;
}

int main(int argc, char** argv) {
  const char* const algorithm = argc > 1 ? argv[1] : "broadcast.trinaryx3_session";
  const char* sizes = argc > 2 ? argv[2] : "786432";
  const uint64_t segment = argc > 3 ? strtoull(argv[3], NULL, 0) : 16384;
  const uint64_t runs = argc > 4 ? strtoull(argv[4], NULL, 0) : 5;
  uint32_t root = argc > 5 ? (uint32_t)strtoul(argv[5], NULL, 0) : 0;
  heddle_context context;
  heddle_team team;
  check(heddle_context_join(NULL, &context), "heddle_context_join");
  check(heddle_team_world(context, &team), "heddle_team_world");
  int wrong = 0;
  for (char* end = NULL; *sizes; sizes = *end ? end + 1 : end) {
    const size_t bytes = strtoull(sizes, &end, 0);
    if (bytes == 0 || runs == 0 || (*end && *end != ',')) {
      fprintf(stderr, "heddle_tofu_broadcast [ALGORITHM [BYTES,… [SEGMENT [RUNS [ROOT]]]]]\n");
      return 2;
    }
    wrong |= broadcast(team, algorithm, bytes, segment, runs, root++);
  }
  check(heddle_team_free(team), "heddle_team_free");
  check(heddle_context_leave(context), "heddle_context_leave");
  return wrong;
}
