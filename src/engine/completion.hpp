// The actions at the end of an operation.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/fence.hpp"
#include "engine/handles.hpp"
#include "heddle/heddle.h"
#include "tap/debug_view.hpp"

namespace heddle::engine {

class Objects;

// Raised by one for each operation that finished. If it belongs to one exclusive worker it has one
// writer and needs no read-modify-write; its readers may be anywhere.
class Counter {
 public:
  static constexpr HandleType kType = HandleType::counter;
  Counter(Objects& owner, std::uint64_t only, bool counts_done)
      : owner_(owner), only_(only), counts_done_(counts_done) {}

  [[nodiscard]] Objects& owner() const { return owner_; }
  // True: the program has freed the counter, and it lives only for the operations that name it (see
  // MarkTable). Relaxed: it orders nothing.
  [[nodiscard]] bool closed() const { return closed_.load(std::memory_order_relaxed); }
  void close() { closed_.store(true, std::memory_order_relaxed); }
  // The handle of the only worker that may raise it; 0: any worker may. Not the worker's address,
  // which a later worker may get.
  [[nodiscard]] std::uint64_t only() const { return only_; }
  // Operations that are done at once raise it as well: the posting code does that.
  [[nodiscard]] bool counts_done() const { return counts_done_; }

  void raise(heddle_status status) {
    if (status != HEDDLE_DONE) [[unlikely]] {
      base::show_release(this);
      heddle_status none = HEDDLE_DONE;
      // Partner: status()'s acquire load.
      first_error_.compare_exchange_strong(none, status, std::memory_order_release, std::memory_order_relaxed);
      return;
    }
    base::show_release(this);
    // Release: a thread that sees the count sees what the operation brought. Partner: value()'s
    // acquire load.
    if (only_ != 0) {
      value_.store(value_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    } else {
      value_.fetch_add(1, std::memory_order_release);
    }
  }
  [[nodiscard]] std::uint64_t value() const { return value_.load(std::memory_order_acquire); }
  [[nodiscard]] heddle_status status() const { return first_error_.load(std::memory_order_acquire); }
  // Call it after value() has shown that the wait is over.
  void learnt() const { base::show_acquire(const_cast<Counter*>(this)); }
  // For a debugger.
  [[nodiscard]] std::array<tap::DebugField, 2> fields() const {
    return {tap::debug_field("value", *this, value_), tap::debug_field("first error", *this, first_error_)};
  }
  void reset() {
    value_.store(0, std::memory_order_relaxed);
    first_error_.store(HEDDLE_DONE, std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint64_t> value_{0};
  std::atomic<heddle_status> first_error_{HEDDLE_DONE};
  std::atomic<bool> closed_{false};
  Objects& owner_;
  const std::uint64_t only_;
  const bool counts_done_;
};

// A resolved heddle_completion.
struct Completion {
  heddle_callback fn = nullptr;
  void* arg = nullptr;
  Counter* counter = nullptr;
  heddle_when when = HEDDLE_WHEN_REMOTE;

  [[nodiscard]] bool empty() const { return fn == nullptr && counter == nullptr; }
  // False also if the counter was freed meanwhile: flush and quiet tell the errors then.
  [[nodiscard]] bool notifies() const { return fn != nullptr || (counter != nullptr && !counter->closed()); }
  // For a message whose source is free as soon as it is accepted: DONE tells that.
  [[nodiscard]] bool told_when_accepted(bool inlined) const { return inlined && when == HEDDLE_WHEN_LOCAL; }
  // An exception of fn ends the process, see handler.hpp.
  void fire(heddle_status status) const noexcept {
    if (counter != nullptr) counter->raise(status);
    if (fn != nullptr) fn(arg, status);
  }
};

// No completion is to be told.
inline constexpr Completion kNoCompletion{};

}  // namespace heddle::engine
