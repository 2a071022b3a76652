#include "mpi/core/progress.hpp"

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
  struct Inside {  // also if a step throws
    Inside() { t_stepping = true; }
    ~Inside() { t_stepping = false; }
  };
  const Inside inside;
  bool moved = false;
  for (Stepped*& stepped : g_stepped) {
    if (stepped == nullptr) continue;
    const Stepped::Made made = stepped->step();
    moved |= made != Stepped::Made::nothing;
    if (made != Stepped::Made::finished) continue;
    stepped = nullptr;
    g_steps.fetch_sub(1, std::memory_order_release);
  }
  g_stepped.remove(nullptr);
  return moved;
}

// What the engine does not know of.
bool make_steps(Lane& lane) {
  bool moved = false;
  if (lane.waiting.load(std::memory_order_relaxed) != 0) [[unlikely]]
    moved = post_waiting(lane);
  if (g_answers.load(std::memory_order_relaxed) != 0) [[unlikely]]
    moved |= post_answers();
  return step_all() || moved;
}

// One wait: see wait_in().
struct LaneWait {
  Lane& lane;
  const LookAt look;
  const TellWait tell;
  void* const arg;
  const bool rings;
  int rings_now = 0;
  std::uint32_t looks = 0;
  bool over = false;  // look() has ended the wait

  static heddle_status ready(void* self) {
    // Every so many looks, the sends that wait in other lanes; in a wait that may sleep, at each
    // one, since the next may be late.
    constexpr std::uint32_t kOthers = 16;
    constexpr std::uint32_t kMaySleep = 1024;
    auto& wait = *static_cast<LaneWait*>(self);
    const std::uint32_t before = t_moves;
    if (const heddle_status status = wait.look(wait.arg); status != HEDDLE_AGAIN) {
      wait.over = true;
      return status;
    }
    bool moved = make_steps(wait.lane);
    if (wait.looks < kMaySleep) ++wait.looks;
    if (wait.looks % kOthers == 0 || wait.looks == kMaySleep) moved |= post_all_waiting();
    wait.rings_now = wait.rings && !has_steps() ? 1 : 0;
    return moved || t_moves != before ? HEDDLE_POSTED : HEDDLE_AGAIN;
  }
  static void told(void* self, heddle_wait_facts* facts) {
    const auto& wait = *static_cast<const LaneWait*>(self);
    wait.tell(wait.arg, facts);
  }
};

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

thread_local constinit std::uint32_t t_moves = 0;

bool progress(Lane& lane) {
  bool moved = heddle_worker_progress(lane.worker) > 0;
  moved |= make_steps(lane);
  t_moves += moved ? 1 : 0;
  return moved;
}

bool progress_all() {
  bool moved = false;
  for (Lane* lane : g_job.lanes) moved |= progress(*lane);
  return moved;
}

bool progress_beside(Lane& lane) {
  if (!has_steps()) [[likely]]
    return false;
  const bool stepped = make_steps(lane);
  return post_all_waiting() || stepped;
}

heddle_status wait_in(Lane& lane, const char* call, LookAt look, TellWait tell, void* arg, bool rings) {
  LaneWait wait{lane, look, tell, arg, rings};
  const heddle_wait_condition condition{sizeof condition,
                                        &LaneWait::ready,
                                        &wait,
                                        call,
                                        tell != nullptr ? &LaneWait::told : nullptr,
                                        rings ? &wait.rings_now : nullptr};
  const heddle_status status = heddle_worker_wait_for(lane.worker, &condition, HEDDLE_FOREVER);
  if (wait.over) [[likely]]
    return status;
  // In a callback of the engine (STATE), which makes the progress: nothing can be done but look.
  for (;;)
    if (const heddle_status seen = LaneWait::ready(&wait); seen != HEDDLE_AGAIN && seen != HEDDLE_POSTED) return seen;
}

}  // namespace heddle::mpi
