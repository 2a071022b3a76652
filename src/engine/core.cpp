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
      failure_epoch(job.bootstrap().failure_epoch()),
      operations(objects, job.environment().config.number(base::Var::worker_operations)),
      requester(transport, capabilities, operations),
      responder(transport, objects.regions(), capabilities.max_message),
      failed(job.size()) {
  stats.size = sizeof stats;
  protocol_work.kind = Kind::protocol_work;
}

}  // namespace heddle::engine
