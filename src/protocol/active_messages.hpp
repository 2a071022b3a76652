// Active messages of a worker: large ones that are offered and fetched (AmRendezvous), and the
// protocol (ActiveMessages).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/core.hpp"
#include "engine/handlers.hpp"
#include "engine/objects.hpp"
#include "engine/operations.hpp"
#include "engine/protocol.hpp"
#include "protocol/credits.hpp"
#include "protocol/reassembly.hpp"
#include "protocol/tasks.hpp"
#include "protocol/way.hpp"
#include "tap/snapshot.hpp"
#include "transport/transport.hpp"
#include "wire/packet.hpp"

namespace heddle::protocol {

class ActiveMessages;

// Rendezvous of large active messages: the sender offers its memory instead of sending. The
// receiver fetches the payload with a get when it has room for it, runs or stores the message, and
// tells the sender that the memory is free again. See docs/decisions/0020.
//
// Life of a message. Sender: offer() takes an operation, lends the payload (Objects::lend), and
// posts the offer: what reaches the memory, with the message's header. The receiver's answer ends
// the operation. Receiver: an offer becomes a Fetch, which waits in the queue of its source and
// class for room, then becomes a get of this worker into a buffer of the library. When the get
// ends, the answer goes out, and the message is handled as one that came whole.
//
// Memory is bounded. From one worker of a peer, kWindow bytes or one message are under way at a
// time. From all workers together, HEDDLE_AM_REASSEMBLY_BYTES of class NETWORK are under way, and
// as much of class USER as the store of tasks has room for; a payload keeps that room until its
// handler has run. Other payloads wait at their senders: an offer costs only a Fetch here. A sender
// has no more offers than operations; more are rejected. Classes do not wait for each other.
//
// A waiting fetch goes on when the event happens that it waits for: the end of a fetch of its
// source, or of any fetch; the end of a large task (room_for_tasks). If it waits for a free
// operation, every progress tries again (Core::want_advance).
//
// Threads: limits() is for any thread; waiting() and the rest are for the thread inside the worker.
class AmRendezvous {
 public:
  static constexpr std::uint64_t kWindow = std::uint64_t{4} << 20;
  // The most offers of one worker of a peer: it cannot have more operations
  // (HEDDLE_WORKER_OPERATIONS).
  static constexpr std::uint32_t kMostOffers = 65536;

  AmRendezvous(engine::Core& core, ActiveMessages& messages);
  ~AmRendezvous();
  AmRendezvous(const AmRendezvous&) = delete;
  AmRendezvous& operator=(const AmRendezvous&) = delete;

  // ---- sending ----
  [[nodiscard]] const WayLimits& limits() const { return limits_; }
  // POSTED, AGAIN or an error.
  base::Status offer(heddle_peer target, const engine::LongMessage& message,
                     const engine::CallersCompletion& completion);
  // An operation that offered its payload has ended.
  void ended(const engine::Operation& operation);

  // ---- receiving ----
  void arrived(heddle_peer from, const wire::AmOffer& offer);
  // A large task has ended.
  void room_for_tasks();
  // As Protocol::advance(); *left is only ever set.
  bool advance(bool* left);
  // Core::failed has changed.
  void note_failures();
  // Drops all waiting fetches.
  void cancel_waiting();
  [[nodiscard]] std::uint64_t waiting() const { return waiting_; }

 private:
  enum Class : std::size_t { kNetwork, kUser, kClasses };
  struct Fetch;
  struct Queue {
    Fetch* first = nullptr;
    Fetch* last = nullptr;
    bool listed = false;  // in Blocked
  };
  // A worker that has sent offers.
  struct Source {
    std::array<Queue, kClasses> queues;
    std::array<Source*, kClasses> next{};  // in Blocked
    std::uint64_t fetching = 0;            // bytes under way
    std::uint32_t waiting = 0;             // in both queues
  };
  // Sources whose first fetch waits for room that all sources share, in order.
  struct Blocked {
    Source* first = nullptr;
    Source* last = nullptr;
  };

