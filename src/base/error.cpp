#include "base/error.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <new>
#include <utility>

#include "heddle/heddle.h"

namespace heddle::base {

namespace {

// The longest says of each network why it cannot be used.
constexpr std::size_t kMessageBytes = 2048;

// On the heap: initial-exec variables elsewhere make the library's whole thread-local segment
// static, and dlopen() finds little room for that.
thread_local constinit char* t_message = nullptr;
thread_local constinit bool t_gone = false;

struct Owner {
  ~Owner() {
    delete[] std::exchange(t_message, nullptr);
    t_gone = true;
  }
  void begin() {}  // so that it is there
};
thread_local Owner t_owner;

// Null: no memory, or the thread has ended but for destructors.
char* own_message() {
  if (t_message == nullptr && !t_gone) {
    t_message = new (std::nothrow) char[kMessageBytes]{};
    t_owner.begin();
  }
  return t_message;
}

}  // namespace

Status fail(Status status, const char* format, ...) {
  char* const message = own_message();
  if (message == nullptr) return status;
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(message, kMessageBytes, format, arguments);
  va_end(arguments);
  return status;
}

Status fail_errno(Status status, const char* format, ...) {
  const int number = errno;
  char* const message = own_message();
  if (message == nullptr) return status;
  std::va_list arguments;
  va_start(arguments, format);
  const int written = std::vsnprintf(message, kMessageBytes, format, arguments);
  va_end(arguments);
  if (written >= 0 && static_cast<std::size_t>(written) < kMessageBytes) {
    std::snprintf(message + written, kMessageBytes - static_cast<std::size_t>(written), ": %s (errno %d)",
                  std::strerror(number), number);
  }
  return status;
}

void prepare_messages() {
  static_cast<void>(own_message());
}

const char* last_message() {
  return t_message == nullptr ? "" : t_message;
}

namespace {

constexpr std::array<const char*, 4> kNames = {"error", "warn", "info", "debug"};

}  // namespace

bool Log::parse(std::string_view text, Level* level) {
  const auto it = std::find(kNames.begin(), kNames.end(), text);
  if (it == kNames.end()) return false;
  *level = static_cast<Level>(it - kNames.begin());
  return true;
}

void Log::line(Level level, const char* format, ...) const {
  if (level > level_) return;
  std::va_list arguments;
  va_start(arguments, format);
  write(kNames[static_cast<std::size_t>(level)], format, arguments);
  va_end(arguments);
}

void Log::say(const char* format, ...) const {
  std::va_list arguments;
  va_start(arguments, format);
  write(nullptr, format, arguments);
  va_end(arguments);
}

void Log::write(const char* label, const char* format, std::va_list arguments) const {
  std::array<char, 1024> text;
  const char* colon = label == nullptr ? "" : ": ";
  int used = std::snprintf(text.data(), text.size(), "heddle[%u] %s%s", rank_, label == nullptr ? "" : label, colon);
  const int more =
      std::vsnprintf(text.data() + used, text.size() - static_cast<std::size_t>(used) - 1, format, arguments);
  used = std::min<int>(used + std::max(more, 0), static_cast<int>(text.size()) - 2);
  text[static_cast<std::size_t>(used)] = '\n';
  // Nothing can be done when standard error cannot be written.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), static_cast<std::size_t>(used) + 1);
}

}  // namespace heddle::base

const char* heddle_status_name(heddle_status status) {
  switch (status) {
    case HEDDLE_DONE:
      return "HEDDLE_DONE";
    case HEDDLE_POSTED:
      return "HEDDLE_POSTED";
    case HEDDLE_AGAIN:
      return "HEDDLE_AGAIN";
    case HEDDLE_ERR_ARGUMENT:
      return "HEDDLE_ERR_ARGUMENT";
    case HEDDLE_ERR_HANDLE:
      return "HEDDLE_ERR_HANDLE";
    case HEDDLE_ERR_RANK:
      return "HEDDLE_ERR_RANK";
    case HEDDLE_ERR_RANGE:
      return "HEDDLE_ERR_RANGE";
    case HEDDLE_ERR_ALIGNMENT:
      return "HEDDLE_ERR_ALIGNMENT";
    case HEDDLE_ERR_SIZE:
      return "HEDDLE_ERR_SIZE";
    case HEDDLE_ERR_NO_MEMORY:
      return "HEDDLE_ERR_NO_MEMORY";
    case HEDDLE_ERR_UNSUPPORTED:
      return "HEDDLE_ERR_UNSUPPORTED";
    case HEDDLE_ERR_PEER_FAILED:
      return "HEDDLE_ERR_PEER_FAILED";
    case HEDDLE_ERR_TIMEOUT:
      return "HEDDLE_ERR_TIMEOUT";
    case HEDDLE_ERR_CONFIG:
      return "HEDDLE_ERR_CONFIG";
    case HEDDLE_ERR_VERSION:
      return "HEDDLE_ERR_VERSION";
    case HEDDLE_ERR_BOOTSTRAP:
      return "HEDDLE_ERR_BOOTSTRAP";
    case HEDDLE_ERR_STATE:
      return "HEDDLE_ERR_STATE";
    case HEDDLE_ERR_SYSTEM:
      return "HEDDLE_ERR_SYSTEM";
    case HEDDLE_ERR_PROTOCOL:
      return "HEDDLE_ERR_PROTOCOL";
    case HEDDLE_ERR_CANCELLED:
      return "HEDDLE_ERR_CANCELLED";
    case HEDDLE_ERR_TRUNCATED:
      return "HEDDLE_ERR_TRUNCATED";
  }
  return "HEDDLE_STATUS_UNKNOWN";
}
