#include "lcw/process.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <lcwi.hpp>
#include <string_view>
#include <vector>

namespace heddle::for_lcw {

namespace {

JoinedJob g_job{};
bool g_joined = false;
bool g_suspended = false;  // between finalize and a later initialize
std::uint32_t g_next_worker = 0;

// A process that has not finalized ends without it: its peers may be anywhere, and leaving waits
// for them.
void leave_at_exit() {
  if (!g_suspended) return;
  g_suspended = false;
  const heddle_status status = heddle_context_leave(g_job.context);
  // A child of fork is no member, and its handles are closed.
  if (status == HEDDLE_DONE || status == HEDDLE_ERR_HANDLE) return;
  std::fprintf(stderr, "LCW, Heddle backend: leaving the job: %s: %s\n", heddle_status_name(status),
               heddle_last_error());
}

void agree_on_worker_numbers() {
  std::vector<std::uint32_t> next(g_job.size);
  must(heddle_context_exchange(g_job.context, &g_next_worker, sizeof g_next_worker, next.data()),
       "agreeing on the numbers of devices");
  for (const std::uint32_t one : next) {
    while (g_next_worker < one) {
      heddle_worker worker{};
      must(heddle_worker_open(g_job.context, nullptr, &worker), "skipping the number of a device");
      must(heddle_worker_close(worker), "skipping the number of a device");
      ++g_next_worker;
    }
  }
}

}  // namespace

JoinedJob* join() {
  if (g_joined) {
    g_suspended = false;
    agree_on_worker_numbers();
    return &g_job;
  }
  must(heddle_context_join(nullptr, &g_job.context), "joining the job");
  must(heddle_context_rank(g_job.context, &g_job.rank), "asking for the rank");
  must(heddle_context_size(g_job.context, &g_job.size), "asking for the number of ranks");
  g_joined = true;
  if (std::atexit(&leave_at_exit) != 0) fail("no memory for an exit handler");
  return &g_job;
}

void suspend() {
  const heddle_status status = heddle_context_barrier(g_job.context, {0}, HEDDLE_FOREVER);
  // Ranks that communicated with a dead rank have reported it, and all other ranks are here.
  if (status == HEDDLE_ERR_PEER_FAILED) {
    LCW_Warn("finalize: a rank has died or left without finalize\n");
  } else {
    must(status, "waiting for all ranks in finalize");
  }
  g_suspended = true;
}

std::uint32_t take_worker_number() {
  return g_next_worker++;
}

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

namespace {

std::atomic<bool> g_enabled{true};

}  // namespace

thread_local Idle::State Idle::t_idle = {0, kLeast};

void Idle::set_enabled(bool enabled) {
  g_enabled.store(enabled, std::memory_order_relaxed);
}

void Idle::leave_core() {
  t_idle.fruitless = 0;
  if (!g_enabled.load(std::memory_order_relaxed)) {
    t_idle.patience = kMost;
    return;
  }
  using Clock = std::chrono::steady_clock;
  // If no other thread takes the core, a yield is a system call of a few hundred nanoseconds.
  constexpr auto kTaken = std::chrono::nanoseconds(1500);
  const Clock::time_point before = Clock::now();
  ::sched_yield();
  const bool taken = Clock::now() - before > kTaken;
  t_idle.patience = taken ? kLeast : std::min(t_idle.patience * 2, kMost);
}

}  // namespace heddle::for_lcw
