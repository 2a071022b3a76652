// State that a room above the engine keeps with a context. It ends with the context's state, and
// whoever makes progress on the context moves it on. The engine knows no more about it.
#pragma once

#include <cstdint>
#include <vector>

#include "tap/snapshot.hpp"

namespace heddle::engine {

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

}  // namespace heddle::engine
