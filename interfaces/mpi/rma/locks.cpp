#include "mpi/rma/locks.hpp"

#include <chrono>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <new>
#include <vector>

#include "mpi/core/progress.hpp"
#include "mpi/messages/message.hpp"
#include "mpi/rma/ask.hpp"
#include "mpi/rma/win.hpp"

namespace heddle::mpi {
namespace {

constexpr std::uint64_t kAlone = std::uint64_t{1} << 63;
constexpr std::uint64_t kWaits = std::uint64_t{1} << 32;
constexpr std::uint64_t kSharers = kWaits - 1;

bool change(std::atomic<std::uint64_t>& word, std::uint64_t seen, std::uint64_t wanted) {
  return word.compare_exchange_strong(seen, wanted, std::memory_order_acq_rel, std::memory_order_relaxed);
}

// Whether others have gone first for long enough. Call it after each look at a lock word.
class Courtesy {
 public:
  bool over() {
    constexpr std::chrono::milliseconds kCourtesy(10);
    constexpr int kFirst = 256;
    if (++looks_ < kFirst) return false;
    const auto now = std::chrono::steady_clock::now();
    if (looks_ == kFirst) since_ = now;
    return now - since_ > kCourtesy;
  }

 private:
  int looks_ = 0;
  std::chrono::steady_clock::time_point since_;
};

Control* control_of(const Win& win, int rank) {
  return win.far[static_cast<std::size_t>(rank)].control;
}

std::unique_ptr<Asked> ask_for_lock(Win& win, int rank, LockStep step) {
  auto asked = std::make_unique<Asked>();
  asked->header.question = Question::lock;
  asked->header.detail = static_cast<std::uint8_t>(step);
  asked->win = &win;
  asked->rank = rank;
  return asked;
}

// An error if the step can never be done.
int outcome_at(int rank, LockOutcome outcome, bool* done) {
  *done = outcome == LockOutcome::done;
  if (outcome != LockOutcome::dead) return MPI_SUCCESS;
  return error(MPI_ERR_PROC_ABORTED, "the lock of rank %d is held by a rank that has died", rank);
}

int step_at(Win& win, int rank, LockStep step, bool* done) {
  if (Control* const control = control_of(win, rank); control != nullptr) {
    // where it is not mapped, the question to the target finds this out
    if (const int code = check_alive(win, rank); code != MPI_SUCCESS) return code;
    return outcome_at(rank, try_lock_step(win, *control, step, win.comm->rank), done);
  }
  std::unique_ptr<Asked> answer;
  const int code = ask_and_wait(ask_for_lock(win, rank, step), &answer);
  if (code != MPI_SUCCESS) return code;
  return outcome_at(rank, static_cast<LockOutcome>(answer->answer[0]), done);
}

bool has_died(const Win& win, std::uint64_t rank) {
  return check_alive(win, static_cast<int>(rank)) != MPI_SUCCESS;
}

// Whether a dead rank stands in the way of the step: it holds the lock exclusively, or it shares
// the lock and the step needs it exclusively.
bool held_by_dead(const Win& win, const Control& control, LockStep step) {
  const std::uint64_t now = control.lock.load(std::memory_order_relaxed);
  if ((now & kAlone) != 0) return has_died(win, now & kSharers);
  const bool shares = step == LockStep::take_shared || step == LockStep::barge_shared;
  if (shares || (now & kSharers) == 0 || !sees_dead_member(*win.comm)) return false;
  for (std::size_t rank = 0; rank < win.comm->members.size(); ++rank) {
    if (control.sharers[rank % Control::kGroups].load(std::memory_order_relaxed) != 0 && has_died(win, rank))
      return true;
  }
  return false;
}

// Takes a share of the lock, and counts the rank in its group beforehand. False: the lock is not
// taken, nor is the rank counted.
bool share(Control& control, int rank, bool barges) {
  std::atomic<std::uint16_t>& counted = control.sharers[static_cast<std::uint32_t>(rank) % Control::kGroups];
  counted.fetch_add(1, std::memory_order_relaxed);
  std::uint64_t now = control.lock.load(std::memory_order_relaxed);
  // Tries again if another sharer came in between.
  while ((now & kAlone) == 0 && (barges || now < kWaits))
    if (control.lock.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel, std::memory_order_relaxed))
      return true;
  counted.fetch_sub(1, std::memory_order_relaxed);
  return false;
}

// A step that always succeeds. The target need not have heard of it when this returns.
int told_target(Win& win, int rank, LockStep step) {
  Control* const control = control_of(win, rank);
  if (control == nullptr) return post_ask(ask_for_lock(win, rank, step));
  lock_step(*control, step, win.comm->rank);
  return MPI_SUCCESS;
}

// The key by which all ranks know the lock; not 0.
std::uint64_t key_of(const Win& win, int rank) {
  const std::uint64_t owner = win.comm->members[static_cast<std::size_t>(rank)].peer.rank;
  return (owner + 1) << 32 | win.far[static_cast<std::size_t>(rank)].number;
}

// Windows whose locks appear in reports about jobs that hang.
std::mutex g_told_mutex;
std::vector<Win*> g_told;

// A rank that waits for a lock has already begun its epoch. The epoch is open only when the rank
// has the lock.
bool holds_lock(const Win& win, int rank) {
  constexpr std::uint8_t kLeast = 2;  // see Far::lock_type
  const auto at = static_cast<std::size_t>(rank);
  switch (win.access.load(std::memory_order_relaxed)) {
    case Access::lock_all:
      return !win.nocheck && win.open_all.load(std::memory_order_relaxed) != 0;
    case Access::lock:
      return win.far[at].lock_type >= kLeast && win.targets[at].open.load(std::memory_order_relaxed) != 0;
    default:
      return false;
  }
}

// One attempt to share the lock of each target whose memory is not mapped, all at the same time.
int ask_all(Win& win, std::vector<bool>* taken) {
  std::vector<Asked*> sent(static_cast<std::size_t>(win.size()), nullptr);
  int first = MPI_SUCCESS;
  for (int rank = 0; rank < win.size() && first == MPI_SUCCESS; ++rank) {
    if (Control* const control = control_of(win, rank); control != nullptr) {
      (*taken)[static_cast<std::size_t>(rank)] =
          check_alive(win, rank) == MPI_SUCCESS && lock_step(*control, LockStep::take_shared, win.comm->rank);
      continue;
    }
    Asked* asked = nullptr;
    first = post_waited(ask_for_lock(win, rank, LockStep::take_shared), &asked);
    if (first == MPI_SUCCESS) sent[static_cast<std::size_t>(rank)] = asked;
  }
  for (std::size_t rank = 0; rank < sent.size(); ++rank) {
    if (sent[rank] == nullptr) continue;
    std::unique_ptr<Asked> answer;
    const int code = wait_answer(sent[rank], &answer);
    (*taken)[rank] = code == MPI_SUCCESS && static_cast<LockOutcome>(answer->answer[0]) == LockOutcome::done;
    if (first == MPI_SUCCESS) first = code;
  }
  return first;
}

}  // namespace

