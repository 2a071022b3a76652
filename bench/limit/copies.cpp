#include "limit/limit.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>
#include <vector>

namespace heddle::bench::limit {

namespace {

using harness::Run;
using harness::spin_until;

constexpr std::size_t kChunk = 16384;  // 8–32 KiB are equally good here

double since(std::uint64_t begin) {
  return static_cast<double>(harness::now_ns() - begin);
}

// Rank 0 copies its own, unchanged memory into memory that both map, while the other sleeps.
void measure_memcpy(harness::Session& session, const SharedMemory& memory, std::uint64_t size) {
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
void measure_fresh(harness::Session& session, const SharedMemory& memory, std::uint64_t size) {
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
bool measure_cma(harness::Session& session, std::uint64_t size) {
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
      : tail_(reinterpret_cast<harness::Line*>(memory.data())),
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
  harness::Line* tail_;  // chunks published: rank 0's release, rank 1's acquire
  harness::Line* head_;  // chunks taken: rank 1's release, rank 0's acquire
  std::byte* data_;
  std::uint64_t chunks_;
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
};

void measure_copy_ring(harness::Session& session, const SharedMemory& memory, std::uint64_t ring, std::uint64_t size) {
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

void run_copies(harness::Session& session, const SharedMemory& memory) {
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
