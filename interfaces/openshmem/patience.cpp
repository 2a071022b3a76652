#include "openshmem/patience.hpp"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <cstdio>

namespace heddle::shmem {
namespace {

constexpr std::uint32_t kSpins = 250;    // five microseconds: about two context switches
constexpr std::uint32_t kFewSpins = 16;  // where the partner may need this core
// after this many yields during which no other thread ran, the core counts as free again
constexpr std::uint32_t kMostLevel = 8;
constexpr std::uint64_t kTwoSwitchesNs = 1'500;
constexpr std::uint64_t kBeforeNapsNs = 1'000'000;
constexpr std::uint64_t kNapShare = 16;
constexpr std::uint64_t kShortestNapNs = 50'000;
constexpr std::uint64_t kLongestNapNs = 1'000'000;

constexpr std::uint64_t kSecondNs = 1'000'000'000;

std::atomic<std::uint32_t> g_crowd{0};  // relaxed: a hint
std::uint64_t g_report_ns = 0;          // written before anybody waits

std::uint64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * kSecondNs + static_cast<std::uint64_t>(now.tv_nsec);
}

// sched_yield() returns after half a microsecond if no other thread runs on the core; otherwise it
// takes two context switches.
void learn(std::uint64_t away_ns) {
  const std::uint32_t level = g_crowd.load(std::memory_order_relaxed);
  const std::uint32_t next = away_ns >= kTwoSwitchesNs ? kMostLevel : level == 0 ? 0 : level - 1;
  if (next != level) g_crowd.store(next, std::memory_order_relaxed);
}

}  // namespace

void expect_crowd(bool crowded) {
  g_crowd.store(crowded ? kMostLevel : 0, std::memory_order_relaxed);
}

std::uint32_t Patience::first_spins() {
  return g_crowd.load(std::memory_order_relaxed) != 0 ? kFewSpins : kSpins;
}

void report_waits_after(std::uint64_t seconds) {
  g_report_ns = seconds * kSecondNs;
}

std::uint64_t Patience::seconds() const {
  return (now_ns() - began_ns_) / kSecondNs;
}

bool Patience::due(std::uint64_t now) {
  if (g_report_ns == 0) return false;
  if (began_ns_ == 0) began_ns_ = now;
  if (now - began_ns_ < g_report_ns * (reports_ + 1)) return false;
  ++reports_;
  return true;
}

bool Patience::give_way() {
  looks_ = spins_;
  if (heddle_worker_progress(worker_) > 0) {
    looks_ = 0;
    since_ns_ = 0;
    return g_report_ns != 0 && due(now_ns());
  }
  const std::uint64_t before = now_ns();
  if (since_ns_ == 0) since_ns_ = before;
  const std::uint64_t waited = before - since_ns_;
  if (waited < kBeforeNapsNs) {
    sched_yield();
    learn(now_ns() - before);
    return false;
  }
  // Meanwhile the engine's helpers answer messages. A store into the awaited word is noticed late,
  // by at most a sixteenth of the time waited.
  const auto nap = static_cast<long>(std::clamp(waited / kNapShare, kShortestNapNs, kLongestNapNs));
  const timespec length{0, nap};
  ::nanosleep(&length, nullptr);
  return due(before);
}

void report_wait(Call call, std::uint64_t seconds, const char* awaited) {
  std::fprintf(stderr, "PE %d: %s has waited %llu s: %s\n", g_state.my_pe, call,
               static_cast<unsigned long long>(seconds), awaited);
}

}  // namespace heddle::shmem
