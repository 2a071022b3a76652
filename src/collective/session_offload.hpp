// By session queues of the interface (transport/session.hpp), if the schedule fits them: a counter
// and the queue that waits for it are one queue there, and what waits for nothing goes to the free
// queue. Everything is prepared in bind(); a start gives the interface the commands again.
// Persistent operations only: the queues are the operation's, and few.
#pragma once

#include <array>
#include <memory>
#include <span>

#include "collective/offload.hpp"
#include "collective/ways.hpp"
#include "transport/session.hpp"

namespace heddle::collective {

// What a member tells the others of its queues.
struct SessionKeys {
  // counters of an operation that others give to; three trees have so many
  static constexpr std::size_t kMost = 5;
  std::uint32_t queues = 0;
  std::uint32_t padding = 0;
  std::array<transport::SessionKey, kMost> by_counter{};
};

class SessionOffload final : public Offload {
 public:
  // Counters of an operation that fits: those that others give to come first, and further ones are
  // this rank's alone.
  static constexpr std::size_t kMostCounters = 11;

  // Segments that the interface's queues can hold, and a queue for each link where that pays.
  static void suit(const Plan& plan);
  // Null also: the schedule does not fit, or not so many queues are left.
  static std::unique_ptr<Runner> open(const Plan& plan, const Places& places);
  // The same for a schedule as it is, on the rank's receive buffer.
  static std::unique_ptr<SessionOffload> open(transport::SessionQueues* sessions, const Schedule& schedule,
                                              std::span<std::byte> receive);

  void tell(Rank member, Record* record) const override;
  base::Status bind(const Schedule& schedule, std::span<const Record> records) override;

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
