#include "limit/limit.hpp"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <new>
#include <vector>

namespace heddle::bench::limit {

std::vector<std::uint64_t> copied_sizes(const harness::BenchOptions& options) {
  return harness::sizes_or(options, {4096, 65536, 1U << 20, 16U << 20});
}

SharedMemory::SharedMemory(const harness::BenchOptions& options) {
  const auto sizes = copied_sizes(options);
  bytes_ = std::max<std::uint64_t>(*std::max_element(sizes.begin(), sizes.end()), (4U << 20) + 4096);
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  data_ = memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

harness::Figure limit_figure(const std::string& op, const char* metric, std::uint64_t size, double per_iteration) {
  harness::Figure figure;
  figure.key.bench = "limit";
  figure.key.op = op;
  figure.key.transport = "limit";
  figure.key.sharing = "none";
  figure.key.metric = metric;
  figure.key.workers = 0;
  figure.key.size_bytes = size;
  figure.per_iteration = per_iteration;
  return figure;
}

void run(harness::BenchSession& session, const SharedMemory& memory) {
  if (!session.wants("limit")) return;
  run_lines(session, memory);
  run_copies(session, memory);
}

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
  harness::ChannelLine tail;
  // entries consumed; consumer's release store pairs with the producer's acquire load
  harness::ChannelLine head;
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
void measure_ring(harness::BenchSession& session, const SharedMemory& memory, std::uint64_t every) {
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
void measure_ping_pong(harness::BenchSession& session, const SharedMemory& memory, bool one_line) {
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

void measure_fetch_add(harness::BenchSession& session, const SharedMemory& memory, bool contended) {
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

void run_lines(harness::BenchSession& session, const SharedMemory& memory) {
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

namespace {

using harness::Run;
using harness::spin_until;

constexpr std::size_t kChunk = 16384;  // 8–32 KiB are equally good here

double since(std::uint64_t begin) {
  return static_cast<double>(harness::now_ns() - begin);
}

// Rank 0 copies its own, unchanged memory into memory that both map, while the other sleeps.
void measure_memcpy(harness::BenchSession& session, const SharedMemory& memory, std::uint64_t size) {
  std::vector<std::byte> source(size, std::byte{1});
  session.measure(limit_figure("memcpy", "bandwidth", size, static_cast<double>(size)), [&](std::uint64_t n) {
    const std::uint64_t begin = harness::now_ns();
    if (session.rank() == 0) {
      for (std::uint64_t i = 0; i < n; ++i) {
        std::memcpy(memory.data(), source.data(), size);
        // or the compiler keeps only the last copy
        asm volatile("" : : "r"(memory.data()) : "memory");
      }
    }
    const double elapsed = since(begin);
    session.channel().barrier();
    return Run{elapsed};
  });
}

// Rank 0 copies out what the other core has just written; only the copies are timed.
void measure_fresh(harness::BenchSession& session, const SharedMemory& memory, std::uint64_t size) {
  std::vector<std::byte> target(size);
  session.measure(limit_figure("memcpy_fresh", "bandwidth", size, static_cast<double>(size)), [&](std::uint64_t n) {
    double elapsed = 0;
    bool right = true;
    for (std::uint64_t i = 0; i < n; ++i) {
      const auto value = static_cast<int>(i & 0x7f);
      if (session.rank() == 1) std::memset(memory.data(), value, size);
      session.channel().barrier();
      if (session.rank() == 0) {
        const std::uint64_t begin = harness::now_ns();
        std::memcpy(target.data(), memory.data(), size);
        elapsed += since(begin);
        right = right && target[size - 1] == static_cast<std::byte>(value);
      }
      session.channel().barrier();
    }
    return Run{elapsed, right};
  });
}

// process_vm_readv from the other's ordinary memory. False: the kernel forbids it.
bool measure_cma(harness::BenchSession& session, std::uint64_t size) {
  std::vector<std::byte> mine(size, std::byte{static_cast<unsigned char>(2 + session.rank())});
  harness::Channel& channel = session.channel();
  if (session.rank() == 1) {
    channel.flag(0).store(reinterpret_cast<std::uintptr_t>(mine.data()), std::memory_order_relaxed);
    channel.flag(1).store(static_cast<std::uint64_t>(getpid()), std::memory_order_relaxed);
  }
  channel.barrier();
  const auto pid = static_cast<pid_t>(channel.flag(1).load(std::memory_order_relaxed));
  const iovec remote{reinterpret_cast<void*>(channel.flag(0).load(std::memory_order_relaxed)), size};
  const iovec local{mine.data(), size};
  const auto read = [&] { return process_vm_readv(pid, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(size); };
  if (channel.share(session.rank() == 0 && read() ? 1 : 0) == 0) {
    if (session.rank() == 0) std::perror("heddle bench limit: CMA is left out: process_vm_readv");
    return false;
  }
  session.measure(limit_figure("cma", "bandwidth", size, static_cast<double>(size)), [&](std::uint64_t n) {
    bool right = true;
    const std::uint64_t begin = harness::now_ns();
    if (session.rank() == 0) {
      for (std::uint64_t i = 0; i < n; ++i) right = read() && right;
    }
    const double elapsed = since(begin);
    channel.barrier();
    return Run{elapsed, right && (session.rank() == 1 || mine[size - 1] == std::byte{3})};
  });
  return true;
}

// Bytes of one message go through a ring in chunks: copied in by rank 0, copied out by rank 1.
class CopyRing {
 public:
  CopyRing(const SharedMemory& memory, std::uint64_t ring_bytes)
      : tail_(reinterpret_cast<harness::ChannelLine*>(memory.data())),
        head_(tail_ + 1),
        data_(memory.data() + 4096),
        chunks_(ring_bytes / kChunk) {}

  void send(const std::byte* source, std::uint64_t size) {
    for (std::uint64_t at = 0; at < size; at += kChunk, ++sent_) {
      spin_until([&] { return sent_ - head_->word.load(std::memory_order_acquire) < chunks_; });
      std::memcpy(slot(sent_), source + at, std::min(kChunk, size - at));
      tail_->word.store(sent_ + 1, std::memory_order_release);
    }
    spin_until([&] { return head_->word.load(std::memory_order_acquire) == sent_; });
  }
  void receive(std::byte* target, std::uint64_t size) {
    for (std::uint64_t at = 0; at < size; at += kChunk, ++received_) {
      spin_until([&] { return tail_->word.load(std::memory_order_acquire) > received_; });
      std::memcpy(target + at, slot(received_), std::min(kChunk, size - at));
      head_->word.store(received_ + 1, std::memory_order_release);
    }
  }

 private:
  std::byte* slot(std::uint64_t i) { return data_ + (i % chunks_) * kChunk; }
  harness::ChannelLine* tail_;  // chunks published: rank 0's release, rank 1's acquire
  harness::ChannelLine* head_;  // chunks taken: rank 1's release, rank 0's acquire
  std::byte* data_;
  std::uint64_t chunks_;
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
};

void measure_copy_ring(harness::BenchSession& session, const SharedMemory& memory, std::uint64_t ring,
                       std::uint64_t size) {
  session.channel().barrier();
  if (session.rank() == 0) std::memset(memory.data(), 0, 4096);
  session.channel().barrier();
  CopyRing copies(memory, ring);
  std::vector<std::byte> buffer(size, std::byte{static_cast<unsigned char>(4 + session.rank())});
  const std::string op = ring >= (1U << 20) ? "copy_in_out_4M" : "copy_in_out_256K";
  session.measure(limit_figure(op, "bandwidth", size, static_cast<double>(size)), [&](std::uint64_t n) {
    const std::uint64_t begin = harness::now_ns();
    for (std::uint64_t i = 0; i < n; ++i) {
      if (session.rank() == 0) {
        copies.send(buffer.data(), size);
      } else {
        copies.receive(buffer.data(), size);
      }
    }
    const double elapsed = since(begin);
    if (session.rank() == 1) session.channel().flag(0).store(buffer[size - 1] == std::byte{4} ? 1 : 0);
    session.channel().barrier();
    return Run{elapsed, session.channel().flag(0).load() == 1};
  });
}

}  // namespace

void run_copies(harness::BenchSession& session, const SharedMemory& memory) {
  const auto sizes = copied_sizes(session.options());
  for (const std::uint64_t size : sizes) measure_memcpy(session, memory, size);
  for (const std::uint64_t size : sizes) measure_fresh(session, memory, size);
  for (const std::uint64_t size : sizes) {
    if (!measure_cma(session, size)) break;
  }
  for (const std::uint64_t ring : {std::uint64_t{256} << 10, std::uint64_t{4} << 20}) {
    for (const std::uint64_t size : sizes) measure_copy_ring(session, memory, ring, size);
  }
}

}  // namespace heddle::bench::limit
