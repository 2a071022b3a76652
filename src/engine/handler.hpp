// Runs code of the application. An exception ends the process here (std::terminate): no caller
// could go on with a worker that was left half-way, and peers would wait for what it has not done.
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
