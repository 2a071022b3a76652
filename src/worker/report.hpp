// What a worker tells about itself, in reports and for the verdict on why a job does not move.
#pragma once

#include <cstdint>

#include "engine/findings.hpp"
#include "tap/debug_view.hpp"
#include "worker/worker.hpp"

namespace heddle::engine {

// Logs what is under way. Any thread.
void report_operations(Worker& worker);
// Tells it to the findings. Any thread; if the worker has no gate, only the thread that uses it.
// False: another thread is inside, and the findings say so. Throws std::bad_alloc.
bool look_inside(Worker& worker, Findings& findings);
// Tells only what the worker has under way, in findings.state; nothing if another thread is inside.
void look_under_way(Worker& worker, Findings& findings);
// Tells what any thread may tell about a worker without a gate that another thread uses. `still`:
// no thread has polled it for a while. Throws std::bad_alloc.
void look_from_outside(Worker& worker, bool still, Findings& findings);
// The same as look_inside() for the thread inside.
void find_inside(Worker& worker, Findings& findings);

// Tells a debugger where the worker's numbers are. The worker is open.
void show(Worker& worker, tap::DebugWorker& shown);

// Numbers that change when something happens. They are read while other threads write them.
// `calls`: by threads of the program.
struct Glimpse {
  std::uint64_t moves;
  std::uint64_t calls;
};
[[nodiscard]] Glimpse glimpse(Worker& worker);

}  // namespace heddle::engine