void tell_locks(Win& win) {
  const std::scoped_lock lock(g_told_mutex);
  g_told.push_back(&win);
}

void tell_locks_no_more(Win& win) {
  const std::scoped_lock lock(g_told_mutex);
  std::erase(g_told, &win);
}

std::size_t list_held_locks(std::uint64_t* keys, std::size_t most) {
  const std::scoped_lock lock(g_told_mutex);
  std::size_t count = 0;
  for (Win* win : g_told) {
    // If the mutex is taken, an epoch begins or ends at this moment: the job does not hang.
    const std::unique_lock epoch(win->mutex, std::try_to_lock);
    if (!epoch) continue;
    for (int rank = 0; rank < win->size() && count < most; ++rank)
      if (holds_lock(*win, rank)) keys[count++] = key_of(*win, rank);
  }
  return count;
}

bool lock_step(Control& control, LockStep step, int rank) {
  const std::uint64_t alone = kAlone | static_cast<std::uint32_t>(rank);
  std::atomic<std::uint64_t>& word = control.lock;
  const std::uint64_t now = word.load(std::memory_order_relaxed);
  switch (step) {
    case LockStep::take_exclusive:
      return now == 0 && change(word, 0, alone);
    case LockStep::announce:
      word.fetch_add(kWaits, std::memory_order_relaxed);
      return true;
    case LockStep::retract:
      word.fetch_sub(kWaits, std::memory_order_relaxed);
      return true;
    case LockStep::take_announced:
      return (now & (kAlone | kSharers)) == 0 && change(word, now, (now - kWaits) | alone);
    case LockStep::take_shared:
    case LockStep::barge_shared:
      return share(control, rank, step == LockStep::barge_shared);
    case LockStep::release_exclusive:
      word.fetch_and(~(kAlone | kSharers), std::memory_order_release);
      return true;
    case LockStep::release_shared:
      word.fetch_sub(1, std::memory_order_release);
      control.sharers[static_cast<std::uint32_t>(rank) % Control::kGroups].fetch_sub(1, std::memory_order_release);
      return true;
  }
  return false;
}

