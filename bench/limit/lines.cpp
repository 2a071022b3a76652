#include "limit/limit.hpp"

#include <array>
#include <atomic>
#include <cstring>
#include <new>

namespace heddle::bench::limit {

namespace {

using harness::Run;
using harness::spin_until;

constexpr std::size_t kEntries = 1024;

// One producer, one consumer. Indices only grow; head ≤ tail ≤ head + kEntries. Each side keeps the
// other's last seen.
template <std::size_t kBytes>
struct Ring {
  struct Entry {
    std::array<std::uint64_t, kBytes / 8> words;
  };
  // entries published; producer's release store pairs with the consumer's acquire load
  harness::Line tail;
  // entries consumed; consumer's release store pairs with the producer's acquire load
  harness::Line head;
  alignas(harness::kApart) std::array<Entry, kEntries> entries;

  void produce(std::uint64_t first, std::uint64_t n, std::uint64_t publish_every) {
    std::uint64_t seen_head = head.word.load(std::memory_order_acquire);
    for (std::uint64_t i = first; i < first + n; ++i) {
      if (i - seen_head >= kEntries) {
        tail.word.store(i, std::memory_order_release);
        spin_until([&] { return i - (seen_head = head.word.load(std::memory_order_acquire)) < kEntries; });
      }
      entries[i % kEntries].words.fill(i);
      if ((i + 1) % publish_every == 0) tail.word.store(i + 1, std::memory_order_release);
    }
    tail.word.store(first + n, std::memory_order_release);
    spin_until([&] { return head.word.load(std::memory_order_acquire) == first + n; });
  }

  // False: an entry was not what the producer wrote.
  bool consume(std::uint64_t first, std::uint64_t n, std::uint64_t publish_every) {
    std::uint64_t seen_tail = first;
    std::uint64_t wrong = 0;
    for (std::uint64_t i = first; i < first + n; ++i) {
      if (i == seen_tail) {
        head.word.store(i, std::memory_order_release);
        spin_until([&] { return (seen_tail = tail.word.load(std::memory_order_acquire)) != i; });
      }
      for (const std::uint64_t word : entries[i % kEntries].words) wrong |= word ^ i;
      if ((i + 1) % publish_every == 0) head.word.store(i + 1, std::memory_order_release);
    }
    head.word.store(first + n, std::memory_order_release);
    return wrong == 0;
  }
};

template <std::size_t kBytes>
void measure_ring(harness::Session& session, const SharedMemory& memory, std::uint64_t every) {
  if (session.rank() == 0) new (memory.data()) Ring<kBytes>{};
  session.channel().barrier();
  auto* ring = std::launder(reinterpret_cast<Ring<kBytes>*>(memory.data()));
  std::uint64_t first = 0;
  bool right = true;
  session.measure(limit_figure(every == 1 ? "ring_each" : "ring_16", "latency", kBytes, 1), [&](std::uint64_t n) {
    const std::uint64_t begin = harness::now_ns();
    if (session.rank() == 0) {
      ring->produce(first, n, every);
    } else {
      right = ring->consume(first, n, every) && right;
    }
    first += n;
    const auto elapsed = static_cast<double>(harness::now_ns() - begin);
    // The consumer knows whether the entries were right; rank 0 tells.
    if (session.rank() == 1) session.channel().flag(1).store(right ? 0 : 1, std::memory_order_relaxed);
    session.channel().barrier();
    return Run{elapsed, session.channel().flag(1).load(std::memory_order_relaxed) == 0};
  });
}

// Two words that the processes answer each other in: on one line or on two.
void measure_ping_pong(harness::Session& session, const SharedMemory& memory, bool one_line) {
  auto* words = std::launder(reinterpret_cast<std::atomic<std::uint64_t>*>(memory.data()));
  std::atomic<std::uint64_t>& ping = words[0];
  std::atomic<std::uint64_t>& pong = one_line ? words[0] : words[harness::kApart / sizeof(std::uint64_t)];
  session.channel().barrier();
  if (session.rank() == 0) {
    ping.store(0, std::memory_order_relaxed);
    pong.store(0, std::memory_order_relaxed);
  }
  session.channel().barrier();
  std::uint64_t turn = 0;
  const char* op = one_line ? "pingpong_1line" : "pingpong_2lines";
  session.measure(limit_figure(op, "latency", 8, 2), [&](std::uint64_t n) {
    const std::uint64_t begin = harness::now_ns();
    for (std::uint64_t i = 0; i < n; ++i) {
      if (session.rank() == 0) {
        ping.store(turn + 1, std::memory_order_release);
        spin_until([&] { return pong.load(std::memory_order_acquire) == turn + 2; });
      } else {
        spin_until([&] { return ping.load(std::memory_order_acquire) == turn + 1; });
        pong.store(turn + 2, std::memory_order_release);
      }
      turn += 2;
    }
    return Run{static_cast<double>(harness::now_ns() - begin)};
  });
}

void measure_fetch_add(harness::Session& session, const SharedMemory& memory, bool contended) {
  auto* word = std::launder(reinterpret_cast<std::atomic<std::uint64_t>*>(memory.data()));
  harness::Figure figure = limit_figure(contended ? "fadd_contended" : "fadd_alone", "latency", 8, 1);
  session.measure(figure, [&](std::uint64_t n) {
    const std::uint64_t begin = harness::now_ns();
    if (session.rank() == 0 || contended) {
      for (std::uint64_t i = 0; i < n; ++i) word->fetch_add(1, std::memory_order_acq_rel);
    }
    const auto elapsed = static_cast<double>(harness::now_ns() - begin);
    session.channel().barrier();  // alone: the other sleeps here
    return Run{elapsed};
  });
}

}  // namespace

void run_lines(harness::Session& session, const SharedMemory& memory) {
  measure_ping_pong(session, memory, true);
  measure_ping_pong(session, memory, false);
  measure_ring<8>(session, memory, 1);
  measure_ring<8>(session, memory, 16);
  measure_ring<64>(session, memory, 1);
  measure_ring<64>(session, memory, 16);
  session.channel().barrier();
  if (session.rank() == 0) std::memset(memory.data(), 0, 4096);
  measure_fetch_add(session, memory, false);
  measure_fetch_add(session, memory, true);
}

}  // namespace heddle::bench::limit
