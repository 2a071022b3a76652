#include "base/log.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>

namespace heddle::base {
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
