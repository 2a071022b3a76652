// The barrier gates of this process.
#pragma once

#include <cstddef>

#include "utofu/packet.hpp"

namespace tofu_emulator {

class Engine;

class Gates {
 public:
  // Engine, within a round: a signal from a remote gate. Always taken: what it makes the gate emit waits in the gate.
  void receive(const PacketHead& head, const std::byte* data);
  // Engine, within a round: emits what waits. How many signals left.
  std::size_t progress(Engine& engine);
  // Nothing waits to be emitted: the engine may sleep.
  [[nodiscard]] bool idle() const;
};

}  // namespace tofu_emulator
