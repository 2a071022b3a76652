/* Heat in a plate: Jacobi iterations on a grid that is divided into blocks, one per process, with a
 * halo of one cell. Halos go by one-sided puts into the neighbour's grid: rows in one piece,
 * columns as strided puts. On the same VCQ a piggyback put with the step's number follows. Both
 * have STRONG_ORDER, so that a process that sees the number has the halo. There is no notice and no
 * barrier between steps: only the four neighbours wait for each other. At the end every process
 * compares its block bit by bit with the same computation by one process.
 *
 *   jacobi [STEPS [COLUMNS]]     prints "jacobi: N steps on a NxN grid of NxN processes: right" */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meet.h"

/* rows of a block: one command each of a strided put */
enum { kUp, kDown, kLeft, kRight, kSides, kRows = 16 };

struct card {
  utofu_vcq_id_t vcq;
  utofu_stadd_t grid;
  utofu_stadd_t flags;
};

struct plate {
  struct meeting meeting;
  int process_rows, process_columns; /* of the grid of processes */
  size_t columns;                    /* of a block */
  utofu_vcq_hdl_t vcq;
  /* two grids, for even and odd steps, each (kRows + 2) x (columns + 2) */
  double* grid;
  volatile uint64_t* flags; /* one per side: 1 + the step whose halo has arrived */
  utofu_stadd_t grid_stadd;
  utofu_stadd_t flags_stadd;
  struct {
    int rank; /* -1: the edge of the plate */
    utofu_vcq_id_t vcq;
    utofu_stadd_t grid;
    utofu_stadd_t flags;
  } beside[kSides];
};

static size_t cell(const struct plate* plate, uint64_t step, size_t row, size_t column) {
  return ((step % 2) * (kRows + 2) + row) * (plate->columns + 2) + column;
}

static double initial(size_t row, size_t column) {
  return (double)((row * 7919 + column * 104729) % 1000) / 8.0; /* of the whole plate */
}

static void choose_shape(struct plate* plate) {
  plate->process_rows = 1;
  for (int rows = 1; rows * rows <= plate->meeting.size; rows++)
    if (plate->meeting.size % rows == 0) plate->process_rows = rows;
  plate->process_columns = plate->meeting.size / plate->process_rows;
}

static void meet_neighbours(struct plate* plate) {
  const struct card mine = {id_of(&plate->meeting, plate->vcq), plate->grid_stadd, plate->flags_stadd};
  struct card* const all = calloc((size_t)plate->meeting.size, sizeof *all);
  meet_all(&plate->meeting, &mine, sizeof mine, all);
  const int row = plate->meeting.rank / plate->process_columns;
  const int column = plate->meeting.rank % plate->process_columns;
  const int rows[kSides] = {row - 1, row + 1, row, row};
  const int columns[kSides] = {column, column, column - 1, column + 1};
  for (int side = 0; side < kSides; side++) {
    plate->beside[side].rank = -1;
    if (rows[side] < 0 || rows[side] >= plate->process_rows) continue;
    if (columns[side] < 0 || columns[side] >= plate->process_columns) continue;
    const int rank = rows[side] * plate->process_columns + columns[side];
    plate->beside[side].rank = rank;
    plate->beside[side].vcq = reach(&plate->meeting, all[rank].vcq);
    plate->beside[side].grid = all[rank].grid;
    plate->beside[side].flags = all[rank].flags;
  }
  free(all);
}

static void join(struct plate* plate, size_t columns) {
  meet_begin(&plate->meeting);
  choose_shape(plate);
  plate->columns = columns;
  plate->vcq = open_vcq(&plate->meeting, (size_t)plate->meeting.rank, 0);
  const size_t bytes = 2 * (kRows + 2) * (columns + 2) * sizeof(double);
  plate->grid = get_memory(&plate->meeting, bytes);
  plate->flags = get_memory(&plate->meeting, kSides * sizeof(uint64_t));
  plate->grid_stadd = register_memory(&plate->meeting, plate->vcq, plate->grid, bytes);
  plate->flags_stadd = register_memory(&plate->meeting, plate->vcq, (void*)plate->flags, kSides * sizeof(uint64_t));
  const size_t top = (size_t)(plate->meeting.rank / plate->process_columns) * kRows;
  const size_t left = (size_t)(plate->meeting.rank % plate->process_columns) * columns;
  for (size_t row = 1; row <= kRows; row++)
    for (size_t column = 1; column <= columns; column++)
      plate->grid[cell(plate, 0, row, column)] = initial(top + row - 1, left + column - 1);
  meet_neighbours(plate); /* nobody sends before all have initialised their blocks */
}

