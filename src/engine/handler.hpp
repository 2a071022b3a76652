// How code of the application is run: what it throws ends the process here (std::terminate), since
// nobody above could go on with a worker that was left in the midst of things, and peers would wait
// for what it has not done.
#pragma once

#include "heddle/heddle.h"

namespace heddle::engine {

inline void call(heddle_am_handler fn, const heddle_am_arrival& arrival, void* arg) noexcept {
  fn(&arrival, arg);
}

inline void call(void (*fn)(void* arg), void* arg) noexcept {
  fn(arg);
}

}  // namespace heddle::engine
