// The sending end of a pipe: messages that go in parts.
#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "engine/core.hpp"
#include "protocol/tagged_nodes.hpp"

namespace heddle::protocol {

namespace {

// The receiver begins when the first part is there, so that one is shorter than the others. In a
// burst the receiver is still busy with what came before: there the parts are long, and messages
// of one part go whole.
constexpr std::uint64_t kFirstPart = std::uint64_t{8} << 10;
constexpr std::uint64_t kPart = std::uint64_t{32} << 10;
// What one call of advance() sends to one peer.
constexpr std::uint64_t kPortion = std::uint64_t{128} << 10;

}  // namespace

// Null: memory is exhausted.
Tagged::PipeOut* Tagged::pipe_to(heddle_peer target) {
  void*& known = credit(target).pipe;
  if (known == nullptr) {
    auto* const made = new (std::nothrow) PipeOut;
    if (made == nullptr) return nullptr;
    made->to = target;
    made->made_before = std::exchange(last_out_, made);
    known = made;
  }
  return static_cast<PipeOut*>(known);
}

base::Status Tagged::send_parts(const SendRequest& request, const engine::CallersCompletion& completion) {
  PipeOut* const pipe = pipe_to(request.target);
  if (pipe == nullptr || !make_offered()) return no_memory();
  const bool in_burst = pipe->begin(core_.stats.polls);
  const std::uint64_t part = std::min(kPart, core_.capabilities.max_message - sizeof request.tag);
  // Whole messages may come between the parts of another.
  if (request.bytes <= std::max(in_burst ? part : 0, pipe->first != nullptr ? eager() : 0)) {
    transport::Command command = message(request);
    return post_numbered(command, [&] { return core_.requester.post(command, completion); });
  }
  if (pipe->first != nullptr || core_.operations.full()) return HEDDLE_AGAIN;
  Offered parts;
  parts.in_parts = true;
  parts.in_burst = in_burst;
  parts.tag = request.tag;
  parts.rest = static_cast<const std::byte*>(request.data);
  parts.rest_bytes = request.bytes;
  try {
    if (post_part(parts, request.target) == 0) return HEDDLE_AGAIN;
  } catch (const std::bad_alloc&) {  // the first message to a worker connects to it
    return no_memory();
  }
  post_parts(parts, request.target, request.bytes);
  ++credit(request.target).sequence;
  if (parts.rest_bytes == 0) return HEDDLE_DONE;
  // there is one: it was not full
  engine::Operation& operation = *core_.operations.begin(engine::Kind::protocol, request.target.rank, completion);
  note_offered(operation, request);
  Offered& offered = offered_[core_.operations.index(operation)];
  offered = parts;
  offered.operation = &operation;
  append(*pipe, offered);
  return HEDDLE_POSTED;
}

base::Status Tagged::offer_instead(const SendRequest& request, const engine::CallersCompletion& completion) {
  if (!reserve_offer<true>(request.target)) return HEDDLE_AGAIN;
  const base::Status status = offer(request, completion);
  if (status == HEDDLE_POSTED) {
    give_back<true>(request.target, request.bytes);
  } else {
    give_offer_back<true>(request.target);
  }
  return status;
}

// What an operation has that waits for its receiver.
void Tagged::note_offered(engine::Operation& operation, const SendRequest& request) {
  operation.completion.when = HEDDLE_WHEN_REMOTE;  // the source is read until the end
  operation.owner = this;
  operation.target = request.target;  // what follows is for reports
  operation.payload_bytes = request.bytes;
  operation.posted = true;
  operation.unfinished = 1;
  operation.served = 1;
  operation.served_rank = request.target.rank;
  operation.served_worker = request.target.worker;
}

void Tagged::append(PipeOut& pipe, Offered& offered) {
  offered.next = nullptr;
  (pipe.first == nullptr ? pipe.first : pipe.last->next) = &offered;
  pipe.last = &offered;
  if (!pipe.listed) {
    pipe.listed = true;
    pipe.next = std::exchange(sending_, &pipe);
  }
  core_.want_advance();
}

// Posts parts until `most` bytes have left, or the transport takes no more, or memory is exhausted.
// Returns how many bytes have left.
std::uint64_t Tagged::post_parts(Offered& offered, heddle_peer target, std::uint64_t most) {
  std::uint64_t posted = 0;
  try {
    while (offered.rest_bytes != 0 && posted < most) {
      const std::uint64_t bytes = post_part(offered, target);
      if (bytes == 0) break;
      posted += bytes;
    }
  } catch (const std::bad_alloc&) {
    return posted;
  }
  return posted;
}

// 0: the transport does not take it now.
std::uint64_t Tagged::post_part(Offered& offered, heddle_peer target) {
  const wire::PipedHeader message{offered.tag, offered.rest_bytes};
  const wire::Pulled pulled{offered.pull};
  transport::Command command;
  command.opcode = transport::Opcode::message;
  command.rank = target.rank;
  command.worker = target.worker;
  command.token = 0;  // nobody waits for it
  if (offered.began) {
    command.immediate = wire::encode_word(wire::Word::part);
  } else if (offered.in_parts) {
    command.immediate = wire::encode_word(wire::Word::piped);
    command.header = &message;
    command.header_bytes = sizeof message;
  } else {
    command.immediate = wire::encode_word(wire::Word::pulled);
    command.header = &pulled;
    command.header_bytes = sizeof pulled;
  }
  const std::uint64_t most = core_.capabilities.max_message - sizeof message;
  command.local = const_cast<std::byte*>(offered.rest);  // not written
  const std::uint64_t part = offered.began || offered.in_burst ? kPart : kFirstPart;
  command.bytes = std::min({offered.rest_bytes, part, most});
  if (transport_.post({&command, 1}) == 0) return 0;
  offered.began = true;
  offered.rest += command.bytes;
  offered.rest_bytes -= command.bytes;
  return command.bytes;
}

// The receiver of a message that was offered wants its data.
void Tagged::arrived_pull(heddle_peer from, std::span<const std::byte> packet) {
  const auto pull = wire::decode_word<wire::Pull>(packet);
  if (!pipes_ || !core_.job.transport().direct_to(from.rank)) return core_.drop(from, "there is no pipe to it");
  engine::Operation* const operation = pull ? core_.operations.find(pull->token) : nullptr;
  const bool known = operation != nullptr && operation->owner == this && operation->served != 0 &&
                     operation->target.rank == from.rank && operation->target.worker == from.worker;
  if (!known) {
    // It may have ended meanwhile.
    if (!pull) core_.drop(from, "it asks for no message");
    return;
  }
  Offered& offered = offered_[core_.operations.index(*operation)];
  if (offered.in_parts || offered.pull != 0 || pull->id == 0 || pull->bytes == 0 ||
      pull->bytes > operation->payload_bytes) {
    return core_.drop(from, "it asks for a message twice, or for more than there is");
  }
  PipeOut* const pipe = pipe_to(from);  // made with the offer
  ++core_.stats.taken;
  offered.pull = pull->id;
  offered.rest = static_cast<const std::byte*>(offered.memory.memory.address);
  offered.rest_bytes = pull->bytes;
  offered.operation = operation;
  append(*pipe, offered);
}

bool Tagged::advance_sending() {
  bool moved = false;
  for (PipeOut *pipe = sending_, *next = nullptr; pipe != nullptr; pipe = next) {
    next = pipe->next;  // code that runs at the end of a send adds to the front only
    if (feed(*pipe)) moved = true;
    if (pipe->first != nullptr) continue;
    PipeOut** link = &sending_;
    while (*link != pipe) link = &(*link)->next;
    *link = pipe->next;
    pipe->listed = false;
  }
  return moved;
}

bool Tagged::feed(PipeOut& pipe) {
  std::uint64_t fed = 0;
  while (pipe.first != nullptr && fed < kPortion) {
    Offered& offered = *pipe.first;
    fed += post_parts(offered, pipe.to, kPortion - fed);
    if (offered.rest_bytes != 0) break;
    leave_pipe(offered);
    if (!offered.in_parts) continue;  // its receiver tells the end
    offered.operation->served = 0;
    core_.operations.complete(*offered.operation, HEDDLE_DONE, pipe.to.rank);
  }
  return fed != 0;
}

// Nothing more of it is sent.
void Tagged::leave_pipe(Offered& offered) {
  if (offered.rest == nullptr) return;
  offered.rest = nullptr;
  auto& pipe = *static_cast<PipeOut*>(credit(offered.operation->target).pipe);
  Offered* before = nullptr;
  for (Offered* at = pipe.first; at != &offered; at = at->next) before = at;
  (before == nullptr ? pipe.first : before->next) = offered.next;
  if (pipe.last == &offered) pipe.last = before;
}

}  // namespace heddle::protocol
