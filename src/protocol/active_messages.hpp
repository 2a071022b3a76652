// Active messages of one worker: handlers of class NETWORK run here, messages of class USER are
// stored for heddle_run_tasks (decision 0012), long ones are put together from their parts, or
// fetched (decision 0020).
//
// Threads: any thread that may use the worker may call take_credit() and run_tasks(); all else is
// for the thread inside.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "engine/core.hpp"
#include "engine/handler.hpp"
#include "engine/protocol.hpp"
#include "protocol/am_rendezvous.hpp"
#include "protocol/reassembly.hpp"
#include "protocol/tasks.hpp"
#include "protocol/user_credits.hpp"
#include "tap/snapshot.hpp"
#include "wire/packet.hpp"

namespace heddle::engine {

class ActiveMessages final : public Protocol {
 public:
  explicit ActiveMessages(Core& core);

  // ---- sending ----
  // Sends a long message of either class. Credit and offer are reserved.
  base::Status try_long(heddle_peer target, const LongMessage& message, const Completion& completion);
  // True: the target fetches the payload of such a message; Operations::take_offer() comes first.
  [[nodiscard]] bool is_offered(std::uint64_t payload_bytes) const { return payload_bytes > rendezvous_.eager(); }
  // Credit for a message of class USER. False: its target must handle some first.
  [[nodiscard]] bool take_credit(heddle_peer target, std::uint32_t header_bytes, std::uint64_t payload_bytes) {
    return credits_.take(target, charge(header_bytes, payload_bytes));
  }
  // Gives back the credit of a message that did not leave.
  void give_credit_back(heddle_peer target, std::uint32_t header_bytes, std::uint64_t payload_bytes) {
    credits_.give_back(target, charge(header_bytes, payload_bytes));
  }
  [[nodiscard]] std::uint64_t credit_used(heddle_peer target) const { return credits_.used(target); }
  // Gives back what was reserved for a message that did not leave.
  void give_back(heddle_peer target, const LongMessage& message);

  // ---- arrivals ----
  // The common ones: small messages of class NETWORK, well formed, with a handler.
  [[nodiscard]] std::size_t deliver(std::span<const transport::Completion> arrivals) override;
  [[nodiscard]] bool arrived(heddle_peer source, std::uint32_t immediate, std::span<const std::byte> packet) override;
  void run_handler(heddle_peer source, const wire::ActiveMessage& message, std::uint64_t payload_bytes);
  // A message of class USER that is here as a whole.
  void store_long(heddle_peer source, Reassembly::Message* whole, Tasks::Room room);

  // ---- USER messages ----
  [[nodiscard]] Tasks& tasks() { return tasks_; }
  [[nodiscard]] const Tasks& tasks() const { return tasks_; }
  // The handler number of the last message that was dropped because it had no handler;
  // tap::kNobody: there was none. For both classes; any thread.
  [[nodiscard]] std::uint32_t unhandled() const { return unhandled_.load(std::memory_order_relaxed); }
  // Runs the handler. True: the caller must call ended_task(), which tells the source, and the
  // messages that wait for the room of a long one.
  struct EndedTask {
    heddle_peer peer;
    Tasks::Source* source;
    bool large;
    bool handled;  // a handler has run
  };
  bool run_task(heddle_worker handle, Tasks::Task* task, EndedTask* ended);
  void ended_task(const EndedTask& task);

  // ---- Protocol ----
  bool advance(bool* more) override;
  void note_failures() override;
  void begin_cancel() override { rendezvous_.cancel_waiting(); }
  void report(Findings& findings) const override;
  void ended(Operation& operation) override;
  [[nodiscard]] Words words() const override { return {"large message", "waits for the answer of"}; }

 private:
  bool arrived_part(heddle_peer source, std::span<const std::byte> packet);
  void arrived_fragment(heddle_peer source, const wire::Fragment& fragment);
  bool arrived_user(heddle_peer source, std::uint32_t immediate, std::span<const std::byte> packet);
  void refuse_task(heddle_peer source, Tasks::Stored stored);
  void grant(heddle_peer source, Tasks::Source* from);
  void owe_grants();
  [[nodiscard]] std::uint64_t charge(std::uint32_t header_bytes, std::uint64_t payload_bytes) const {
    return credit_charge(header_bytes, payload_bytes, credits_.window());
  }

  Core& core_;
  Reassembly reassembly_;
  UserCredits credits_;
  Tasks tasks_;
  bool owes_grants_ = false;  // memory was exhausted when a grant was due
  // see unhandled(); relaxed: for reports
  std::atomic<std::uint32_t> unhandled_{tap::kNobody};
  AmRendezvous rendezvous_;  // uses most of the above
};

}  // namespace heddle::engine
