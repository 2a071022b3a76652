// Session queues: commands that wait in the network's interface for what arrives, so that between
// the start of a run and its end no processor is needed. Optional: Transport::sessions(). The model
// is the session mode of Tofu2 and Tofu D.
//
// A Session is one rank's part in an operation of several ranks that is run again and again. It has
// queues of its own, which peers give credits to, and the free queue. A queue executes its commands
// in order, each for one credit; the commands of the free queue wait for nothing. A put adds its
// credits when its bytes are stored. Credits that come before their command, from a peer that is a
// run ahead, are kept. Per run a queue must get as many credits as it has commands: what is left
// over would release commands of the next run too early, and the Session cannot know.
//
// Puts of one queue to one queue are stored in order, and a put reads its source when it is
// released, so that it passes on what has released it. Peers that have died are not noticed: who
// waits has to look for that itself.
//
// Threads: SessionQueues' functions may be called by any thread; those of a Session by one thread
// at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/error.hpp"

namespace heddle::transport {

inline constexpr std::size_t kSessionKeyBytes = 40;

// What a peer needs to put to a queue's memory and to give it credits. Carried as bytes; hostile.
struct SessionKey {
  std::array<std::byte, kSessionKeyBytes> bytes{};
};

struct SessionCommand {
  static constexpr std::uint32_t kFreeQueue = ~std::uint32_t{0};
  std::uint32_t queue = 0;
  // put: to which queue, of any rank; null: nothing but to use up a credit
  const SessionKey* target = nullptr;
  std::uint64_t source = 0;       // put: offset in the memory of this Session
  std::uint64_t destination = 0;  // put: offset in that of the target's
  // put: at most SessionQueues::Limits::bytes; 0: credits alone
  std::uint64_t bytes = 0;
  std::uint32_t credits = 0;  // put: at most SessionQueues::Limits::credits
};

class Session {
 public:
  Session() = default;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  // The last run has ended well and no peer will begin another (credits are balanced, so nothing is
  // on its way here); or nothing was ever started; or leave() was called.
  virtual ~Session() = default;

  [[nodiscard]] virtual SessionKey key(std::uint32_t queue) const = 0;

  // Once: the commands of a run, those of one queue in their order. PROTOCOL: a target is no key.
  // RANGE: a command leaves the memory here or there, or is beyond the limits.
  [[nodiscard]] virtual base::Status bind(std::span<const SessionCommand> commands) = 0;

  // Begins a run; the one before has ended. From here on peers may put into the memory. Allocates
  // nothing, waits for no peer.
  virtual void start() = 0;
  // DONE: all commands of the run are executed, so what the credits announced is in the memory, and
  // what was put may be overwritten here. AGAIN. Else the error with which the run has failed: no
  // further run may be started. Within what the interface takes at once, which Limits::commands
  // should say, a run needs no call of it; beyond, each call may bring commands to it.
  [[nodiscard]] virtual base::Status poll() = 0;

  // It ends although a run has not: the interface may still use queues and memory, so they stay
  // known to it to the end of the process.
  virtual void leave() = 0;
};

class SessionQueues {
 public:
  SessionQueues() = default;
  SessionQueues(const SessionQueues&) = delete;
  SessionQueues& operator=(const SessionQueues&) = delete;
  virtual ~SessionQueues() = default;  // after all Sessions

  struct Limits {
    // Of one queue in one run, as the rank was told of its interface: more are taken, but see
    // Session::poll().
    std::uint32_t commands = 0;
    std::uint32_t credits = 0;  // of one put
    std::uint64_t bytes = 0;    // of one put
    // Of an operation: from so many on it pays to have a queue for each link, where one will do.
    std::uint64_t spread_bytes = kNever;
    static constexpr std::uint64_t kNever = ~std::uint64_t{0};
  };
  [[nodiscard]] virtual Limits limits() const = 0;

  // As many queues as `links` has elements, for puts out of and into this memory of the caller's
  // (may be empty), which stays until the Session is gone. An element is the number of the link
  // that the queue's puts leave by, or kAnyLink: queues of different links are as a rule on
  // different engines of the interface. NO_MEMORY: not so many queues are left; none is taken.
  static constexpr std::uint32_t kAnyLink = ~std::uint32_t{0};
  [[nodiscard]] virtual base::Result<std::unique_ptr<Session>> open(std::span<const std::uint32_t> links,
                                                                    std::span<std::byte> memory) = 0;
};

}  // namespace heddle::transport
