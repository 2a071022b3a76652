// Session queues: commands that wait in the network's interface for arriving data, so that a run
// needs no processor between its start and its end. Optional: Transport::sessions(). The model is
// the session mode of Tofu2 and Tofu D.
//
// A Session is one rank's part in an operation of several ranks that is run again and again. It has
// queues of its own, to which peers give credits, and the free queue. A queue executes its commands
// in order, each for one credit; the commands of the free queue wait for nothing. A put adds its
// credits when its bytes are stored. Credits that come before their command, from a peer that is a
// run ahead, are kept. Per run a queue must get as many credits as it has commands: surplus credits
// would release commands of the next run too early, and the Session cannot detect that.
//
// Puts of one queue to one queue are stored in order, and a put reads its source when it is
// released, so that it passes on the data that released it. A Session does not notice that a peer
// has died: a caller that waits must check that itself.
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

// The key with which a peer puts to a queue's memory and gives it credits. Carried as bytes;
// hostile.
struct SessionKey {
  std::array<std::byte, kSessionKeyBytes> bytes{};
};

struct SessionCommand {
  static constexpr std::uint32_t kFreeQueue = ~std::uint32_t{0};
  std::uint32_t queue = 0;
  // put: to which queue, of any rank; null: no put, only uses up a credit
  const SessionKey* target = nullptr;
  std::uint64_t source = 0;       // put: offset in the memory of this Session
  std::uint64_t destination = 0;  // put: offset in the target's memory
  // put: at most SessionQueues::Limits::bytes; 0: only credits
  std::uint64_t bytes = 0;
  std::uint32_t credits = 0;  // put: at most SessionQueues::Limits::credits
};

class Session {
 public:
  Session() = default;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  // Only if the last run has completed well and no peer will start another (credits are balanced,
  // so nothing is on its way here); or no run was ever started; or leave() was called.
  virtual ~Session() = default;

  [[nodiscard]] virtual SessionKey key(std::uint32_t queue) const = 0;

  // Once: the commands of a run, those of one queue in their order. PROTOCOL: a target is no valid
  // key. RANGE: a command goes beyond the memory here or at the target, or beyond the limits.
  [[nodiscard]] virtual base::Status bind(std::span<const SessionCommand> commands) = 0;

  // Starts a run; the previous one has completed. From here on peers may put into the memory.
  // Allocates nothing, waits for no peer.
  virtual void start() = 0;
  // DONE: all commands of the run are executed, so the data that the credits announced is in the
  // memory, and the sources of the puts may be overwritten. AGAIN: not yet. Else the error with
  // which the run has failed: no further run may be started. A run whose commands the interface
  // takes at once (Limits::commands should say how many) needs no call of poll(); a longer run may
  // need calls, each of which may hand more commands to the interface.
  [[nodiscard]] virtual base::Status poll() = 0;

  // Before the destructor, if a run has not completed: the interface may still use queues and
  // memory, so they stay known to it until the process ends.
  virtual void leave() = 0;
};

class SessionQueues {
 public:
  SessionQueues() = default;
  SessionQueues(const SessionQueues&) = delete;
  SessionQueues& operator=(const SessionQueues&) = delete;
  virtual ~SessionQueues() = default;  // after all Sessions

  struct Limits {
    // Commands of one queue in one run, as the settings describe the interface. More are accepted,
    // but see Session::poll().
    std::uint32_t commands = 0;
    std::uint32_t credits = 0;  // of one put
    std::uint64_t bytes = 0;    // of one put
    // From this size of an operation on, one queue for each link pays, even if one queue would
    // suffice.
    std::uint64_t spread_bytes = kNever;
    static constexpr std::uint64_t kNever = ~std::uint64_t{0};
  };
  [[nodiscard]] virtual Limits limits() const = 0;

  // As many queues as `links` has elements, for puts out of and into this memory of the caller's
  // (may be empty), which stays until the Session is destroyed. An element is the number of the
  // link that the queue's puts leave by, or kAnyLink: queues of different links are as a rule on
  // different engines of the interface. NO_MEMORY: not so many queues are left; none is taken.
  static constexpr std::uint32_t kAnyLink = ~std::uint32_t{0};
  [[nodiscard]] virtual base::Result<std::unique_ptr<Session>> open(std::span<const std::uint32_t> links,
                                                                    std::span<std::byte> memory) = 0;
};

}  // namespace heddle::transport
