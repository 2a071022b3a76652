#include "tofu/emulator/report.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace tofu_emulator {
namespace {

struct Reporter {
  const Settings* settings = nullptr;
  const char* node = "";
  std::atomic<std::uint32_t>* ended = nullptr;
};
Reporter reporter;                      // written before `has_reporter`
std::atomic<bool> has_reporter{false};  // release by set_reporter, acquire by threads that report

// The lines of one call site, identified by its format.
struct Kind {
  const char* format;
  std::vector<std::size_t> said;  // hashes of the lines
  std::string first;
  std::uint64_t left_out = 0;
};
struct Said {
  std::mutex mutex;
  std::vector<Kind> kinds;
};
Said& said() {
  static Said* const all = new Said;  // NOLINT(cppcoreguidelines-owning-memory): reports at exit need it
  return *all;
}

// Whether the line is to be printed.
bool is_new(const char* format, std::string_view line) {
  Said& all = said();
  const std::lock_guard lock(all.mutex);
  auto kind = std::find_if(all.kinds.begin(), all.kinds.end(), [&](const Kind& one) { return one.format == format; });
  if (kind == all.kinds.end()) kind = all.kinds.insert(kind, Kind{format, {}, std::string(line), 0});
  const std::size_t hash = std::hash<std::string_view>()(line);
  const bool same = std::find(kind->said.begin(), kind->said.end(), hash) != kind->said.end();
  if (same || kind->said.size() >= kSaidOfKind) {
    ++kind->left_out;
    return false;
  }
  kind->said.push_back(hash);
  return true;
}

// Prints with one write, so that lines of several processes do not mix.
[[gnu::format(printf, 2, 0)]] void say(const char* kind, const char* format, va_list values, bool once) {
  char line[1024];
  int length = has_reporter.load(std::memory_order_acquire)
                   ? std::snprintf(line, sizeof line, "utofu emulator: process %u (node %s): %s",
                                   reporter.settings->process, reporter.node, kind)
                   : std::snprintf(line, sizeof line, "utofu emulator: %s", kind);
  auto used = static_cast<std::size_t>(std::max(length, 0));
  const std::size_t begin = used;
  length = std::vsnprintf(line + used, sizeof line - used - 1, format, values);
  used = std::min(used + static_cast<std::size_t>(std::max(length, 0)), sizeof line - 2);
  if (once && !is_new(format, {line + begin, used - begin})) return;
  line[used++] = '\n';
  for (std::size_t done = 0; done < used;) {
    const ssize_t wrote = ::write(STDERR_FILENO, line + done, used - done);
    if (wrote <= 0) return;
    done += static_cast<std::size_t>(wrote);
  }
}

void tell_world() {
  if (has_reporter.load(std::memory_order_acquire) && reporter.ended != nullptr) {
    std::uint32_t nobody = 0;
    reporter.ended->compare_exchange_strong(nobody, reporter.settings->process + 1, std::memory_order_relaxed);
  }
}

[[noreturn]] void end_job() {
  tell_world();
  std::abort();
}

}  // namespace

void set_reporter(const Settings& settings, const char* node, std::atomic<std::uint32_t>* ended) {
  reporter = {&settings, node, ended};
  has_reporter.store(true, std::memory_order_release);
}

void fatal(const char* format, ...) {
  va_list values;
  va_start(values, format);
  say("", format, values, false);
  va_end(values);
  end_job();
}

void broken_rule(const char* format, ...) {
  if (!has_reporter.load(std::memory_order_acquire) || !reporter.settings->strict()) return;
  va_list values;
  va_start(values, format);
  say("broken rule: ", format, values, true);
  va_end(values);
  if (reporter.settings->rules == Rules::end_job) end_job();
}

void last_words(const char* format, ...) {
  va_list values;
  va_start(values, format);
  say("", format, values, false);
  va_end(values);
  tell_world();
}

void trouble(const char* format, ...) {
  const bool strict = has_reporter.load(std::memory_order_acquire) && reporter.settings->strict();
  va_list values;
  va_start(values, format);
  say(strict ? "broken rule: " : "", format, values, true);
  va_end(values);
  if (strict && reporter.settings->rules == Rules::end_job) end_job();
}

void warn(const char* format, ...) {
  va_list values;
  va_start(values, format);
  say("", format, values, true);
  va_end(values);
}

// Not through is_new(), whose lock is held; each line is printed once anyway.
void say_counts() {
  const auto line = [](const char* format, ...) {
    va_list values;
    va_start(values, format);
    say("", format, values, false);
    va_end(values);
  };
  Said& all = said();
  const std::lock_guard lock(all.mutex);
  for (const Kind& kind : all.kinds) {
    if (kind.left_out == 0) continue;
    line("%llu more lines like this one were left out: %.200s", static_cast<unsigned long long>(kind.left_out),
         kind.first.c_str());
  }
}

std::uint64_t lines_left_out() {
  Said& all = said();
  const std::lock_guard lock(all.mutex);
  std::uint64_t sum = 0;
  for (const Kind& kind : all.kinds) sum += kind.left_out;
  return sum;
}

}  // namespace tofu_emulator
