#include "base/error.hpp"

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace heddle::base {
namespace {

constexpr std::size_t kMessageBytes = 512;
thread_local char message[kMessageBytes] = "";

}  // namespace

Status fail(Status status, const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  return status;
}

Status fail_errno(Status status, const char* format, ...) {
  const int number = errno;
  std::va_list arguments;
  va_start(arguments, format);
  const int written = std::vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  if (written >= 0 && static_cast<std::size_t>(written) < sizeof message) {
    std::snprintf(message + written, sizeof message - static_cast<std::size_t>(written), ": %s (errno %d)",
                  std::strerror(number), number);
  }
  return status;
}

const char* last_message() {
  return message;
}

}  // namespace heddle::base
