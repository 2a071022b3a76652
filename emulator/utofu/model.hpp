// The timing model: virtual times that are carried along the real run. All of it does nothing, and says 0, when it is off.
#pragma once

#include <cstdint>

#include "utofu/descriptor.hpp"
#include "utofu/machine.hpp"
#include "utofu/vcq.hpp"

namespace tofu_emulator {

class Model {
 public:
  // What is known of a message when it is sent.
  struct Route {
    std::uint32_t from_node = 0;
    std::uint32_t to_node = 0;
    std::uint16_t tni = 0;
    std::uint8_t path = kNoPath;
  };
  struct Sent {
    std::uint64_t left_ns = 0;     // the source has been read
    std::uint64_t arrives_ns = 0;  // all of it is at the target
  };

  Model(bool on, const Machine& machine);
  [[nodiscard]] bool on() const { return on_; }

  // Caller: posts so many commands with one call; when the first of them can start.
  std::uint64_t posted(Vcq& vcq, unsigned commands);
  // Caller: a poll of this handle has found something that was complete at `when_ns`.
  void polled(Vcq& vcq, std::uint64_t when_ns);
  // The calling thread's clock.
  [[nodiscard]] static std::uint64_t now_ns();

  // Engine: a command that may start at `ready_ns` (posted, and in session mode released) is executed now.
  Sent sent(const Command& command, const Route& route, std::uint64_t ready_ns);
  // Engine of the target: the answer to what arrived at `arrived_ns`, with so many bytes of data; when it is back.
  std::uint64_t answered(Opcode opcode, std::uint32_t bytes, const Route& route, std::uint64_t arrived_ns);
  // Engine of the target: from the arrival of a message with credits to the command that they release.
  std::uint64_t released(std::uint64_t arrived_ns);
  // Engine: from one gate to another.
  std::uint64_t signalled(const Route& route, std::uint64_t ready_ns);

 private:
  bool on_ = false;
  const Machine& machine_;
};

}  // namespace tofu_emulator
