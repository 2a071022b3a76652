// One thread that makes all calls of a library which need not be thread-safe: a queue of commands,
// and a result for each.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/error.hpp"

namespace heddle::bootstrap::hosted {

// Any thread may call; commands are run in the order of their calls. For set-up and the end of a
// job, not for hot paths.
class Service {
 public:
  using Work = std::function<base::Status()>;

  // SYSTEM: no thread can be started.
  static base::Result<std::unique_ptr<Service>> start();
  // Runs what has been queued, then ends the thread. In a forked child, where the thread does not
  // exist, does nothing.
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // Runs `work` on the thread and waits for it. Its status is returned, and its message is the
  // caller's last_message(). STATE: in a forked child; the work is not done.
  base::Status call(Work work);

 private:
  struct Command {
    Work work;
    bool done = false;
    base::Status status = HEDDLE_DONE;
    std::string message;
  };

  // Destroyed only where the thread is: in a forked child the destructor would wait for the thread
  // that waits in the parent.
  union Condition {
    Condition() : of() {}
    ~Condition() {}
    std::condition_variable of;
  };

  Service();
  void serve();

  const pid_t pid_;
  std::mutex mutex_;  // guards what follows
  Condition changed_;
  std::deque<std::shared_ptr<Command>> commands_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace heddle::bootstrap::hosted
