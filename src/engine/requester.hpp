// The requester of a worker: turns posted operations into commands and hands them to the transport.
//
// A message, put or get that the transport executes whole is one command, which takes a slot only
// if it has a completion. Everything else becomes an operation: cut into pieces, each a command, or
// a request to the owner of the memory where the transport cannot do it.
//
// Its callers have checked the arguments and done the direct operations. Results: DONE, POSTED,
// AGAIN or an error. For the thread inside the worker, except whole() and fits_one().
#pragma once

#include <cstdint>
#include <new>
#include <span>

#include "base/error.hpp"
#include "engine/operations.hpp"
#include "transport/transport.hpp"
#include "wire/packet.hpp"

namespace heddle::engine {

class Requester {
 public:
  // `self`: this worker.
  Requester(transport::TransportWorker& transport, const transport::Capabilities& capabilities, Operations& operations,
            heddle_peer self);
  Requester(const Requester&) = delete;
  Requester& operator=(const Requester&) = delete;

  // ---- one command: a put, a get, or a message that fits one of the transport's -----------------
  base::Status post(transport::Command& command, const CallersCompletion& completion) {
    if (completion.notifies() || command.opcode != transport::Opcode::message) [[unlikely]] {
      return post_with_care(command, completion);
    }
    return post_unnotified(command, false);
  }
  // A put or get that whole() has made, on memory that the caller knows to be reachable. It is
  // inlined, since it is most of what Heddle does for such an operation.
  template <Kind kind>
  [[gnu::always_inline]] base::Status post_reachable(transport::Command& command, const CallersCompletion& completion) {
    return completion.empty() ? post_unnotified(command, true) : post_notified<kind>(command, completion);
  }
  // Prepares a command without a completion for post(span); a put or get is whole(). False: its
  // memory cannot be reached any more, post(command) says why.
  [[nodiscard]] static bool prepare(transport::Command& command) {
    const bool memory = command.opcode != transport::Opcode::message;
    if (memory && !reachable(*command.remote)) [[unlikely]]
      return false;
    command.token = Unnotified{command.rank, memory}.token();
    return true;
  }
  // Posts several prepared commands. Returns how many were posted, from the front; post(command)
  // says why the next one was not.
  std::size_t post(std::span<transport::Command> prepared);
  // Makes the command of a put or get; false: it needs more than one, or none. Any thread.
  [[nodiscard]] bool whole(const BlockTransfer& block, transport::Command* command) const {
    return !block.remote->direct_range(block.offset, block.bytes) && fits_one(block, command);
  }
  // The same for a block that is known not to be direct.
  [[nodiscard]] bool fits_one(const BlockTransfer& block, transport::Command* command) const {
    const RemoteRegion& remote = *block.remote;
    const auto opcode = block.kind == Kind::put ? transport::Opcode::put : transport::Opcode::get;
    if ((remote.one_command & transport::bit(opcode)) == 0 || block.bytes > max_transfer_) return false;
    command->opcode = opcode;
    command->rank = remote.rank;
    command->worker = remote.server;
    command->local = block.local;
    command->bytes = block.bytes;
    command->remote = &remote.memory;
    command->offset = block.offset;
    return true;
  }
  // Whether a message of these lengths fits one of the transport's. Any thread.
  [[nodiscard]] bool fits_one(std::uint32_t header_bytes, std::uint64_t payload_bytes) const {
    return wire::pad8(header_bytes) + payload_bytes <= max_message_;
  }

  // ---- operations -------------------------------------------------------------------------------
  // A put or get of one block, in one command if that is possible.
  base::Status try_block(const BlockTransfer& block, const CallersCompletion& completion) {
    transport::Command command;
    if (whole(block, &command)) [[likely]]
      return post(command, completion);
    return try_transfer(block.kind, Pieces(block), block.remote->rank, completion);
  }
  base::Status try_transfer(Kind kind, const Pieces& pieces, std::uint32_t rank, const CallersCompletion& completion);
  base::Status try_put_signal(const Pieces& pieces, std::uint32_t rank, RemoteRegion* word, std::uint64_t word_offset,
                              const heddle_signal& signal, const CallersCompletion& completion);
  struct AtomicRequest {
    std::uint32_t op;
    RemoteRegion* remote;
    std::uint64_t offset;
    std::uint64_t operand;
    std::uint64_t compare;
    void* result;
  };
  base::Status try_atomic(const AtomicRequest& request, const CallersCompletion& completion);
  // A long active message, in parts. `owner`: told of the operation's end; null: nobody.
  base::Status try_parts(heddle_peer target, const LongMessage& message, OperationOwner* owner,
                         const CallersCompletion& completion);

