#include "trace.hpp"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <mutex>

namespace heddle::tests::api {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Entry& Trace::begin(const char* name) {
  const std::uint64_t number = calls_.fetch_add(1, std::memory_order_relaxed);
  Entry& entry = entries_[number % kKept];
  entry.ended.store(false, std::memory_order_relaxed);
  entry.name = name;
  entry.number = number;
  entry.text.clear();
  ++counts[name];
  return entry;
}

void Trace::start(std::int64_t given_ns) {
  if (depth_++ > 0) return;  // a call from a handler belongs to the time of the call that runs it
  given_.store(given_ns, std::memory_order_relaxed);
  meeting_.store(false, std::memory_order_relaxed);
  since_.store(now_ns(), std::memory_order_release);
}

void Trace::end(Entry& entry, long long result) {
  entry.result = result;
  entry.ended.store(true, std::memory_order_release);
  if (result >= 0) ++good[entry.name];
  if (--depth_ == 0) since_.store(0, std::memory_order_release);
}

void Trace::outside(const char* what) {
  meeting_.store(true, std::memory_order_relaxed);
  since_.store(what == nullptr ? 0 : now_ns(), std::memory_order_release);
}

Trace* Trace::all_[2];

void Trace::print(std::uint64_t most) const {
  const std::uint64_t calls = calls_.load(std::memory_order_relaxed);
  std::fprintf(stderr, "api_fuzz: rank %u, --seed %llu, after %llu calls; the last ones:\n", rank_,
               static_cast<unsigned long long>(seed_), static_cast<unsigned long long>(calls));
  const std::uint64_t first = calls > most ? calls - most : 0;
  for (std::uint64_t number = first; number < calls; ++number) {
    const Entry& entry = entries_[number % kKept];
    const char* text = entry.text.c_str();
    if (text[0] == ',') text += 2;
    if (entry.ended.load(std::memory_order_acquire)) {
      std::fprintf(stderr, "  %s(%s) = %lld\n", entry.name, text, entry.result);
    } else {
      std::fprintf(stderr, "  %s(%s) has not returned\n", entry.name, text);
    }
  }
  std::fflush(stderr);
}

void Trace::wrong(const char* what) const {
  static std::mutex once;  // never given back: the first that is wrong is told
  once.lock();
  std::fprintf(stderr, "api_fuzz: wrong: %s\n", what);
  for (const Trace* other : all_) {
    if (other != nullptr && other != this) other->print(10);
  }
  print();
  if (std::getenv("API_FUZZ_ABORT") != nullptr) std::abort();
  _exit(3);
}

void Trace::watch(double patience) const {
  const std::int64_t since = since_.load(std::memory_order_acquire);
  if (since == 0) return;
  const bool meeting = meeting_.load(std::memory_order_relaxed);
  const std::int64_t given = meeting ? 0 : given_.load(std::memory_order_relaxed);
  const double limit = patience * (meeting ? 2 : 1);
  const double lasts = static_cast<double>(now_ns() - since - given) / 1e9;
  if (lasts < limit) return;
  if (meeting) wrong("the other rank has not come to the meeting; which of its calls lasts?");
  const Entry* entry = nullptr;
  const std::uint64_t calls = calls_.load(std::memory_order_relaxed);
  for (std::uint64_t back = 1; back <= kKept && back <= calls && entry == nullptr; ++back) {
    const Entry& one = entries_[(calls - back) % kKept];
    if (!one.ended.load(std::memory_order_acquire)) entry = &one;
  }
  char line[400];
  std::snprintf(line, sizeof line, "%s(%s) does not return: %.0f s longer than it was given", entry ? entry->name : "?",
                entry ? entry->text.c_str() : "", lasts);
  wrong(line);
}

}  // namespace heddle::tests::api
