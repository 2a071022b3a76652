// Connections that do not work any more: ranks that are not reached (Losses), attempts that were in
// vain (Patience), TCP connections that are silent for too long (Silence).
#pragma once

#include <netinet/tcp.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "bootstrap/bootstrap.hpp"

namespace heddle::transport::network {

// Which ranks are not reached any more: connections to them broke, or could not be made. Any
// thread.
class Losses {
 public:
  explicit Losses(bootstrap::Bootstrap& bootstrap)
      : bootstrap_(bootstrap), unreachable_(bootstrap.size()), lost_(bootstrap.size()), stage_(bootstrap.size()) {}

  // A connection to the rank is lost; only the first time counts.
  void lose(std::uint32_t rank) {
    std::uint32_t not_yet = 0;
    if (lost_[rank].load(std::memory_order_relaxed) != 0) return;
    lost_[rank].compare_exchange_strong(not_yet, count_.fetch_add(1, std::memory_order_relaxed) + 1,
                                        std::memory_order_relaxed);
  }
  // The connection between the device workers is lost. True: it was lost before.
  bool lose_device(std::uint32_t rank) {
    if (unreachable_[rank].exchange(true, std::memory_order_relaxed)) return true;
    lose(rank);
    return false;
  }
  // The rank has died or left, or its device worker cannot be reached any more.
  [[nodiscard]] bool failed(std::uint32_t rank) const {
    return bootstrap_.failed(rank) || unreachable_[rank].load(std::memory_order_relaxed);
  }
  // See Transport::lost() and disconnected().
  [[nodiscard]] std::uint32_t lost(std::uint32_t rank) const { return lost_[rank].load(std::memory_order_relaxed); }
  [[nodiscard]] bool disconnected(std::uint32_t rank) const {
    return stage_[rank].load(std::memory_order_acquire) == Stage::disconnected;
  }

  // By the helper, from time to time: takes for failed each rank that was lost already at the last
  // call and has not died or left by now. A rank that leaves or dies loses its connections too, but
  // the bootstrap reports that, sooner or later.
  void disconnect_lost(const base::Log& log) {
    if (count_.load(std::memory_order_relaxed) == 0) return;
    bool some = false;
    for (std::uint32_t rank = 0; rank < lost_.size(); ++rank) {
      const Stage before = stage_[rank].load(std::memory_order_relaxed);
      if (lost(rank) == 0 || before == Stage::disconnected || bootstrap_.failed(rank)) continue;
      stage_[rank].store(before == Stage::none ? Stage::seen : Stage::disconnected, std::memory_order_release);
      if (before == Stage::none) continue;
      some = true;
      log.line(base::Level::warn, "rank %u is not reached any more: what waits for it ends with PEER_FAILED", rank);
    }
    if (some) bootstrap_.note_disconnected();
  }

 private:
  enum class Stage : std::uint8_t { none, seen, disconnected };

  bootstrap::Bootstrap& bootstrap_;
  std::vector<std::atomic<bool>> unreachable_;  // relaxed: nothing is read by it
  // the value of count_ when the rank was lost; 0: it is not. Relaxed
  std::vector<std::atomic<std::uint32_t>> lost_;
  std::atomic<std::uint32_t> count_{0};  // losses so far, for their order. Relaxed
  // written by the helper (release), read by workers (acquire)
  std::vector<std::atomic<Stage>> stage_;
};

// For how long something was tried in vain. Only time during which it was tried counts: a process
// that is stopped, often with its whole job, has tried nothing, and when it goes on its peers have
// had no time to answer.
//
// For one thread at a time.
class Patience {
 public:
  // It has gone well, or something new is tried.
  void renew() { tried_at_ns_ = 0; }
  // It was tried in vain once more. True: it was tried in vain for `most_ns`; a pause between two
  // tries counts for at most a third of that.
  [[nodiscard]] bool over(std::uint64_t now_ns, std::uint64_t most_ns) {
    spent_ns_ = tried_at_ns_ == 0 ? 0 : spent_ns_ + std::min(now_ns - tried_at_ns_, most_ns / 3);
    tried_at_ns_ = now_ns;
    return spent_ns_ >= most_ns;
  }

 private:
  std::uint64_t tried_at_ns_ = 0;  // 0: not yet
  std::uint64_t spent_ns_ = 0;
};

// Limits how long a library's TCP connections may be silent. The kernel retransmits what nobody
// acknowledges for a quarter of an hour, and neither UCX 1.13 nor libfabric has a setting for that.
// So we find the sockets behind the descriptors on which their workers sleep, and ask the kernel
// about each.

// Nothing has arrived from the other end's kernel for `ns`, although it was asked repeatedly for at
// least half of that time: with retransmissions, or with probes, which it did not answer. A process
// that is stopped, or reads nothing, is not silent: its kernel answers. Up to kMostSilence. `asks`:
// keepalive is on, and was so at an earlier check, so the connection sends probes while it is idle.
bool silent_for(const tcp_info& about, bool asks, std::uint64_t ns);
// the kernel reports in ms, and retransmits after 200
inline constexpr std::uint64_t kLeastSilence = 1'000'000'000;
inline constexpr std::uint64_t kMostSilence = 240'000'000'000;  // the kernel's pauses grow to 120 s

// Checks connections, a bounded number at a time: each costs seven system calls. One thread at a
// time.
class Silence {
 public:
  // A connection that is silent for `ns` (HEDDLE_NETWORK_TIMEOUT) is shut down; `log` is told of
  // each.
  Silence(std::uint64_t ns, const base::Log& log) : ns_(ns), log_(log) {}

  [[nodiscard]] std::uint64_t limit() const { return ns_; }
  // Finds the sockets that `descriptor`, an epoll, watches, directly or through epolls that it
  // watches: look() checks them next. A few system calls for each of these epolls. Sockets that
  // cannot be found (no memory, no descriptor left, no /proc) are not checked.
  void gather(int descriptor);
  // Checks up to `most` of the gathered sockets, and shuts down the TCP connections that are
  // silent: the library finds them closed. Turns keepalive on, with times that are no longer than
  // that, so that idle connections send probes too. A descriptor that is another file's by now is
  // left alone. Returns how many were shut down.
  std::size_t look(std::size_t most);
  // Nothing is left to check.
  [[nodiscard]] bool done() const { return found_.empty(); }

 private:
  // A descriptor, and the file that it named when it was found.
  struct Watched {
    int descriptor;
    unsigned long long file;
  };
  static void add_watched_by(int descriptor, std::vector<Watched>* to);
  static base::Fd copy_of(const Watched& one, struct stat* about);

  const std::uint64_t ns_;
  const base::Log log_;
  std::vector<Watched> found_;
};

}  // namespace heddle::transport::network
