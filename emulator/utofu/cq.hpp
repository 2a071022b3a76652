// A CQ of this process: the queue of commands (TOQ), of their ends on this side (TCQ), and of notices (MRQ).
//
// Threads: "caller" is a thread of the application; of those one at a time is in a call on a CQ, which is the program's duty (or
// the lock's, for thread-safe VCQs). "engine" is who runs the rounds.
//
// Indices only grow, in slots: reaped (caller) <= executed (engine) <= posted (caller), posted - reaped <= depth; in
// session mode executed <= scheduled too, which only credits of arriving packets move. A slot is free again when poll_tcq has
// passed it, not before.
#pragma once

#include <utofu.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "utofu/descriptor.hpp"
#include "utofu/machine.hpp"
#include "utofu/vcq.hpp"

namespace tofu_emulator {

class Engine;
class Stags;

enum class CqMode : std::uint8_t { shared = 1, exclusive, session };

class CommandQueue {
 public:
  // Caller.

  // All slots of these whole commands, or BUSY. Fewer than the depth.
  [[nodiscard]] int post(Vcq& vcq, const Slot* slots, std::size_t count, void* cbdata);
  // SUCCESS, NOT_FOUND or ERR_TCQ_*. Makes room in the TOQ.
  [[nodiscard]] int poll_tcq(Vcq& vcq, void** cbdata);
  // SUCCESS, NOT_FOUND or ERR_MRQ_* with a notice as far as it is known.
  [[nodiscard]] int poll_mrq(Vcq& vcq, utofu_mrq_notice* notice);
  [[nodiscard]] std::size_t unread_tcq(Vcq& vcq);
  [[nodiscard]] std::size_t unread_mrq(Vcq& vcq);

  // What was posted and has not been begun: for dereg's check in strict mode. With Engine::Pause held.
  void for_each_waiting(void (*visit)(void* context, const Command& command), void* context);

  [[nodiscard]] std::uint16_t tni() const;
  [[nodiscard]] std::uint16_t number() const;
  [[nodiscard]] CqMode mode() const;
  [[nodiscard]] Stags& stags();
};

}  // namespace tofu_emulator
