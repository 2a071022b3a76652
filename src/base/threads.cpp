#include "base/threads.hpp"

#include <pthread.h>

#include <array>
#include <atomic>

#include "base/error.hpp"

namespace heddle::base::detail {

thread_local constinit std::uint32_t t_thread_number [[gnu::tls_model("initial-exec")]] = 0;

namespace {

// Bit set: the number is taken. Release when it is given back, acquire when it is taken: so the new
// owner sees what the former owner wrote in its slots.
std::array<std::atomic<std::uint64_t>, kThreadNumbers / 64> g_taken;

struct GiveBack {
  ~GiveBack() {
    const std::uint32_t known = t_thread_number;
    // Thread-local destructors that run later may still count: they do so as a thread without a
    // number.
    t_thread_number = kNoThreadNumber + 1;
    if (known == 0 || known - 1 >= kThreadNumbers) return;
    const std::uint32_t number = known - 1;
    g_taken[number / 64].fetch_and(~(std::uint64_t{1} << number % 64), std::memory_order_release);
  }
};

}  // namespace

std::uint32_t take_thread_number() {
  for (std::uint32_t word = 0; word < g_taken.size(); ++word) {
    std::uint64_t taken = g_taken[word].load(std::memory_order_relaxed);
    while (taken != ~std::uint64_t{0}) {
      const auto bit = static_cast<std::uint32_t>(__builtin_ctzll(~taken));
      if (!g_taken[word].compare_exchange_weak(taken, taken | std::uint64_t{1} << bit, std::memory_order_acquire,
                                               std::memory_order_relaxed)) {
        continue;
      }
      t_thread_number = word * 64 + bit + 1;
      static thread_local const GiveBack give_back;
      static_cast<void>(&give_back);
      return t_thread_number - 1;
    }
  }
  t_thread_number = kNoThreadNumber + 1;
  return kNoThreadNumber;
}

}  // namespace heddle::base::detail

namespace heddle::base {

void prepare_thread() {
  static_cast<void>(thread_number());
  prepare_messages();
}

}  // namespace heddle::base
