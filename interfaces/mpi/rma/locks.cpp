#include "mpi/rma/locks.hpp"

#include <sched.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "mpi/core/noted_wait.hpp"
#include "mpi/rma/ask.hpp"
#include "mpi/rma/order.hpp"

namespace heddle::mpi {
namespace {

constexpr std::uint64_t kAlone = std::uint64_t{1} << 63;
constexpr std::uint64_t kWaits = std::uint64_t{1} << 32;
constexpr std::uint64_t kSharers = kWaits - 1;

bool change(std::atomic<std::uint64_t>& word, std::uint64_t seen, std::uint64_t wanted) {
  return word.compare_exchange_strong(seen, wanted, std::memory_order_acq_rel, std::memory_order_relaxed);
}

// Words change when processes store to them, which wakes nobody: looks at them, makes progress
// between, and yields the core.
class LockPatience {
 public:
  explicit LockPatience(bool near) : near_(near) {}
  // True: it has slept.
  bool pause() {
    constexpr int kSpins = 128;
    constexpr int kYields = 2000;
    if (near_ && ++looks_ < kSpins) {
      cpu_relax();
      return false;
    }
    progress_all();
    if (++looks_ < kYields) {
      ::sched_yield();
      return false;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    return true;
  }
  // Others have gone first for long enough.
  bool barges() {
    constexpr std::chrono::milliseconds kCourtesy(10);
    constexpr int kFirst = 256;
    if (looks_ < kFirst) return false;
    const auto now = std::chrono::steady_clock::now();
    if (!since_set_) since_ = now;
    since_set_ = true;
    return now - since_ > kCourtesy;
  }

 private:
  bool near_;
  int looks_ = 0;
  bool since_set_ = false;
  std::chrono::steady_clock::time_point since_;
};

Control* control_of(const Win& win, int rank) {
  return win.far[static_cast<std::size_t>(rank)].control;
}

std::unique_ptr<Asked> question(Win& win, int rank, LockStep step) {
  auto asked = std::make_unique<Asked>();
  asked->header.question = Question::lock;
  asked->header.detail = static_cast<std::uint8_t>(step);
  asked->win = &win;
  asked->rank = rank;
  return asked;
}

int step_at(Win& win, int rank, LockStep step, bool* done) {
  if (Control* const control = control_of(win, rank); control != nullptr) {
    *done = lock_step(*control, step);
    return MPI_SUCCESS;
  }
  std::unique_ptr<Asked> answer;
  const int code = ask_and_wait(question(win, rank, step), &answer);
  *done = code == MPI_SUCCESS && answer->answer[0] != std::byte{0};
  return code;
}

// All ranks know the lock by it; not 0.
std::uint64_t key_of(const Win& win, int rank) {
  const std::uint64_t owner = win.comm->members[static_cast<std::size_t>(rank)].peer.rank;
  return (owner + 1) << 32 | win.far[static_cast<std::size_t>(rank)].number;
}

// Windows whose locks are told to reports about jobs that hang.
std::mutex g_told_mutex;
std::vector<Win*> g_told;

// Who waits for a lock has begun its epoch, which is open once it has the lock.
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
      (*taken)[static_cast<std::size_t>(rank)] = lock_step(*control, LockStep::take_shared);
      continue;
    }
    Asked* asked = nullptr;
    first = post_waited(question(win, rank, LockStep::take_shared), &asked);
    if (first == MPI_SUCCESS) sent[static_cast<std::size_t>(rank)] = asked;
  }
  for (std::size_t rank = 0; rank < sent.size(); ++rank) {
    if (sent[rank] == nullptr) continue;
    std::unique_ptr<Asked> answer;
    const int code = wait_answer(sent[rank], &answer);
    (*taken)[rank] = code == MPI_SUCCESS && answer->answer[0] != std::byte{0};
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
    // An epoch begins or ends at this moment: then the job moves.
    const std::unique_lock epoch(win->mutex, std::try_to_lock);
    if (!epoch) continue;
    for (int rank = 0; rank < win->size() && count < most; ++rank)
      if (holds_lock(*win, rank)) keys[count++] = key_of(*win, rank);
  }
  return count;
}

bool lock_step(Control& control, LockStep step) {
  std::atomic<std::uint64_t>& word = control.lock;
  std::uint64_t now = word.load(std::memory_order_relaxed);
  switch (step) {
    case LockStep::take_exclusive:
      return now == 0 && change(word, 0, kAlone);
    case LockStep::announce:
      word.fetch_add(kWaits, std::memory_order_relaxed);
      return true;
    case LockStep::take_announced:
      return (now & (kAlone | kSharers)) == 0 && change(word, now, (now - kWaits) | kAlone);
    case LockStep::take_shared:
    case LockStep::barge_shared:
      // Tries again when another sharer came between.
      while ((now & kAlone) == 0 && (step == LockStep::barge_shared || now < kWaits))
        if (word.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel, std::memory_order_relaxed)) return true;
      return false;
    case LockStep::release_exclusive:
      word.fetch_and(~kAlone, std::memory_order_release);
      return true;
    case LockStep::release_shared:
      word.fetch_sub(1, std::memory_order_release);
      return true;
  }
  return false;
}

int acquire_lock(Win& win, int rank, bool exclusive) {
  bool done = false;
  int code = step_at(win, rank, exclusive ? LockStep::take_exclusive : LockStep::take_shared, &done);
  if (code != MPI_SUCCESS || done) return code;
  if (exclusive) code = step_at(win, rank, LockStep::announce, &done);
  done = false;
  LockPatience patience(win.far[static_cast<std::size_t>(rank)].control != nullptr);
  const auto fill = [&](heddle_wait_facts& facts) {
    facts.cause = HEDDLE_WAIT_LOCK;
    facts.number = key_of(win, rank);
    std::snprintf(facts.text, sizeof facts.text, "the lock of a window at its rank %d", rank);
  };
  NotedWait wait(win.comm->lane->worker, "MPI_Win_lock", fill);
  while (code == MPI_SUCCESS && !done) {
    if (patience.pause()) wait.note();
    LockStep step = LockStep::take_announced;
    if (!exclusive) step = patience.barges() ? LockStep::barge_shared : LockStep::take_shared;
    code = step_at(win, rank, step, &done);
  }
  return code;
}

int release_lock(Win& win, int rank, bool exclusive) {
  const LockStep step = exclusive ? LockStep::release_exclusive : LockStep::release_shared;
  full_fence();
  Control* const control = control_of(win, rank);
  if (control == nullptr) return post_ask(question(win, rank, step));
  lock_step(*control, step);
  return MPI_SUCCESS;
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
