#include "libraries/collective_calls.hpp"

#include <algorithm>
#include <array>
#include <vector>

namespace heddle::bench::libraries {

namespace {

constexpr heddle_reduction kSum{HEDDLE_DOUBLE, HEDDLE_SUM, nullptr, nullptr, 0};

// An operation's three functions. They have the same arguments between the team and the last
// arguments, which differ.
template <class Blocking, class Start, class Init, class... Arguments>
heddle_status in_form(const CollectiveCall& call, Blocking blocking, Start start, Init init, Arguments... arguments) {
  if (call.form == Form::blocking) return blocking(call.team, arguments...);
  if (call.form == Form::nonblocking) return start(call.team, arguments..., call.collective);
  return init(call.team, arguments..., call.options, call.collective);
}

#define HEDDLE_IN_FORM(name, ...) \
  in_form(call, heddle_##name, heddle_##name##_start, heddle_##name##_init __VA_OPT__(, ) __VA_ARGS__)

// The operations with one buffer for each member.
heddle_status call_plain(std::string_view operation, const CollectiveCall& call, std::size_t bytes) {
  if (operation == "barrier") return HEDDLE_IN_FORM(barrier);
  if (operation == "broadcast") return HEDDLE_IN_FORM(broadcast, call.receive, bytes, 0U);
  if (operation == "reduce") return HEDDLE_IN_FORM(reduce, call.send, call.receive, call.doubles, &kSum, 0U);
  if (operation == "allreduce") return HEDDLE_IN_FORM(allreduce, call.send, call.receive, call.doubles, &kSum);
  if (operation == "reduce_scatter")
    return HEDDLE_IN_FORM(reduce_scatter, call.send, call.receive, call.doubles, &kSum);
  if (operation == "scan") return HEDDLE_IN_FORM(scan, call.send, call.receive, call.doubles, &kSum);
  if (operation == "gather") return HEDDLE_IN_FORM(gather, call.send, call.receive, bytes, 0U);
  if (operation == "allgather") return HEDDLE_IN_FORM(allgather, call.send, call.receive, bytes);
  if (operation == "scatter") return HEDDLE_IN_FORM(scatter, call.send, call.receive, bytes, 0U);
  if (operation == "alltoall") return HEDDLE_IN_FORM(alltoall, call.send, call.receive, bytes);
  return HEDDLE_ERR_ARGUMENT;
}

// The operations with lists: equal blocks, one after the other, for each member or each of two
// neighbours.
heddle_status call_list(std::string_view operation, const CollectiveCall& call, std::size_t bytes) {
  const std::vector<std::size_t> counts(std::max(call.size, 2U), call.doubles);
  const heddle_blocks blocks{counts.data(), nullptr, sizeof(double)};
  if (operation == "gatherv") return HEDDLE_IN_FORM(gatherv, call.send, bytes, call.receive, &blocks, 0U);
  if (operation == "allgatherv") return HEDDLE_IN_FORM(allgatherv, call.send, call.receive, &blocks);
  if (operation == "scatterv") return HEDDLE_IN_FORM(scatterv, call.send, &blocks, call.receive, bytes, 0U);
  if (operation == "alltoallv") return HEDDLE_IN_FORM(alltoallv, call.send, &blocks, call.receive, &blocks);
  const std::array<std::uint32_t, 2> targets{(call.rank + 1) % call.size, (call.rank + call.size - 1) % call.size};
  const std::array<std::uint32_t, 2> sources{targets[1], targets[0]};
  const heddle_neighbors ring{sources.data(), 2, targets.data(), 2};
  return HEDDLE_IN_FORM(neighbor_alltoallv, &ring, call.send, &blocks, call.receive, &blocks);
}

}  // namespace

heddle_status call_collective(std::string_view operation, const CollectiveCall& call) {
  const std::size_t bytes = call.doubles * sizeof(double);
  return operation.ends_with('v') ? call_list(operation, call, bytes) : call_plain(operation, call, bytes);
}

}  // namespace heddle::bench::libraries
