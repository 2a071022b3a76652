#include "mpi/collective/engine_call.hpp"

namespace heddle::mpi {
namespace {

struct Ask {
  heddle_team team;
  Form form;
  heddle_collective* collective;
};

template <auto kRun, auto kStart, auto kInit, class... Arguments>
heddle_status in_form(const Ask& ask, Arguments... arguments) {
  switch (ask.form) {
    case Form::blocking:
      return kRun(ask.team, arguments...);
    case Form::nonblocking:
      return kStart(ask.team, arguments..., ask.collective);
    case Form::persistent:
      break;
  }
  return kInit(ask.team, arguments..., nullptr, ask.collective);
}

heddle_status call_lists(const EngineCall& call, const Ask& ask) {
  const heddle_blocks from = call.send_places.blocks();
  const heddle_blocks to = call.receive_places.blocks();
  switch (call.what) {
    case EngineCollective::allgatherv:
      return in_form<heddle_allgatherv, heddle_allgatherv_start, heddle_allgatherv_init>(ask, call.send, call.receive,
                                                                                         &to);
    case EngineCollective::alltoallv:
      return in_form<heddle_alltoallv, heddle_alltoallv_start, heddle_alltoallv_init>(ask, call.send, &from,
                                                                                      call.receive, &to);
    case EngineCollective::gatherv:
      return in_form<heddle_gatherv, heddle_gatherv_start, heddle_gatherv_init>(ask, call.send, call.amount,
                                                                                call.receive, &to, call.root);
    case EngineCollective::scatterv:
      return in_form<heddle_scatterv, heddle_scatterv_start, heddle_scatterv_init>(ask, call.send, &from, call.receive,
                                                                                   call.amount, call.root);
    default:
      break;
  }
  const heddle_neighbors neighbours{call.sources.data(), call.sources.size(), call.targets.data(), call.targets.size()};
  return in_form<heddle_neighbor_alltoallv, heddle_neighbor_alltoallv_start, heddle_neighbor_alltoallv_init>(
      ask, &neighbours, call.send, &from, call.receive, &to);
}

}  // namespace

heddle_status EngineCall::call(heddle_team team, Form form, heddle_collective* collective) const {
  const Ask ask{team, form, collective};
  switch (what) {
    case EngineCollective::barrier:
      return in_form<heddle_barrier, heddle_barrier_start, heddle_barrier_init>(ask);
    case EngineCollective::broadcast:
      return in_form<heddle_broadcast, heddle_broadcast_start, heddle_broadcast_init>(ask, receive, amount, root);
    case EngineCollective::reduce:
      return in_form<heddle_reduce, heddle_reduce_start, heddle_reduce_init>(ask, send, receive, amount, &reduction,
                                                                             root);
    case EngineCollective::allreduce:
      return in_form<heddle_allreduce, heddle_allreduce_start, heddle_allreduce_init>(ask, send, receive, amount,
                                                                                      &reduction);
    case EngineCollective::gather:
      return in_form<heddle_gather, heddle_gather_start, heddle_gather_init>(ask, send, receive, amount, root);
    case EngineCollective::allgather:
      return in_form<heddle_allgather, heddle_allgather_start, heddle_allgather_init>(ask, send, receive, amount);
    case EngineCollective::scatter:
      return in_form<heddle_scatter, heddle_scatter_start, heddle_scatter_init>(ask, send, receive, amount, root);
    case EngineCollective::alltoall:
      return in_form<heddle_alltoall, heddle_alltoall_start, heddle_alltoall_init>(ask, send, receive, amount);
    case EngineCollective::reduce_scatter:
      return in_form<heddle_reduce_scatter, heddle_reduce_scatter_start, heddle_reduce_scatter_init>(
          ask, send, receive, amount, &reduction);
    case EngineCollective::scan:
      return in_form<heddle_scan, heddle_scan_start, heddle_scan_init>(ask, send, receive, amount, &reduction);
    default:
      return call_lists(*this, ask);
  }
}

}  // namespace heddle::mpi
