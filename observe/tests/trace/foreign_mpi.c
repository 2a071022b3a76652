/* Stands for another MPI: the standard's names, with handles that are numbers. */
int MPI_Init(int* argc, char*** argv);
int MPI_Sendrecv(const void* sendbuf, int sendcount, int sendtype, int dest, int sendtag, void* recvbuf, int recvcount,
                 int recvtype, int source, int recvtag, int comm, void* status);
int MPI_Finalize(void);

int MPI_Init(int* argc, char*** argv) {
  return argc != 0 && argv != 0 ? 11 : 0;
}

/* 12, if all arguments are those that foreign_program.c gives. */
int MPI_Sendrecv(const void* sendbuf, int sendcount, int sendtype, int dest, int sendtag, void* recvbuf, int recvcount,
                 int recvtype, int source, int recvtag, int comm, void* status) {
  const int numbers = sendcount == 1 && sendtype == -2 && dest == 3 && sendtag == -4 && recvcount == 5 &&
                      recvtype == -6 && source == 7 && recvtag == -8 && comm == 0x44000000;
  return numbers && sendbuf == recvbuf && status == (void*)1 ? 12 : 0;
}

int MPI_Finalize(void) {
  return 13;
}
