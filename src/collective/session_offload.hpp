// Runs a schedule on session queues of the interface (transport/session.hpp), if it fits them. A
// counter and the queue that waits for it become one queue there; commands that wait for nothing go
// to the free queue. bind() prepares everything; a start hands the commands to the interface again.
// Only for persistent operations: the queues are few and belong to the operation.
#pragma once

#include <array>
#include <memory>
#include <span>

#include "collective/runner.hpp"
#include "transport/session.hpp"

namespace heddle::collective {

// A member's record for the others about its queues.
struct SessionKeys {
  // most counters of an operation that others give to; three trees have that many
  static constexpr std::size_t kMost = 5;
  std::uint32_t queues = 0;
  std::uint32_t padding = 0;
  std::array<transport::SessionKey, kMost> by_counter{};
};

class SessionOffload final : public Offload {
 public:
  // Most counters of an operation that fits: first those that others give to, then those that only
  // this rank gives to.
  static constexpr std::size_t kMostCounters = 11;

  // Chooses segments that the interface's queues can hold, and a queue per link where that pays.
  static void suit(const Plan& plan);
  // Null: no interface, or the schedule does not fit, or too few queues are free.
  static std::unique_ptr<Runner> open(const Plan& plan, const Places& places);
  // The same for a schedule as it is, on the rank's receive buffer.
  static std::unique_ptr<SessionOffload> open(transport::SessionQueues* sessions, const Schedule& schedule,
                                              std::span<std::byte> receive);

  void tell(Rank member, SetupRecord* record) const override;
  base::Status bind(const Schedule& schedule, std::span<const SetupRecord> records) override;

 private:
  explicit SessionOffload(std::unique_ptr<transport::Session> session) : session_(std::move(session)) {}
  void begin_run() override { session_->start(); }
  base::Status look() override { return session_->poll(); }
  void leave() override { session_->leave(); }

  std::unique_ptr<transport::Session> session_;
  SessionKeys keys_;
  std::array<std::uint32_t, kMostCounters> queue_of_counter_{};
};

}  // namespace heddle::collective
