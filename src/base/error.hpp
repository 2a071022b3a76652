// Errors, reported once: a status code for programs, a message for people.
//
// Hot paths return a plain heddle_status; set-up returns Result<T>. The code that detects an error
// calls fail(), which stores the message for heddle_last_error() of this thread and returns the
// code.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "heddle/heddle.h"

namespace heddle::base {

using Status = heddle_status;

// Remembers the printf-formatted message for this thread and returns `status`. Cold.
[[gnu::cold, gnu::format(printf, 2, 3)]] Status fail(Status status, const char* format, ...);

// As fail(), with ": " and the text of errno at the time of the call appended.
[[gnu::cold, gnu::format(printf, 2, 3)]] Status fail_errno(Status status, const char* format, ...);

// This thread's last message; never null.
const char* last_message();

// A value or the status that says why there is none (its message is in last_message()).
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(status) {}     // NOLINT(google-explicit-constructor)
  [[nodiscard]] bool ok() const { return value_.has_value(); }
  explicit operator bool() const { return ok(); }
  [[nodiscard]] Status status() const { return status_; }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_ = HEDDLE_DONE;
};

}  // namespace heddle::base
