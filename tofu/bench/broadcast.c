/* A persistent broadcast over Tofu, in the times of the emulator's timing model.
 *
 *   heddle_tofu_broadcast [ALGORITHM [BYTES,… [SEGMENT [RUNS [ROOT]]]]]
 *
 * One operation after the other, of so many bytes each, from one root after the other. Every run is
 * started and waited for, and its bytes are checked. The program prints whether the interface
 * carried it out. It prints how long a run took in the model, from one start to the next, and how
 * long the calls took that make the operation, start it and wait for it, each at the rank where it
 * was longest. It prints which part of a computation between start and wait, as long as the wait
 * was, costs nothing. And it prints the bytes put in a run by the busiest TNI of a rank, in thirds
 * of the message, as the maximum and the mean over all ranks. One third is the share that a link
 * carries.
 *
 * For `heddle run --utofu SHAPE` with UTOFU_EMU_MODEL=1. The times are a model's estimate.
 * Wall-clock times would be those of threads that simulate network interfaces, so they are not
 * printed. */
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
  void (*model_spend)(uint64_t ns);
  uint64_t (*put_bytes)(unsigned tni);
};

/* Of one rank. The maximum over all ranks is printed. */
struct figures {
  uint64_t software; /* 1: it ran there */
  uint64_t model_ns; /* of a run */
  uint64_t init_ns;
  uint64_t start_ns; /* of a run, and likewise */
  uint64_t wait_ns;
  uint64_t hiding_ns; /* of a run with a computation */
  uint64_t tni_bytes; /* of a run, by the TNI that put most */
  uint64_t wrong;     /* bytes */
};

struct operation {
  heddle_collective made;
  unsigned char* data;
  size_t bytes;
  uint64_t runs;
  int is_root;
};

static void check(heddle_status status, const char* what) {
  if (status >= 0) return;
  fprintf(stderr, "%s: %s: %s\n", what, heddle_status_name(status), heddle_last_error());
  exit(1);
}

static struct emulator find_emulator(void) {
  struct emulator found = {NULL, NULL, NULL};
  void* const library = dlopen("libtofucom.so", RTLD_NOW | RTLD_NOLOAD);
  if (!library) return found;
  const char* const on = getenv("UTOFU_EMU_MODEL");
  if (on && strcmp(on, "0") != 0) {
    *(void**)&found.model_now = dlsym(library, "utofu_emu_model_now_ns");
    *(void**)&found.model_spend = dlsym(library, "utofu_emu_model_spend");
  }
  *(void**)&found.put_bytes = dlsym(library, "utofu_emu_put_bytes");
  return found;
}

static unsigned char byte_of(uint64_t run, size_t i) {
  return (unsigned char)(run * 31 + i * 7 + (i >> 9));
}

static uint64_t put_bytes(const struct emulator* emulator, unsigned tni) {
  return emulator->put_bytes ? emulator->put_bytes(tni) : 0;
}

static uint64_t now(const struct emulator* emulator) {
  return emulator->model_now ? emulator->model_now() : 0;
}

/* One after the other, with a computation of so long between start and wait. How long a run took in
 * the model. */
static uint64_t play(const struct emulator* emulator, const struct operation* of, uint64_t computation_ns,
                     struct figures* mine) {
  const uint64_t began = now(emulator);
  uint64_t start_ns = 0;
  uint64_t wait_ns = 0;
  for (uint64_t run = 1; run <= of->runs; run++) {
    for (size_t i = 0; i < of->bytes; i++) of->data[i] = of->is_root ? byte_of(run, i) : 0;
    const uint64_t before = now(emulator);
    check(heddle_collective_start(of->made), "heddle_collective_start");
    const uint64_t started = now(emulator);
    if (computation_ns > 0) emulator->model_spend(computation_ns);
    const uint64_t computed = now(emulator);
    check(heddle_collective_wait(of->made, HEDDLE_FOREVER), "heddle_collective_wait");
    start_ns += started - before;
    wait_ns += now(emulator) - computed;
    for (size_t i = 0; i < of->bytes; i++) mine->wrong += of->data[i] != byte_of(run, i);
  }
  if (computation_ns == 0) {
    mine->start_ns = start_ns / of->runs;
    mine->wait_ns = wait_ns / of->runs;
  }
  return (now(emulator) - began) / of->runs;
}

static uint64_t most_of_all(heddle_team team, uint64_t mine) {
  const heddle_reduction greatest = {HEDDLE_UINT64, HEDDLE_MAX, NULL, NULL, 0};
  uint64_t most = 0;
  check(heddle_allreduce(team, &mine, &most, 1, &greatest), "heddle_allreduce");
  return most;
}

static void measure(heddle_team team, const struct operation* of, struct figures* mine) {
  const struct emulator emulator = find_emulator();
  uint64_t before[kTnis];
  check(heddle_barrier(team), "heddle_barrier");
  for (unsigned tni = 0; tni < kTnis; tni++) before[tni] = put_bytes(&emulator, tni);
  mine->model_ns = play(&emulator, of, 0, mine);
  for (unsigned tni = 0; tni < kTnis; tni++) {
    const uint64_t carried = (put_bytes(&emulator, tni) - before[tni]) / of->runs;
    if (carried > mine->tni_bytes) mine->tni_bytes = carried;
  }
  if (!emulator.model_spend) return;
  const uint64_t computation_ns = most_of_all(team, mine->wait_ns);
  check(heddle_barrier(team), "heddle_barrier");
  if (computation_ns > 0) mine->hiding_ns = play(&emulator, of, computation_ns, mine);
}

static void tell_model(const struct figures* most) {
  printf(", %.1f us in the model (init %.1f, start %.1f, wait %.1f", (double)most->model_ns / 1e3,
         (double)most->init_ns / 1e3, (double)most->start_ns / 1e3, (double)most->wait_ns / 1e3);
  const double alone = (double)most->model_ns + (double)most->wait_ns; /* one after the other */
  if (most->wait_ns > 0) printf(", hidden %.0f%%", 100.0 * (alone - (double)most->hiding_ns) / (double)most->wait_ns);
  printf(")");
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
  const struct emulator emulator = find_emulator();
  check(heddle_barrier(team), "heddle_barrier"); /* waits for others do not count */
  const uint64_t began = now(&emulator);
  check(heddle_broadcast_init(team, data, bytes, root % size, &options, &made), "heddle_broadcast_init");
  const uint64_t init_ns = now(&emulator) - began;
  int offloaded = 0;
  check(heddle_collective_offloaded(made, &offloaded), "heddle_collective_offloaded");
  struct figures mine = {.software = !offloaded, .init_ns = init_ns};
  const struct operation operation = {made, data, bytes, runs, rank == root % size};
  measure(team, &operation, &mine);
  struct figures most;
  uint64_t all_tnis = 0;
  const heddle_reduction greatest = {HEDDLE_UINT64, HEDDLE_MAX, NULL, NULL, 0};
  const heddle_reduction sum = {HEDDLE_UINT64, HEDDLE_SUM, NULL, NULL, 0};
  check(heddle_allreduce(team, &mine.tni_bytes, &all_tnis, 1, &sum), "heddle_allreduce");
  check(heddle_allreduce(team, &mine, &most, sizeof mine / sizeof(uint64_t), &greatest), "heddle_allreduce");
  if (rank == 0) {
    printf("%s, %zu bytes, %" PRIu32 " ranks: by %s", algorithm, bytes, size,
           most.software ? "software" : "the interface");
    if (most.model_ns > 0 && !most.software) tell_model(&most);
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
