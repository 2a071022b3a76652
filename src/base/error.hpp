// Errors and messages: a status code for programs, a message for people (the last one of each
// thread), lines to standard error.
//
// Hot paths return a plain heddle_status; set-up returns Result<T>. The code that detects an error
// calls fail(), which stores the message for heddle_last_error() of this thread and returns the
// code.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
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
// Takes the memory for this thread's messages, which else the first of them does.
void prepare_messages();

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

enum class Level { error = 0, warn = 1, info = 2, debug = 3 };

// Lines to standard error, one write each, prefixed with "heddle" and the rank. Never on a hot
// path.
class Log {
 public:
  Log() = default;
  Log(Level level, std::uint32_t rank) : level_(level), rank_(rank) {}

  // The level that a HEDDLE_LOG text names; false: no such level.
  static bool parse(std::string_view text, Level* level);

  // Writes one line at every level: output that the user asked for.
  [[gnu::cold, gnu::format(printf, 2, 3)]] void say(const char* format, ...) const;

  // Writes one line if `level` is at or above the configured one. Any thread.
  [[gnu::cold, gnu::format(printf, 3, 4)]] void line(Level level, const char* format, ...) const;

 private:
  void write(const char* label, const char* format, std::va_list arguments) const;

  Level level_ = Level::warn;
  std::uint32_t rank_ = 0;
};

}  // namespace heddle::base
