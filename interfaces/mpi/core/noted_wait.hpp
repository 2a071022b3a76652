// A wait in a loop of this library, told to reports about jobs that hang (heddle_wait_note).
#pragma once

#include <heddle/heddle.h>

namespace heddle::mpi {

// One wait of this thread. fill(facts) sets everything that the wait is for, except the call. It
// may be called in any call of Heddle that this thread makes, until the object ends.
template <class Fill>
class NotedWait {
 public:
  NotedWait(heddle_worker worker, const char* call, const Fill& fill) : worker_(worker), call_(call), fill_(fill) {}
  NotedWait(const NotedWait&) = delete;
  NotedWait& operator=(const NotedWait&) = delete;
  ~NotedWait() {
    if (noted_) [[unlikely]]
      static_cast<void>(heddle_wait_end(worker_, this));
  }

  // In each round that has time for it.
  void note() { noted_ = heddle_wait_note(worker_, &tell, this) == HEDDLE_DONE || noted_; }

 private:
  static void tell(void* self, heddle_wait_facts* facts) {
    const auto& wait = *static_cast<const NotedWait*>(self);
    facts->call = wait.call_;
    wait.fill_(*facts);
  }

  const heddle_worker worker_;
  const char* const call_;
  const Fill& fill_;
  bool noted_ = false;
};

// For waits of which only their worker's operations are known.
inline constexpr auto kNothingMore = [](heddle_wait_facts&) {};

}  // namespace heddle::mpi
