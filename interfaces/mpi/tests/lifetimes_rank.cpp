// How long objects live: communicators that are freed in different orders, with operations under
// way, and many of them; disconnecting; keys that were freed and are in use; buffers of sessions.
#include <csignal>
#include <cstdio>
#include <string_view>
#include <thread>
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

MPI_Comm duplicate(MPI_Comm comm) {
  MPI_Comm made = MPI_COMM_NULL;
  MUST(MPI_Comm_dup(comm, &made));
  return made;
}

// As garbage collectors do it: each process in an order of its own.
void any_order() {
  std::vector<MPI_Comm> comms;
  for (int i = 0; i < g_size + 1; ++i) comms.push_back(duplicate(MPI_COMM_WORLD));
  for (MPI_Comm comm : comms) MUST(MPI_Barrier(comm));
  MPI_Comm inter = MPI_COMM_NULL;
  if (g_size > 1) {
    MPI_Comm half = MPI_COMM_NULL;
    MUST(MPI_Comm_split(MPI_COMM_WORLD, g_rank % 2, 0, &half));
    MUST(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - g_rank % 2, 1, &inter));
    MUST(MPI_Barrier(inter));
    comms.push_back(half);
    comms.push_back(inter);
  }
  const auto count = comms.size();
  for (std::size_t i = 0; i < count; ++i) {
    MPI_Comm& comm = comms[(i + static_cast<std::size_t>(g_rank)) % count];
    MUST(MPI_Comm_free(&comm));
    CHECK(comm == MPI_COMM_NULL);
  }
}

// Rank 0 frees it while it waits for a message that the others send when they know of that.
void with_receive_pending() {
  MPI_Comm comm = duplicate(MPI_COMM_WORLD);
  std::vector<int> got(static_cast<std::size_t>(g_size), -1);
  std::vector<MPI_Request> requests(got.size(), MPI_REQUEST_NULL);
  if (g_rank == 0) {
    for (int from = 1; from < g_size; ++from)
      MUST(MPI_Irecv(&got[static_cast<std::size_t>(from)], 1, MPI_INT, from, 1, comm,
                     &requests[static_cast<std::size_t>(from)]));
    MUST(MPI_Comm_free(&comm));
    for (int to = 1; to < g_size; ++to) MUST(MPI_Send(nullptr, 0, MPI_INT, to, 2, MPI_COMM_WORLD));
    MUST(MPI_Waitall(g_size, requests.data(), MPI_STATUSES_IGNORE));
    for (int from = 1; from < g_size; ++from) CHECK(got[static_cast<std::size_t>(from)] == from);
    return;
  }
  MUST(MPI_Recv(nullptr, 0, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  MUST(MPI_Send(&g_rank, 1, MPI_INT, 0, 1, comm));
  MUST(MPI_Comm_free(&comm));
}

// One frees it and the others go on with it: they hear of it when they have freed theirs.
void before_the_others() {
  MPI_Comm comm = duplicate(MPI_COMM_WORLD);
  MPI_Request request = MPI_REQUEST_NULL;
  MUST(MPI_Ibarrier(comm, &request));
  if (g_rank == 0) MUST(MPI_Comm_free(&comm));
  MUST(MPI_Barrier(MPI_COMM_WORLD));
  MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
  if (g_rank != 0) MUST(MPI_Comm_free(&comm));
}

// Freed communicators give back their memory: HEDDLE_COLLECTIVE_BYTES of the test has room for only
// a few at a time.
void many_times() {
  constexpr int kRounds = 400;
  for (int round = 0; round < kRounds; ++round) {
    MPI_Comm one = duplicate(MPI_COMM_WORLD);
    MPI_Comm other = duplicate(MPI_COMM_WORLD);
    const int mine = round;
    int sum = -1;
    MUST(MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, one));
    CHECK(sum == round * g_size);
    MUST(MPI_Barrier(other));
    MUST(MPI_Comm_free(g_rank % 2 == 0 ? &one : &other));
    MUST(MPI_Comm_free(g_rank % 2 == 0 ? &other : &one));
  }
}

// Threads that make and free communicators of their own at once.
void threads() {
  constexpr int kThreads = 3;
  constexpr int kRounds = 40;
  std::vector<MPI_Comm> parents;
  for (int i = 0; i < kThreads; ++i) parents.push_back(duplicate(MPI_COMM_WORLD));
  std::vector<std::thread> all;
  for (MPI_Comm parent : parents) {
    all.emplace_back([parent] {
      for (int round = 0; round < kRounds; ++round) {
        MPI_Comm comm = duplicate(parent);
        const int mine = round + g_rank;
        int sum = -1;
        int got = -1;
        MPI_Request request = MPI_REQUEST_NULL;
        MUST(MPI_Irecv(&got, 1, MPI_INT, left(), 3, comm, &request));
        MUST(MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comm));
        CHECK(sum == round * g_size + g_size * (g_size - 1) / 2);
        MUST(MPI_Send(&mine, 1, MPI_INT, right(), 3, comm));
        MUST(MPI_Comm_free(&comm));
        MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
        CHECK(got == round + left());
      }
    });
  }
  for (std::thread& one : all) one.join();
  for (MPI_Comm& parent : parents) MUST(MPI_Comm_free(&parent));
}

