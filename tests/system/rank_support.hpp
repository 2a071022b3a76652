// For rank programs over the C API: they end with 99 and a line on standard error when something is
// not as it should be.
#pragma once

#include <sched.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "heddle/heddle.h"

namespace heddle::tests {

inline std::int64_t now_ns() {
  // The monotonic clock: the same in all processes of the machine.
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// _Exit: the other ranks must not be waited for.
[[noreturn]] inline void wrong(const char* what, heddle_status status = HEDDLE_DONE) {
  std::fprintf(stderr, "wrong: %s: %s (%s)\n", what, heddle_status_name(status), heddle_last_error());
  std::_Exit(99);
}

inline void check(bool good, const char* what) {
  if (!good) wrong(what);
}

inline void expect(heddle_status status, heddle_status wanted, const char* what) {
  if (status != wanted) wrong(what, status);
}

inline void done(heddle_status status, const char* what) {
  expect(status, HEDDLE_DONE, what);
}

// For operations with a completion, or that are flushed later.
inline void accepted(heddle_status status, const char* what) {
  if (status != HEDDLE_DONE && status != HEDDLE_POSTED) wrong(what, status);
}

inline void say(const char* word, long long number) {
  std::printf("%s %lld\n", word, number);
  std::fflush(stdout);
}

class Deadline {
 public:
  static constexpr std::int64_t kNs = 60'000'000'000;
  explicit Deadline(const char* what) : what_(what) {}
  void idle() const {
    if (now_ns() > end_) wrong(what_, HEDDLE_ERR_TIMEOUT);
    sched_yield();
  }

 private:
  const char* what_;
  std::int64_t end_ = now_ns() + kNs;
};

}  // namespace heddle::tests
