#include "queue/sleeper.hpp"

#include "base/futex.hpp"

namespace heddle::queue {

void SystemFutex::wait(std::atomic<std::uint32_t>* word, std::uint32_t expected, std::int64_t timeout_ns) {
  base::futex_wait(word, expected, timeout_ns, base::FutexScope::process);
}

void SystemFutex::wake_one(std::atomic<std::uint32_t>* word) {
  base::futex_wake(word, 1, base::FutexScope::process);
}

}  // namespace heddle::queue
