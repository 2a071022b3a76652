#include "tofu/emulator/report.hpp"

#include <unistd.h>
#include <utofu.h>

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
  const EmulatorSettings* settings = nullptr;
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

void set_reporter(const EmulatorSettings& settings, const char* node, std::atomic<std::uint32_t>* ended) {
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

// No header of the vendor declares utofu_get_last_error. Libraries that call it declare it
// themselves, with a buffer of 1024 bytes for a text (as const char* or as char*), so utofu.h does
// not declare it either.

namespace {

struct Meaning {
  int code;
  const char* name;
  const char* text;
};

#define MEANING(name, text) {UTOFU_##name, "UTOFU_" #name, text}
constexpr Meaning kMeanings[] = {
    MEANING(SUCCESS, "no call of this thread has failed"),
    MEANING(ERR_NOT_PROCESSED, "it was not processed"),
    MEANING(ERR_USED, "what was asked for by name is taken"),
    MEANING(ERR_FULL, "none is left"),
    MEANING(ERR_NOT_AVAILABLE, "none of this kind is left now"),
    MEANING(ERR_NOT_SUPPORTED, "there is no such thing here"),
    MEANING(ERR_TCQ_OTHER, "the command failed on this side"),
    MEANING(ERR_TCQ_DESC, "the command is none"),
    MEANING(ERR_TCQ_MEMORY, "the local memory cannot be used so"),
    MEANING(ERR_TCQ_STADD, "nothing is registered at the local steering address"),
    MEANING(ERR_TCQ_LENGTH, "the length is beyond the local memory, or edata has more than a byte"),
    MEANING(ERR_MRQ_OTHER, "the command failed on the other side"),
    MEANING(ERR_MRQ_PEER, "the remote VCQ is no more"),
    MEANING(ERR_MRQ_LCL_MEMORY, "the answer found local memory that cannot be written"),
    MEANING(ERR_MRQ_RMT_MEMORY, "the remote memory cannot be used so"),
    MEANING(ERR_MRQ_LCL_STADD, "the answer found nothing registered at the local steering address"),
    MEANING(ERR_MRQ_RMT_STADD, "nothing is registered at the remote steering address"),
    MEANING(ERR_MRQ_LCL_LENGTH, "the answer is longer than the local memory"),
    MEANING(ERR_MRQ_RMT_LENGTH, "the length is beyond the remote memory"),
    MEANING(ERR_BARRIER_OTHER, "the barrier or reduction failed"),
    MEANING(ERR_BARRIER_MISMATCH, "the participants of a barrier or reduction disagree"),
    MEANING(ERR_INVALID_ARG, "an argument is wrong"),
    MEANING(ERR_INVALID_POINTER, "a pointer is wrong"),
    MEANING(ERR_INVALID_FLAGS, "a flag is wrong"),
    MEANING(ERR_INVALID_COORDS, "a node's coordinates are wrong"),
    MEANING(ERR_INVALID_PATH, "the coordinates of a path is wrong"),
    MEANING(ERR_INVALID_TNI_ID, "a TNI is wrong"),
    MEANING(ERR_INVALID_CQ_ID, "a CQ is wrong"),
    MEANING(ERR_INVALID_BG_ID, "a gate's number is wrong"),
    MEANING(ERR_INVALID_CMP_ID, "a component id is wrong"),
    MEANING(ERR_INVALID_VCQ_HDL, "the handle of a VCQ is wrong"),
    MEANING(ERR_INVALID_VCQ_ID, "the id of a VCQ is wrong"),
    MEANING(ERR_INVALID_VBG_ID, "the id of a gate is wrong"),
    MEANING(ERR_INVALID_PATH_ID, "the id of a path is wrong"),
    MEANING(ERR_INVALID_STADD, "a steering address is wrong"),
    MEANING(ERR_INVALID_ADDRESS, "an address in memory is wrong"),
    MEANING(ERR_INVALID_SIZE, "a size or length is wrong"),
    MEANING(ERR_INVALID_STAG, "a stag is wrong"),
    MEANING(ERR_INVALID_EDATA, "the edata is wrong"),
    MEANING(ERR_INVALID_NUMBER, "a number of things is wrong"),
    MEANING(ERR_INVALID_OP, "an operation is wrong"),
    MEANING(ERR_INVALID_DESC, "a descriptor is wrong"),
    MEANING(ERR_INVALID_DATA, "the data is wrong"),
    MEANING(ERR_OUT_OF_RESOURCE, "a resource of the system is used up"),
    MEANING(ERR_OUT_OF_MEMORY, "memory is used up"),
    MEANING(ERR_FATAL, "the process has no network interfaces"),
};
#undef MEANING

thread_local constinit int t_last = UTOFU_SUCCESS;

}  // namespace

int failed(int status) {
  if (status != UTOFU_ERR_NOT_FOUND && status != UTOFU_ERR_NOT_COMPLETED && status != UTOFU_ERR_BUSY) t_last = status;
  return status;
}

}  // namespace tofu_emulator

extern "C" {

#pragma GCC visibility push(default)

void putofu_get_last_error(char* text);
void putofu_get_last_error(char* text) {
  using namespace tofu_emulator;       // NOLINT(google-build-using-namespace): this is a C function
  constexpr std::size_t kBytes = 256;  // smaller than any caller's buffer
  if (text == nullptr) return;
  const auto* const found =
      std::find_if(std::begin(kMeanings), std::end(kMeanings), [](const Meaning& one) { return one.code == t_last; });
  if (found != std::end(kMeanings)) {
    (void)std::snprintf(text, kBytes, "%s (%d): %s", found->name, t_last, found->text);
  } else {
    (void)std::snprintf(text, kBytes, "error %d", t_last);
  }
}

[[gnu::weak, gnu::alias("putofu_get_last_error")]] decltype(putofu_get_last_error) utofu_get_last_error;

#pragma GCC visibility pop

}  // extern "C"