  // ---- for protocols ----------------------------------------------------------------------------
  // A message of a protocol: the header (up to transport::kMaxHeaderBytes) is copied, the payload
  // stays until the completion, if that follows; together they fit every transport's message (2 x
  // kMaxHeaderBytes).
  base::Status try_message(heddle_peer target, std::uint32_t immediate, std::span<const std::byte> header,
                           std::span<const std::byte> payload, const CallersCompletion& completion) {
    transport::Command command(target.rank, target.worker, immediate);
    command.set_message(header.data(), static_cast<std::uint32_t>(header.size()), payload.data(), payload.size());
    return post(command, completion);
  }
  // Posts a message on behalf of the operation. False: not taken. Throws std::bad_alloc: the first
  // message to a worker connects to it.
  bool post_message(transport::Command& command, Operation& operation, Role role);
  // The last command of the operation ends by an answer of that worker.
  static void await_answer(Operation& operation, heddle_peer from);
  // Posts what it can of the operation; false: nothing more could be posted now.
  bool advance(Operation& operation);

 private:
  static bool reachable(const transport::RemoteMemory& memory) {
    const RemoteRegion& remote = *RemoteRegion::of(&memory);
    return !remote.is(RemoteRegion::Barred::failed) && !remote.closed.load(std::memory_order_relaxed);
  }
  base::Status post_with_care(transport::Command& command, const CallersCompletion& completion);
  template <Kind kind>
  [[gnu::always_inline]] base::Status post_notified(transport::Command& command, const CallersCompletion& completion);
  [[gnu::always_inline]] base::Status post_unnotified(transport::Command& command, bool memory) {
    command.token = Unnotified{command.rank, memory}.token();
    try {
      if (transport_.post({&command, 1}) == 0) return HEDDLE_AGAIN;
    } catch (const std::bad_alloc&) {  // the first use of a peer connects to it
      return no_memory();
    }
    if (command.done) return HEDDLE_DONE;
    operations_.note_unnotified({command.rank, memory});
    return HEDDLE_POSTED;
  }
  [[gnu::cold]] static base::Status no_memory();
  base::Status start(Operation& operation);
  bool advance_pieces(Operation& operation);
  bool advance_message(Operation& operation);
  bool advance_word(Operation& operation);
  std::uint64_t post_piece(Operation& operation, Piece piece);
  std::uint64_t post_command(Operation& operation, const Piece& piece);
  std::uint64_t post_request(Operation& operation, const Piece& piece);
  // The worker to ask. For memory of this rank it is this worker, which can execute the request as
  // well: a thread that waits for the answer advances this worker, and perhaps no other one.
  [[nodiscard]] heddle_peer server_of(const RemoteRegion& remote) const {
    return {remote.rank, remote.rank == self_.rank ? self_.worker : remote.server};
  }

  transport::TransportWorker& transport_;
  Operations& operations_;
  const heddle_peer self_;
  const std::uint64_t max_message_;
  const std::uint64_t max_transfer_;
  std::uint64_t next_message_ = 1;
};

// It needs a slot only when the transport has accepted it.
template <Kind kind>
inline base::Status Requester::post_notified(transport::Command& command, const CallersCompletion& completion) {
  if (operations_.full()) return HEDDLE_AGAIN;
  command.wants_source_free = kind != Kind::get && completion.when == HEDDLE_WHEN_LOCAL;
  command.token = operations_.next_token();
  try {
    if (transport_.post({&command, 1}) == 0) return HEDDLE_AGAIN;
  } catch (const std::bad_alloc&) {  // the first use of a peer connects to it
    return no_memory();
  }
  if (command.done) return HEDDLE_DONE;
  constexpr bool kMessage = kind == Kind::message;
  const void* remote = kMessage ? nullptr : RemoteRegion::of(command.remote);
  Operation& operation = operations_.begin_plain(kind, command.rank, completion, remote);
  if constexpr (kMessage) operation.target = {command.rank, command.worker};
  operation.payload_bytes = command.bytes;
  if (completion.when != HEDDLE_WHEN_LOCAL) [[likely]]
    return HEDDLE_POSTED;
  operation.unfreed = command.wants_source_free && !command.source_free ? 1 : 0;
  return operations_.keep(operation);
}

}  // namespace heddle::engine
