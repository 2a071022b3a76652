// The engine's threads that make progress on the application's workers, as the policy says, and the list of the workers that
// may be helped: those with a gate.
//
// A visit to a worker: if its owner has been outside for a while, or comes and goes without making progress itself, enter by
// the gate (a busy worker is skipped, never waited for, but for that one), make progress until nothing comes, then arm it. An armed worker is left alone, so that its owner's core is not
// disturbed by barriers, until something arrives for it, which rings the transport's bell. When all are armed, the policy
// decides: look at the bell (dedicated, idle), or sleep on it (adaptive). A worker whose owner is at work, or with something
// under way that only polling moves on, is looked at again after a nap that grows.
//
// Locks: mutex_ guards the list only and is never held during a visit. remove() waits until nobody visits the worker.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "engine/progress/policy.hpp"
#include "transport/transport.hpp"

namespace heddle::engine {

class Worker;

class Helpers {
 public:
  Helpers(Policy policy, transport::Transport& transport, base::Clock& clock)
      : policy_(policy), transport_(transport), clock_(clock) {}
  ~Helpers() { stop(); }
  Helpers(const Helpers&) = delete;
  Helpers& operator=(const Helpers&) = delete;

  [[nodiscard]] const Policy& policy() const { return policy_; }

  // The worker has a gate. Starts the threads with the first one; throws std::system_error if there can be none.
  void add(Worker* worker);
  // Afterwards nobody visits it. Not from inside its handlers.
  void remove(const Worker* worker);
  // Ends the threads; the workers stay in the list.
  void stop();

  // Progress on every worker that is not busy, by the calling thread, at once: number of events.
  int advance_all();

  // A number that changes whenever a helper has gone round: one that does so has a core. Relaxed: a hint.
  [[nodiscard]] std::uint64_t rounds() const { return rounds_.load(std::memory_order_relaxed); }

  // ---- for the gates: what the application leaves under way on its way out may need a helper that sleeps ----
  [[nodiscard]] bool asleep() const { return asleep_.load(std::memory_order_relaxed) != 0; }
  void wake() {
    if (asleep_.exchange(0, std::memory_order_relaxed) != 0) transport_.ring();
  }

 private:
  // A worker, and what the visitors know about it. Atomics are relaxed: hints, which order nothing.
  struct Entry {
    explicit Entry(Worker* of) : worker(of) {}
    Worker* worker;
    int visitors = 0;                               // guarded by mutex_
    std::atomic<std::uint64_t> entries{0};          // of the application's threads, when last looked at
    std::atomic<std::uint64_t> unchanged_since{0};  // ns
    std::atomic<std::uint64_t> polls{0};            // of the application's threads, when last looked at
    std::atomic<std::uint64_t> advanced_at{0};      // ns: by them, or by a visit
    std::atomic<std::uint64_t> refused_since{0};  // ns: visits have found somebody there since; 0: the last one has not
    std::atomic<std::uint64_t> epoch{0};          // of failures, at the last visit
    std::atomic<std::uint64_t> registered{0};     // messages, at the last visit
    std::atomic<std::uint64_t> not_before{0};     // ns: unless it is rung for
    std::atomic<std::uint64_t> backoff{0};        // ns
    std::atomic<bool> was_armed{false};           // after the last visit
    std::atomic<bool> quiet{false};               // the last visit left it armed, and nothing under way
  };
  enum class Found : std::uint8_t { nothing, later, events };

  std::shared_ptr<Entry> take(std::size_t index);
  void give_back(Entry& entry);
  enum class Owner : std::uint8_t { outside, active, neglectful };
  Found visit(Entry& entry, std::uint32_t number);
  [[nodiscard]] static Owner look_at_owner(Entry& entry, std::uint64_t now);
  Found sweep(std::uint32_t number);
  [[nodiscard]] bool unchanged(const Entry& entry) const;
  [[nodiscard]] bool all_unchanged();
  void sleep(std::uint32_t seen);
  void start();
  void run(int core);
  void settle_down(int core) const;
  void pause(Found found, std::uint32_t seen, std::int64_t* nap_ns, std::uint64_t* quiet_since);

  const Policy policy_;
  transport::Transport& transport_;
  base::Clock& clock_;
  std::mutex mutex_;
  std::condition_variable left_;  // a visitor has left
  std::vector<std::shared_ptr<Entry>> entries_;
  // 1: a helper sleeps, or is about to. Partner: the barrier in sleep().
  std::atomic<std::uint32_t> asleep_{0};
  std::atomic<std::uint64_t> rounds_{0};
  std::atomic<bool> stop_{false};  // relaxed: ring() and join() order it
  std::vector<std::thread> threads_;
};

}  // namespace heddle::engine
