#include "mpi/core/progress.hpp"

#include <algorithm>

#include "mpi/messages/message.hpp"
#include "mpi/rma/ask.hpp"

namespace heddle::mpi {
namespace {

// Operations of several steps. The thread that is inside makes the steps; other threads go on
// without making any. A step may add and remove operations, its own and others: removed ones become
// null, and leave the list after the round.
std::recursive_mutex g_stepped_mutex;  // guards the list
std::list<Stepped*> g_stepped;
// Their number, read without the lock. Release after a change of the list; acquire by the reader.
std::atomic<std::size_t> g_steps{0};
thread_local bool t_stepping = false;

bool step_all() {
  if (g_steps.load(std::memory_order_acquire) == 0 || t_stepping) return false;
  const std::unique_lock lock(g_stepped_mutex, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  t_stepping = true;
  for (Stepped*& stepped : g_stepped) {
    if (stepped == nullptr || stepped->step()) continue;
    stepped = nullptr;
    g_steps.fetch_sub(1, std::memory_order_release);
  }
  g_stepped.remove(nullptr);
  t_stepping = false;
  return true;
}

}  // namespace

void add_stepped(Stepped* stepped) {
  const std::scoped_lock lock(g_stepped_mutex);
  g_stepped.push_back(stepped);
  g_steps.fetch_add(1, std::memory_order_release);
}

void remove_stepped(Stepped* stepped) {
  const std::scoped_lock lock(g_stepped_mutex);
  for (Stepped*& one : g_stepped) {
    if (one != stepped) continue;
    one = nullptr;
    g_steps.fetch_sub(1, std::memory_order_release);
  }
}

std::atomic<std::size_t> g_waiting_sends{0};

bool has_steps() {
  return g_waiting_sends.load(std::memory_order_relaxed) != 0 || g_steps.load(std::memory_order_acquire) != 0 ||
         g_answers.load(std::memory_order_relaxed) != 0;
}

bool progress(Lane& lane) {
  bool moved = heddle_worker_progress(lane.worker) > 0;
  if (lane.waiting.load(std::memory_order_relaxed) != 0) [[unlikely]]
    moved |= post_waiting(lane);
  if (g_answers.load(std::memory_order_relaxed) != 0) [[unlikely]]
    moved |= post_answers();
  return step_all() || moved;
}

bool progress_all() {
  bool moved = false;
  for (Lane* lane : g_job.lanes) moved |= progress(*lane);
  return moved;
}

bool Looks::pause() {
  constexpr std::uint32_t kSpins = 64;
  constexpr std::uint32_t kOthers = 16;  // every so many looks, the sends that wait in other lanes
  constexpr std::int64_t kNapNs = 1'000'000;
  constexpr std::int64_t kStepNapNs = 20'000;  // with steps that no event announces
  const bool steps = has_steps();
  if (++looks_ % kOthers == 0 && steps) post_all_waiting();
  if (looks_ < kSpins || steps) progress(lane_);
  if (looks_ < kSpins) return false;
  // While nothing moves, the wait spins, then yields, then sleeps: others may need this core.
  return heddle_worker_wait(lane_.worker, steps ? kStepNapNs : kNapNs) == HEDDLE_ERR_TIMEOUT;
}

}  // namespace heddle::mpi
