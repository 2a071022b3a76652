// With MPI_THREAD_MULTIPLE: rank 0 accesses created windows of the other ranks. Only these ranks
// can answer, and meanwhile they wait in a call of MPI that uses another lane. There are no helpers
// (HEDDLE_PROGRESS=none). The test counts the looks of the waiting ranks.
#include <cstdio>
#include <vector>

#include "check.hpp"

namespace {

// As many windows as there may be lanes: their communicators take the lanes in turn.
constexpr int kWindows = 16;
constexpr int kQuestions = 10;  // of each window

unsigned long long looks() {
  int index = -1;
  int count = 0;
  unsigned long long value = 0;
  MPI_T_pvar_session session{};
  MPI_T_pvar_handle handle{};
  MUST(MPI_T_pvar_get_index("heddle_polls", MPI_T_PVAR_CLASS_COUNTER, &index));
  MUST(MPI_T_pvar_session_create(&session));
  MUST(MPI_T_pvar_handle_alloc(session, index, nullptr, &handle, &count));
  MUST(MPI_T_pvar_read(session, handle, &value));
  MUST(MPI_T_pvar_session_free(&session));
  return value;
}

struct Windows {
  Windows() : words(kWindows, 0), all(kWindows) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      MUST(MPI_Win_create(&words[i], sizeof words[i], 1, MPI_INFO_NULL, MPI_COMM_WORLD, &all[i]));
      MUST(MPI_Win_lock_all(MPI_MODE_NOCHECK, all[i]));
    }
  }
  ~Windows() {
    for (MPI_Win& win : all) {
      MPI_Win_unlock_all(win);
      MPI_Win_free(&win);
    }
  }
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;
  void ask() {
    for (MPI_Win win : all) {
      for (int i = 0; i < kQuestions; ++i) {
        for (int of = 1; of < ranks(); ++of) {
          const long one = 1;
          long old = -1;
          MUST(MPI_Fetch_and_op(&one, &old, MPI_LONG, of, 0, MPI_SUM, win));
          MUST(MPI_Win_flush(of, win));
          CHECK(old % kQuestions == i);
        }
      }
    }
  }
  std::vector<long> words;
  std::vector<MPI_Win> all;
};

void tell_others() {
  for (int to = 1; to < ranks(); ++to) MUST(MPI_Send(nullptr, 0, MPI_INT, to, 1, MPI_COMM_WORLD));
}

struct Way {
  const char* name;
  void (*releases)();  // of rank 0
  void (*waits)();
};

void barrier() {
  MUST(MPI_Barrier(MPI_COMM_WORLD));
}
void reduce() {
  int all = 0;
  int one = 1;
  MPI_Request request = MPI_REQUEST_NULL;
  MUST(MPI_Iallreduce(&one, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request));
  MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
  CHECK(all == ranks());
}
void receive() {
  MUST(MPI_Recv(nullptr, 0, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
}
void wait_any() {
  MPI_Request requests[2];
  int index = -1;
  MUST(MPI_Irecv(nullptr, 0, MPI_INT, 0, 1, MPI_COMM_WORLD, &requests[0]));
  MUST(MPI_Irecv(nullptr, 0, MPI_INT, 0, 2, MPI_COMM_WORLD, &requests[1]));
  MUST(MPI_Waitany(2, requests, &index, MPI_STATUS_IGNORE));
  CHECK(index == 0);
  MUST(MPI_Cancel(&requests[1]));
  MUST(MPI_Wait(&requests[1], MPI_STATUS_IGNORE));
}
// Sends of one communicator that wait for room go on while their thread waits in a barrier of
// another one, also where a third has an operation of several steps under way: their receiver comes
// to that one later.
void send_behind_steps() {
  constexpr int kSends = 20'000;
  MPI_Comm stepping = MPI_COMM_NULL;
  MUST(MPI_Comm_dup(MPI_COMM_WORLD, &stepping));
  for (int i = 0; i < 4; ++i) {  // each with other lanes
    MPI_Comm sending = MPI_COMM_NULL;
    MPI_Request step = MPI_REQUEST_NULL;
    MUST(MPI_Comm_dup(MPI_COMM_WORLD, &sending));
    std::vector<MPI_Request> sends(my_rank() == 0 ? kSends : 0, MPI_REQUEST_NULL);
    for (MPI_Request& send : sends) MUST(MPI_Isend(&i, 1, MPI_INT, 1, 1, sending, &send));
    for (int got = 0; my_rank() == 1 && got < kSends; ++got) {
      int value = -1;
      MUST(MPI_Recv(&value, 1, MPI_INT, 0, 1, sending, MPI_STATUS_IGNORE));
      CHECK(value == i);
    }
    MUST(MPI_Ibarrier(stepping, &step));
    MUST(MPI_Barrier(MPI_COMM_WORLD));
    MUST(MPI_Wait(&step, MPI_STATUS_IGNORE));
    MUST(MPI_Waitall(static_cast<int>(sends.size()), sends.data(), MPI_STATUSES_IGNORE));
    MUST(MPI_Comm_free(&sending));
  }
  MUST(MPI_Comm_free(&stepping));
}
void probe() {
  MUST(MPI_Probe(0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  receive();
}

}  // namespace

int main(int argc, char** argv) {
  constexpr Way kWays[] = {{"MPI_Recv", &tell_others, &receive},
                           {"MPI_Waitany", &tell_others, &wait_any},
                           {"MPI_Probe", &tell_others, &probe},
                           {"MPI_Barrier", &barrier, &barrier},
                           {"MPI_Wait", &reduce, &reduce}};
  // While a wait spins it looks at the other lanes once in 64 looks, and always later. While the
  // asking rank has no core, the number of looks is bounded, because the wait sleeps after a
  // millisecond.
  constexpr double kMostLooks = 20'000;
  int provided = 0;
  MUST(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
  CHECK(provided == MPI_THREAD_MULTIPLE);
  MUST(MPI_T_init_thread(MPI_THREAD_MULTIPLE, &provided));
  {
    Windows windows;
    for (const Way& way : kWays) {
      MUST(MPI_Barrier(MPI_COMM_WORLD));
      if (my_rank() == 0) {
        windows.ask();
        way.releases();
        continue;
      }
      const unsigned long long before = looks();
      way.waits();
      const double each = static_cast<double>(looks() - before) / (kWindows * kQuestions);
      std::printf("rank %d in %s: %.0f looks for each question\n", my_rank(), way.name, each);
      CHECK(each < kMostLooks);
    }
  }
  send_behind_steps();
  MUST(MPI_T_finalize());
  MUST(MPI_Finalize());
  return 0;
}
