// Runs one rank's schedule by session queues of the network's interface, where there are any and the schedule fits them: a counter
// and the queue that waits for it are one queue there, and what waits for nothing goes to the free queue. Everything is prepared
// in bind(); start() gives the interface the commands again. Until the end nobody is needed: advance() only looks.
//
// The counterpart of SessionQueue, with the same words. start(), runs() and leave() are for one thread at a time; the others for any: one at a time is
// inside, under lock_. started_ - completed_ is 0 or 1.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "base/error.hpp"
#include "collective/schedule.hpp"
#include "queue/try_lock.hpp"
#include "transport/session.hpp"

namespace heddle::collective {

// What a member tells the others of its queues.
struct SessionKeys {
  static constexpr std::size_t kMost = 6;  // counters of an operation; three trees have so many
  std::uint32_t queues = 0;                // 0: this member has none, so nobody uses them
  std::uint32_t padding = 0;
  std::array<transport::SessionKey, kMost> by_counter{};
};

class Offload {
 public:
  // Queues for this schedule on the rank's receive buffer. Null: there is no such interface (`sessions` is null), the schedule
  // does not fit, or not so many queues are left.
  static std::unique_ptr<Offload> open(transport::SessionQueues* sessions, const Schedule& schedule,
                                       std::span<std::byte> receive);
  ~Offload() = default;  // see Session::~Session
  Offload(const Offload&) = delete;
  Offload& operator=(const Offload&) = delete;

  [[nodiscard]] const SessionKeys& keys() const { return keys_; }
  // `of_rank`: what the ranks have told.
  base::Status bind(const Schedule& schedule, std::span<const SessionKeys* const> of_rank);

  // Begins a run; the one before has ended.
  void start();
  // True: the run has ended.
  bool advance();
  // Acquire, partner: the release store in advance(): what has arrived is seen.
  [[nodiscard]] bool done() const {
    return completed_.load(std::memory_order_acquire) == started_.load(std::memory_order_relaxed);
  }
  // The run that is under way, and all that follow, end with this error. Any thread.
  void fail(base::Status status) { failure_.store(status, std::memory_order_relaxed); }
  [[nodiscard]] base::Status status() const { return failure_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t runs() const { return started_.load(std::memory_order_relaxed); }
  // Queues and registrations stay: members may still put here.
  void leave() { session_->leave(); }

 private:
  explicit Offload(std::unique_ptr<transport::Session> session) : session_(std::move(session)) {}

  std::unique_ptr<transport::Session> session_;
  SessionKeys keys_;
  std::array<std::uint32_t, SessionKeys::kMost> queue_of_counter_{};
  queue::TryLock<> lock_;  // guards session_ between bind() and leave()
  std::atomic<std::uint64_t> started_{0};
  std::atomic<std::uint64_t> completed_{0};
  // Relaxed: it orders nothing; the run's end, with release, follows it.
  std::atomic<base::Status> failure_{HEDDLE_DONE};
};

}  // namespace heddle::collective
