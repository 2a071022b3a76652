// Rank 0 waits for rank 1, which is late, while other operations are under way. It must leave its
// core to others meanwhile: the test counts its processor time.
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "check.hpp"

namespace {

double processor_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

// ---- what is under way meanwhile, and needs the late rank: operations of several steps

struct Pending {
  const char* name;
  MPI_Request (*begin)();
};

MPI_Comm duplicate = MPI_COMM_NULL;

MPI_Request nothing() {
  return MPI_REQUEST_NULL;
}
MPI_Request begin_duplicate() {
  MPI_Request request = MPI_REQUEST_NULL;
  MUST(MPI_Comm_idup(MPI_COMM_WORLD, &duplicate, &request));
  return request;
}
MPI_Request begin_barrier() {
  MPI_Request request = MPI_REQUEST_NULL;
  MUST(MPI_Ibarrier(MPI_COMM_WORLD, &request));
  return request;
}
MPI_Request begin_exchange() {  // by messages
  static int from[2];
  static int to[2];
  static const int counts[2] = {1, 1};
  static const int places[2] = {0, sizeof(int)};
  static const MPI_Datatype types[2] = {MPI_INT, MPI_INT};
  MPI_Request request = MPI_REQUEST_NULL;
  MUST(MPI_Ialltoallw(from, counts, places, types, to, counts, places, types, MPI_COMM_WORLD, &request));
  return request;
}

// ---- how rank 0 waits

struct Way {
  const char* name;
  void (*meet)(MPI_Request* pending);  // of both ranks
};

void message(MPI_Request* /*pending*/) {
  if (my_rank() == 0)
    MUST(MPI_Recv(nullptr, 0, MPI_INT, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  else
    MUST(MPI_Send(nullptr, 0, MPI_INT, 0, 1, MPI_COMM_WORLD));
}
void barrier(MPI_Request* /*pending*/) {
  MUST(MPI_Barrier(MPI_COMM_WORLD));
}
void end_pending(MPI_Request* pending) {
  MUST(MPI_Wait(pending, MPI_STATUS_IGNORE));
}
void any_request(MPI_Request* pending) {
  if (my_rank() == 1) return message(pending);
  MPI_Request requests[2];
  int index = -1;
  MUST(MPI_Irecv(nullptr, 0, MPI_INT, 1, 1, MPI_COMM_WORLD, &requests[0]));
  MUST(MPI_Irecv(nullptr, 0, MPI_INT, 1, 2, MPI_COMM_WORLD, &requests[1]));
  MUST(MPI_Waitany(2, requests, &index, MPI_STATUS_IGNORE));
  CHECK(index == 0);
  MUST(MPI_Cancel(&requests[1]));
  MUST(MPI_Wait(&requests[1], MPI_STATUS_IGNORE));
}

constexpr std::chrono::milliseconds kLate{500};

void measure(const Pending& pending, const Way& way) {
  constexpr double kMostShare = 0.2;
  MUST(MPI_Barrier(MPI_COMM_WORLD));
  if (my_rank() == 1) std::this_thread::sleep_for(kLate);  // the wait that is measured
  const auto begun = std::chrono::steady_clock::now();
  const double before = processor_seconds();
  MPI_Request request = pending.begin();
  way.meet(&request);
  const double used = processor_seconds() - before;
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begun;
  MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
  if (duplicate != MPI_COMM_NULL) MUST(MPI_Comm_free(&duplicate));
  if (my_rank() != 0) return;
  std::printf("%s with %s under way: %.0f ms, of which %.0f ms on a core\n", way.name, pending.name,
              waited.count() * 1e3, used * 1e3);
  CHECK(waited > kLate / 2);
  CHECK(used < kMostShare * waited.count());
}

// Rank 1 keeps a lock for that long.
void measure_lock() {
  static const Pending kNothing{"nothing", &nothing};
  long word = 0;
  MPI_Win win = MPI_WIN_NULL;
  MUST(MPI_Win_create(&word, sizeof word, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
  static MPI_Win locked;
  locked = win;
  if (my_rank() == 1) MUST(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win));
  measure(kNothing, {"MPI_Win_lock", [](MPI_Request*) {
                       if (my_rank() == 0) MUST(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, locked));
                       MUST(MPI_Win_unlock(1, locked));
                     }});
  MUST(MPI_Win_free(&win));
}

}  // namespace

int main(int argc, char** argv) {
  constexpr Pending kPending[] = {{"nothing", &nothing},
                                  {"MPI_Comm_idup", &begin_duplicate},
                                  {"MPI_Ibarrier", &begin_barrier},
                                  {"MPI_Ialltoallw", &begin_exchange}};
  constexpr Way kWays[] = {{"MPI_Recv", &message}, {"MPI_Barrier", &barrier}, {"MPI_Waitany", &any_request}};
  const bool threads = argc > 1 && std::strcmp(argv[1], "threads") == 0;
  int provided = 0;
  MUST(MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided));
  CHECK(ranks() == 2);
  for (const Pending& pending : kPending) {
    for (const Way& way : kWays) measure(pending, way);
    if (pending.begin != &nothing) measure(pending, {"MPI_Wait", &end_pending});
  }
  measure_lock();
  MUST(MPI_Finalize());
  return 0;
}
