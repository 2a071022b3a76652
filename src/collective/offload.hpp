// Runs one rank's part in an operation by the network's interface: until the end nobody is needed, advance() only looks. What of the
// interface does it, a derived class says: session queues here, barrier gates in gate_offload.hpp.
//
// Members decide together. Each opens what it needs, tells the others in its record, and uses it if all members have theirs; bind()
// then connects them. Nobody starts before all have bound.
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

struct Record;

class Offload {
 public:
  Offload() = default;
  virtual ~Offload() = default;  // see Session::~Session, GateChain::~GateChain
  Offload(const Offload&) = delete;
  Offload& operator=(const Offload&) = delete;

  // Puts into the record for this member what it has to know.
  virtual void tell(Rank member, Record* record) const = 0;
  // Whether all members have what it takes, by what all have told: the same answer at all of them.
  [[nodiscard]] virtual bool agreed(std::span<const Record> records) const = 0;
  virtual base::Status bind(const Schedule& schedule, std::span<const Record> records) = 0;

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
  // What the interface has been given stays with it: members may still reach it.
  virtual void leave() = 0;

 private:
  // Within lock_. begin(): may fail(). look(): DONE, AGAIN, or how the run has failed.
  virtual void begin() = 0;
  virtual base::Status look() = 0;

  queue::TryLock<> lock_;  // guards what begin() and look() use, between bind() and leave()
  std::atomic<std::uint64_t> started_{0};
  std::atomic<std::uint64_t> completed_{0};
  // Relaxed: it orders nothing; the run's end, with release, follows it.
  std::atomic<base::Status> failure_{HEDDLE_DONE};
};

// What a member tells the others of its session queues.
struct SessionKeys {
  static constexpr std::size_t kMost = 5;  // counters of an operation that others give to; three trees have so many
  std::uint32_t queues = 0;                // 0: this member has none, so nobody uses them
  std::uint32_t padding = 0;
  std::array<transport::SessionKey, kMost> by_counter{};
};

// By session queues, if the schedule fits them: a counter and the queue that waits for it are one queue there, and what waits for
// nothing goes to the free queue. Everything is prepared in bind(); start() gives the interface the commands again.
class SessionOffload final : public Offload {
 public:
  // Counters of an operation that fits: those that others give to come first, and further ones are this rank's alone.
  static constexpr std::size_t kMostCounters = 11;

  // Queues for this schedule on the rank's receive buffer. Null: there is no such interface (`sessions` is null), the schedule
  // does not fit, or not so many queues are left.
  static std::unique_ptr<SessionOffload> open(transport::SessionQueues* sessions, const Schedule& schedule,
                                              std::span<std::byte> receive);

  void tell(Rank member, Record* record) const override;
  [[nodiscard]] bool agreed(std::span<const Record> records) const override;
  base::Status bind(const Schedule& schedule, std::span<const Record> records) override;
  void leave() override { session_->leave(); }

 private:
  explicit SessionOffload(std::unique_ptr<transport::Session> session) : session_(std::move(session)) {}
  void begin() override { session_->start(); }
  base::Status look() override { return session_->poll(); }

  std::unique_ptr<transport::Session> session_;
  SessionKeys keys_;
  std::array<std::uint32_t, kMostCounters> queue_of_counter_{};
};

}  // namespace heddle::collective
