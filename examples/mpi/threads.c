/* MPI: every thread of every process talks to its twins, each on a communicator of its own, so that
 * no thread waits for another one's messages: a histogram of random numbers, whose parts the
 * threads count and add up.
 *
 *   heddle-mpicc -pthread threads.c -o threads && heddle-mpirun -n 3 ./threads
 */
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { kThreads = 4, kDraws = 1 << 16, kBins = 64 };

struct Part {
  MPI_Comm comm; /* of this thread and the threads with its number in the other processes */
  uint64_t seed;
  int bins[kBins];
};

/* Marsaglia's xorshift64*. */
static uint64_t draw(uint64_t* state) {
  *state ^= *state >> 12;
  *state ^= *state << 25;
  *state ^= *state >> 27;
  return *state * 2685821657736338717u;
}

/* Sends each number to the process that counts its bin, in blocks of one bin. */
static void* count(void* argument) {
  struct Part* part = argument;
  int size = 0, rank = 0, got = 0, expected = 0;
  int counted[kBins] = {0};
  MPI_Comm_size(part->comm, &size);
  MPI_Comm_rank(part->comm, &rank);
  for (int i = 0; i < kDraws; ++i) ++counted[draw(&part->seed) % kBins];
  MPI_Request sends[kBins];
  for (int bin = 0; bin < kBins; ++bin) MPI_Isend(&counted[bin], 1, MPI_INT, bin % size, bin, part->comm, &sends[bin]);
  for (int bin = rank; bin < kBins; bin += size) expected += size;
  for (; got < expected; ++got) {
    MPI_Status status;
    int some = 0;
    MPI_Recv(&some, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, part->comm, &status);
    part->bins[status.MPI_TAG] += some;
  }
  MPI_Waitall(kBins, sends, MPI_STATUSES_IGNORE);
  return NULL;
}

int main(int argc, char** argv) {
  int provided = 0, rank = 0, size = 0;
  long mine = 0, all = 0;
  static struct Part parts[kThreads];
  pthread_t threads[kThreads];
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  if (provided < MPI_THREAD_MULTIPLE) MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int t = 0; t < kThreads; ++t) {
    MPI_Comm_dup(MPI_COMM_WORLD, &parts[t].comm);
    parts[t].seed = (uint64_t)(rank * kThreads + t) + 88172645463325252u;
    if (pthread_create(&threads[t], NULL, count, &parts[t]) != 0) MPI_Abort(MPI_COMM_WORLD, 1);
  }
  for (int t = 0; t < kThreads; ++t) {
    pthread_join(threads[t], NULL);
    MPI_Comm_free(&parts[t].comm);
    for (int bin = 0; bin < kBins; ++bin) mine += parts[t].bins[bin];
  }
  MPI_Reduce(&mine, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("%ld numbers counted by %d threads\n", all, size * kThreads);
  MPI_Finalize();
  return rank == 0 && all != (long)size * kThreads * kDraws;
}
