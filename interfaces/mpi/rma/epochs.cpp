// The unit epochs: fences, locks and flushes. Groups (post, start, complete, wait) are in
// exposure.cpp.
#include <units/epochs.hpp>

#include "mpi/rma/locks.hpp"
#include "mpi/rma/make.hpp"
#include "mpi/rma/order.hpp"
#include "mpi/rma/transfer.hpp"
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

}  // namespace heddle::mpi
