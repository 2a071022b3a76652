#include "engine/requester.hpp"

#include <algorithm>
#include <cstring>

#include "base/copy.hpp"
#include "engine/operations.hpp"
#include "memory/regions.hpp"

namespace heddle::engine {

using transport::Command;
using transport::Opcode;

namespace {

base::Status fail_dead(std::uint32_t rank) {
  return base::fail(HEDDLE_ERR_PEER_FAILED, "rank %u, the owner of the region, has failed", rank);
}

base::Status fail_closed() {
  return base::fail(HEDDLE_ERR_HANDLE,
                    "a remote region was released before an operation on it had ended; wait for the operation first");
}

base::Status fail_memory() {
  return base::fail(HEDDLE_ERR_NO_MEMORY, "memory is exhausted; the operation could not be posted");
}

void move_directly(const Operation& operation, const Piece& piece) {
  std::byte* remote = piece.remote->direct + piece.offset;
  if (operation.kind == Kind::put) {
    base::copy_data(remote, piece.local, piece.bytes);
  } else {
    base::copy_data(piece.local, remote, piece.bytes);
  }
}

}  // namespace

Requester::Requester(transport::TransportWorker& transport, const transport::Capabilities& capabilities,
                     Operations& operations, heddle_peer self)
    : transport_(transport),
      operations_(operations),
      self_(self),
      max_message_(capabilities.max_message),
      max_transfer_(capabilities.max_transfer) {}

// The first attempt. If the transport takes nothing at all, the operation never existed.
base::Status Requester::start(Operation& operation) {
  const std::uint32_t before = operation.unfinished;
  const bool moved = advance(operation);
  if (!moved && operation.unfinished == before) {
    operations_.finish(operation);
    return HEDDLE_AGAIN;
  }
  if (operation.posted && operation.unfinished == 0 && operation.unfreed == 0) {
    const base::Status status = operation.status;
    // DONE: no completion follows; an error is returned here and nowhere else
    operation.completion = {};
    operation.fired = true;
    operations_.notify_and_free(operation);
    return status;
  }
  return operations_.keep(operation);
}

base::Status Requester::try_transfer(Kind kind, const Pieces& pieces, std::uint32_t rank,
                                     const CallersCompletion& completion) {
  Operation* operation = operations_.begin(kind, rank, completion);
  if (operation == nullptr) return HEDDLE_AGAIN;
  operations_.mark_remotes(*operation, pieces.mark(), nullptr);
  operation->pieces = pieces;
  return start(*operation);
}

base::Status Requester::no_memory() {
  return fail_memory();
}

// For a command that has a completion, or that is not a message.
base::Status Requester::post_with_care(Command& command, const CallersCompletion& completion) {
  if (command.opcode == Opcode::message) return post_notified<Kind::message>(command, completion);
  RemoteRegion& remote = *RemoteRegion::of(command.remote);
  if (!reachable(*command.remote)) [[unlikely]] {
    const Kind kind = command.opcode == Opcode::put ? Kind::put : Kind::get;
    const BlockTransfer block{kind, static_cast<std::byte*>(command.local), command.bytes, &remote, command.offset};
    return try_transfer(kind, Pieces(block), remote.rank, completion);
  }
  if (!completion.notifies()) return post_unnotified(command, true);
  return command.opcode == Opcode::put ? post_notified<Kind::put>(command, completion)
                                       : post_notified<Kind::get>(command, completion);
}

std::size_t Requester::post(std::span<Command> commands) {
  std::size_t posted = 0;
  try {
    posted = transport_.post(commands);
  } catch (const std::bad_alloc&) {
    // the first use of a peer connects to it; post(command) reports the error
    return 0;
  }
  for (const Command& command : commands.first(posted)) {
    if (!command.done) [[unlikely]]
      operations_.note_unnotified(Unnotified::of(command.token));
  }
  return posted;
}

base::Status Requester::try_put_signal(const Pieces& pieces, std::uint32_t rank, RemoteRegion* word,
                                       std::uint64_t word_offset, const heddle_signal& signal,
                                       const CallersCompletion& completion) {
  Operation* operation = operations_.begin(Kind::put, rank, completion);
  if (operation == nullptr) return HEDDLE_AGAIN;
  operations_.mark_remotes(*operation, pieces.mark(), word);
  operation->pieces = pieces;
  operation->signal_due = true;
  operation->word = word;
  operation->word_offset = word_offset;
  operation->operand = signal.value;
  operation->atomic_op = signal.op == HEDDLE_SIGNAL_SET ? HEDDLE_SWAP64 : HEDDLE_ADD64;
  return start(*operation);
}

base::Status Requester::try_atomic(const AtomicRequest& request, const CallersCompletion& completion) {
  Operation* operation = operations_.begin(Kind::atomic, request.remote->rank, completion);
  if (operation == nullptr) return HEDDLE_AGAIN;
  operations_.mark_remotes(*operation, nullptr, request.remote);
  operation->word = request.remote;
  operation->word_offset = request.offset;
  operation->operand = request.operand;
  operation->compare = request.compare;
  operation->atomic_op = request.op;
  operation->result = request.result;
  return start(*operation);
}

base::Status Requester::try_parts(heddle_peer target, const LongMessage& message, OperationOwner* owner,
                                  const CallersCompletion& completion) {
  Operation* operation = operations_.begin(Kind::message, target.rank, completion);
  if (operation == nullptr) return HEDDLE_AGAIN;
  operation->target = target;
  operation->handler = message.handler;
  operation->header_bytes = message.header_bytes;
  operation->header = message.header;
  operation->payload = message.payload;
  operation->payload_bytes = message.payload_bytes;
  operation->message_number = next_message_++;
  operation->owner = owner;
  const base::Status status = start(*operation);
  // else the caller gives the credit back
  if (status == HEDDLE_POSTED) operation->charged = owner != nullptr;
  return status;
}

// True: something was posted or done. Transports connect at the first use of a peer, and memory may
// be exhausted then: nothing more of this operation is posted, and it ends with that error.
bool Requester::advance(Operation& operation) {
  try {
    switch (operation.kind) {
      case Kind::put:
      case Kind::get:
        return advance_pieces(operation);
      case Kind::message:
        return advance_message(operation);
      case Kind::atomic:
        return advance_word(operation);
      case Kind::protocol:
      case Kind::protocol_work:
        return false;  // never here: posted whole, and not of the pool
    }
  } catch (const std::bad_alloc&) {
    // The target holds a part of the message and answers when it has the rest. The rest is sent
    // when there is memory again.
    if (operation.kind == Kind::message && operation.payload_sent > 0) return false;
    operation.fail(fail_memory(), kManyRanks);
    operation.signal_due = false;
    operation.posted = true;
    return true;
  }
  return false;
}

bool Requester::advance_pieces(Operation& operation) {
  bool moved = false;
  Piece piece;
  while (operation.status == HEDDLE_DONE && operation.pieces.peek(&piece)) {
    if (piece.remote == nullptr || piece.remote->closed.load(std::memory_order_relaxed)) {
      operation.fail(fail_closed(), piece.remote == nullptr ? kManyRanks : piece.remote->rank);
      break;
    }
    const std::uint64_t taken = post_piece(operation, piece);
    if (taken == 0) return moved;
    operation.pieces.advance(taken);
    moved = true;
  }
  if (operation.signal_due && operation.status == HEDDLE_DONE) {
    // the signal follows the data: its end comes back here
    if (operation.unfinished > 0) return moved;
    return advance_word(operation) || moved;
  }
  operation.posted = true;
  return true;
}

std::uint64_t Requester::post_piece(Operation& operation, Piece piece) {
  piece.bytes = piece.remote->alike(piece.offset, piece.bytes);
  if (piece.remote->direct_range(piece.offset, piece.bytes)) {
    move_directly(operation, piece);
    return piece.bytes;
  }
  if (piece.remote->is(RemoteRegion::Barred::failed)) {
    operation.fail(fail_dead(piece.remote->rank), piece.remote->rank);
    return piece.bytes;
  }
  const Opcode opcode = operation.kind == Kind::put ? Opcode::put : Opcode::get;
  const bool native = (piece.remote->memory.opcodes & transport::bit(opcode)) != 0;
  return native ? post_command(operation, piece) : post_request(operation, piece);
}

std::uint64_t Requester::post_command(Operation& operation, const Piece& piece) {
  Command command;
  command.opcode = operation.kind == Kind::put ? Opcode::put : Opcode::get;
  command.wants_source_free = operation.kind == Kind::put && operation.completion.when == HEDDLE_WHEN_LOCAL;
  command.rank = piece.remote->rank;
  command.worker = piece.remote->server;
  command.local = piece.local;
  command.bytes = std::min(piece.bytes, max_transfer_);
  command.remote = &piece.remote->memory;
  command.offset = piece.offset;
  command.token = operations_.token(operation, Role::command);
  if (transport_.post({&command, 1}) == 0) return 0;
  if (!command.done) {
    ++operation.unfinished;
    if (command.wants_source_free && !command.source_free) ++operation.unfreed;
  }
  return command.bytes;
}

// The transport cannot execute it: a message asks the owner.
std::uint64_t Requester::post_request(Operation& operation, const Piece& piece) {
  const bool is_put = operation.kind == Kind::put;
  // Only one rank at a time, and one get at a time, has replies to come. So the memory that a reply
  // may touch is a single window.
  if (operation.served > 0 && (!is_put || operation.served_rank != piece.remote->rank)) return 0;
  wire::RequestHeader head{};
  head.token = operations_.token(operation, Role::reply);
  head.region = piece.remote->number;
  head.offset = piece.offset;
  head.kind = is_put ? wire::RequestKind::put : wire::RequestKind::get;
  head.bytes = is_put ? std::min<std::uint64_t>(piece.bytes, max_message_ - sizeof head) : piece.bytes;
  const heddle_peer server = server_of(*piece.remote);
  Command command;
  command.rank = server.rank;
  command.worker = server.worker;
  command.immediate = wire::immediate_of(wire::Kind::request);
  command.header = &head;
  command.header_bytes = sizeof head;
  command.local = is_put ? piece.local : nullptr;
  command.bytes = is_put ? head.bytes : 0;
  if (!post_message(command, operation, Role::carrier)) return 0;
  await_answer(operation, server);
  if (!is_put) {
    operation.window = piece.local;
    operation.window_bytes = operation.window_left = piece.bytes;
  }
  return head.bytes;
}

bool Requester::post_message(Command& command, Operation& operation, Role role) {
  command.opcode = Opcode::message;
  command.token = operations_.token(operation, role);
  command.wants_source_free = role == Role::command && operation.completion.when == HEDDLE_WHEN_LOCAL;
  if (transport_.post({&command, 1}) == 0) return false;
  if (command.done) return true;
  // A carrier's source is in use until its own completion; the request it carries is counted by its
  // reply.
  if (role == Role::carrier) {
    ++operation.unfreed;
  } else {
    ++operation.unfinished;
    if (command.wants_source_free && !command.source_free) ++operation.unfreed;
  }
  return true;
}

void Requester::await_answer(Operation& operation, heddle_peer from) {
  ++operation.unfinished;
  ++operation.served;
  operation.served_rank = from.rank;
  operation.served_worker = from.worker;
}

bool Requester::advance_message(Operation& operation) {
  bool moved = false;
  while (operation.payload_sent < operation.payload_bytes && operation.status == HEDDLE_DONE) {
    std::array<std::byte, transport::kMaxHeaderBytes> header;
    static_assert(sizeof(wire::FragmentHeader) + HEDDLE_AM_HEADER_BYTES <= transport::kMaxHeaderBytes);
    const bool first = operation.payload_sent == 0;
    const wire::FragmentHeader head{operations_.token(operation, Role::reply),
                                    operation.message_number,
                                    operation.payload_bytes,
                                    operation.payload_sent,
                                    operation.handler,
                                    operation.header_bytes};
    std::memcpy(header.data(), &head, sizeof head);
    std::memcpy(header.data() + sizeof head, operation.header.data(), operation.header_bytes);
    Command command;
    command.rank = operation.target.rank;
    command.worker = operation.target.worker;
    command.immediate = wire::immediate_of(wire::Kind::fragment);
    command.header = header.data();
    command.header_bytes = static_cast<std::uint32_t>(sizeof head) + (first ? wire::pad8(operation.header_bytes) : 0);
    command.local = const_cast<std::byte*>(operation.payload + operation.payload_sent);
    command.bytes =
        std::min<std::uint64_t>(max_message_ - command.header_bytes, operation.payload_bytes - operation.payload_sent);
    if (!post_message(command, operation, Role::carrier)) return moved;
    if (first) {  // one reply for the whole message
      await_answer(operation, operation.target);
    }
    operation.payload_sent += command.bytes;
    moved = true;
  }
  operation.posted = true;
  return true;
}

// An atomic, or the signal that follows a put.
bool Requester::advance_word(Operation& operation) {
  RemoteRegion& remote = *operation.word;
  const std::uint64_t width = wire::atomic_bytes(operation.atomic_op);
  if (remote.closed.load(std::memory_order_relaxed)) {
    operation.fail(fail_closed(), remote.rank);
    operation.signal_due = false;
    operation.posted = true;
    return true;
  }
  if (remote.direct_range(operation.word_offset, width)) {
    const std::uint64_t old = memory::execute_atomic(operation.atomic_op, remote.direct + operation.word_offset,
                                                     operation.operand, operation.compare);
    if (operation.result != nullptr) std::memcpy(operation.result, &old, width);
    operation.signal_due = false;
    operation.posted = true;
    return true;
  }
  if (remote.is(RemoteRegion::Barred::failed)) {
    operation.fail(fail_dead(remote.rank), remote.rank);
    operation.signal_due = false;
    operation.posted = true;
    return true;
  }
  Command command;
  command.rank = remote.rank;
  command.worker = remote.server;
  wire::RequestHeader head{};
  if ((remote.memory.opcodes & transport::bit(Opcode::atomic)) != 0) {
    command.opcode = Opcode::atomic;
    command.local = operation.result;
    command.bytes = width;
    command.remote = &remote.memory;
    command.offset = operation.word_offset;
    command.operand = operation.operand;
    command.compare = operation.compare;
    command.atomic_op = static_cast<std::uint8_t>(operation.atomic_op);
    command.token = operations_.token(operation, Role::command);
    if (transport_.post({&command, 1}) == 0) return false;
    if (!command.done) ++operation.unfinished;
  } else {
    head = {operations_.token(operation, Role::reply),
            remote.number,
            operation.word_offset,
            width,
            operation.operand,
            operation.compare,
            0,
            wire::RequestKind::atomic,
            operation.atomic_op};
    command.immediate = wire::immediate_of(wire::Kind::request);
    command.header = &head;
    command.header_bytes = sizeof head;
    const heddle_peer server = server_of(remote);
    command.worker = server.worker;
    if (!post_message(command, operation, Role::carrier)) return false;
    await_answer(operation, server);
  }
  operation.signal_due = false;
  operation.posted = true;
  return true;
}

}  // namespace heddle::engine
