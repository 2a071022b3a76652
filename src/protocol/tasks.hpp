// The store of one worker for messages of class USER: they wait here until a thread calls
// heddle_run_tasks.
//
// The thread inside the worker puts messages in, one thread at a time; any number of threads take
// them out, in that order, and run their handlers. A short lock guards the list (not for a worker
// that one thread uses); it is never held while a handler runs, memory is allocated or a message is
// copied. Messages that must not pay for this use class NETWORK.
//
// Memory: small messages lie in blocks that are used again. The messages of a source are counted as
// UserCredits says. A source that exceeds its window does not have this job's
// settings, and is rejected.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "heddle/heddle.h"
#include "protocol/reassembly.hpp"
#include "queue/locks.hpp"
#include "tap/debug_view.hpp"
#include "wire/packet.hpp"

namespace heddle::protocol {

class Tasks {
 public:
  // The credit that one worker of a peer uses in the store.
  struct Source {
    std::uint64_t held = 0;  // not granted back yet; inside only
    // The part of it that is handled. Relaxed: a number. A thread that has run a handler adds to
    // it; the thread inside subtracts from it.
    std::atomic<std::uint64_t> handled{0};
  };
  struct Task {
    Task* next = nullptr;
    Source* source = nullptr;
    heddle_peer peer{};
    std::uint32_t handler = 0;
    std::uint32_t header_bytes = 0;
    std::uint64_t payload_bytes = 0;
    std::uint64_t charge = 0;
    std::unique_ptr<std::byte[]> large;  // the payload, if it does not follow the task
    std::array<std::byte, HEDDLE_AM_HEADER_BYTES> header alignas(8){};

    // The memory after the task, in the same block.
    [[nodiscard]] std::byte* small() { return reinterpret_cast<std::byte*>(this + 1); }
    [[nodiscard]] const std::byte* payload() { return large != nullptr ? large.get() : small(); }
  };

  // `most_large`: bytes of payloads that came in parts or were fetched. Payloads in parts that
  // their sender's window covers may exceed it.
  struct Bounds {
    std::uint32_t ranks;
    std::uint32_t workers;
    std::uint64_t window;
    std::uint64_t most_large;
  };
  Tasks(const Bounds& bounds, bool one_thread) : bounds_(bounds), one_thread_(one_thread), sources_(bounds.ranks) {}
  ~Tasks();
  Tasks(const Tasks&) = delete;
  Tasks& operator=(const Tasks&) = delete;

  // ---- inside ----
  enum class Stored { yes, exceeds, no_memory };
  Stored store(heddle_peer peer, const wire::ActiveMessage& message) noexcept;
  // There is room for the payload of a message that came in parts.
  [[nodiscard]] bool admits(std::uint64_t bytes) const {
    return bytes <= bounds_.most_large - std::min(large_bytes_.load(std::memory_order_relaxed), bounds_.most_large);
  }
  // The source of the room for such a payload. `reserved`: reserve() has counted it. `asked`: there
  // must be room now, unless the whole payload is within its sender's window: the window bounds it
  // already, and the sender was promised that it is stored.
  enum class Room { asked, reserved };
  Stored store(heddle_peer peer, Reassembly::Message* whole, Room room) noexcept;
  // Reserves room for a payload that is on its way. The room counts as used until its task has
  // ended, or until release(). False: there is no room until a large message has been handled.
  [[nodiscard]] bool reserve(std::uint64_t bytes) {
    if (!admits(bytes)) return false;
    large_bytes_.fetch_add(bytes, std::memory_order_relaxed);
    return true;
  }
  void release(std::uint64_t bytes) { large_bytes_.fetch_sub(bytes, std::memory_order_relaxed); }
  // The credit to be granted to this source now: all that is handled once it is half a window;
  // before that, 0.
  [[nodiscard]] std::uint64_t due(const Source& source) const {
    const std::uint64_t handled = source.handled.load(std::memory_order_relaxed);
    return handled >= bounds_.window / 2 ? handled : 0;
  }
  // A message within the source's window was dropped, and the grant could not be sent: it is
  // granted with what is due next. False: not even that could be noted.
  bool owe(heddle_peer peer, std::uint64_t bytes);
  // Runs function(peer, source) for all sources that have sent something.
  template <class Function>
  void each_source(Function&& function) {
    for (std::uint32_t rank = 0; rank < bounds_.ranks; ++rank) {
      for (std::uint32_t worker = 0; sources_[rank] != nullptr && worker < bounds_.workers; ++worker) {
        function(heddle_peer{rank, worker}, &sources_[rank][worker]);
      }
    }
  }
  // Null: nothing has come from it.
  [[nodiscard]] Source* source(heddle_peer peer) {
    return sources_[peer.rank] == nullptr ? nullptr : &sources_[peer.rank][peer.worker];
  }
  static void granted(Source* source, std::uint64_t bytes) {
    source->held -= bytes;
    source->handled.fetch_sub(bytes, std::memory_order_relaxed);
  }

  // ---- any thread that may use the worker ----
  // stored(): messages that wait now. Relaxed: a thread that misses one looks again.
  void show(tap::DebugWorker& shown) const { shown.value("tasks", stored_); }
  [[nodiscard]] std::uint64_t stored() const { return stored_.load(std::memory_order_relaxed); }
  // The first; null: there is none. The caller runs its handler and says so by end().
  [[nodiscard]] Task* take();
  // `ran`: its handler has run. True: the credit that is due to its source should be granted.
  bool end(Task* task, bool ran);
  // Acquire; partner: the release in end(). The caller sees what the handlers did.
  [[nodiscard]] std::uint64_t ran() const { return ran_.load(std::memory_order_acquire); }
  [[nodiscard]] std::uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::size_t kSmallPayload = 256;  // of blocks that are used again
  static constexpr std::uint32_t kMostSpare = 256;   // of them that lie idle

  // Null: its rank or worker is out of range, or memory is exhausted.
  Source* source_of(heddle_peer peer);
  Task* allocate(std::uint64_t payload_bytes);
  Stored admit(heddle_peer peer, std::uint64_t charge, Source** source);
  void append(Task* task);
  static void destroy(Task* task);
  std::unique_lock<queue::FetchingMutex> lock() {
    return one_thread_ ? std::unique_lock<queue::FetchingMutex>() : std::unique_lock(mutex_);
  }

  const Bounds bounds_;
  const bool one_thread_;
  std::vector<std::unique_ptr<Source[]>> sources_;  // by rank, at its first message; inside only
  Task* unused_ = nullptr;                          // blocks for small messages; inside only

  queue::FetchingMutex mutex_;  // guards the lists
  Task* first_ = nullptr;
  Task* last_ = nullptr;
  Task* spare_ = nullptr;  // small ones that have ended
  // Written with the lock; hints for those without.
  std::atomic<std::uint32_t> spares_{0};
  std::atomic<std::uint64_t> stored_{0};
  // Numbers; relaxed, but for ran_.
  std::atomic<std::uint64_t> large_bytes_{0};
  std::atomic<std::uint64_t> ran_{0};
  std::atomic<std::uint64_t> dropped_{0};
};

}  // namespace heddle::protocol
