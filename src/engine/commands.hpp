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

#include "engine/handler.hpp"
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

// A put or get of one block. In the queue it has one record, unless it has both a callback and a counter.
struct BlockCommand {
  const Block* block;
  const Completion* completion;

  [[nodiscard]] TransferCommand transfer() const {
    return {block->kind, Pieces(*block), block->remote->rank, *completion};
  }
  base::Status start(Worker& worker) const { return worker.try_block(*block, *completion); }
};

// A BlockCommand as it stands in the queue.
struct QueuedBlock {
  std::byte* local;
  RemoteRegion* remote;
  std::uint64_t offset;
  std::uint64_t bytes_and_flags;
  union {
    heddle_callback fn;  // kCallback
    Counter* counter;    // null: nobody wants to hear of it
  };
  void* arg;

  static constexpr std::uint64_t kGet = 1;
  static constexpr std::uint64_t kCallback = 2;
  static constexpr std::uint64_t kLocal = 4;
  static constexpr unsigned kFlagBits = 8;
};
static_assert(HEDDLE_WHEN_REMOTE == 0 && HEDDLE_WHEN_LOCAL == 1);

// False: it needs a longer form.
inline bool fits_one_record(const BlockCommand& command) {
  const Completion& completion = *command.completion;
  return (completion.fn == nullptr || completion.counter == nullptr) &&
         command.block->bytes >> (64 - QueuedBlock::kFlagBits) == 0;
}

inline void encode(const BlockCommand& command, QueuedBlock* queued) {
  const Block& block = *command.block;
  const Completion& completion = *command.completion;
  const bool callback = completion.fn != nullptr;
  const std::uint64_t flags = (block.kind == Kind::get ? QueuedBlock::kGet : 0) |
                              (callback ? QueuedBlock::kCallback : 0) |
                              (completion.when == HEDDLE_WHEN_LOCAL ? QueuedBlock::kLocal : 0);
  queued->local = block.local;
  queued->remote = block.remote;
  queued->offset = block.offset;
  queued->bytes_and_flags = block.bytes << QueuedBlock::kFlagBits | flags;
  if (callback) {
    queued->fn = completion.fn;
  } else {
    queued->counter = completion.counter;
  }
  queued->arg = completion.arg;
}

base::Status run_block(Worker& worker, const std::byte* bytes, base::Status cancel);

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
    if (!worker.may_call()) return HEDDLE_AGAIN;  // whoever else is inside leaves it to the executor
    const Inside inside(worker);                  // it may not wait
    call(fn, arg);
    worker.note_moved();
    return HEDDLE_DONE;
  }
};

template <class Command>
base::Status run_command(Worker& worker, const std::byte* bytes, base::Status cancel) {
  alignas(Command) std::array<std::byte, sizeof(Command)> copy;
  std::memcpy(copy.data(), bytes, sizeof(Command));
  const auto& command = *reinterpret_cast<const Command*>(copy.data());
  const base::Status status = cancel == HEDDLE_DONE ? command.start(worker) : cancel;
  if constexpr (std::is_same_v<Command, TransferCommand>) {
    worker.end_queued(status, command.completion, command.rank, command.pieces);
  } else {
    worker.end_queued(status, command.completion, command.rank);
  }
  return status;
}

template <class Command>
void encode(const Command& command, Encoded* encoded) {
  static_assert(std::is_trivially_copyable_v<Command>);
  encoded->run = &run_command<Command>;
  encoded->add(&command, sizeof command);
}

// ---- receives ------------------------------------------------------------------------------------------------------------

// How a receive ends is told to its heddle_receive as well, and by nothing else if it has no completion.
struct ReceiveCommand {
  protocol::Wanted wanted;
  ReceiveRequest request;

  base::Status start(Worker& worker) const { return worker.tagged().receive(wanted, request); }
};

struct ClaimedCommand {
  ReceiveRequest request;

  base::Status start(Worker& worker) const { return worker.tagged().receive_claimed(request); }
};

template <class Command>
base::Status run_receive(Worker& worker, const std::byte* bytes, base::Status cancel) {
  alignas(Command) std::array<std::byte, sizeof(Command)> copy;
  std::memcpy(copy.data(), bytes, sizeof(Command));
  const auto& command = *reinterpret_cast<const Command*>(copy.data());
  if (cancel != HEDDLE_DONE) {
    Tagged::end_unposted(command.request, cancel);
    return cancel;
  }
  const base::Status status = command.start(worker);
  if (status <= HEDDLE_DONE) command.request.completion.fire(status);
  return status;
}
inline void encode(const ReceiveCommand& command, Encoded* encoded) {
  encoded->run = &run_receive<ReceiveCommand>;
  encoded->add(&command, sizeof command);
}
inline void encode(const ClaimedCommand& command, Encoded* encoded) {
  encoded->run = &run_receive<ClaimedCommand>;
  encoded->add(&command, sizeof command);
}

