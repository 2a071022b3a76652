// The operations of a worker as plain values, so that a sharing mode can start them here and now, or put them into the
// worker's command queue for another thread to start.
//
// A command has start(Worker&), what the requester does on the thread that is inside the worker: DONE, POSTED, AGAIN or an
// error. encode() makes it bytes for the queue: first the function that will start it, then what that needs.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>

#include "engine/worker.hpp"

namespace heddle::engine {

// Starts a command from its bytes, and tells its completion what start() told: nothing for POSTED and AGAIN. With `cancel`
// other than DONE: ends it unstarted.
using RunCommand = base::Status (*)(Worker& worker, const std::byte* bytes, base::Status cancel);

// A command on its way into the queue: parts that are written one after the other. Points into the command.
struct Encoded {
  RunCommand run = nullptr;
  std::array<std::span<const std::byte>, 4> parts;
  std::size_t count = 0;
  bool complete = false;  // its source was copied, and nobody wants to hear of it

  void add(const void* data, std::size_t bytes) { parts[count++] = {static_cast<const std::byte*>(data), bytes}; }
};

// ---- put, get, atomics, calls: queued as they are -----------------------------------------------------------------------

struct TransferCommand {
  Kind kind;
  Pieces pieces;
  std::uint32_t rank;
  Completion completion;

  base::Status start(Worker& worker) const { return worker.try_transfer(kind, pieces, rank, completion); }
};

struct PutSignalCommand {
  Pieces pieces;
  std::uint32_t rank;
  RemoteRegion* word;
  std::uint64_t word_offset;
  heddle_signal signal;
  Completion completion;

  base::Status start(Worker& worker) const {
    return worker.try_put_signal(pieces, rank, word, word_offset, signal, completion);
  }
};

struct AtomicCommand {
  Worker::AtomicRequest request;
  std::uint32_t rank;
  Completion completion;

  base::Status start(Worker& worker) const { return worker.try_atomic(request, completion); }
};

// heddle_run_on_engine.
struct CallCommand {
  void (*fn)(void* arg);
  void* arg;
  std::uint32_t rank;
  Completion completion;

  base::Status start(Worker& worker) const {
    const Worker::Busy busy(worker);  // it may not wait
    fn(arg);
    return HEDDLE_DONE;
  }
};

template <class Command>
base::Status run_command(Worker& worker, const std::byte* bytes, base::Status cancel) {
  alignas(Command) std::array<std::byte, sizeof(Command)> copy;
  std::memcpy(copy.data(), bytes, sizeof(Command));
  const auto& command = *reinterpret_cast<const Command*>(copy.data());
  const base::Status status = cancel == HEDDLE_DONE ? command.start(worker) : cancel;
  worker.end_queued(status, command.completion, command.rank);
  return status;
}

template <class Command>
void encode(const Command& command, Encoded* encoded) {
  static_assert(std::is_trivially_copyable_v<Command>);
  encoded->run = &run_command<Command>;
  encoded->add(&command, sizeof command);
}

// ---- messages: queued with header and, if small, payload -------------------------------------------------------------------

// As it stands in the queue, followed by [Completion, if observed][header][payload, or a pointer to it].
struct QueuedMessage {
  static constexpr std::uint64_t kMostCaptured = 1024;  // bytes of payload
  heddle_peer target;
  std::uint16_t handler;
  std::uint8_t header_bytes;
  bool observed : 1;
  bool captured : 1;  // the payload follows, else a pointer to it
  std::uint64_t payload_bytes;
};
static_assert(HEDDLE_AM_HEADER_BYTES <= 255 && HEDDLE_AM_HANDLERS <= 65536 && sizeof(QueuedMessage) == 24);

struct MessageCommand {
  heddle_peer target;
  const heddle_am_message* message;
  const Completion* completion;

  base::Status start(Worker& worker) const { return worker.try_am(target, *message, *completion); }
};

base::Status run_message(Worker& worker, const std::byte* bytes, base::Status cancel);

// `copied`: Worker::copied_payload(). `head` holds what the parts point to.
inline void encode(const MessageCommand& command, std::uint64_t copied, QueuedMessage* head, Encoded* encoded) {
  const heddle_am_message& message = *command.message;
  const bool captured = message.payload_bytes <= std::min(copied, QueuedMessage::kMostCaptured);
  *head = {command.target,
           static_cast<std::uint16_t>(message.handler),
           static_cast<std::uint8_t>(message.header_bytes),
           command.completion->observed(),
           captured,
           message.payload_bytes};
  encoded->run = &run_message;
  encoded->add(head, sizeof *head);
  if (head->observed) encoded->add(command.completion, sizeof *command.completion);
  encoded->add(message.header, message.header_bytes);
  if (captured) {
    encoded->add(message.payload, message.payload_bytes);
  } else {
    encoded->add(static_cast<const void*>(&message.payload), sizeof message.payload);
  }
  encoded->complete = captured && !head->observed;
}

// The longest command in the queue.
inline constexpr std::size_t kMostCommandBytes = sizeof(RunCommand) + sizeof(QueuedMessage) + sizeof(Completion) +
                                                 HEDDLE_AM_HEADER_BYTES + QueuedMessage::kMostCaptured;
static_assert(sizeof(RunCommand) + sizeof(PutSignalCommand) <= kMostCommandBytes);

}  // namespace heddle::engine
