#include "engine/core.hpp"

namespace heddle::engine {

Core::Core(Worker& the_worker, Context& the_context, std::uint32_t number, transport::TransportWorker& the_transport,
           bool by_one_thread)
    : worker(the_worker),
      context(the_context),
      index(number),
      max_workers(context.transport().capabilities().max_workers),
      one_thread(by_one_thread),
      capabilities(context.transport().capabilities()),
      transport(the_transport),
      failure_epoch(context.bootstrap().failure_epoch()),
      operations(context, context.environment().config.number(base::Var::worker_operations)),
      requester(transport, capabilities, operations),
      responder(transport, context.regions(), capabilities.max_message),
      failed(context.size()) {
  stats.size = sizeof stats;
  chores.kind = Kind::chores;
}

}  // namespace heddle::engine
