// A protocol of the engine: what becomes of messages of one kind on the wire, and of the operations
// that it begins for them. The completer hands it what has arrived; progress, failures and closing
// reach it here.
//
// To add one: a class in a file of its own and its row in worker/protocols.cpp. What only answers a
// peer is posted with token 0, so that nobody's flush waits for it.
//
// All of it is for the thread inside the worker.
#pragma once

#include <cstdint>
#include <span>

#include "base/error.hpp"
#include "engine/operation.hpp"
#include "heddle/heddle.h"
#include "transport/transport.hpp"

namespace heddle::engine {

class Findings;

class Protocol : public OperationOwner {
 public:
  Protocol() = default;
  Protocol(const Protocol&) = delete;
  Protocol& operator=(const Protocol&) = delete;
  virtual ~Protocol() = default;

  // A message of its kind: header, padded to 8 bytes, and payload, as hostile as a peer may be.
  // They stay until this returns. False: it is not well formed; the completer drops it.
  [[nodiscard]] virtual bool arrived(heddle_peer source, std::uint32_t immediate,
                                     std::span<const std::byte> packet) = 0;
  // The same for those at the front that are of its common kind, at once: how many it took. 0: the
  // first comes by arrived(), as all do that are not told by their kind alone.
  [[nodiscard]] virtual std::size_t deliver(std::span<const transport::Completion> arrivals) {
    static_cast<void>(arrivals);
    return 0;
  }
  // After Core::want_advance(): what could not be done at once. *more is set: call again. True:
  // something has moved.
  virtual bool advance(bool* more) {
    static_cast<void>(more);
    return false;
  }
  // Core::failed has changed: what waits for those ranks ends.
  virtual void note_failures() {}
  // The worker ends: begin_cancel() before its operations end with CANCELLED, so that nothing new
  // begins, and cancel() after. Both may be called again.
  virtual void begin_cancel() {}
  virtual void cancel(base::Status status) { static_cast<void>(status); }
  // Tells what it has under way, but for operations with a slot.
  virtual void report(Findings& findings) const { static_cast<void>(findings); }
};

}  // namespace heddle::engine
