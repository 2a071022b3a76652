#include "engine/responder.hpp"

#include <algorithm>
#include <new>

#include "base/copy.hpp"
#include "base/fence.hpp"
#include "memory/regions.hpp"

namespace heddle::engine {

void Responder::serve(heddle_peer source, const wire::Request& request) {
  const wire::RequestHeader& head = request.head;
  Answer answer{source, {head.token, 0, head.piece, HEDDLE_DONE, 1}, {}};
  const auto memory = regions_.find(head.region, head.offset, head.bytes);
  if (!memory) {
    answer.head.status = regions_.known(head.region) ? HEDDLE_ERR_RANGE : HEDDLE_ERR_HANDLE;
    return keep_or_lose(answer);
  }
  base::show_serving();
  switch (head.kind) {
    case wire::RequestKind::put:
      base::copy_data(memory->address, request.payload.data(), head.bytes);
      break;
    case wire::RequestKind::get:
      answer.data = {memory->address, head.bytes};
      answer.region = head.region;
      break;
    case wire::RequestKind::atomic:
      if (reinterpret_cast<std::uintptr_t>(memory->address) % head.bytes != 0) {
        answer.head.status = HEDDLE_ERR_ALIGNMENT;
      } else {
        answer.head.value = memory::execute_atomic(head.atomic_op, memory->address, head.operand, head.compare);
      }
      break;
  }
  base::show_served();
  keep_or_lose(answer);
}

void Responder::answer(heddle_peer source, std::uint64_t token, base::Status status) {
  keep_or_lose({source, {token, 0, 0, status, 1}, {}});
}

bool Responder::grant(heddle_peer source, std::uint64_t bytes) {
  return dispatch({source, {0, bytes, 0, HEDDLE_DONE, 1}, {}, 0, wire::kGrant});
}

void Responder::keep_or_lose(const Answer& answer) noexcept {
  if (!dispatch(answer)) ++lost_;
}

bool Responder::dispatch(Answer answer) noexcept {
  if (waiting_.empty() && send(answer)) return true;
  try {
    waiting_.push_back(answer);
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

std::size_t Responder::flush() {
  // Each answer is tried once, so that one peer with a full queue does not delay the answers to
  // others.
  return std::erase_if(waiting_, [this](Answer& answer) { return send_waiting(answer); });
}

bool Responder::send_waiting(Answer& answer) noexcept {
  if (!answer.data.empty() && !regions_.known(answer.region)) {
    answer.data = {};  // released meanwhile: the memory may no longer exist
    answer.head.status = HEDDLE_ERR_HANDLE;
  }
  return send(answer);
}

void Responder::forget(std::uint32_t rank) {
  std::erase_if(waiting_, [rank](const Answer& answer) { return answer.peer.rank == rank; });
}

bool Responder::send(Answer& answer) noexcept {
  for (;;) {
    const std::size_t bytes = std::min(max_data_, answer.data.size());
    answer.head.last = bytes == answer.data.size() ? 1 : 0;
    transport::Command command;
    command.opcode = transport::Opcode::message;
    command.rank = answer.peer.rank;
    command.worker = answer.peer.worker;
    command.immediate = answer.immediate;
    command.header = &answer.head;
    command.header_bytes = sizeof answer.head;
    command.local = const_cast<std::byte*>(answer.data.data());
    command.bytes = bytes;
    // the source is region memory, which stays; this message has no completion
    command.token = 0;
    try {
      if (transport_.post({&command, 1}) == 0) return false;
    } catch (const std::bad_alloc&) {  // the first message to a worker connects to it; retried
      return false;
    }
    base::show_served();  // of a get, whose data has been read now
    answer.data = answer.data.subspan(bytes);
    answer.head.offset += bytes;
    if (answer.head.last == 1) return true;
  }
}

}  // namespace heddle::engine
