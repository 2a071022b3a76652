#include "lcw/errors.hpp"

#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include <lcwi.hpp>

namespace heddle::for_lcw {

void fail(const char* format, ...) {
  std::array<char, 1024> text{};
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  LCW_Assert(false, "Heddle backend: %s\n", text.data());
  std::abort();
}

bool flag(const char* name, bool otherwise) {
  const char* value = std::getenv(name);
  if (value == nullptr) return otherwise;
  if (std::string_view(value) == "0") return false;
  if (std::string_view(value) != "1") fail("%s is \"%s\": set it to 0 or 1", name, value);
  return true;
}

}  // namespace heddle::for_lcw
