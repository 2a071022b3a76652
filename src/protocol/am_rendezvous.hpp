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
// has no more offers than operations; more are refused. Classes do not wait for each other.
//
// A waiting fetch goes on when the event happens that it waits for: the end of a fetch of its
// source, or of any fetch; the end of a large task (room_for_tasks). If it waits for a free
// operation, every progress tries again (Core::want_advance).
//
// Threads: eager() is for any thread; waiting() and the rest are for the thread inside the worker.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/completion.hpp"
#include "engine/operation.hpp"
#include "engine/region.hpp"
#include "transport/transport.hpp"
#include "wire/packet.hpp"

namespace heddle::engine {

class ActiveMessages;
struct Core;

class AmRendezvous {
 public:
  static constexpr std::uint64_t kWindow = std::uint64_t{4} << 20;
  // The most offers of one worker of a peer: it cannot have more operations
  // (HEDDLE_WORKER_OPERATIONS).
  static constexpr std::uint32_t kMostOffers = 65536;

  AmRendezvous(Core& core, ActiveMessages& messages);
  ~AmRendezvous();
  AmRendezvous(const AmRendezvous&) = delete;
  AmRendezvous& operator=(const AmRendezvous&) = delete;

  // ---- sending ----
  // The longest payload that is sent in parts.
  [[nodiscard]] std::uint64_t eager() const { return eager_; }
  // POSTED, AGAIN or an error.
  base::Status offer(heddle_peer target, const LongMessage& message, const Completion& completion);
  // An operation that offered its payload has ended.
  void ended(const Operation& operation);

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
  void refuse(heddle_peer from, std::uint64_t token, base::Status status, const char* why);
  void append(Source& source, Fetch* fetch);
  void take_first(Source& source, Class which);
  [[nodiscard]] bool admit(const Fetch& fetch);
  void leave(const Fetch& fetch);
  base::Status prepare(Fetch* fetch);
  bool start(Fetch* fetch);
  bool run(Source& source, Class which);
  void kick(Source& source, Class which);
  void drain(Class which);
  void settle(Source& source);
  void end(Fetch* fetch, base::Status status);
  void hand_on(Fetch* fetch);
  void drop_waiting(Source& source, base::Status status);
  template <class Function>
  void each_source(Function&& function);

  Core& core_;
  ActiveMessages& messages_;
  const std::uint64_t eager_;
  const std::uint64_t most_;  // bytes of class NETWORK under way
  const std::uint32_t max_workers_;
  std::unique_ptr<LentMemory[]> lent_;              // by operation; made with the first offer
  std::vector<std::unique_ptr<Source[]>> sources_;  // by rank, at its first offer
  std::array<Blocked, kClasses> blocked_;
  std::uint64_t fetching_ = 0;  // bytes of class NETWORK under way
  std::uint64_t waiting_ = 0;   // fetches
  bool starved_ = false;        // of operations
  bool unmet_ = false;          // of the card of a sender
  bool draining_ = false;       // the caller of start() handles ends that happen inside it
};

}  // namespace heddle::engine
