// The thread that executes the commands of a worker in offload mode: takes them from the queue in batches, hands them to the
// transport, and polls while something is under way. With nothing to do it looks a little longer, then sleeps until a
// producer wakes it.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include "queue/sleeper.hpp"

namespace heddle::engine {

class Gate;

class Executor {
 public:
  // `number` names the thread. Throws std::system_error if there can be no more threads.
  Executor(Gate& gate, std::uint32_t number);
  ~Executor();  // within one round
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Any thread: what Gate's queue told a producer to do.
  void wake() { sleeper_.wake(); }

 private:
  void run();

  Gate& gate_;
  queue::Sleeper<> sleeper_;
  std::atomic<bool> stop_{false};  // relaxed: the sleeper's token orders it
  std::thread thread_;             // the last: it uses all of them
};

}  // namespace heddle::engine