/* Puts the block's cells along one side into the neighbour's halo, and then the step's number. */
static void send_side(struct plate* plate, uint64_t step, int side) {
  static const int kOpposite[kSides] = {kDown, kUp, kRight, kLeft};
  const size_t columns = plate->columns;
  size_t from = cell(plate, step, 1, 1);
  size_t to = from;
  if (side == kUp) to = cell(plate, step, kRows + 1, 1);
  if (side == kDown) from = cell(plate, step, kRows, 1), to = cell(plate, step, 0, 1);
  if (side == kLeft) to = cell(plate, step, 1, columns + 1);
  if (side == kRight) from = cell(plate, step, 1, columns), to = cell(plate, step, 1, 0);
  const utofu_stadd_t source = plate->grid_stadd + from * sizeof(double);
  const utofu_stadd_t target = plate->beside[side].grid + to * sizeof(double);
  const utofu_vcq_id_t vcq = plate->beside[side].vcq;
  if (side == kUp || side == kDown) {
    POST(&plate->meeting, plate->vcq,
         utofu_put(plate->vcq, vcq, source, target, columns * sizeof(double), 0, UTOFU_ONESIDED_FLAG_STRONG_ORDER,
                   NULL));
  } else {
    POST(&plate->meeting, plate->vcq,
         utofu_put_stride(plate->vcq, vcq, source, target, sizeof(double), (columns + 2) * sizeof(double), kRows, 0,
                          UTOFU_ONESIDED_FLAG_STRONG_ORDER, NULL));
  }
  POST(&plate->meeting, plate->vcq,
       utofu_put_piggyback8(plate->vcq, vcq, step + 1,
                            plate->beside[side].flags + (size_t)kOpposite[side] * sizeof(uint64_t), sizeof(uint64_t), 0,
                            UTOFU_ONESIDED_FLAG_STRONG_ORDER, NULL));
}

static void exchange(struct plate* plate, uint64_t step) {
  for (int side = 0; side < kSides; side++)
    if (plate->beside[side].rank >= 0) send_side(plate, step, side);
  for (int side = 0; side < kSides; side++)
    while (plate->beside[side].rank >= 0 && peek(&plate->flags[side]) < step + 1) give_way();
  /* The queue is first in, first out: when a nop behind the puts has completed, their sources have
   * been read. */
  int code;
  while ((code = utofu_nop(plate->vcq, UTOFU_ONESIDED_FLAG_TCQ_NOTICE, plate)) == UTOFU_ERR_BUSY) {
    void* cbdata;
    code = utofu_poll_tcq(plate->vcq, 0, &cbdata);
    if (code != UTOFU_ERR_NOT_FOUND) must(&plate->meeting, code, "utofu_poll_tcq");
    give_way();
  }
  must(&plate->meeting, code, "utofu_nop");
  if (next_sent(&plate->meeting, plate->vcq) != plate) wrong(&plate->meeting, "the wrong command was completed");
}

static double next_value(const double* old, size_t width) {
  return 0.25 * (old[-(ptrdiff_t)width] + old[width] + old[-1] + old[1]);
}

static void compute(struct plate* plate, uint64_t step) {
  for (size_t row = 1; row <= kRows; row++)
    for (size_t column = 1; column <= plate->columns; column++)
      plate->grid[cell(plate, step + 1, row, column)] =
          next_value(&plate->grid[cell(plate, step, row, column)], plate->columns + 2);
}

static void verify(const struct plate* plate, uint64_t steps) {
  const size_t rows = kRows * (size_t)plate->process_rows;
  const size_t columns = plate->columns * (size_t)plate->process_columns;
  const size_t width = columns + 2;
  double* whole[2];
  for (int i = 0; i < 2; i++) whole[i] = calloc((rows + 2) * width, sizeof(double));
  if (!whole[0] || !whole[1]) wrong(&plate->meeting, "no memory to compute alone");
  for (size_t row = 1; row <= rows; row++)
    for (size_t column = 1; column <= columns; column++) whole[0][row * width + column] = initial(row - 1, column - 1);
  for (uint64_t step = 0; step < steps; step++)
    for (size_t row = 1; row <= rows; row++)
      for (size_t column = 1; column <= columns; column++)
        whole[(step + 1) % 2][row * width + column] = next_value(&whole[step % 2][row * width + column], width);
  const size_t top = (size_t)(plate->meeting.rank / plate->process_columns) * kRows;
  const size_t left = (size_t)(plate->meeting.rank % plate->process_columns) * plate->columns;
  for (size_t row = 1; row <= kRows; row++)
    for (size_t column = 1; column <= plate->columns; column++) {
      const double here = plate->grid[cell(plate, steps, row, column)];
      const double there = whole[steps % 2][(top + row) * width + left + column];
      if (memcmp(&here, &there, sizeof here) != 0)
        wrong(&plate->meeting, "cell %zu, %zu is %.17g, computed alone %.17g", top + row - 1, left + column - 1, here,
              there);
    }
  free(whole[0]);
  free(whole[1]);
}

int main(int argc, char** argv) {
  static const char kUsage[] = "jacobi [STEPS [COLUMNS]]";
  if (argc > 3) misused(kUsage);
  const uint64_t steps = argc > 1 ? whole_number(argv[1], 1, kMostRounds, kUsage) : 100;
  size_t columns = 300; /* a row: more than one packet */
  if (argc > 2) columns = whole_number(argv[2], 1, kMostPutBytes / sizeof(double), kUsage);
  struct plate plate;
  join(&plate, columns);
  for (uint64_t step = 0; step < steps; step++) {
    exchange(&plate, step);
    compute(&plate, step);
  }
  verify(&plate, steps);
  meet_everybody(&plate.meeting); /* afterwards nobody writes a halo */
  const utofu_stadd_t registered[] = {plate.grid_stadd, plate.flags_stadd};
  close_vcq(&plate.meeting, plate.vcq, registered, 2);
  free(plate.grid);
  free((void*)plate.flags);
  if (plate.meeting.rank == 0)
    printf("jacobi: %" PRIu64 " steps on a %dx%zu grid of %dx%d processes: right\n", steps, kRows * plate.process_rows,
           columns * (size_t)plate.process_columns, plate.process_rows, plate.process_columns);
  return 0;
}