  static Class class_of(const Fetch& fetch);
  Source* source_of(heddle_peer peer);
  void reject(heddle_peer from, std::uint64_t token, base::Status status, const char* why);
  void append(Source& source, Fetch* fetch);
  void take_first(Source& source, Class which);
  [[nodiscard]] bool admit(const Fetch& fetch);
  void leave(const Fetch& fetch);
  base::Status prepare(Fetch* fetch);
  bool start(Fetch* fetch);
  bool run(Source& source, Class which);
  void kick(Source& source, Class which);
  void drain(Class which);
  void start_more(Source& source);
  void end(Fetch* fetch, base::Status status);
  void hand_on(Fetch* fetch);
  void drop_waiting(Source& source, base::Status status);
  template <class Function>
  void each_source(Function&& function);

  engine::Core& core_;
  ActiveMessages& messages_;
  const WayLimits limits_;
  const std::uint64_t most_;  // bytes of class NETWORK under way
  const std::uint32_t max_workers_;
  std::unique_ptr<engine::LentMemory[]> lent_;      // by operation; made with the first offer
  std::vector<std::unique_ptr<Source[]>> sources_;  // by rank, at its first offer
  std::array<Blocked, kClasses> blocked_;
  std::uint64_t fetching_ = 0;  // bytes of class NETWORK under way
  std::uint64_t waiting_ = 0;   // fetches
  bool starved_ = false;        // of operations
  bool unmet_ = false;          // of the card of a sender
  bool draining_ = false;       // the caller of start() handles ends that happen inside it
};

// Active messages of one worker: handlers of class NETWORK run here, messages of class USER are
// stored for heddle_run_tasks (decision 0012), long ones are put together from their parts, or
// fetched (decision 0020).
//
// Threads: any thread that may use the worker may call take_credit() and run_tasks(); all else is
// for the thread inside.
class ActiveMessages final : public engine::Protocol {
 public:
  explicit ActiveMessages(engine::Core& core);

  // ---- sending ----
  // Sends a long message of either class. Credit and offer are reserved.
  base::Status try_long(heddle_peer target, const engine::LongMessage& message,
                        const engine::CallersCompletion& completion);
  // True: the target fetches the payload of such a message; Operations::take_offer() comes first.
  [[nodiscard]] bool is_offered(std::uint64_t payload_bytes) const {
    return way_of(rendezvous_.limits(), payload_bytes, false) == Way::fetched;
  }
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
  void give_back(heddle_peer target, const engine::LongMessage& message);

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
  void report(engine::Findings& findings) const override;
  void ended(engine::Operation& operation) override;
  [[nodiscard]] Words words() const override { return {"large message", "waits for the answer of"}; }

 private:
  bool arrived_part(heddle_peer source, std::span<const std::byte> packet);
  void arrived_fragment(heddle_peer source, const wire::Fragment& fragment);
  bool arrived_user(heddle_peer source, std::uint32_t immediate, std::span<const std::byte> packet);
  void reject_task(heddle_peer source, Tasks::Stored stored);
  void grant(heddle_peer source, Tasks::Source* from);
  void owe_grants();
  [[nodiscard]] std::uint64_t charge(std::uint32_t header_bytes, std::uint64_t payload_bytes) const {
    return credit_charge(header_bytes, payload_bytes, credits_.window());
  }

  engine::Core& core_;
  Reassembly reassembly_;
  UserCredits credits_;
  Tasks tasks_;
  bool owes_grants_ = false;  // memory was exhausted when a grant was due
  // see unhandled(); relaxed: for reports
  std::atomic<std::uint32_t> unhandled_{tap::kNobody};
  AmRendezvous rendezvous_;  // uses most of the above
};

}  // namespace heddle::protocol
