// Large active messages that are not sent: the sender offers its memory, and the receiver fetches
// the payload with a get when it has room for it, runs or stores the message, and tells the sender
// that its memory is its own again. See docs/decisions/0020.
//
// Life of a message. Sender: offer() takes an operation, lends the payload (Objects::lend), and
// posts the offer: what reaches the memory, with the message's header. The operation ends by the
// receiver's answer. Receiver: an offer becomes a Fetch, which waits in the queue of its source and
// class for room, then becomes a get of this worker into a buffer of the library; with its end the
// answer goes out, and the message is handed on as one that came whole.
//
// Memory is bounded. Under way from one worker of a peer are kWindow bytes at a time, or one
// message; from all together HEDDLE_AM_REASSEMBLY_BYTES of class NETWORK, and of class USER what
// the store of tasks has room for, which a payload keeps until its handler has run. What is beyond
// that waits at its sender: an offer here costs a Fetch, and there are no more of them than the
// sender has operations; more are refused. Classes do not wait for each other.
//
// Waiting moves on when what it waits for happens: a fetch of the source, or any, has ended; a
// large task has (room_for_tasks); for a free operation, at every progress (Core::want_advance).
//
// Threads: waiting() and the rest: the thread inside the worker. eager(): any.
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
  // Of one worker of a peer: it cannot have more operations (HEDDLE_WORKER_OPERATIONS).
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
  // Of an operation that offered its payload: it has ended.
  void ended(const Operation& operation);

  // ---- receiving ----
  void arrived(heddle_peer from, const wire::AmOffer& offer);
  // A large task has ended.
  void room_for_tasks();
  // As Protocol::advance(); *left is only ever set.
  bool advance(bool* left);
  // Core::failed has changed.
  void note_failures();
  // Nothing that waits will be fetched.
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
  // Sources whose first fetch waits for what all share, in order.
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
  bool draining_ = false;       // an end that is met in start() is seen to by who called that
};

}  // namespace heddle::engine