LockOutcome try_lock_step(const Win& win, Control& control, LockStep step, int rank) {
  if (lock_step(control, step, rank)) return LockOutcome::done;
  return held_by_dead(win, control, step) ? LockOutcome::dead : LockOutcome::not_now;
}

int acquire_lock(Win& win, int rank, bool exclusive) {
  bool done = false;
  int code = step_at(win, rank, exclusive ? LockStep::take_exclusive : LockStep::take_shared, &done);
  if (code != MPI_SUCCESS || done) return code;
  if (exclusive) code = step_at(win, rank, LockStep::announce, &done);
  const bool announced = exclusive && code == MPI_SUCCESS;
  done = false;
  const auto fill = [&](heddle_wait_facts& facts) {
    facts.cause = HEDDLE_WAIT_LOCK;
    facts.number = key_of(win, rank);
    std::snprintf(facts.text, sizeof facts.text, "the lock of a window at its rank %d", rank);
  };
  Courtesy courtesy;
  // A store to the lock word wakes nobody.
  const auto taken = [&] {
    if (code != MPI_SUCCESS) return true;
    LockStep step = LockStep::take_announced;
    // A dead rank may still be counted as waiting exclusively: it must not be let first.
    const bool barges = courtesy.over() || sees_dead_member(*win.comm);
    if (!exclusive) step = barges ? LockStep::barge_shared : LockStep::take_shared;
    code = step_at(win, rank, step, &done);
    return code != MPI_SUCCESS || done;
  };
  wait_until(*win.comm->lane, taken, "MPI_Win_lock", fill);
  if (code != MPI_SUCCESS && announced) static_cast<void>(told_target(win, rank, LockStep::retract));
  return code;
}

int release_lock(Win& win, int rank, bool exclusive) {
  const LockStep step = exclusive ? LockStep::release_exclusive : LockStep::release_shared;
  full_fence();
  return told_target(win, rank, step);
}

int acquire_all(Win& win) {
  std::vector<bool> taken(static_cast<std::size_t>(win.size()), false);
  int code = ask_all(win, &taken);
  for (int rank = 0; rank < win.size() && code == MPI_SUCCESS; ++rank) {
    if (taken[static_cast<std::size_t>(rank)]) continue;
    code = acquire_lock(win, rank, false);
    taken[static_cast<std::size_t>(rank)] = code == MPI_SUCCESS;
  }
  for (int rank = 0; rank < win.size() && code != MPI_SUCCESS; ++rank)
    if (taken[static_cast<std::size_t>(rank)]) static_cast<void>(release_lock(win, rank, false));
  return code;
}

int release_all(Win& win) {
  int first = MPI_SUCCESS;
  for (int rank = 0; rank < win.size(); ++rank)
    if (const int code = release_lock(win, rank, false); first == MPI_SUCCESS) first = code;
  return first;
}

}  // namespace heddle::mpi
