// What rooms above the worker add to it: state of a context (Attachment), and a protocol of every
// worker (OpenExtension). Also the table of protocols that the worker does not call by name.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/protocol.hpp"
#include "tap/snapshot.hpp"

namespace heddle::worker {

// State that a room above the engine keeps with a context. It ends with the context's state, and
// whoever makes progress on the context moves it on. The engine knows no more about it.
class Attachment {
 public:
  Attachment() = default;
  Attachment(const Attachment&) = delete;
  Attachment& operator=(const Attachment&) = delete;
  virtual ~Attachment() = default;

  enum class Found : std::uint8_t {
    nothing,  // nothing is under way
    waits,    // something is, and waits for other ranks
    moved
  };
  // Moves on what it can. Any thread, helpers among them.
  virtual Found advance() = 0;
  // Called when the workers are about to be closed: afterwards advance() does nothing, and no
  // thread is inside.
  virtual void end() = 0;
  // Whether something is under way. Any thread.
  [[nodiscard]] virtual bool active() const = 0;
  // A number that changes when a collective has ended. Any thread.
  [[nodiscard]] virtual std::uint64_t moves() const = 0;
  // Adds the collectives that are under way, and those that have ended. Any thread.
  virtual void tell(tap::Snapshot* snapshot) const = 0;
};

// The protocol that a room above adds to every worker (messages of wire::kExtension). The worker
// owns it, and the worker room knows no more about it.

class Worker;

// May throw std::bad_alloc. Destroyed when nobody uses the worker any more.
using OpenExtension = std::unique_ptr<engine::Protocol> (*)(Worker& worker);

// The protocols of a worker that its own functions do not call by name. A room above the worker
// adds one of its own (OpenExtension).

// One row of worker.cpp per protocol.
struct ProtocolEntry {
  std::span<const std::uint32_t> rows;  // of the completer's table: wire::row_of()
  OpenExtension open;
};
std::span<const ProtocolEntry> protocol_table();

}  // namespace heddle::worker