// ---- messages, active and tagged: queued with header and, if small, payload ------------------------------------------------

// As it stands in the queue, followed by [Completion, if observed][header][payload, or a pointer to it].
struct QueuedMessage {
  static constexpr std::uint64_t kMostCaptured = 1024;  // bytes of payload
  heddle_peer target;
  std::uint16_t handler;  // kTagged: a tagged message, whose tag is the header
  std::uint8_t header_bytes;
  bool observed : 1;
  bool captured : 1;  // the payload follows, else a pointer to it
  std::uint64_t payload_bytes;

  static constexpr std::uint16_t kTagged = 0xFFFF;
};
static_assert(HEDDLE_AM_HEADER_BYTES <= 255 && HEDDLE_AM_HANDLERS <= QueuedMessage::kTagged &&
              sizeof(QueuedMessage) == 24);

struct MessageCommand {
  heddle_peer target;
  const heddle_am_message* message;
  const Completion* completion;

  base::Status start(Worker& worker) const { return worker.try_am(target, *message, *completion); }
};

// Its credit is reserved.
struct SendCommand {
  SendRequest request;
  const Completion* completion;

  base::Status start(Worker& worker) const { return worker.tagged().send(request, *completion); }
};

base::Status run_message(Worker& worker, const std::byte* bytes, base::Status cancel);

// `head` holds what the parts point to.
inline void encode_message(const QueuedMessage& head, const Completion& completion, const void* header,
                           const void* const& payload, Encoded* encoded) {
  encoded->run = &run_message;
  encoded->add(&head, sizeof head);
  if (head.observed) encoded->add(&completion, sizeof completion);
  encoded->add(header, head.header_bytes);
  if (head.captured) {
    encoded->add(payload, head.payload_bytes);
  } else {
    encoded->add(static_cast<const void*>(&payload), sizeof payload);
  }
  encoded->complete = head.captured && !head.observed;
}

// A message of class NETWORK that stands in the queue by value: its payload is copied, and nobody wants to hear of it.
base::Status run_short(Worker& worker, const std::byte* bytes, base::Status cancel);

[[gnu::noinline]] void write_packet(const heddle_am_message& message, std::byte* packet);

inline void write_short(heddle_peer target, const heddle_am_message& message, transport::ShortMessage* to) {
  to->rank = target.rank;
  to->worker = target.worker;
  to->immediate = wire::encode_am(message.handler, message.header_bytes);
  to->bytes = wire::pad8(message.header_bytes) + static_cast<std::uint32_t>(message.payload_bytes);
  if (message.header_bytes == 0 && message.payload_bytes == 8) [[likely]] {
    std::memcpy(to->packet, message.payload, 8);
  } else {
    write_packet(message, to->packet);
  }
}

inline void encode(const MessageCommand& command, const Worker& worker, QueuedMessage* head, Encoded* encoded) {
  const heddle_am_message& message = *command.message;
  const std::uint64_t copied = std::min(worker.copied_payload(), QueuedMessage::kMostCaptured);
  *head = {command.target,
           static_cast<std::uint16_t>(message.handler),
           static_cast<std::uint8_t>(message.header_bytes),
           command.completion->observed(),
           message.payload_bytes <= copied,
           message.payload_bytes};
  encode_message(*head, *command.completion, message.header, message.payload, encoded);
}

inline void encode(const SendCommand& command, const Worker& worker, QueuedMessage* head, Encoded* encoded) {
  const SendRequest& request = command.request;
  const std::uint64_t copied =
      std::min({worker.copied_payload(), QueuedMessage::kMostCaptured, worker.tagged().eager()});
  *head = {request.target,          QueuedMessage::kTagged, sizeof request.tag, command.completion->observed(),
           request.bytes <= copied, request.bytes};
  encode_message(*head, *command.completion, &request.tag, request.data, encoded);
}

// The longest command in the queue.
inline constexpr std::size_t kMostCommandBytes = sizeof(RunCommand) + sizeof(QueuedMessage) + sizeof(Completion) +
                                                 HEDDLE_AM_HEADER_BYTES + QueuedMessage::kMostCaptured;
static_assert(sizeof(RunCommand) + sizeof(PutSignalCommand) <= kMostCommandBytes);

}  // namespace heddle::engine
