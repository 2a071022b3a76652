// What a worker tells of itself: to reports, and to whoever judges why a job does not move.
#pragma once

#include <cstdint>

#include "base/debug_view.hpp"
#include "engine/findings.hpp"
#include "worker/worker.hpp"

namespace heddle::engine {

// Logs what is under way. Any thread.
void report_operations(Worker& worker);
// Tells it to the findings. Any thread; for a worker without a gate: the one that uses it. False:
// not now, another thread is inside, and the findings say so. Throws std::bad_alloc.
bool look_inside(Worker& worker, Findings& findings);
// Only what the worker has under way, in findings.state; nothing if another thread is inside.
void look_under_way(Worker& worker, Findings& findings);
// What any thread may tell of a worker without a gate, that another one uses. `still`: nobody has
// polled it for a while. Throws std::bad_alloc.
void look_from_outside(Worker& worker, bool still, Findings& findings);
// The same as look_inside() for the thread inside.
void find_inside(Worker& worker, Findings& findings);

// Where a debugger finds its numbers. The worker is open.
void show(Worker& worker, base::DebugWorker& shown);

// Numbers that change when something happens, read beside those who write them. `calls`: by threads
// of the program.
struct Glimpse {
  std::uint64_t moves;
  std::uint64_t calls;
};
[[nodiscard]] Glimpse glimpse(Worker& worker);

}  // namespace heddle::engine