// An inactive request is no operation under way; an active one is waited for.
void disconnected() {
  MPI_Comm comm = duplicate(MPI_COMM_WORLD);
  int sent = g_rank;
  int got = -1;
  int later = -1;
  MPI_Request inactive[2];
  MPI_Request active[2];
  MUST(MPI_Recv_init(&got, 1, MPI_INT, left(), 1, comm, &inactive[0]));
  MUST(MPI_Send_init(&sent, 1, MPI_INT, right(), 1, comm, &inactive[1]));
  MUST(MPI_Startall(2, inactive));
  MUST(MPI_Waitall(2, inactive, MPI_STATUSES_IGNORE));
  CHECK(got == left());
  MUST(MPI_Irecv(&later, 1, MPI_INT, left(), 2, comm, &active[0]));
  MUST(MPI_Ibarrier(comm, &active[1]));
  MUST(MPI_Send(&sent, 1, MPI_INT, right(), 2, comm));
  MUST(MPI_Comm_disconnect(&comm));
  CHECK(comm == MPI_COMM_NULL && later == left());
  MUST(MPI_Waitall(2, active, MPI_STATUSES_IGNORE));
  for (MPI_Request& request : inactive) MUST(MPI_Request_free(&request));
}

// Another thread waits for what MPI_Comm_disconnect waits for, and a third answers rank 0, which
// takes part only when all have answered many times.
void disconnected_beside_threads() {
  constexpr int kRounds = 30;
  constexpr int kQuestions = 50;
  for (int round = 0; round < kRounds; ++round) {
    MPI_Comm comm = duplicate(MPI_COMM_WORLD);
    int mine = g_rank + round;
    int sum = -1;
    MPI_Request request = MPI_REQUEST_NULL;
    std::thread answers;
    if (g_rank == 0) {
      for (int i = 0; i < kQuestions; ++i)
        for (int of = 1; of < g_size; ++of)
          MUST(MPI_Sendrecv(&i, 1, MPI_INT, of, 4, &sum, 1, MPI_INT, of, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    } else {
      answers = std::thread([] {
        int got = -1;
        for (int i = 0; i < kQuestions; ++i) {
          MUST(MPI_Recv(&got, 1, MPI_INT, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
          MUST(MPI_Send(&got, 1, MPI_INT, 0, 5, MPI_COMM_WORLD));
        }
      });
    }
    sum = -1;
    MUST(MPI_Iallreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comm, &request));
    std::thread waits;
    if (round % 2 == 0) waits = std::thread([&] { MUST(MPI_Wait(&request, MPI_STATUS_IGNORE)); });
    MUST(MPI_Comm_disconnect(&comm));
    if (round % 2 != 0) CHECK(sum == round * g_size + g_size * (g_size - 1) / 2);
    if (waits.joinable()) waits.join();
    if (answers.joinable()) answers.join();
    MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(sum == round * g_size + g_size * (g_size - 1) / 2);
  }
}

int class_of(int code) {
  int found = MPI_SUCCESS;
  MUST(MPI_Error_class(code, &found));
  return found;
}

// At the limit, there is room for a new communicator only when all members have freed another one.
// A member that has freed it waits for the others, which may do so later.
void room_held_elsewhere() {
  constexpr int kRounds = 20;
  MUST(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  std::vector<MPI_Comm> all;
  int code = MPI_SUCCESS;
  do {
    MPI_Comm made = MPI_COMM_NULL;
    code = MPI_Comm_dup(MPI_COMM_WORLD, &made);
    CHECK((code == MPI_SUCCESS) == (made != MPI_COMM_NULL));
    if (code == MPI_SUCCESS) all.push_back(made);
  } while (code == MPI_SUCCESS);
  CHECK(class_of(code) == MPI_ERR_NO_MEM && all.size() > 2);
  MPI_Comm others = MPI_COMM_NULL;  // of all but rank 0
  MUST(MPI_Comm_free(&all.back()));
  all.pop_back();
  MUST(MPI_Comm_split(MPI_COMM_WORLD, g_rank == 0 ? MPI_UNDEFINED : 0, 0, &others));
  for (int round = 0; round < kRounds; ++round) {
    if (others != MPI_COMM_NULL)
      for (int i = 0; i < 200; ++i) MUST(MPI_Barrier(others));
    MUST(MPI_Comm_free(&all.back()));
    MUST(MPI_Comm_dup(MPI_COMM_WORLD, &all.back()));
  }
  if (others != MPI_COMM_NULL) MUST(MPI_Comm_free(&others));
  for (MPI_Comm& comm : all) MUST(MPI_Comm_free(&comm));
  MUST(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
}

// Messages under way for a communicator that members have freed after a death must not reach a
// later one.
void numbers_after_a_death() {
  MPI_Comm comm = duplicate(MPI_COMM_WORLD);
  MUST(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  MUST(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
  MUST(MPI_Barrier(MPI_COMM_WORLD));
  if (g_rank == 1) std::raise(SIGKILL);
  CHECK(class_of(MPI_Recv(nullptr, 0, MPI_INT, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE)) == MPI_ERR_PROC_ABORTED);
  const int other = 2 - g_rank;
  MUST(MPI_Send(&g_rank, 1, MPI_INT, other, 6, comm));  // which nobody receives
  MUST(MPI_Sendrecv(nullptr, 0, MPI_INT, other, 7, nullptr, 0, MPI_INT, other, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  int there = 0;
  MUST(MPI_Iprobe(other, 6, comm, &there, MPI_STATUS_IGNORE));
  CHECK(there == 1);
  MUST(MPI_Comm_free(&comm));
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group living = MPI_GROUP_NULL;
  constexpr int kDead = 1;
  MUST(MPI_Comm_group(MPI_COMM_WORLD, &world));
  MUST(MPI_Group_excl(world, 1, &kDead, &living));
  for (int i = 0; i < 3; ++i) {
    MPI_Comm later = MPI_COMM_NULL;
    MUST(MPI_Comm_create_group(MPI_COMM_WORLD, living, 8, &later));
    MUST(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, later, &there, MPI_STATUS_IGNORE));
    CHECK(there == 0);
    int sum = -1;
    MUST(MPI_Allreduce(&g_rank, &sum, 1, MPI_INT, MPI_SUM, later));
    CHECK(sum == 2);
    MUST(MPI_Comm_free(&later));
  }
  MUST(MPI_Group_free(&world));
  MUST(MPI_Group_free(&living));
  std::puts("survived");
}

// Rank 1 dies. The others have a receive whose source it might have been.
void with_a_death() {
  MPI_Comm comm = duplicate(MPI_COMM_WORLD);
  MUST(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  MUST(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
  int got = -1;
  MPI_Request request = MPI_REQUEST_NULL;
  MUST(MPI_Irecv(&got, 1, MPI_INT, MPI_ANY_SOURCE, 1, comm, &request));
  MUST(MPI_Barrier(MPI_COMM_WORLD));
  if (g_rank == 1) std::raise(SIGKILL);
  MUST(MPI_Comm_disconnect(&comm));
  CHECK(class_of(MPI_Wait(&request, MPI_STATUS_IGNORE)) == MPI_ERR_PROC_ABORTED);
  std::puts("survived");
}

// ---- keys ---------------------------------------------------------------------------------------

int g_deleted = 0;
int count_comm(MPI_Comm /*comm*/, int /*keyval*/, void* /*value*/, void* /*extra*/) {
  ++g_deleted;
  return MPI_SUCCESS;
}
int count_type(MPI_Datatype /*type*/, int /*keyval*/, void* /*value*/, void* /*extra*/) {
  ++g_deleted;
  return MPI_SUCCESS;
}
int count_win(MPI_Win /*win*/, int /*keyval*/, void* /*value*/, void* /*extra*/) {
  ++g_deleted;
  return MPI_SUCCESS;
}

// The program has freed a key but kept its number. The number names the key as long as attributes
// have it.
template <class Get, class Set, class Delete>
void use_freed(int key, Get&& get, Set&& set, Delete&& remove) {
  int value = 7;
  void* found = nullptr;
  int flag = 0;
  int deleted = g_deleted;
  MUST(get(key, static_cast<void*>(&found), &flag));
  CHECK(flag == 1 && *static_cast<int*>(found) == 6);
  int code = MPI_SUCCESS;
  MUST(MPI_Error_class(set(key, &value), &code));
  CHECK(code == MPI_ERR_KEYVAL);
  MUST(remove(key));
  CHECK(g_deleted == deleted + 1);
  MUST(MPI_Error_class(get(key, static_cast<void*>(&found), &flag), &code));  // now it is gone
  CHECK(code == MPI_ERR_KEYVAL);
}

void freed_keys() {
  int value = 6;
  int key = MPI_KEYVAL_INVALID;
  MPI_Comm comm = duplicate(MPI_COMM_SELF);
  MUST(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
  MUST(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
  MUST(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, &count_comm, &key, nullptr));
  int kept = key;
  MUST(MPI_Comm_set_attr(comm, key, &value));
  MUST(MPI_Comm_free_keyval(&key));
  use_freed(
      kept, [&](int number, void* out, int* flag) { return MPI_Comm_get_attr(comm, number, out, flag); },
      [&](int number, void* in) { return MPI_Comm_set_attr(comm, number, in); },
      [&](int number) { return MPI_Comm_delete_attr(comm, number); });
  MUST(MPI_Comm_free(&comm));

  MPI_Datatype type = MPI_DATATYPE_NULL;
  MUST(MPI_Type_contiguous(2, MPI_INT, &type));
  MUST(MPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, &count_type, &key, nullptr));
  kept = key;
  MUST(MPI_Type_set_attr(type, key, &value));
  MUST(MPI_Type_free_keyval(&key));
  use_freed(
      kept, [&](int number, void* out, int* flag) { return MPI_Type_get_attr(type, number, out, flag); },
      [&](int number, void* in) { return MPI_Type_set_attr(type, number, in); },
      [&](int number) { return MPI_Type_delete_attr(type, number); });
  MUST(MPI_Type_free(&type));

  MPI_Win win = MPI_WIN_NULL;
  MUST(MPI_Win_create(&value, sizeof value, 1, MPI_INFO_NULL, MPI_COMM_SELF, &win));
  MUST(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
  MUST(MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, &count_win, &key, nullptr));
  kept = key;
  MUST(MPI_Win_set_attr(win, key, &value));
  MUST(MPI_Win_free_keyval(&key));
  use_freed(
      kept, [&](int number, void* out, int* flag) { return MPI_Win_get_attr(win, number, out, flag); },
      [&](int number, void* in) { return MPI_Win_set_attr(win, number, in); },
      [&](int number) { return MPI_Win_delete_attr(win, number); });
  MUST(MPI_Win_free(&win));
  MUST(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL));
}

}  // namespace

int main(int argc, char** argv) {
  const bool many = argc > 1 && std::string_view(argv[1]) == "threads";
  int provided = -1;
  MUST(MPI_Init_thread(&argc, &argv, many ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided));
  g_rank = my_rank();
  g_size = ranks();
  struct Alone {
    std::string_view name;
    void (*run)();
  };
  constexpr Alone kAlone[] = {
      {"death", &with_a_death}, {"death_numbers", &numbers_after_a_death}, {"room", &room_held_elsewhere}};
  for (const Alone& alone : kAlone) {
    if (argc < 2 || alone.name != argv[1]) continue;
    alone.run();
    return MPI_Finalize();
  }
  struct Part {
    std::string_view name;
    void (*run)();
  };
  constexpr Part kParts[] = {{"order", &any_order}, {"pending", &with_receive_pending}, {"before", &before_the_others},
                             {"many", &many_times}, {"disconnect", &disconnected},      {"keys", &freed_keys}};
  for (const Part& part : kParts)
    if (argc < 2 || many || part.name == argv[1]) part.run();
  if (many) threads();
  if (many) disconnected_beside_threads();
  MUST(MPI_Finalize());
  return 0;
}
