// Bounce space: a pool of chunks in each process's segment, through which data moves between the
// private memories of two processes. The initiator of a transfer lends a chunk of its own pool to
// the target, which copies out of it or into it.
//
// States of a chunk. Its word is {generation, state}. The numbers of free chunks are in a queue
// that only the owner sees.
//   free       in the queue, or taken out of it by the owner
//   requested  the owner has announced it to a target: (put) data is in it, (get) room is in it
//   taken      the target copies                          requested -> taken      by the target
//   done       the target has copied                      taken -> done           by the target
//   failed     the target has no such range               taken -> failed         by the target
// The owner takes a requested chunk back by requested -> free with the next generation: a target
// that finds another generation than announced does not touch the chunk. So exactly one side has it
// at any time. If the target dies while it has the chunk, nobody touches the chunk any more, and
// the owner reuses it with the next generation.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "queue/bounded_queue.hpp"
#include "transport/shm/layout.hpp"
#include "transport/shm/segment.hpp"

namespace heddle::transport::shm {

// A pool as mapped here: this process's own or a peer's.
class BounceView {
 public:
  BounceView() = default;
  BounceView(std::byte* base, std::uint64_t chunks, std::uint64_t chunk_bytes)
      : base_(base), data_at_(data_at(chunks)), chunk_bytes_(chunk_bytes) {}

  [[nodiscard]] bool mapped() const { return base_ != nullptr; }
  // Release by the side that hands the chunk over, acquire by the side that receives it. The owner
  // stores requested and free; the target stores taken, done and failed.
  [[nodiscard]] std::atomic<std::uint64_t>& word(std::uint32_t chunk) const {
    return *reinterpret_cast<std::atomic<std::uint64_t>*>(base_ + chunk * kLine);
  }
  [[nodiscard]] std::byte* data(std::uint32_t chunk) const { return base_ + data_at_ + chunk * chunk_bytes_; }

  static std::uint64_t data_at(std::uint64_t chunks);
  static std::uint64_t bytes(std::uint64_t chunks, std::uint64_t chunk_bytes) {
    return data_at(chunks) + chunks * chunk_bytes;
  }

 private:
  std::byte* base_ = nullptr;
  std::uint64_t data_at_ = 0;
  std::uint64_t chunk_bytes_ = 0;
};

// This process's own pool. Chunks are lent first in, first out on purpose: when a chunk is used
// again, its lines have left the L2 caches, and a line from the shared L3 costs less than one from
// the other core's L2.
class BouncePool {
 public:
  BouncePool(std::uint64_t chunks, std::uint64_t chunk_bytes);

  [[nodiscard]] bool enabled() const { return chunks_ != 0; }
  [[nodiscard]] std::uint64_t chunk_bytes() const { return chunk_bytes_; }
  // Makes the pool on first use and announces it in `header`. Any thread. NO_MEMORY: the pool could
  // not be made; the next call tries again.
  [[nodiscard]] base::Status prepare(Segment& segment, ControlHeader& header) noexcept;

  // After prepare(). False: all chunks are lent.
  [[nodiscard]] bool lend(std::uint32_t* chunk) { return free_.pop(chunk); }
  // The chunk is free again; its earlier announcements become void.
  void give_back(std::uint32_t chunk);
  // Announces the chunk; returns the generation for the request. A put's data must be in it
  // already.
  [[nodiscard]] std::uint64_t request(std::uint32_t chunk);
  // Takes back a chunk that the target has not taken. False: the target has it, or has finished
  // with it.
  [[nodiscard]] bool cancel(std::uint32_t chunk, std::uint64_t generation);
  [[nodiscard]] const BounceView& view() const { return view_; }

 private:
  base::Status make(Segment& segment, ControlHeader& header);

  std::uint64_t chunks_;
  std::uint64_t chunk_bytes_;
  queue::BoundedQueue<> free_;
  BounceView view_;
  std::atomic<bool> ready_{false};  // release after view_ is set; acquire in prepare()
  std::mutex making_;
};

}  // namespace heddle::transport::shm
