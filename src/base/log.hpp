// Lines to standard error, one write each, prefixed with "heddle" and the rank. Never on a hot
// path.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <string_view>

namespace heddle::base {

enum class Level { error = 0, warn = 1, info = 2, debug = 3 };

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
