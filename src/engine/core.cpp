#include "engine/core.hpp"

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

}  // namespace heddle::engine
