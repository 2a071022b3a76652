/* MPI programs with one planted delay each. */
#include <mpi.h>

#include "plant_common.h"

static int me, size;
enum { LONG = 1 << 19 }; /* doubles */
static double* data;

static void late_sender(int64_t ns) {
  double value = me;
  MPI_Barrier(MPI_COMM_WORLD);
  if (me == 1) {
    plant_compute(ns);
    MPI_Send(&value, 1, MPI_DOUBLE, 0, 7, MPI_COMM_WORLD);
    plant_truth("late sender", 1, ns);
  } else if (me == 0) {
    MPI_Recv(&value, 1, MPI_DOUBLE, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
}

static void late_sender_often(int64_t ns) {
  double value = me;
  MPI_Barrier(MPI_COMM_WORLD);
  for (int i = 0; i < 20; ++i) {
    if (me == 1) {
      plant_compute(ns / 20);
      MPI_Send(&value, 1, MPI_DOUBLE, 0, i, MPI_COMM_WORLD);
    } else if (me == 0) {
      MPI_Request request;
      MPI_Irecv(&value, 1, MPI_DOUBLE, 1, i, MPI_COMM_WORLD, &request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
  }
  if (me == 1) plant_truth("late sender", 1, ns);
}

static void late_chain(int64_t ns) {
  double value = me;
  MPI_Barrier(MPI_COMM_WORLD);
  if (me == size - 1) {
    plant_compute(ns);
  } else {
    MPI_Recv(&value, 1, MPI_DOUBLE, me + 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  if (me > 0) MPI_Send(&value, 1, MPI_DOUBLE, me - 1, 7, MPI_COMM_WORLD);
  if (me == 0) plant_truth("late sender", size - 1, ns * (size - 1));
}

static void late_receiver(int64_t ns) {
  MPI_Barrier(MPI_COMM_WORLD);
  if (me == 0) MPI_Send(data, LONG, MPI_DOUBLE, 1, 7, MPI_COMM_WORLD);
  if (me == 1) {
    plant_compute(ns);
    MPI_Recv(data, LONG, MPI_DOUBLE, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    plant_truth("late receiver", 1, ns);
  }
}

static void late_in_allreduce(int64_t ns) {
  double value = me, sum = 0;
  MPI_Barrier(MPI_COMM_WORLD);
  if (me == 2) plant_compute(ns);
  MPI_Allreduce(&value, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  if (me == 2) plant_truth("late in a collective", 2, ns * (size - 1));
}

static void locked(int64_t ns) {
  MPI_Win window;
  double* words;
  MPI_Win_allocate(8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &words, &window);
  MPI_Barrier(MPI_COMM_WORLD);
  if (me == 1) {
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
    MPI_Send(words, 0, MPI_DOUBLE, 2, 1, MPI_COMM_WORLD);
    plant_compute(ns);
    MPI_Win_unlock(0, window);
  } else if (me == 2) {
    MPI_Recv(words, 0, MPI_DOUBLE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
    MPI_Win_unlock(0, window);
    plant_truth("lock", -1, ns);
  }
  /* Else rank 0 would wait in MPI_Win_free meanwhile. */
  if (me == 0) plant_compute(ns);
  MPI_Win_free(&window);
}

static void no_core(int64_t ns) {
  double value = me;
  MPI_Barrier(MPI_COMM_WORLD);
  if (me == 1) {
    const pid_t rival = plant_rival();
    const int64_t took = plant_work(ns);
    plant_release(rival);
    MPI_Send(&value, 1, MPI_DOUBLE, 0, 7, MPI_COMM_WORLD);
    /* The rest is its work, as for any late sender. */
    plant_truth("no free core", 1, took - ns);
  } else if (me == 0) {
    MPI_Recv(&value, 1, MPI_DOUBLE, 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
}

int main(int argc, char** argv) {
  static const plant plants[] = {
      {"late_sender", 2, late_sender},
      {"late_sender_often", 2, late_sender_often},
      {"late_chain", 3, late_chain},
      {"late_receiver", 2, late_receiver},
      {"late_in_allreduce", 4, late_in_allreduce},
      {"locked", 3, locked},
      {"no_core", 2, no_core},
  };
  const plant* const one = plant_chosen(argc, argv, plants, sizeof plants / sizeof *plants);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  data = calloc(LONG, sizeof *data);
  one->run(plant_length(argc, argv));
  MPI_Finalize();
  free(data);
}
