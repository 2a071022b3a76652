#include "collective/runner.hpp"

#include <sched.h>

#include "collective/gate_offload.hpp"
#include "collective/session_offload.hpp"
#include "collective/software_runner.hpp"

namespace heddle::collective {

namespace {

constexpr std::array kTable = {
    RunnerWay{SessionOffload::suit, SessionOffload::open},
    RunnerWay{nullptr, GateOffload::open},
    RunnerWay{nullptr, SoftwareRunner::open},
};

}  // namespace

std::span<const RunnerWay> ways() {
  return kTable;
}

void Offload::start(std::uint64_t) {
  // A thread that is inside has already seen the end of the last run, and leaves soon.
  while (!lock_.try_lock()) sched_yield();
  begin_run();
  begin();  // after begin_run(): no thread may call look() before
  lock_.unlock();
}

bool Offload::advance() {
  if (done()) return true;
  const queue::TryLock<>::Guard guard(lock_);
  if (!guard) return false;
  const std::uint64_t run = begun();
  if (completed(run)) return true;  // ended meanwhile
  if (status() == HEDDLE_DONE) {
    const base::Status status = look();
    if (status == HEDDLE_AGAIN) return false;
    if (status != HEDDLE_DONE) fail(status);
  }
  complete(run);
  return true;
}

Runner::Memory Offload::retire(const Past& past) {
  const bool nobody_began = past.never || past.rejected;
  // All credits of peers have arrived with the last run, unless a peer is one run further than this
  // member.
  const bool all_has_come = past.ran && past.whole;
  if (!nobody_began && !all_has_come) leave();
  // If members have not agreed, some may run the operation by software, which puts into that
  // memory.
  return nobody_began || past.agreed ? Memory::now : Memory::never;
}

}  // namespace heddle::collective
