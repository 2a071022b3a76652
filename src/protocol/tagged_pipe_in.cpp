// The receiving end of a pipe: messages that come in parts, and messages that were offered, whose
// data this side asks for.
#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/copy.hpp"
#include "engine/core.hpp"
#include "protocol/tagged_nodes.hpp"

namespace heddle::protocol {

namespace {

// A sender that is inside the library has sent the first part by then, of whatever message.
// Otherwise this side copies by itself, until something comes.
constexpr std::uint64_t kPatienceNs = 25'000;
// Then it was inside. It may be taking in what is sent to it, or copying a step by itself: two that
// send to each other would else both copy by the kernel, each since the other does.
constexpr std::uint64_t kPatienceBegunNs = 50'000;
// Of so many passes in vain, one asks whether the sender of parts is there.
constexpr std::uint32_t kQuiet = 8;
// What it copies in one step. Meanwhile parts may come, which fewer cells than there are hold.
constexpr std::uint64_t kStep = std::uint64_t{128} << 10;

}  // namespace

// Null: memory is exhausted.
Tagged::PipeIn* Tagged::pipe_from(heddle_peer from) {
  PipeIn*& known = sources_[pair(from)].pipe;
  if (known == nullptr) {
    known = new (std::nothrow) PipeIn;
    if (known == nullptr) return nullptr;
    known->from = from;
    known->made_before = std::exchange(last_in_, known);
  }
  return known;
}

void Tagged::list(PipeIn& pipe) {
  if (!pipe.listed) {
    pipe.listed = true;
    pipe.next = std::exchange(receiving_, &pipe);
  }
  core_.want_advance();
}

// ---- messages that come in parts ----------------------------------------------------------------

void Tagged::arrived_piped(heddle_peer from, std::span<const std::byte> packet) {
  const auto message = wire::decode_piped(packet);
  if (!message || !ordered_) return core_.drop(from, "it begins no message");
  if (message->bytes > window_) return core_.drop(from, "its sender cannot have had credit for it");
  Source& source = sources_[pair(from)];
  ++source.expected;
  PipeIn* const pipe = pipe_from(from);
  if (pipe == nullptr) {
    free_credit(source, wire::tagged_charge(message->bytes));
    return core_.drop(from, "memory is exhausted");
  }
  end_current(*pipe);
  pipe->bytes = message->bytes;
  pipe->arrived = message->payload.size();
  pipe->moved = true;
  list(*pipe);
  take_in(from, source, *message, match(message->tag, from));
}

// Its receive is here.
base::Status Tagged::take_parts(const ReceiveRequest& request, heddle_peer from, const wire::TaggedMessage& message) {
  PipeIn& pipe = *sources_[pair(from)].pipe;
  pipe.room = std::min(message.bytes, request.bytes);
  pipe.kept = nullptr;
  pipe.request = request;
  base::copy_data(request.data, message.payload.data(), std::min<std::uint64_t>(message.payload.size(), pipe.room));
  return HEDDLE_POSTED;
}

void Tagged::arrived_part(heddle_peer from, std::span<const std::byte> packet) {
  PipeIn* const pipe = sources_[pair(from)].pipe;
  if (pipe == nullptr) return core_.drop(from, "no message has begun that it is part of");
  pipe->moved = true;
  if (pipe->pulled != nullptr) return take_pulled(*pipe, packet);
  if (pipe->bytes == 0) return;  // of a message that has ended
  if (packet.size() > pipe->bytes - pipe->arrived) {
    core_.drop(from, "it is longer than what is left of its message");
    return end_parts(*pipe, HEDDLE_ERR_PROTOCOL);
  }
  if (Kept* const kept = pipe->kept; kept != nullptr) {
    base::copy_data(kept->payload() + kept->payload_bytes, packet.data(), packet.size());
    kept->payload_bytes += packet.size();
  } else if (pipe->arrived < pipe->room) {
    base::copy_data(pipe->request.data + pipe->arrived, packet.data(),
                    std::min<std::uint64_t>(packet.size(), pipe->room - pipe->arrived));
  }
  pipe->arrived += packet.size();
  if (pipe->arrived == pipe->bytes) end_parts(*pipe, HEDDLE_DONE);
}

// No more parts of it come.
void Tagged::end_parts(PipeIn& pipe, base::Status status) {
  Kept* const kept = std::exchange(pipe.kept, nullptr);
  const ReceiveRequest request = std::exchange(pipe.request, {});
  const bool fits = pipe.room == std::exchange(pipe.bytes, 0);
  pipe.room = 0;
  if (kept != nullptr) kept->ended = status;
  if (request.receive == nullptr) return;
  end(request, status == HEDDLE_DONE && !fits ? HEDDLE_ERR_TRUNCATED : status);
}

// Another message begins.
void Tagged::end_current(PipeIn& pipe) {
  pipe.pulled = nullptr;
  if (pipe.bytes == 0) return;
  core_.drop(pipe.from, "the message before it is not whole");
  end_parts(pipe, HEDDLE_ERR_PROTOCOL);
}

// ---- messages that were offered -----------------------------------------------------------------

// Asks the sender for the data of an offered message. The fetch ends with end_pull().
base::Status Tagged::pull(Fetch* fetch) {
  PipeIn* const pipe = pipe_from(fetch->from);
  if (pipe == nullptr) return HEDDLE_ERR_NO_MEMORY;
  fetch->id = ++pipe->pulls;
  fetch->back = fetch->bytes;
  fetch->next = nullptr;
  if (pipe->first == nullptr) pipe->moved = true;  // its time begins
  (pipe->first == nullptr ? pipe->first : pipe->last->next) = fetch;
  pipe->last = fetch;
  static_cast<void>(tell_pulls(*pipe));
  list(*pipe);
  return HEDDLE_POSTED;
}

// Those that the sender was not told of yet, in their order.
bool Tagged::tell_pulls(PipeIn& pipe) {
  bool moved = false;
  for (Fetch* fetch = pipe.told == nullptr ? pipe.first : pipe.told->next; fetch != nullptr; fetch = fetch->next) {
    const wire::Pull body{fetch->offer.token, fetch->id, fetch->bytes};
    if (!post_word(pipe.from, wire::Word::pull, &body, sizeof body)) break;
    pipe.told = fetch;
    moved = true;
  }
  return moved;
}

void Tagged::arrived_pulled(heddle_peer from, std::span<const std::byte> packet) {
  PipeIn* const pipe = sources_[pair(from)].pipe;
  if (pipe == nullptr || packet.size() < sizeof(wire::Pulled)) return core_.drop(from, "nobody has asked for it");
  wire::Pulled head;
  std::memcpy(&head, packet.data(), sizeof head);
  end_current(*pipe);
  Fetch* fetch = pipe->first;
  while (fetch != nullptr && fetch->id != head.id) fetch = fetch->next;
  if (fetch == nullptr || fetch->front != 0) return;  // it has ended
  pipe->pulled = fetch;
  pipe->moved = true;
  take_pulled(*pipe, packet.subspan(sizeof head));
}

// Data from the front; what this side has copied from the back is not needed.
void Tagged::take_pulled(PipeIn& pipe, std::span<const std::byte> data) {
  Fetch& fetch = *pipe.pulled;
  const std::uint64_t bytes = std::min<std::uint64_t>(data.size(), fetch.back - fetch.front);
  base::copy_data(fetch.request.data + fetch.front, data.data(), bytes);
  fetch.front += bytes;
  if (fetch.front == fetch.back) end_pull(pipe, fetch, HEDDLE_DONE);
}

void Tagged::end_pull(PipeIn& pipe, Fetch& fetch, base::Status status) {
  Fetch* before = nullptr;
  for (Fetch* at = pipe.first; at != &fetch; at = at->next) before = at;
  (before == nullptr ? pipe.first : before->next) = fetch.next;
  if (pipe.last == &fetch) pipe.last = before;
  if (pipe.told == &fetch) pipe.told = before;
  if (pipe.pulled == &fetch) pipe.pulled = nullptr;
  const ReceiveRequest request = fetch.request;
  end(request, end_fetch(&fetch, status));
}

// The sender does nothing: the kernel copies a step of its message, from the back, so that the
// sender may go on at the front. False: it does not.
bool Tagged::copy_back(PipeIn& pipe, Fetch& fetch) {
  if (!fetch.reached && import(fetch.offer, fetch.from, &fetch.remote) != HEDDLE_DONE) return false;
  fetch.reached = true;
  const std::uint64_t bytes = std::min(fetch.back - fetch.front, kStep);
  const std::uint64_t at = fetch.back - bytes;
  if (!copied_alone(fetch, at, bytes)) return false;
  fetch.back = at;
  if (fetch.front == fetch.back) end_pull(pipe, fetch, HEDDLE_DONE);
  return true;
}

bool Tagged::copied_alone(const Fetch& fetch, std::uint64_t at, std::uint64_t bytes) {
  std::byte* const to = fetch.request.data + at;
  if (const transport::RemoteMemory& memory = fetch.remote.memory; memory.all_direct()) {
    base::copy_data(to, memory.direct + at, bytes);
    return true;
  }
  transport::Command command(transport::Opcode::get);
  command.alone = true;
  command.rank = fetch.from.rank;
  command.worker = fetch.from.worker;
  command.bytes = bytes;
  command.offset = at;
  command.local = to;
  command.remote = &fetch.remote.memory;
  try {
    return transport_.post({&command, 1}) == 1 && command.done;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

bool Tagged::advance_receiving() {
  bool moved = false;
  // By the kernel, which takes long: once, so that those who send get their turn.
  bool copied = false;
  for (PipeIn *pipe = receiving_, *next = nullptr; pipe != nullptr; pipe = next) {
    next = pipe->next;  // code at the end of a receive adds to the front only
    if (core_.failed[pipe->from.rank]) end_pipe(*pipe, HEDDLE_ERR_PEER_FAILED);
    const bool quiet = is_quiet(*pipe);
    if (pipe->first != nullptr && advance_pulls(*pipe, &copied)) moved = true;
    if (quiet && pipe->bytes != 0 && has_ended(*pipe)) {
      end_parts(*pipe, HEDDLE_ERR_CANCELLED);
      moved = true;
    }
    if (pipe->first == nullptr && pipe->bytes == 0) unlist(*pipe);
  }
  return moved;
}

// Nothing has come from there for a while, in passes. For messages in parts no clock is read, which
// would take as long as a part of a few KiB.
bool Tagged::is_quiet(PipeIn& pipe) {
  if (std::exchange(pipe.moved, false)) {
    pipe.quiet = 0;
    pipe.since = 0;
  }
  return ++pipe.quiet % kQuiet == 0;
}

void Tagged::unlist(PipeIn& pipe) {
  PipeIn** link = &receiving_;
  while (*link != &pipe) link = &(*link)->next;
  *link = pipe.next;
  pipe.listed = false;
}

bool Tagged::advance_pulls(PipeIn& pipe, bool* copied) {
  const bool moved = tell_pulls(pipe);
  const std::uint64_t now = core_.job.clock().now_ns();
  if (pipe.since == 0) pipe.since = now;
  if (now < pipe.since + (pipe.first->front == 0 ? kPatienceNs : kPatienceBegunNs)) return moved;
  if (has_ended(pipe)) {
    end_pull(pipe, *pipe.first, HEDDLE_ERR_CANCELLED);
    return true;
  }
  // The memory of a sender that is closed is the program's again.
  if (*copied || transport_.closed({pipe.from.rank, pipe.from.worker})) return moved;
  *copied = copy_back(pipe, *pipe.first);
  if (!*copied) pipe.since = now;  // it is tried again after a while
  return *copied || moved;
}

// The sender has closed its worker, and everything has been taken in that it sent before.
bool Tagged::has_ended(const PipeIn& pipe) {
  return transport_.ended({pipe.from.rank, pipe.from.worker});
}

void Tagged::end_pipes_of_failed() {
  for (PipeIn *pipe = receiving_, *next = nullptr; pipe != nullptr; pipe = next) {
    next = pipe->next;
    if (core_.failed[pipe->from.rank]) end_pipe(*pipe, HEDDLE_ERR_PEER_FAILED);
  }
}

void Tagged::end_pipes(base::Status status) {
  for (PipeIn *pipe = receiving_, *next = nullptr; pipe != nullptr; pipe = next) {
    next = pipe->next;
    end_pipe(*pipe, status);
  }
}

void Tagged::end_pipe(PipeIn& pipe, base::Status status) {
  while (pipe.first != nullptr) end_pull(pipe, *pipe.first, status);
  if (pipe.bytes != 0) end_parts(pipe, status);
}

}  // namespace heddle::protocol
