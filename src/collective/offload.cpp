#include "collective/offload.hpp"

#include <sched.h>

namespace heddle::collective {

void Offload::start(std::uint64_t) {
  // Who is inside has seen the end of the run before, and leaves.
  while (!lock_.try_lock()) sched_yield();
  begin_run();
  begin();  // after it: nobody may look before
  lock_.unlock();
}

bool Offload::advance() {
  if (done()) return true;
  const queue::TryLock<>::Guard guard(lock_);
  if (!guard) return false;
  const std::uint64_t run = begun();
  if (completed(run)) return true;  // while this thread came here
  if (status() == HEDDLE_DONE) {
    const base::Status status = look();
    if (status == HEDDLE_AGAIN) return false;
    if (status != HEDDLE_DONE) fail(status);
  }
  complete(run);
  return true;
}

Runner::Memory Offload::retire(const Past& past) {
  const bool nobody_began = past.never || past.refused;
  // What peers give has all come with the last run, unless one of them is a run further than this
  // member.
  const bool all_has_come = past.ran && past.whole;
  if (!nobody_began && !all_has_come) leave();
  // Members that have not agreed may run it by software, which puts there.
  return nobody_began || past.agreed ? Memory::now : Memory::never;
}

}  // namespace heddle::collective
