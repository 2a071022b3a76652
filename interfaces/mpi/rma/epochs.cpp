// The unit epochs: fences, locks and flushes. Groups (post, start, complete, wait) follow.

#include <units/epochs.hpp>

#include "mpi/messages/internal.hpp"
#include "mpi/rma/locks.hpp"
#include "mpi/rma/make.hpp"
#include "mpi/rma/operations.hpp"
#include "mpi/rma/win.hpp"

namespace heddle::mpi {

namespace {

constexpr std::uint8_t kWithoutLock = 1;
constexpr std::uint8_t kShared = 2;
constexpr std::uint8_t kExclusive = 3;

const char* name_of(Access access) {
  switch (access) {
    case Access::fence:
      return "a fence's epoch with operations; call MPI_Win_fence";
    case Access::lock:
      return "locked targets; call MPI_Win_unlock";
    case Access::lock_all:
      return "an epoch of MPI_Win_lock_all; call MPI_Win_unlock_all";
    case Access::start:
      return "an epoch of MPI_Win_start; call MPI_Win_complete";
    case Access::none:
      break;
  }
  return "no access epoch";
}

int wrong_epoch(Access access, const char* wanted) {
  return error(MPI_ERR_RMA_SYNC, "%s: this rank has %s", wanted, name_of(access));
}

int check_rank_of_window(const Win& win, int rank) {
  if (rank >= 0 && rank < win.size()) return MPI_SUCCESS;
  return error(MPI_ERR_RANK, "rank %d: the window has ranks 0-%d", rank, win.size() - 1);
}

// ---- fences -------------------------------------------------------------------------------------

int fence(Win& win, int assertion) {
  constexpr int kAllowed = MPI_MODE_NOSTORE | MPI_MODE_NOPUT | MPI_MODE_NOPRECEDE | MPI_MODE_NOSUCCEED;
  if (const int code = check_assertion(assertion, kAllowed); code != MPI_SUCCESS) return code;
  {
    const std::scoped_lock lock(win.mutex);
    if (win.access != Access::none && win.access != Access::fence)
      return wrong_epoch(win.access, "a fence cannot begin or end an epoch now");
    if (win.exposed) return error(MPI_ERR_RMA_SYNC, "a fence within an exposure epoch: call MPI_Win_wait first");
  }
  const int code = complete_all(win);
  const int met = barrier(win);
  full_fence();
  const std::scoped_lock lock(win.mutex);
  win.access = Access::none;
  win.open_all.store(0, std::memory_order_relaxed);
  win.fence_idle = (assertion & MPI_MODE_NOSUCCEED) == 0;
  return code != MPI_SUCCESS ? code : met;
}

// ---- locks --------------------------------------------------------------------------------------

int begin_lock(Win& win, int rank, std::uint8_t type) {
  const std::scoped_lock lock(win.mutex);
  if (win.access != Access::none && win.access != Access::lock) return wrong_epoch(win.access, "MPI_Win_lock");
  Far& far = win.far[static_cast<std::size_t>(rank)];
  if (far.lock_type != 0) return error(MPI_ERR_RMA_SYNC, "rank %d is locked already by this one", rank);
  far.lock_type = type;
  win.access = Access::lock;
  win.fence_idle = false;
  ++win.locks;
  return MPI_SUCCESS;
}

void end_lock(Win& win, int rank) {
  const std::scoped_lock lock(win.mutex);
  win.far[static_cast<std::size_t>(rank)].lock_type = 0;
  if (--win.locks == 0) win.access = Access::none;
}

int lock_target(Win& win, int type, int rank, int assertion) {
  if (type != MPI_LOCK_EXCLUSIVE && type != MPI_LOCK_SHARED)
    return error(MPI_ERR_LOCKTYPE, "lock_type %d: neither MPI_LOCK_EXCLUSIVE nor MPI_LOCK_SHARED", type);
  if (const int code = check_assertion(assertion, MPI_MODE_NOCHECK); code != MPI_SUCCESS) return code;
  if (rank == MPI_PROC_NULL) return MPI_SUCCESS;
  if (const int code = check_rank_of_window(win, rank); code != MPI_SUCCESS) return code;
  if (const int code = check_alive(win, rank); code != MPI_SUCCESS) return code;
  const bool exclusive = type == MPI_LOCK_EXCLUSIVE;
  const bool unchecked = (assertion & MPI_MODE_NOCHECK) != 0;
  const std::uint8_t held = unchecked ? kWithoutLock : exclusive ? kExclusive : kShared;
  if (const int code = begin_lock(win, rank, held); code != MPI_SUCCESS) return code;
  if (!unchecked)
    if (const int code = acquire_lock(win, rank, exclusive); code != MPI_SUCCESS) {
      end_lock(win, rank);
      return code;
    }
  win.targets[static_cast<std::size_t>(rank)].open.store(1, std::memory_order_relaxed);
  return MPI_SUCCESS;
}

int unlock_target(Win& win, int rank) {
  if (rank == MPI_PROC_NULL) return MPI_SUCCESS;
  if (const int code = check_rank_of_window(win, rank); code != MPI_SUCCESS) return code;
  std::uint8_t held = 0;
  {
    const std::scoped_lock lock(win.mutex);
    if (win.access == Access::lock) held = win.far[static_cast<std::size_t>(rank)].lock_type;
  }
  if (held == 0) return error(MPI_ERR_RMA_SYNC, "rank %d is not locked by MPI_Win_lock of this rank", rank);
  win.targets[static_cast<std::size_t>(rank)].open.store(0, std::memory_order_relaxed);
  int code = complete(win, rank);
  if (held != kWithoutLock)
    if (const int released = release_lock(win, rank, held == kExclusive); code == MPI_SUCCESS) code = released;
  end_lock(win, rank);
  return code;
}

int lock_all(Win& win, int assertion) {
  if (const int code = check_assertion(assertion, MPI_MODE_NOCHECK); code != MPI_SUCCESS) return code;
  {
    const std::scoped_lock lock(win.mutex);
    if (win.access != Access::none) return wrong_epoch(win.access, "MPI_Win_lock_all");
    win.access = Access::lock_all;
    win.fence_idle = false;
    win.nocheck = (assertion & MPI_MODE_NOCHECK) != 0;
  }
  const int code = win.nocheck ? MPI_SUCCESS : acquire_all(win);
  if (code == MPI_SUCCESS) {
    win.open_all.store(1, std::memory_order_relaxed);
    return MPI_SUCCESS;
  }
  const std::scoped_lock lock(win.mutex);
  win.access = Access::none;
  return code;
}

int unlock_all(Win& win) {
  {
    const std::scoped_lock lock(win.mutex);
    if (win.access != Access::lock_all)
      return error(MPI_ERR_RMA_SYNC, "MPI_Win_unlock_all without MPI_Win_lock_all: this rank has %s",
                   name_of(win.access));
  }
  win.open_all.store(0, std::memory_order_relaxed);
  int code = complete_all(win);
  if (!win.nocheck)
    if (const int released = release_all(win); code == MPI_SUCCESS) code = released;
  const std::scoped_lock lock(win.mutex);
  win.access = Access::none;
  return code;
}

// ---- flushes ------------------------------------------------------------------------------------

bool is_locked(const Win& win, int rank) {
  const Access access = win.access.load(std::memory_order_relaxed);
  if (access != Access::lock) return access == Access::lock_all;
  return win.targets[static_cast<std::size_t>(rank)].open.load(std::memory_order_relaxed) != 0;
}

int flush_target(Win& win, int rank) {
  if (rank == MPI_PROC_NULL) return MPI_SUCCESS;
  if (const int code = check_rank_of_window(win, rank); code != MPI_SUCCESS) return code;
  if (!is_locked(win, rank))
    return error(MPI_ERR_RMA_SYNC,
                 "a flush of rank %d, which is not locked: call MPI_Win_lock or MPI_Win_lock_all first", rank);
  return complete(win, rank);
}

int flush_all(Win& win) {
  if (win.access != Access::lock_all && win.access != Access::lock)
    return error(MPI_ERR_RMA_SYNC, "a flush without a lock: this rank has %s", name_of(win.access));
  return complete_all(win);
}

}  // namespace

int check_assertion(int given, int allowed) {
  if ((given & ~allowed) == 0) return MPI_SUCCESS;
  return error(MPI_ERR_ASSERT, "assert %d: the bits %#x are no assertion that this call takes", given,
               static_cast<unsigned>(given & ~allowed));
}

int win_fence(Call call, int assertion, MPI_Win win) {
  return with_window(call, win, kForEpoch, [&](Win& found) { return fence(found, assertion); });
}
int win_lock(Call call, int lock_type, int rank, int assertion, MPI_Win win) {
  return with_window(call, win, kForEpoch, [&](Win& found) { return lock_target(found, lock_type, rank, assertion); });
}
int win_unlock(Call call, int rank, MPI_Win win) {
  return with_window(call, win, kForEpoch, [&](Win& found) { return unlock_target(found, rank); });
}
int win_lock_all(Call call, int assertion, MPI_Win win) {
  return with_window(call, win, kForEpoch, [&](Win& found) { return lock_all(found, assertion); });
}
int win_unlock_all(Call call, MPI_Win win) {
  return with_window(call, win, kForEpoch, [&](Win& found) { return unlock_all(found); });
}
int win_flush(Call call, int rank, MPI_Win win) {
  return with_window(call, win, kForEpoch, [&](Win& found) { return flush_target(found, rank); });
}
int win_flush_all(Call call, MPI_Win win) {
  return with_window(call, win, kForEpoch, [&](Win& found) { return flush_all(found); });
}
// The same as MPI_Win_flush: the engine reports no earlier moment at which the origin's memory may
// be reused.
int win_flush_local(Call call, int rank, MPI_Win win) {
  return with_window(call, win, kForEpoch, [&](Win& found) { return flush_target(found, rank); });
}
int win_flush_local_all(Call call, MPI_Win win) {
  return with_window(call, win, kForEpoch, [&](Win& found) { return flush_all(found); });
}
int win_sync(Call call, MPI_Win win) {
  return with_window(call, win, kForEpoch, [](Win&) {
    full_fence();
    return MPI_SUCCESS;
  });
}

// Epochs of groups: post and wait at the targets, start and complete at the origins. Each call
// notifies a rank by a message without data.

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
