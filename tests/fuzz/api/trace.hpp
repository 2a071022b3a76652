// The API fuzzer's report of a fault: the seed and the last calls of each rank, and the call that
// lasts too long.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <type_traits>

namespace heddle::tests::api {

std::int64_t now_ns();

class Text {
 public:
  void clear() { used_ = 0, bytes_[0] = 0; }
  [[nodiscard]] const char* c_str() const { return bytes_; }
  template <class T>
  void add(T value) {
    if constexpr (std::is_same_v<T, const char*>) {
      print(value == nullptr ? "null" : "%s", value);
    } else if constexpr (std::is_pointer_v<T>) {
      if constexpr (std::is_function_v<std::remove_pointer_t<T>>) {
        print(value == nullptr ? "null" : "fn");
      } else {
        print("%p", static_cast<const void*>(value));
      }
    } else if constexpr (std::is_same_v<T, std::nullptr_t>) {
      print("null");
    } else if constexpr (requires { value.region, value.offset; }) {
      print("{h%llx, %#llx}", wide(value.region.id), wide(value.offset));
    } else if constexpr (requires { value.rank, value.worker; }) {
      print("{%u, %u}", value.rank, value.worker);
    } else if constexpr (requires { value.id; }) {
      print("h%llx", wide(value.id));
    } else if constexpr (std::is_signed_v<T> || std::is_enum_v<T>) {
      print("%lld", static_cast<long long>(value));
    } else {
      print(value < 100'000 ? "%llu" : "%#llx", wide(value));
    }
  }

 private:
  template <class T>
  static unsigned long long wide(T value) {
    return static_cast<unsigned long long>(value);
  }
  template <class... Values>
  void print(const char* format, Values... values) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-security"
#pragma GCC diagnostic ignored "-Wformat-extra-args"
    const int wrote = std::snprintf(bytes_ + used_, sizeof bytes_ - used_, format, values...);
#pragma GCC diagnostic pop
    if (wrote > 0) used_ = std::min(sizeof bytes_ - 1, used_ + static_cast<std::size_t>(wrote));
  }
  char bytes_[240] = {};
  std::size_t used_ = 0;
};

struct Entry {
  const char* name = nullptr;
  Text text;
  std::uint64_t number = 0;
  long long result = 0;
  std::atomic<bool> ended = false;
};

// The calls of one rank. Its thread writes; a watchdog, or the thread that reports a fault, reads.
class Trace {
 public:
  static constexpr std::size_t kKept = 64;
  Trace(std::uint64_t seed, std::uint32_t rank) : seed_(seed), rank_(rank) { all_[rank] = this; }
  ~Trace() { all_[rank_] = nullptr; }
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  Entry& begin(const char* name);
  void start(std::int64_t given_ns);
  void end(Entry& entry, long long result);
  [[noreturn]] void wrong(const char* what) const;  // prints, and ends the process with 3
  void print(std::uint64_t most = kKept) const;
  // Something other than a call, such as a meeting: twice as long is allowed, so that the call that
  // it waits for is reported first.
  void outside(const char* what);
  // Ends the process if a call lasts longer than it may.
  void watch(double patience) const;
  [[nodiscard]] std::uint64_t calls() const { return calls_.load(std::memory_order_relaxed); }
  std::map<std::string, std::uint64_t> counts;
  std::map<std::string, std::uint64_t> good;
  std::uint64_t round_seed = 0;

 private:
  static Trace* all_[2];  // of this process
  std::uint64_t seed_;
  std::uint32_t rank_;
  Entry entries_[kKept];
  std::atomic<std::uint64_t> calls_ = 0;
  int depth_ = 0;
  std::atomic<std::int64_t> since_ = 0;  // when the call that lasts began; 0: none
  std::atomic<std::int64_t> given_ = 0;
  std::atomic<bool> meeting_ = false;
};

}  // namespace heddle::tests::api
