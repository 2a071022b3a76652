// A protocol of the engine: handles messages of one kind on the wire, and the operations that it
// begins for them. The completer hands it the arrivals; progress, failures and closing reach it
// here.
//
// To add one: a class in a file of its own and its row in worker/worker.cpp. Messages that only
// answer a peer are posted with token 0, so that no flush waits for them.
//
// All of it is for the thread inside the worker.
#pragma once

#include <cstdint>
#include <span>

#include "base/error.hpp"
#include "engine/operations.hpp"
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

  // A message of its kind: header, padded to 8 bytes, and payload. A hostile peer may have written
  // them. They stay valid until this returns. False: the message is not well formed; the completer
  // drops it.
  [[nodiscard]] virtual bool arrived(heddle_peer source, std::uint32_t immediate,
                                     std::span<const std::byte> packet) = 0;
  // The same for several arrivals in one call: takes those at the front that are of its common
  // kind, and returns how many it took. 0: the first one comes by arrived(), as do all arrivals
  // that the kind alone does not identify.
  [[nodiscard]] virtual std::size_t deliver(std::span<const transport::Completion> arrivals) {
    static_cast<void>(arrivals);
    return 0;
  }
  // Called after Core::want_advance(), for work that could not be done at once. If it sets *more,
  // it is called again. True: something has moved.
  virtual bool advance(bool* more) {
    static_cast<void>(more);
    return false;
  }
  // Core::failed has changed: operations that wait for those ranks end.
  virtual void note_failures() {}
  // The worker ends: begin_cancel() before its operations end with CANCELLED, so that nothing new
  // begins, and cancel() after. Both may be called again.
  virtual void begin_cancel() {}
  virtual void cancel(base::Status status) { static_cast<void>(status); }
  // Tells what it has under way, except operations with a slot.
  virtual void report(Findings& findings) const { static_cast<void>(findings); }
};

}  // namespace heddle::engine
