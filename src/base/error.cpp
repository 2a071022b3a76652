#include "base/error.hpp"

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <new>
#include <utility>

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

const char* last_message() {
  return t_message == nullptr ? "" : t_message;
}

}  // namespace heddle::base
