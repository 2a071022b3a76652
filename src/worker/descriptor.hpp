// A worker's descriptor, for programs whose loop waits by poll, epoll, libuv or asyncio:
// heddle_worker_descriptor and heddle_worker_arm. It is an eventfd; wakeup.hpp says when it becomes
// readable. Its thread makes no progress: the program's does.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>

#include "base/error.hpp"
#include "worker/wakeup.hpp"

namespace heddle::engine {

class Worker;

class Descriptor {
 public:
  explicit Descriptor(Worker& worker) : worker_(worker) {}
  // No other thread uses it. The number of the descriptor is free afterwards.
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  // Any thread, also in a handler. Opens it at the first call. Throws std::system_error if there
  // can be no thread.
  base::Result<int> open();
  // DONE: armed. AGAIN: the worker has moved since the last call, or progress will find something.
  // A thread that the sharing mode permits, not inside a handler.
  base::Status arm();

  // ---- for Wakeup
  void disarm();
  [[nodiscard]] std::uint64_t moved() const;
  [[nodiscard]] bool arm_notifier();
  [[nodiscard]] Quiet lie_down();
  void remind() const;
  [[nodiscard]] bool telling() const;
  void tell();
  [[nodiscard]] bool arrived() const;
  [[nodiscard]] bool can_ring() const;
  [[nodiscard]] std::uint32_t bell() const;
  void ring() const;
  void wait(std::uint32_t seen, std::int64_t timeout_ns) const;

 private:
  Worker& worker_;
  // -1: not open. Release by open(), partner: its first load, and that of arm().
  std::atomic<int> descriptor_{-1};
  // The failure epoch that the last arming has seen. Written by arm(), read by the thread: ordered
  // by Wakeup's generation.
  std::atomic<std::uint64_t> failure_epoch_{0};
  std::mutex opens_;  // one thread opens; no handler runs meanwhile
  std::mutex arms_;   // one thread arms; handlers may run meanwhile, which do not arm
  Wakeup<Descriptor> wakeup_{*this};
  std::thread thread_;  // the last: it uses the others
};

}  // namespace heddle::engine
