/* A program of another MPI. Also compiled as a library that calls_loader.c loads. */
#include <stdio.h>

int MPI_Init(int* argc, char*** argv);
int MPI_Sendrecv(const void* sendbuf, int sendcount, int sendtype, int dest, int sendtag, void* recvbuf, int recvcount,
                 int recvtype, int source, int recvtag, int comm, void* status);
int MPI_Finalize(void);

int main(int argc, char** argv) {
  int buffer = 0;
  const int begun = MPI_Init(&argc, &argv);
  const int sent = MPI_Sendrecv(&buffer, 1, -2, 3, -4, &buffer, 5, -6, 7, -8, 0x44000000, (void*)1);
  const int ended = MPI_Finalize();
  printf("foreign: %d %d %d\n", begun, sent, ended);
  return 0;
}
