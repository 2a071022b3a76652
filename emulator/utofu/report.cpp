#include "utofu/report.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

namespace tofu_emulator {
namespace {

struct Reporter {
  const Settings* settings = nullptr;
  const char* node = "";
  std::atomic<std::uint32_t>* ended = nullptr;
};
Reporter reporter;               // written before `known`
std::atomic<bool> known{false};  // release by set_reporter, acquire by who speaks

// In one write, so that lines of several processes do not mix.
[[gnu::format(printf, 2, 0)]] void say(const char* kind, const char* format, va_list values) {
  char line[1024];
  int length = known.load(std::memory_order_acquire)
                   ? std::snprintf(line, sizeof line, "utofu emulator: process %u (node %s): %s",
                                   reporter.settings->process, reporter.node, kind)
                   : std::snprintf(line, sizeof line, "utofu emulator: %s", kind);
  auto used = static_cast<std::size_t>(std::max(length, 0));
  length = std::vsnprintf(line + used, sizeof line - used - 1, format, values);
  used = std::min(used + static_cast<std::size_t>(std::max(length, 0)), sizeof line - 2);
  line[used++] = '\n';
  for (std::size_t done = 0; done < used;) {
    const ssize_t wrote = ::write(STDERR_FILENO, line + done, used - done);
    if (wrote <= 0) return;
    done += static_cast<std::size_t>(wrote);
  }
}

[[noreturn]] void end_job() {
  if (known.load(std::memory_order_acquire) && reporter.ended != nullptr) {
    std::uint32_t nobody = 0;
    reporter.ended->compare_exchange_strong(nobody, reporter.settings->process + 1, std::memory_order_relaxed);
  }
  std::abort();
}

}  // namespace

void set_reporter(const Settings& settings, const char* node, std::atomic<std::uint32_t>* ended) {
  reporter = {&settings, node, ended};
  known.store(true, std::memory_order_release);
}

void fatal(const char* format, ...) {
  va_list values;
  va_start(values, format);
  say("", format, values);
  va_end(values);
  end_job();
}

void broken_rule(const char* format, ...) {
  if (!known.load(std::memory_order_acquire) || !reporter.settings->strict()) return;
  va_list values;
  va_start(values, format);
  say("broken rule: ", format, values);
  va_end(values);
  if (reporter.settings->rules == Rules::end_job) end_job();
}

void warn(const char* format, ...) {
  va_list values;
  va_start(values, format);
  say("", format, values);
  va_end(values);
}

}  // namespace tofu_emulator
