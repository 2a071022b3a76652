// For tests of helpers on a machine that others load.
#pragma once

#include <sched.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/test_support.hpp"

namespace heddle::test {

// A loaded machine leaves next to no time to helpers under SCHED_IDLE, as they promise. The tests
// check that helpers serve. So if the load lasts, helpers get normal priority, if the kernel lets
// us.
class LoadedMachine {
 public:
  LoadedMachine() : thread_([this] { watch(); }) {}
  ~LoadedMachine() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    ended_.notify_one();
    thread_.join();
  }
  LoadedMachine(const LoadedMachine&) = delete;
  LoadedMachine& operator=(const LoadedMachine&) = delete;

 private:
  void watch() {
    std::unique_lock lock(mutex_);
    while (!ended_.wait_for(lock, std::chrono::seconds(3), [this] { return over_; })) {
      for (const pid_t thread : threads_named("heddle-progress")) {
        const sched_param none{};
        if (::sched_getscheduler(thread) == SCHED_IDLE) ::sched_setscheduler(thread, SCHED_OTHER, &none);
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable ended_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace heddle::test
