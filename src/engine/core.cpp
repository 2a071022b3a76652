#include "engine/core.hpp"

#include <algorithm>
#include <new>

#include "base/copy.hpp"
#include "base/fence.hpp"
#include "memory/regions.hpp"

namespace heddle::engine {

Core::Core(Objects& of_context, std::uint32_t number, transport::TransportWorker& the_transport, bool by_one_thread)
    : job(of_context.job()),
      objects(of_context),
      index(number),
      max_workers(job.transport().capabilities().max_workers),
      unshared(by_one_thread),
      capabilities(job.transport().capabilities()),
      transport(the_transport),
      tracer(job.tracer()),
      is_told(tracer != nullptr || base::has_thread_sanitizer()),
      failure_epoch(job.bootstrap().failure_epoch()),
      operations(objects, job.environment().config.number(base::Var::worker_operations)),
      requester(transport, capabilities, operations, {objects.job().rank(), index}),
      responder(transport, objects.regions(), capabilities.max_message),
      failed(job.size()) {
  stats.size = sizeof stats;
  protocol_work.kind = Kind::protocol_work;
}

void Core::note_held(const char* wants, heddle_peer peer, std::uint64_t bytes) const {
  tap::TraceRing* const ring = tracer->ring();
  if (ring == nullptr) return;
  const tap::TraceRecord* const last = ring->last(tap::TraceEvent::held);
  if (last != nullptr && last->rank == peer.rank && last->worker == index) return;
  tap::TraceRecord record{};
  record.id = tracer->name(wants);
  record.bytes = bytes;
  record.rank = peer.rank;
  record.peer = static_cast<std::uint8_t>(peer.worker);
  record.worker = static_cast<std::uint8_t>(index);
  record.event = tap::TraceEvent::held;
  tracer->note(record);
}

void Responder::serve(heddle_peer source, const wire::DecodedRequest& request) {
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
