/* A program that starts with MPI: each process sends its VCQ and memory to all others, and puts to
 * each of them. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <utofu.h>

enum { kMost = 64 };

#define CHECK(what)                                                    \
  do {                                                                 \
    if (!(what)) {                                                     \
      (void)fprintf(stderr, "line %d: not so: %s\n", __LINE__, #what); \
      MPI_Abort(MPI_COMM_WORLD, 1);                                    \
    }                                                                  \
  } while (0)

int main(int argc, char** argv) {
  static uint64_t words[kMost];
  static uint64_t ids[kMost];
  static uint64_t stadds[kMost];
  int rank = 0;
  int size = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  CHECK(size > 1 && size <= kMost);
  utofu_vcq_hdl_t vcq = 0;
  utofu_vcq_id_t id = 0;
  utofu_stadd_t stadd = 0;
  CHECK(utofu_create_vcq(0, 0, &vcq) == UTOFU_SUCCESS);
  CHECK(utofu_query_vcq_id(vcq, &id) == UTOFU_SUCCESS);
  CHECK(utofu_reg_mem(vcq, words, sizeof words, 0, &stadd) == UTOFU_SUCCESS);
  MPI_Allgather(&id, 1, MPI_UINT64_T, ids, 1, MPI_UINT64_T, MPI_COMM_WORLD);
  MPI_Allgather(&stadd, 1, MPI_UINT64_T, stadds, 1, MPI_UINT64_T, MPI_COMM_WORLD);
  for (int to = 0; to < size; to++)
    CHECK(utofu_put_piggyback8(vcq, ids[to], (uint64_t)rank + 1, stadds[to] + 8 * (uint64_t)rank, 8, 0,
                               UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE, NULL) == UTOFU_SUCCESS);
  for (int from = 0; from < size; from++) {
    struct utofu_mrq_notice notice;
    int status = UTOFU_ERR_NOT_FOUND;
    while (status == UTOFU_ERR_NOT_FOUND) status = utofu_poll_mrq(vcq, 0, &notice);
    CHECK(status == UTOFU_SUCCESS && notice.notice_type == UTOFU_MRQ_TYPE_RMT_PUT);
  }
  for (int from = 0; from < size; from++) CHECK(words[from] == (uint64_t)from + 1);
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK(utofu_dereg_mem(vcq, stadd, 0) == UTOFU_SUCCESS);
  CHECK(utofu_free_vcq(vcq) == UTOFU_SUCCESS);
  if (rank == 0) printf("%d processes met by MPI: right\n", size);
  MPI_Finalize();
  return 0;
}
