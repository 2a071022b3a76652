#include "work/collective_calls.hpp"

#include <algorithm>
#include <array>
#include <vector>

namespace heddle::bench::work {

namespace {

constexpr heddle_reduction kSum{HEDDLE_DOUBLE, HEDDLE_SUM, nullptr, nullptr, 0};

// A list of equal blocks, one after the other: for each member, or each of two neighbours.
struct Equal {
  explicit Equal(const CollectiveCall& call)
      : counts(std::max(call.size, 2U), call.doubles), list{counts.data(), nullptr, sizeof(double)} {}
  std::vector<std::size_t> counts;
  heddle_blocks list;
};

heddle_status barrier(const CollectiveCall& call) {
  switch (call.form) {
    case Form::blocking:
      return heddle_barrier(call.team);
    case Form::nonblocking:
      return heddle_barrier_start(call.team, call.collective);
    case Form::persistent:
      return heddle_barrier_init(call.team, call.options, call.collective);
  }
  return HEDDLE_ERR_ARGUMENT;
}

heddle_status broadcast(const CollectiveCall& call) {
  switch (call.form) {
    case Form::blocking:
      return heddle_broadcast(call.team, call.receive, call.doubles * sizeof(double), 0);
    case Form::nonblocking:
      return heddle_broadcast_start(call.team, call.receive, call.doubles * sizeof(double), 0, call.collective);
    case Form::persistent:
      return heddle_broadcast_init(call.team, call.receive, call.doubles * sizeof(double), 0, call.options,
                                   call.collective);
  }
  return HEDDLE_ERR_ARGUMENT;
}

heddle_status reduce(const CollectiveCall& call) {
  switch (call.form) {
    case Form::blocking:
      return heddle_reduce(call.team, call.send, call.receive, call.doubles, &kSum, 0);
    case Form::nonblocking:
      return heddle_reduce_start(call.team, call.send, call.receive, call.doubles, &kSum, 0, call.collective);
    case Form::persistent:
      return heddle_reduce_init(call.team, call.send, call.receive, call.doubles, &kSum, 0, call.options,
                                call.collective);
  }
  return HEDDLE_ERR_ARGUMENT;
}

heddle_status allreduce(const CollectiveCall& call) {
  switch (call.form) {
    case Form::blocking:
      return heddle_allreduce(call.team, call.send, call.receive, call.doubles, &kSum);
    case Form::nonblocking:
      return heddle_allreduce_start(call.team, call.send, call.receive, call.doubles, &kSum, call.collective);
    case Form::persistent:
      return heddle_allreduce_init(call.team, call.send, call.receive, call.doubles, &kSum, call.options,
                                   call.collective);
  }
  return HEDDLE_ERR_ARGUMENT;
}

heddle_status reduce_scatter(const CollectiveCall& call) {
  switch (call.form) {
    case Form::blocking:
      return heddle_reduce_scatter(call.team, call.send, call.receive, call.doubles, &kSum);
    case Form::nonblocking:
      return heddle_reduce_scatter_start(call.team, call.send, call.receive, call.doubles, &kSum, call.collective);
    case Form::persistent:
      return heddle_reduce_scatter_init(call.team, call.send, call.receive, call.doubles, &kSum, call.options,
                                        call.collective);
  }
  return HEDDLE_ERR_ARGUMENT;
}

heddle_status scan(const CollectiveCall& call) {
  switch (call.form) {
    case Form::blocking:
      return heddle_scan(call.team, call.send, call.receive, call.doubles, &kSum);
    case Form::nonblocking:
      return heddle_scan_start(call.team, call.send, call.receive, call.doubles, &kSum, call.collective);
    case Form::persistent:
      return heddle_scan_init(call.team, call.send, call.receive, call.doubles, &kSum, call.options, call.collective);
  }
  return HEDDLE_ERR_ARGUMENT;
}

heddle_status gather(const CollectiveCall& call) {
  switch (call.form) {
    case Form::blocking:
      return heddle_gather(call.team, call.send, call.receive, call.doubles * sizeof(double), 0);
    case Form::nonblocking:
      return heddle_gather_start(call.team, call.send, call.receive, call.doubles * sizeof(double), 0, call.collective);
    case Form::persistent:
      return heddle_gather_init(call.team, call.send, call.receive, call.doubles * sizeof(double), 0, call.options,
                                call.collective);
  }
  return HEDDLE_ERR_ARGUMENT;
}

heddle_status gatherv(const CollectiveCall& call) {
  const Equal blocks(call);
  switch (call.form) {
    case Form::blocking:
      return heddle_gatherv(call.team, call.send, call.doubles * sizeof(double), call.receive, &blocks.list, 0);
    case Form::nonblocking:
      return heddle_gatherv_start(call.team, call.send, call.doubles * sizeof(double), call.receive, &blocks.list, 0,
                                  call.collective);
    case Form::persistent:
      return heddle_gatherv_init(call.team, call.send, call.doubles * sizeof(double), call.receive, &blocks.list, 0,
                                 call.options, call.collective);
  }
  return HEDDLE_ERR_ARGUMENT;
}

heddle_status allgather(const CollectiveCall& call) {
  switch (call.form) {
    case Form::blocking:
      return heddle_allgather(call.team, call.send, call.receive, call.doubles * sizeof(double));
    case Form::nonblocking:
      return heddle_allgather_start(call.team, call.send, call.receive, call.doubles * sizeof(double), call.collective);
    case Form::persistent:
      return heddle_allgather_init(call.team, call.send, call.receive, call.doubles * sizeof(double), call.options,
                                   call.collective);
  }
  return HEDDLE_ERR_ARGUMENT;
}

heddle_status allgatherv(const CollectiveCall& call) {
  const Equal blocks(call);
  switch (call.form) {
    case Form::blocking:
      return heddle_allgatherv(call.team, call.send, call.receive, &blocks.list);
    case Form::nonblocking:
      return heddle_allgatherv_start(call.team, call.send, call.receive, &blocks.list, call.collective);
    case Form::persistent:
      return heddle_allgatherv_init(call.team, call.send, call.receive, &blocks.list, call.options, call.collective);
  }
  return HEDDLE_ERR_ARGUMENT;
}

heddle_status scatter(const CollectiveCall& call) {
  switch (call.form) {
    case Form::blocking:
      return heddle_scatter(call.team, call.send, call.receive, call.doubles * sizeof(double), 0);
    case Form::nonblocking:
      return heddle_scatter_start(call.team, call.send, call.receive, call.doubles * sizeof(double), 0,
                                  call.collective);
    case Form::persistent:
      return heddle_scatter_init(call.team, call.send, call.receive, call.doubles * sizeof(double), 0, call.options,
                                 call.collective);
  }
  return HEDDLE_ERR_ARGUMENT;
}

heddle_status scatterv(const CollectiveCall& call) {
  const Equal blocks(call);
  switch (call.form) {
    case Form::blocking:
      return heddle_scatterv(call.team, call.send, &blocks.list, call.receive, call.doubles * sizeof(double), 0);
    case Form::nonblocking:
      return heddle_scatterv_start(call.team, call.send, &blocks.list, call.receive, call.doubles * sizeof(double), 0,
                                   call.collective);
    case Form::persistent:
      return heddle_scatterv_init(call.team, call.send, &blocks.list, call.receive, call.doubles * sizeof(double), 0,
                                  call.options, call.collective);
  }
  return HEDDLE_ERR_ARGUMENT;
}

heddle_status alltoall(const CollectiveCall& call) {
  switch (call.form) {
    case Form::blocking:
      return heddle_alltoall(call.team, call.send, call.receive, call.doubles * sizeof(double));
    case Form::nonblocking:
      return heddle_alltoall_start(call.team, call.send, call.receive, call.doubles * sizeof(double), call.collective);
    case Form::persistent:
      return heddle_alltoall_init(call.team, call.send, call.receive, call.doubles * sizeof(double), call.options,
                                  call.collective);
  }
  return HEDDLE_ERR_ARGUMENT;
}

heddle_status alltoallv(const CollectiveCall& call) {
  const Equal blocks(call);
  switch (call.form) {
    case Form::blocking:
      return heddle_alltoallv(call.team, call.send, &blocks.list, call.receive, &blocks.list);
    case Form::nonblocking:
      return heddle_alltoallv_start(call.team, call.send, &blocks.list, call.receive, &blocks.list, call.collective);
    case Form::persistent:
      return heddle_alltoallv_init(call.team, call.send, &blocks.list, call.receive, &blocks.list, call.options,
                                   call.collective);
  }
  return HEDDLE_ERR_ARGUMENT;
}

heddle_status neighbor_alltoallv(const CollectiveCall& call) {
  const Equal blocks(call);
  const std::array<std::uint32_t, 2> targets{(call.rank + 1) % call.size, (call.rank + call.size - 1) % call.size};
  const std::array<std::uint32_t, 2> sources{targets[1], targets[0]};
  const heddle_neighbors ring{sources.data(), 2, targets.data(), 2};
  switch (call.form) {
    case Form::blocking:
      return heddle_neighbor_alltoallv(call.team, &ring, call.send, &blocks.list, call.receive, &blocks.list);
    case Form::nonblocking:
      return heddle_neighbor_alltoallv_start(call.team, &ring, call.send, &blocks.list, call.receive, &blocks.list,
                                             call.collective);
    case Form::persistent:
      return heddle_neighbor_alltoallv_init(call.team, &ring, call.send, &blocks.list, call.receive, &blocks.list,
                                            call.options, call.collective);
  }
  return HEDDLE_ERR_ARGUMENT;
}

struct Row {
  std::string_view name;
  heddle_status (*call)(const CollectiveCall& call);
};
constexpr std::array kRows = {
    Row{"barrier", barrier},
    Row{"broadcast", broadcast},
    Row{"reduce", reduce},
    Row{"allreduce", allreduce},
    Row{"reduce_scatter", reduce_scatter},
    Row{"scan", scan},
    Row{"gather", gather},
    Row{"gatherv", gatherv},
    Row{"allgather", allgather},
    Row{"allgatherv", allgatherv},
    Row{"scatter", scatter},
    Row{"scatterv", scatterv},
    Row{"alltoall", alltoall},
    Row{"alltoallv", alltoallv},
    Row{"neighbor_alltoallv", neighbor_alltoallv},
};

}  // namespace

heddle_status call_collective(std::string_view operation, const CollectiveCall& call) {
  for (const Row& row : kRows)
    if (row.name == operation) return row.call(call);
  return HEDDLE_ERR_ARGUMENT;
}

}  // namespace heddle::bench::work
