// Epochs of groups: post and wait at the targets, start and complete at the origins. Each call
// notifies a rank by a message without data.
#include <units/epochs.hpp>

#include "mpi/messages/internal.hpp"
#include "mpi/rma/order.hpp"
#include "mpi/rma/transfer.hpp"
#include "mpi/rma/win.hpp"

namespace heddle::mpi {
namespace {

// Tags within the window's own communicator.
constexpr int kPosted = InternalTag::kWindow + (1 << 8);
constexpr int kCompleted = kPosted + 1;

// The ranks that a group's members have in the window.
int read_group(const Win& win, MPI_Group handle, std::vector<int>* ranks) {
  const GroupPointer group = group_of(handle);
  if (group == nullptr) return bad_group(handle);
  for (int i = 0; i < group->size(); ++i) {
    const int rank = win.comm->group->rank_of((*group)[i]);
    if (rank == MPI_UNDEFINED)
      return error(MPI_ERR_GROUP, "rank %d of the group is no member of the window's group", i);
    ranks->push_back(rank);
  }
  return MPI_SUCCESS;
}

// Posts to one origin. An error means that the origin has died. The call that ends the epoch
// reports the error, so that all other origins still get their messages.
int post_to(Win& win, int origin) {
  auto completion = std::make_unique<InternalMessage>();
  if (const int code = completion->receive(*win.comm, origin, kCompleted, nullptr, 0); code != MPI_SUCCESS) return code;
  win.completions.push_back(std::move(completion));
  return internal_send(*win.comm, origin, kPosted, nullptr, 0);
}

void note_exposure(Win& win, int code) {
  if (win.exposure_code == MPI_SUCCESS) win.exposure_code = code;
}

int begin_exposure(Win& win, MPI_Group group, int assertion) {
  constexpr int kAllowed = MPI_MODE_NOCHECK | MPI_MODE_NOSTORE | MPI_MODE_NOPUT;
  if (const int code = check_assertion(assertion, kAllowed); code != MPI_SUCCESS) return code;
  std::vector<int> origins;
  if (const int code = read_group(win, group, &origins); code != MPI_SUCCESS) return code;
  {
    const std::scoped_lock lock(win.mutex);
    if (win.exposed) return error(MPI_ERR_RMA_SYNC, "MPI_Win_post within an exposure epoch: call MPI_Win_wait first");
    if (win.access == Access::fence)
      return error(MPI_ERR_RMA_SYNC, "MPI_Win_post within a fence's epoch: end it by MPI_Win_fence");
    win.exposed = true;
    win.fence_idle = false;
  }
  win.origins = std::move(origins);
  win.completions.clear();
  win.exposure_code = MPI_SUCCESS;
  full_fence();  // makes this rank's stores visible to the origins
  for (const int rank : win.origins) note_exposure(win, post_to(win, rank));
  return MPI_SUCCESS;
}

// Notifies the targets whose messages from MPI_Win_post have arrived, and ends the epoch.
int end_access(Win& win) {
  int first = MPI_SUCCESS;
  full_fence();
  for (const int rank : win.started) {
    win.targets[static_cast<std::size_t>(rank)].open.store(0, std::memory_order_relaxed);
    const int completed = complete(win, rank);
    // also after an error, since the target waits for this
    const int sent = internal_send(*win.comm, rank, kCompleted, nullptr, 0);
    if (first == MPI_SUCCESS) first = completed != MPI_SUCCESS ? completed : sent;
  }
  const std::scoped_lock lock(win.mutex);
  win.started.clear();
  win.access = Access::none;
  return first;
}

// Waits for the messages of MPI_Win_post. The assertion does not matter, since the targets send
// them in any case.
int begin_access(Win& win, MPI_Group group, int assertion) {
  if (const int code = check_assertion(assertion, MPI_MODE_NOCHECK); code != MPI_SUCCESS) return code;
  std::vector<int> targets;
  if (const int code = read_group(win, group, &targets); code != MPI_SUCCESS) return code;
  {
    const std::scoped_lock lock(win.mutex);
    if (win.access != Access::none)
      return error(MPI_ERR_RMA_SYNC, "MPI_Win_start within another access epoch: end that first");
    win.access = Access::start;
    win.fence_idle = false;
  }
  int first = MPI_SUCCESS;
  for (const int rank : targets) {
    const int code = internal_receive(*win.comm, rank, kPosted, nullptr, 0);
    if (code == MPI_SUCCESS) win.started.push_back(rank);
    if (first == MPI_SUCCESS) first = code;
  }
  // A target has died, so the epoch does not begin. The other targets must not wait for it.
  if (first != MPI_SUCCESS) {
    static_cast<void>(end_access(win));
    return first;
  }
  for (const int rank : win.started)
    win.targets[static_cast<std::size_t>(rank)].open.store(1, std::memory_order_relaxed);
  return MPI_SUCCESS;
}

int complete_epoch(Win& win) {
  if (win.access != Access::start) return error(MPI_ERR_RMA_SYNC, "MPI_Win_complete without MPI_Win_start");
  return end_access(win);
}

int end_exposure(Win& win) {
  full_fence();
  win.completions.clear();
  win.origins.clear();
  const std::scoped_lock lock(win.mutex);
  win.exposed = false;
  return win.exposure_code;
}

int not_exposed(const char* name) {
  return error(MPI_ERR_RMA_SYNC, "%s without MPI_Win_post", name);
}

int wait_exposure(Win& win) {
  if (!win.exposed) return not_exposed("MPI_Win_wait");
  for (const auto& message : win.completions) note_exposure(win, message->wait());
  return end_exposure(win);
}

// How often MPI_Win_test looks for a message that is not there.
constexpr int kTestLooks = 16;

int test_exposure(Win& win, int* flag) {
  if (flag == nullptr) return null_argument("flag");
  if (!win.exposed) return not_exposed("MPI_Win_test");
  *flag = 0;
  for (const auto& message : win.completions) {
    int code = MPI_SUCCESS;
    // A helper may be inside the lane at this moment. Then the message may be there although the
    // test does not find it.
    for (int look = 0; !message->test(&code); ++look) {
      if (look == kTestLooks) return MPI_SUCCESS;
      progress_all();
    }
    note_exposure(win, code);
  }
  *flag = 1;
  return end_exposure(win);
}

}  // namespace

int win_post(Call call, MPI_Group group, int assertion, MPI_Win win) {
  return with_window(call, win, kForEpoch, [&](Win& found) { return begin_exposure(found, group, assertion); });
}
int win_start(Call call, MPI_Group group, int assertion, MPI_Win win) {
  return with_window(call, win, kForEpoch, [&](Win& found) { return begin_access(found, group, assertion); });
}
int win_complete(Call call, MPI_Win win) {
  return with_window(call, win, kForEpoch, [](Win& found) { return complete_epoch(found); });
}
int win_wait(Call call, MPI_Win win) {
  return with_window(call, win, kForEpoch, [](Win& found) { return wait_exposure(found); });
}
int win_test(Call call, MPI_Win win, int* flag) {
  return with_window(call, win, kForEpoch, [&](Win& found) { return test_exposure(found, flag); });
}

}  // namespace heddle::mpi
