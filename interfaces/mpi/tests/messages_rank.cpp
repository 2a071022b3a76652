// Messages between ranks, one kind after the other: lengths, modes, types, wildcards, probes,
// requests of all kinds.
#include <cstring>
#include <numeric>
#include <thread>
#include <type_traits>
#include <vector>

#include "check.hpp"

namespace {

int g_rank = 0;
int g_size = 0;
int right() {
  return (g_rank + 1) % g_size;
}
int left() {
  return (g_rank + g_size - 1) % g_size;
}

std::vector<int> numbers(int count, int seed) {
  std::vector<int> made(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) made[static_cast<std::size_t>(i)] = seed * 1000003 + i * 7;
  return made;
}

void check_status(const MPI_Status& status, int source, int tag, int count) {
  int got = -1;
  MUST(MPI_Get_count(&status, MPI_INT, &got));
  CHECK(status.MPI_SOURCE == source);
  CHECK(status.MPI_TAG == tag);
  CHECK(got == count);
}

// From empty messages to lengths that go by rendezvous.
void lengths(MPI_Comm comm) {
  for (const int count : {0, 1, 2, 12, 13, 100, 1000, 5000, 40000, 300000}) {
    const std::vector<int> sent = numbers(count, g_rank);
    std::vector<int> got(static_cast<std::size_t>(count) + 1, -1);
    MPI_Status status;
    MPI_Request request;
    MUST(MPI_Irecv(got.data(), count, MPI_INT, left(), 5, comm, &request));
    MUST(MPI_Send(sent.data(), count, MPI_INT, right(), 5, comm));
    MUST(MPI_Wait(&request, &status));
    CHECK(request == MPI_REQUEST_NULL);
    check_status(status, left(), 5, count);
    got.pop_back();
    CHECK(got == numbers(count, left()));

    MUST(MPI_Isend(sent.data(), count, MPI_INT, right(), 6, comm, &request));
    std::fill(got.begin(), got.end(), -1);
    MUST(MPI_Recv(got.data(), count, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &status));
    MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
    check_status(status, left(), 6, count);
    CHECK(got == numbers(count, left()));
    MUST(MPI_Barrier(comm));  // the next wildcard must not take another's message
  }
}

void modes() {
  std::vector<char> room(1 << 16);
  MUST(MPI_Buffer_attach(room.data(), static_cast<int>(room.size())));
  for (const int count : {0, 1, 10, 3000}) {
    const std::vector<int> sent = numbers(count, g_rank);
    std::vector<int> got(static_cast<std::size_t>(count));
    MPI_Request requests[4];
    for (int i = 0; i < 4; ++i)
      MUST(MPI_Irecv(got.data(), i == 0 ? count : 0, MPI_INT, left(), 20 + i, MPI_COMM_WORLD, &requests[i]));
    MUST(MPI_Bsend(sent.data(), count, MPI_INT, right(), 20, MPI_COMM_WORLD));
    MUST(MPI_Ssend(nullptr, 0, MPI_INT, right(), 21, MPI_COMM_WORLD));
    MUST(MPI_Barrier(MPI_COMM_WORLD));
    MUST(MPI_Rsend(nullptr, 0, MPI_INT, right(), 22, MPI_COMM_WORLD));
    MUST(MPI_Send(nullptr, 0, MPI_INT, right(), 23, MPI_COMM_WORLD));
    MUST(MPI_Waitall(4, requests, MPI_STATUSES_IGNORE));
    CHECK(got == numbers(count, left()));
  }
  void* address = nullptr;
  int bytes = 0;
  MUST(MPI_Buffer_detach(static_cast<void*>(&address), &bytes));
  CHECK(address == room.data() && bytes == static_cast<int>(room.size()));
}

// A synchronous send does not end before its receive.
void synchronous() {
  const int value = g_rank;
  int got = -1;
  int flag = 1;
  MPI_Request request;
  MUST(MPI_Issend(&value, 1, MPI_INT, right(), 30, MPI_COMM_WORLD, &request));
  for (int i = 0; i < 100; ++i) {
    MUST(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
    CHECK(flag == 0);
  }
  MUST(MPI_Barrier(MPI_COMM_WORLD));
  MUST(MPI_Recv(&got, 1, MPI_INT, left(), 30, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
  CHECK(got == left());
}

// Every second int is sent, and received into every third.
void layouts() {
  MPI_Datatype second;
  MPI_Datatype third;
  MUST(MPI_Type_vector(500, 1, 2, MPI_INT, &second));
  MUST(MPI_Type_vector(500, 1, 3, MPI_INT, &third));
  MUST(MPI_Type_commit(&second));
  MUST(MPI_Type_commit(&third));
  const std::vector<int> sent = numbers(1000, g_rank);
  std::vector<int> got(1500, -1);
  MPI_Status status;
  MUST(MPI_Sendrecv(sent.data(), 1, second, right(), 40, got.data(), 1, third, left(), 40, MPI_COMM_WORLD, &status));
  check_status(status, left(), 40, 500);
  const std::vector<int> theirs = numbers(1000, left());
  for (std::size_t i = 0; i < 500; ++i) {
    CHECK(got[3 * i] == theirs[2 * i]);
    CHECK(got[3 * i + 1] == -1);
  }
  MUST(MPI_Type_free(&second));
  MUST(MPI_Type_free(&third));
  CHECK(second == MPI_DATATYPE_NULL);
  std::vector<int> replaced = numbers(9000, g_rank);
  MUST(MPI_Sendrecv_replace(replaced.data(), 9000, MPI_INT, right(), 41, left(), 41, MPI_COMM_WORLD, &status));
  CHECK(replaced == numbers(9000, left()));
}

void probes() {
  const int value = 77 + g_rank;
  MPI_Status status;
  MPI_Message message;
  int got = -1;
  int flag = 0;
  MUST(MPI_Send(&value, 1, MPI_INT, right(), 50, MPI_COMM_WORLD));
  MUST(MPI_Send(&value, 1, MPI_INT, right(), 51, MPI_COMM_WORLD));
  MUST(MPI_Probe(left(), 51, MPI_COMM_WORLD, &status));
  check_status(status, left(), 51, 1);
  MUST(MPI_Mprobe(MPI_ANY_SOURCE, 50, MPI_COMM_WORLD, &message, &status));
  check_status(status, left(), 50, 1);
  MUST(MPI_Iprobe(left(), 50, MPI_COMM_WORLD, &flag, &status));
  CHECK(flag == 0);  // it is claimed
  MUST(MPI_Recv(&got, 1, MPI_INT, left(), 51, MPI_COMM_WORLD, &status));
  MUST(MPI_Mrecv(&got, 1, MPI_INT, &message, &status));
  CHECK(message == MPI_MESSAGE_NULL && got == 77 + left());
  check_status(status, left(), 50, 1);
  MUST(MPI_Improbe(left(), 50, MPI_COMM_WORLD, &flag, &message, &status));
  CHECK(flag == 0 && message == MPI_MESSAGE_NULL);
  MUST(MPI_Recv(&got, 1, MPI_INT, MPI_PROC_NULL, 50, MPI_COMM_WORLD, &status));
  check_status(status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
}

void persistent() {
  int value = 0;
  int got = -1;
  MPI_Request requests[2];
  MUST(MPI_Recv_init(&got, 1, MPI_INT, left(), 60, MPI_COMM_WORLD, &requests[0]));
  MUST(MPI_Send_init(&value, 1, MPI_INT, right(), 60, MPI_COMM_WORLD, &requests[1]));
  for (int round = 0; round < 50; ++round) {
    value = g_rank + round;
    MUST(MPI_Startall(2, requests));
    MUST(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    CHECK(requests[0] != MPI_REQUEST_NULL && got == left() + round);
  }
  MUST(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));  // inactive
  MUST(MPI_Request_free(&requests[0]));
  MUST(MPI_Request_free(&requests[1]));
  CHECK(requests[0] == MPI_REQUEST_NULL);
}

void cancelled() {
  int got = -1;
  int flag = 0;
  MPI_Request request;
  MPI_Status status;
  MUST(MPI_Irecv(&got, 1, MPI_INT, left(), 199, MPI_COMM_WORLD, &request));
  MUST(MPI_Cancel(&request));
  MUST(MPI_Wait(&request, &status));
  MUST(MPI_Test_cancelled(&status, &flag));
  CHECK(flag == 1);
}

// Any, some, all; more messages than a window of credits has.
void completions() {
  constexpr int kCount = 64;
  std::vector<int> values(kCount);
  std::vector<int> got(kCount, -1);
  std::vector<MPI_Request> requests(2 * kCount);
  std::iota(values.begin(), values.end(), g_rank * 1000);
  for (int i = 0; i < kCount; ++i) MUST(MPI_Irecv(&got[i], 1, MPI_INT, left(), i, MPI_COMM_WORLD, &requests[i]));
  for (int i = 0; i < kCount; ++i)
    MUST(MPI_Isend(&values[i], 1, MPI_INT, right(), i, MPI_COMM_WORLD, &requests[kCount + i]));
  int index = -1;
  MPI_Status status;
  MUST(MPI_Waitany(2 * kCount, requests.data(), &index, &status));
  CHECK(index >= 0 && requests[static_cast<std::size_t>(index)] == MPI_REQUEST_NULL);
  std::vector<int> indices(2 * kCount);
  std::vector<MPI_Status> statuses(2 * kCount);
  int ended = 1;
  for (;;) {
    int count = 0;
    MUST(MPI_Waitsome(2 * kCount, requests.data(), &count, indices.data(), statuses.data()));
    if (count == MPI_UNDEFINED) break;
    ended += count;
  }
  CHECK(ended == 2 * kCount);
  for (int i = 0; i < kCount; ++i) CHECK(got[static_cast<std::size_t>(i)] == left() * 1000 + i);

  constexpr int kMany = 50000;
  std::vector<MPI_Request> many(kMany);
  const int value = g_rank;
  for (MPI_Request& request : many) MUST(MPI_Isend(&value, 1, MPI_INT, right(), 70, MPI_COMM_WORLD, &request));
  for (int i = 0; i < kMany; ++i) {
    int one = -1;
    MUST(MPI_Recv(&one, 1, MPI_INT, left(), 70, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(one == left());
  }
  MUST(MPI_Waitall(kMany, many.data(), MPI_STATUSES_IGNORE));
}

// A look at several requests may find that one has ended. This must be forgotten when that request
// is removed: the next request is new.
void requests_anew() {
  constexpr int kTag = 80;
  int self = 0;
  MUST(MPI_Comm_rank(MPI_COMM_SELF, &self));
  const int sent[] = {1, 2, 3};
  for (int round = 0; round < 3; ++round) {
    int got[] = {0, 0, 0};
    int flag = -1;
    MPI_Request requests[2];
    for (int i = 0; i < 2; ++i) MUST(MPI_Irecv(&got[i], 1, MPI_INT, self, kTag + i, MPI_COMM_SELF, &requests[i]));
    MUST(MPI_Send(&sent[0], 1, MPI_INT, self, kTag, MPI_COMM_SELF));
    do {
      MUST(MPI_Request_get_status(requests[0], &flag, MPI_STATUS_IGNORE));
    } while (flag == 0);
    MUST(MPI_Testall(2, requests, &flag, MPI_STATUSES_IGNORE));
    CHECK(flag == 0);
    MUST(MPI_Send(&sent[1], 1, MPI_INT, self, kTag + 1, MPI_COMM_SELF));
    MUST(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    CHECK(got[0] == 1 && got[1] == 2);
    for (int i = 0; i < 2; ++i) {  // both that were given back
      got[2] = 0;
      MUST(MPI_Irecv(&got[2], 1, MPI_INT, self, kTag + 2, MPI_COMM_SELF, &requests[i]));
      MUST(MPI_Test(&requests[i], &flag, MPI_STATUS_IGNORE));
      CHECK(flag == 0);
      MUST(MPI_Send(&sent[2], 1, MPI_INT, self, kTag + 2, MPI_COMM_SELF));
      MUST(MPI_Wait(&requests[i], MPI_STATUS_IGNORE));
      CHECK(got[2] == 3);
    }
  }
}

void partitioned() {
  constexpr int kParts = 8;
  std::vector<int> sent(kParts * 10);
  std::vector<int> got(kParts * 10, -1);
  MPI_Request requests[2];
  MUST(MPI_Psend_init(sent.data(), kParts, 10, MPI_INT, right(), 80, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]));
  MUST(MPI_Precv_init(got.data(), kParts / 2, 20, MPI_INT, left(), 80, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]));
  for (int round = 0; round < 5; ++round) {
    MUST(MPI_Startall(2, requests));
    for (int part = kParts - 1; part >= 0; --part) {
      for (int i = 0; i < 10; ++i) sent[static_cast<std::size_t>(part * 10 + i)] = g_rank + round + part;
      MUST(MPI_Pready(part, requests[0]));
    }
    int flag = 0;
    while (flag == 0) MUST(MPI_Parrived(requests[1], 1, &flag));
    CHECK(got[20] == left() + round + 2 && got[39] == left() + round + 3);
    MUST(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    CHECK(got[79] == left() + round + 7);
  }
  MUST(MPI_Request_free(&requests[0]));
  MUST(MPI_Request_free(&requests[1]));
}

// A receive may be larger than its send, as of other messages; the status tells how much came.
void partitioned_larger() {
  constexpr int kSent = 6;
  constexpr int kParts = 4;
  MPI_Datatype second;
  MUST(MPI_Type_vector(3, 1, 2, MPI_INT, &second));
  MUST(MPI_Type_commit(&second));
  for (const bool gaps : {false, true}) {
    std::vector<int> sent(kSent);
    std::vector<int> got(64, -1);
    MPI_Request requests[2];
    MUST(MPI_Psend_init(sent.data(), kSent, 1, MPI_INT, right(), 81, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]));
    MUST(MPI_Precv_init(got.data(), kParts, gaps ? 1 : 3, gaps ? second : MPI_INT, left(), 81, MPI_COMM_WORLD,
                        MPI_INFO_NULL, &requests[1]));
    for (int round = 0; round < 3; ++round) {
      std::iota(sent.begin(), sent.end(), g_rank * 100 + round);
      MPI_Status statuses[2];
      MUST(MPI_Startall(2, requests));
      MUST(MPI_Pready_range(0, kSent - 1, requests[0]));
      MUST(MPI_Waitall(2, requests, statuses));
      check_status(statuses[1], left(), 81, kSent);
      for (int i = 0; i < kSent; ++i) {
        const int at = gaps ? i / 3 * 5 + i % 3 * 2 : i;  // parts of 5 ints, the last gap left out
        CHECK(got[static_cast<std::size_t>(at)] == left() * 100 + round + i);
      }
      CHECK(got[gaps ? 10 : kSent] == -1);
      CHECK(!gaps || got[1] == -1);
    }
    MUST(MPI_Request_free(&requests[0]));
    MUST(MPI_Request_free(&requests[1]));
  }
  MUST(MPI_Type_free(&second));
}

// The count has 64 bits in the standard, since MPI 4.0, and there is no form with another one.
void partitioned_counts() {
  using Init = int(const void*, int, MPI_Count, MPI_Datatype, int, int, MPI_Comm, MPI_Info, MPI_Request*);
  static_assert(std::is_same_v<decltype(MPI_Psend_init), Init>);
  constexpr MPI_Count kLarge = (MPI_Count{1} << 32) + 1;
  char byte = 0;
  int code = MPI_SUCCESS;
  MPI_Request request = MPI_REQUEST_NULL;
  MUST(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
  // More than can be moved; its low 32 bits are a count of 1.
  MUST(MPI_Error_class(MPI_Psend_init(&byte, 1 << 17, kLarge, MPI_BYTE, 0, 1, MPI_COMM_SELF, MPI_INFO_NULL, &request),
                       &code));
  CHECK(code == MPI_ERR_COUNT);
  MUST(MPI_Error_class(MPI_Precv_init(&byte, 1 << 17, kLarge, MPI_BYTE, 0, 1, MPI_COMM_SELF, MPI_INFO_NULL, &request),
                       &code));
  CHECK(code == MPI_ERR_COUNT);
  MUST(MPI_Psend_init(&byte, 1, kLarge, MPI_BYTE, MPI_PROC_NULL, 1, MPI_COMM_SELF, MPI_INFO_NULL, &request));
  MUST(MPI_Request_free(&request));
  MUST(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL));
}

void communicators() {
  MPI_Comm copy;
  MPI_Comm half;
  MPI_Comm later;
  MPI_Request request;
  MUST(MPI_Comm_dup(MPI_COMM_WORLD, &copy));
  lengths(copy);
  MUST(MPI_Comm_idup(copy, &later, &request));
  MUST(MPI_Comm_split(copy, g_rank % 2, -g_rank, &half));
  MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
  int rank = -1;
  int size = -1;
  int result = -1;
  MUST(MPI_Comm_rank(half, &rank));
  MUST(MPI_Comm_size(half, &size));
  CHECK(size == (g_size + 1 - g_rank % 2) / 2);
  CHECK(rank == size - 1 - g_rank / 2);
  MUST(MPI_Comm_compare(copy, later, &result));
  CHECK(result == MPI_CONGRUENT);
  const int value = g_rank;
  int got = -1;
  MPI_Status status;
  MUST(MPI_Sendrecv(&value, 1, MPI_INT, size - 1 - rank, 1, &got, 1, MPI_INT, MPI_ANY_SOURCE, 1, half, &status));
  CHECK(status.MPI_SOURCE == size - 1 - rank);
  CHECK(got == (g_rank % 2) + 2 * rank);
  if (g_size > 1) {
    MPI_Comm inter;
    MPI_Comm merged;
    MUST(MPI_Intercomm_create(half, 0, copy, 1 - g_rank % 2 + 2 * ((g_size + g_rank % 2) / 2 - 1), 9, &inter));
    int remote = -1;
    MUST(MPI_Comm_remote_size(inter, &remote));
    CHECK(remote == g_size - size);
    MPI_Comm again;
    MUST(MPI_Comm_idup(inter, &again, &request));
    MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
    MUST(MPI_Comm_compare(inter, again, &result));
    CHECK(result == MPI_CONGRUENT);
    int sum = -1;
    MUST(MPI_Allreduce(&size, &sum, 1, MPI_INT, MPI_SUM, again));
    CHECK(sum == remote * remote);
    MUST(MPI_Comm_free(&again));
    MUST(MPI_Intercomm_merge(inter, g_rank % 2, &merged));
    MUST(MPI_Comm_size(merged, &size));
    CHECK(size == g_size);
    MUST(MPI_Barrier(merged));
    MUST(MPI_Comm_free(&merged));
    MUST(MPI_Comm_free(&inter));
  }
  MUST(MPI_Comm_free(&half));
  MUST(MPI_Comm_free(&later));
  MUST(MPI_Comm_free(&copy));
  CHECK(copy == MPI_COMM_NULL);
}

void threads() {
  constexpr int kThreads = 4;
  constexpr int kRounds = 300;
  std::vector<std::thread> all;
  std::vector<MPI_Comm> comms(kThreads);
  for (MPI_Comm& comm : comms) MUST(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  for (int t = 0; t < kThreads; ++t) {
    all.emplace_back([t, comm = t % 2 == 0 ? MPI_COMM_WORLD : comms[static_cast<std::size_t>(t)]] {
      for (int round = 0; round < kRounds; ++round) {
        const int value = g_rank * 100 + t + round;
        int got = -1;
        MPI_Request requests[2];
        MUST(MPI_Irecv(&got, 1, MPI_INT, left(), 100 + t, comm, &requests[0]));
        MUST(MPI_Isend(&value, 1, MPI_INT, right(), 100 + t, comm, &requests[1]));
        MUST(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        CHECK(got == left() * 100 + t + round);
      }
    });
  }
  for (std::thread& one : all) one.join();
  // Every thread of all processes at the same collective: not allowed, but in use.
  all.clear();
  for (int t = 0; t < kThreads; ++t) {
    all.emplace_back([] {
      for (int round = 0; round < kRounds / 10; ++round) {
        const int one = 1;
        int sum = 0;
        MUST(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
        CHECK(sum == g_size);
      }
    });
  }
  for (std::thread& one : all) one.join();
  for (MPI_Comm& comm : comms) MUST(MPI_Comm_free(&comm));
}

// A part that has arrived is unpacked, no matter which of several threads sees it first.
void parrived_by_threads() {
  constexpr int kInts = 20'000;
  constexpr int kRounds = 50;
  constexpr int kThreads = 3;
  MPI_Datatype second = MPI_DATATYPE_NULL;
  MUST(MPI_Type_vector(kInts, 1, 2, MPI_INT, &second));
  MUST(MPI_Type_commit(&second));
  std::vector<int> sent(kInts);
  std::vector<int> got(2 * kInts, -1);
  MPI_Request requests[2];
  MUST(MPI_Psend_init(sent.data(), 1, kInts, MPI_INT, right(), 82, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]));
  MUST(MPI_Precv_init(got.data(), 1, 1, second, left(), 82, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]));
  for (int round = 0; round < kRounds; ++round) {
    std::fill(sent.begin(), sent.end(), g_rank + round);
    MUST(MPI_Startall(2, requests));
    std::vector<std::thread> looks;
    for (int i = 0; i < kThreads; ++i) {
      looks.emplace_back([&] {
        int flag = 0;
        while (flag == 0) MUST(MPI_Parrived(requests[1], 0, &flag));
        CHECK(got.front() == left() + round && got[2 * kInts - 2] == left() + round);
      });
    }
    MUST(MPI_Pready(0, requests[0]));
    for (std::thread& one : looks) one.join();
    MUST(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
  }
  for (MPI_Request& request : requests) MUST(MPI_Request_free(&request));
  MUST(MPI_Type_free(&second));
}

}  // namespace

int main(int argc, char** argv) {
  int provided = -1;
  const bool many = argc > 1 && std::strcmp(argv[1], "threads") == 0;
  MUST(MPI_Init_thread(&argc, &argv, many ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided));
  g_rank = my_rank();
  g_size = ranks();
  CHECK(provided == (many ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE));
  lengths(MPI_COMM_WORLD);
  modes();
  synchronous();
  layouts();
  probes();
  persistent();
  cancelled();
  completions();
  requests_anew();
  partitioned();
  partitioned_larger();
  partitioned_counts();
  communicators();
  if (many) threads();
  if (many) parrived_by_threads();
  MUST(MPI_Finalize());
  return 0;
}
