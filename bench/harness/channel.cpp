#include "harness/channel.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <new>
#include <utility>
#include <vector>

#include "base/wait.hpp"
#include "harness/statistics.hpp"

namespace heddle::bench::harness {

namespace {

constexpr std::uint64_t kStop = ~std::uint64_t{0};
// per batch: long against the clock, short against a move of the cores
constexpr int kRounds = 256;
constexpr int kBatches = 15;
// two processes on one core take milliseconds a round
constexpr std::uint64_t kPingPongLimitNs = 30'000'000;

// Waiters are other processes.
void wake_all(std::atomic<std::uint32_t>* word) {
  base::futex_wake_all(word, base::FutexScope::shared);
}
void wait_on(std::atomic<std::uint32_t>* word, std::uint32_t value) {
  base::futex_wait(word, value, -1, base::FutexScope::shared);
}

}  // namespace

std::uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(now.tv_nsec);
}

void Channel::Unmap::operator()(ChannelMemory* memory) const {
  munmap(memory, sizeof *memory);
}

std::optional<Channel> Channel::of(base::Fd fd) {
  void* memory = mmap(nullptr, sizeof(ChannelMemory), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd.get(), 0);
  if (memory == MAP_FAILED) return std::nullopt;
  return Channel(std::move(fd), static_cast<ChannelMemory*>(memory));
}

std::optional<Channel> Channel::create(std::uint64_t retry_budget_ns) {
  base::Fd fd(memfd_create("heddle-bench", MFD_CLOEXEC));
  if (!fd.valid() || ftruncate(fd.get(), sizeof(ChannelMemory)) != 0) return std::nullopt;
  std::optional<Channel> channel = of(std::move(fd));
  if (!channel) return channel;
  new (channel->memory_.get()) ChannelMemory{};
  channel->memory_->retry_budget.word.store(retry_budget_ns, std::memory_order_relaxed);
  return channel;
}

std::optional<Channel> Channel::open(const std::string& path) {
  base::Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd.valid() || lseek(fd.get(), 0, SEEK_END) != sizeof(ChannelMemory)) return std::nullopt;
  return of(std::move(fd));
}

std::string Channel::path() const {
  return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(fd_.get());
}

void Channel::reset() {
  memory_->arrived.store(0, std::memory_order_relaxed);
  memory_->sleeping.store(0, std::memory_order_relaxed);
  memory_->busy.store(0, std::memory_order_relaxed);
  for (ChannelLine& flag : memory_->flags) flag.word.store(0, std::memory_order_relaxed);
}

bool Channel::arrive() {
  expected_ += size_;
  // seq_cst with the addition and the load in sleep_until_met: either the last process sees that
  // another one sleeps, or a process that is about to sleep sees the last arrival.
  const std::uint32_t arrived = memory_->arrived.fetch_add(1, std::memory_order_seq_cst) + 1;
  if (arrived != expected_) return false;
  if (memory_->sleeping.load(std::memory_order_seq_cst) != 0) wake_all(&memory_->arrived);
  return true;
}

bool Channel::met() const {
  return static_cast<std::int32_t>(memory_->arrived.load(std::memory_order_acquire) - expected_) >= 0;
}

void Channel::sleep_until_met() {
  for (int spins = 0; spins < 2000; ++spins) {
    if (met()) return;
    base::cpu_relax();
  }
  memory_->sleeping.fetch_add(1, std::memory_order_seq_cst);
  while (true) {
    const std::uint32_t seen = memory_->arrived.load(std::memory_order_seq_cst);
    if (static_cast<std::int32_t>(seen - expected_) >= 0) break;
    wait_on(&memory_->arrived, seen);
  }
  memory_->sleeping.fetch_sub(1, std::memory_order_relaxed);
}

std::uint64_t Channel::share(std::uint64_t number) {
  if (rank_ == 0) memory_->shared_number.word.store(number, std::memory_order_relaxed);
  barrier();  // release and acquire
  const std::uint64_t result = memory_->shared_number.word.load(std::memory_order_relaxed);
  barrier();  // nobody overwrites it before all have read it
  return result;
}

double Channel::ping_pong_ns() {
  if (size_ == 1) return 0;
  std::atomic<std::uint64_t>& ping = memory_->ping.word;
  std::atomic<std::uint64_t>& pong = memory_->pong.word;
  if (rank_ == 0) {
    ping.store(0, std::memory_order_relaxed);
    pong.store(0, std::memory_order_relaxed);
  }
  barrier();
  double p_ns = 0;
  if (rank_ == 0) {
    std::vector<double> batches;
    const std::uint64_t begin = now_ns();
    std::uint64_t sequence = 0;
    for (int batch = 0; batch < kBatches + 1 && (batches.empty() || now_ns() - begin < kPingPongLimitNs); ++batch) {
      const std::uint64_t start = now_ns();
      for (int i = 0; i < kRounds; ++i) {
        ping.store(++sequence, std::memory_order_release);
        spin_until([&] { return pong.load(std::memory_order_acquire) == sequence; });
      }
      // The first wakes the other process up.
      if (batch > 0) batches.push_back(static_cast<double>(now_ns() - start) / (2.0 * kRounds));
    }
    ping.store(kStop, std::memory_order_release);
    p_ns = median_of(batches);
  } else if (rank_ == 1) {
    std::uint64_t last = 0;
    while (last != kStop) {
      spin_until([&] { return ping.load(std::memory_order_acquire) != last; });
      last = ping.load(std::memory_order_acquire);
      pong.store(last, std::memory_order_release);
    }
  }
  return static_cast<double>(share(static_cast<std::uint64_t>(p_ns * 1000))) / 1000;
}

void Channel::let_others_compute(bool compute) {
  memory_->busy.store(compute ? 1 : 0, std::memory_order_release);
  if (compute) wake_all(&memory_->busy);
}

void Channel::sleep_until_told() {
  while (memory_->busy.load(std::memory_order_acquire) == 0) wait_on(&memory_->busy, 0);
}

bool Channel::spend_retry_ns(std::uint64_t ns) {
  std::atomic<std::uint64_t>& budget = memory_->retry_budget.word;
  std::uint64_t left = budget.load(std::memory_order_relaxed);
  do {
    if (left < ns) return false;
  } while (!budget.compare_exchange_weak(left, left - ns, std::memory_order_relaxed));
  return true;
}

}  // namespace heddle::bench::harness
