// Random one-sided programs against a model of all ranks' memory. Every rank draws the same
// numbers, so that each knows what all do: it applies all operations to its model, and compares its
// own memory and what it has fetched.
//
//   rma_rank [SEED [ROUNDS]]
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "rma_operations.hpp"
#include "rma_particular.hpp"

namespace {

// ---- epochs -------------------------------------------------------------------------------------

enum Epoch { fence, post_start, lock_each, lock_shared, lock_all, kEpochs };
constexpr const char* kEpochNames[] = {"fence", "post and start", "exclusive locks", "shared locks", "lock_all"};

struct Run {
  Window& w;
  Random& random;
  int epoch;
  std::vector<MPI_Request> requests;
  std::vector<std::function<void()>> later;
  bool done_large[16] = {};
};

void wait_requests(Run& run) {
  if (run.requests.empty()) return;
  MPI_Waitall(static_cast<int>(run.requests.size()), run.requests.data(), MPI_STATUSES_IGNORE);
  run.requests.clear();
}

// All operations of `origin` on `target`.
void operate(Run& run, int origin, int target) {
  const bool passive = run.epoch >= lock_each;
  Actor actor{run.w, run.random, origin, target, origin == g_rank, passive, run.requests, run.later};
  const int slots = static_cast<int>(below(run.random, kSlots + 1));
  for (int slot = 0; slot < slots; ++slot) {
    act(actor, slot);
    if (passive && below(run.random, 8) == 0 && actor.mine) succeed(MPI_Win_flush(target, run.w.win), "flush");
  }
  switch (below(run.random, 5)) {
    case 0:
      put_or_get(actor, large_at(origin), kLarge);
      break;
    case 1:
      accumulate_row<std::int32_t>(actor, MPI_INT32_T, large_at(origin), kLarge);
      break;
    default:
      break;
  }
}

void run_epoch(Run& run) {
  Window& w = run.w;
  // The ranks that each rank accesses.
  std::vector<std::vector<int>> targets(static_cast<std::size_t>(g_size));
  for (auto& mine : targets)
    for (int rank = 0; rank < g_size; ++rank)
      if (below(run.random, 3) != 0) mine.push_back(rank);
  MPI_Group all = MPI_GROUP_NULL;
  MPI_Group start_group = MPI_GROUP_NULL;
  MPI_Group post_group = MPI_GROUP_NULL;
  const auto& my_targets = targets[static_cast<std::size_t>(g_rank)];
  if (run.epoch == post_start) {
    std::vector<int> origins;
    for (int rank = 0; rank < g_size; ++rank) {
      const auto& theirs = targets[static_cast<std::size_t>(rank)];
      if (std::find(theirs.begin(), theirs.end(), g_rank) != theirs.end()) origins.push_back(rank);
    }
    MPI_Win_get_group(w.win, &all);
    MPI_Group_incl(all, static_cast<int>(origins.size()), origins.data(), &post_group);
    MPI_Group_incl(all, static_cast<int>(my_targets.size()), my_targets.data(), &start_group);
    succeed(MPI_Win_post(post_group, 0, w.win), "post");
    succeed(MPI_Win_start(start_group, 0, w.win), "start");
  }
  if (run.epoch == fence) succeed(MPI_Win_fence(MPI_MODE_NOPRECEDE, w.win), "fence");
  if (run.epoch == lock_all) succeed(MPI_Win_lock_all(0, w.win), "lock_all");
  for (int origin = 0; origin < g_size; ++origin) {
    const bool mine = origin == g_rank;
    for (const int target : targets[static_cast<std::size_t>(origin)]) {
      if (mine && run.epoch == lock_each) succeed(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, w.win), "lock");
      if (mine && run.epoch == lock_shared) succeed(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, w.win), "lock");
      operate(run, origin, target);
      if (mine && run.epoch >= lock_each) wait_requests(run);
      if (mine && (run.epoch == lock_each || run.epoch == lock_shared))
        succeed(MPI_Win_unlock(target, w.win), "unlock");
    }
  }
  if (run.epoch == fence) succeed(MPI_Win_fence(MPI_MODE_NOSUCCEED, w.win), "fence");
  if (run.epoch == lock_all) succeed(MPI_Win_unlock_all(w.win), "unlock_all");
  if (run.epoch == post_start) {
    succeed(MPI_Win_complete(w.win), "complete");
    int flag = 0;
    if (g_round % 2 == 0) {
      succeed(MPI_Win_wait(w.win), "wait");
    } else {
      while (flag == 0) succeed(MPI_Win_test(w.win, &flag), "test");
    }
    if (start_group != MPI_GROUP_EMPTY) MPI_Group_free(&start_group);
    if (post_group != MPI_GROUP_EMPTY) MPI_Group_free(&post_group);
    MPI_Group_free(&all);
  }
}

void compare(const Window& w) {
  const Bytes& model = w.model[static_cast<std::size_t>(g_rank)];
  for (std::size_t i = 0; i < model.size(); ++i)
    if (w.base[i] != model[i]) {
      complain("the window's memory differs from the model, at byte", static_cast<long long>(i),
               static_cast<long long>(slot_at(g_size, 0)));
      return;
    }
}

void run_windows(Random& random, int rounds) {
  for (int flavor = 0; flavor < kFlavors; ++flavor) {
    Window w;
    g_what = kNames[flavor];
    if (!open(w, flavor)) continue;
    MPI_Win_set_errhandler(w.win, MPI_ERRORS_RETURN);
    w.model.assign(static_cast<std::size_t>(g_size), Bytes(window_bytes()));
    for (auto& bytes : w.model)
      for (auto& byte : bytes) byte = static_cast<unsigned char>(random());
    std::memcpy(w.base, w.model[static_cast<std::size_t>(g_rank)].data(), window_bytes());
    MPI_Win_sync(w.win);
    MPI_Barrier(MPI_COMM_WORLD);
    for (g_round = 0; g_round < rounds; ++g_round) {
      const int epoch = static_cast<int>(below(random, kEpochs));
      Run run{w, random, epoch, {}, {}};
      char what[80];
      std::snprintf(what, sizeof what, "%s, %s", kNames[flavor], kEpochNames[epoch]);
      g_what = what;
      run_epoch(run);
      MPI_Barrier(MPI_COMM_WORLD);
      MPI_Win_sync(w.win);
      for (auto& one : run.later) one();
      compare(w);
      g_what = "";
      MPI_Barrier(MPI_COMM_WORLD);
    }
    close(w);
  }
}

}  // namespace

int main(int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, std::getenv("RMA_SINGLE") != nullptr ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &g_size);
  g_seed = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 1;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 20;
  Random random(g_seed);
  check_errors();
  check_attach();
  check_adjacent();
  check_empty_types();
  check_shared_query();
  check_flush_beside_long_messages();
  check_threads();
  run_windows(random, rounds);
  int all = 0;
  MPI_Allreduce(&g_bad, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  return all == 0 ? 0 : 1;
}
