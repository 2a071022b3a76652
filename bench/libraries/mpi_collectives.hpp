// Collective operations of MPI. Persistent ones where the MPI has them, by the standard's names
// (MPI
// 4) or Open MPI's earlier ones.
#pragma once

#include <mpi.h>
#if defined(OPEN_MPI) && MPI_VERSION < 4
#include <mpi-ext.h>
#endif

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "measure/collectives.hpp"

#if MPI_VERSION >= 4
#define HEDDLE_MPI_INIT(name, ...) MPI_##name##_init(__VA_ARGS__, MPI_INFO_NULL, call.request)
#elif defined(OMPI_HAVE_MPI_EXT_PCOLLREQ)
#define HEDDLE_MPI_INIT(name, ...) MPIX_##name##_init(__VA_ARGS__, MPI_INFO_NULL, call.request)
#else
#define HEDDLE_MPI_INIT(name, ...) MPI_ERR_UNSUPPORTED_OPERATION
#endif

namespace heddle::bench::libraries {

enum class Form { persistent, nonblocking, blocking };

// The arguments of one process; the root is 0.
struct MpiCall {
  Form form = Form::blocking;
  MPI_Comm all = MPI_COMM_NULL;
  MPI_Comm ring = MPI_COMM_NULL;  // each process and the next and last one
  double* send = nullptr;
  double* receive = nullptr;
  int count = 0;
  const int* counts = nullptr;  // of the blocks of lists, all `count`
  const int* displacements = nullptr;
  MPI_Request* request = nullptr;
};

// The three forms of an operation. Their arguments are the same, except for the last ones.
#define HEDDLE_MPI_ROW(name, direct, started, ...)                                         \
  Row {                                                                                    \
    name, [](const MpiCall& call) {                                                        \
      if (call.form == Form::blocking) return MPI_##direct(__VA_ARGS__);                   \
      if (call.form == Form::nonblocking) return MPI_##started(__VA_ARGS__, call.request); \
      return HEDDLE_MPI_INIT(direct, __VA_ARGS__);                                         \
    }                                                                                      \
  }
#define HEDDLE_MPI_SEND call.send, call.count, MPI_DOUBLE
#define HEDDLE_MPI_RECEIVE call.receive, call.count, MPI_DOUBLE
#define HEDDLE_MPI_REDUCED call.send, call.receive, call.count, MPI_DOUBLE, MPI_SUM
#define HEDDLE_MPI_LIST(buffer) call.buffer, call.counts, call.displacements, MPI_DOUBLE

struct Row {
  std::string_view name;
  int (*call)(const MpiCall& call);
};
inline const std::array kRows = {
    HEDDLE_MPI_ROW("barrier", Barrier, Ibarrier, call.all),
    HEDDLE_MPI_ROW("broadcast", Bcast, Ibcast, HEDDLE_MPI_RECEIVE, 0, call.all),
    HEDDLE_MPI_ROW("reduce", Reduce, Ireduce, HEDDLE_MPI_REDUCED, 0, call.all),
    HEDDLE_MPI_ROW("allreduce", Allreduce, Iallreduce, HEDDLE_MPI_REDUCED, call.all),
    HEDDLE_MPI_ROW("reduce_scatter", Reduce_scatter_block, Ireduce_scatter_block, HEDDLE_MPI_REDUCED, call.all),
    HEDDLE_MPI_ROW("scan", Scan, Iscan, HEDDLE_MPI_REDUCED, call.all),
    HEDDLE_MPI_ROW("gather", Gather, Igather, HEDDLE_MPI_SEND, HEDDLE_MPI_RECEIVE, 0, call.all),
    HEDDLE_MPI_ROW("gatherv", Gatherv, Igatherv, HEDDLE_MPI_SEND, HEDDLE_MPI_LIST(receive), 0, call.all),
    HEDDLE_MPI_ROW("allgather", Allgather, Iallgather, HEDDLE_MPI_SEND, HEDDLE_MPI_RECEIVE, call.all),
    HEDDLE_MPI_ROW("allgatherv", Allgatherv, Iallgatherv, HEDDLE_MPI_SEND, HEDDLE_MPI_LIST(receive), call.all),
    HEDDLE_MPI_ROW("scatter", Scatter, Iscatter, HEDDLE_MPI_SEND, HEDDLE_MPI_RECEIVE, 0, call.all),
    HEDDLE_MPI_ROW("scatterv", Scatterv, Iscatterv, HEDDLE_MPI_LIST(send), HEDDLE_MPI_RECEIVE, 0, call.all),
    HEDDLE_MPI_ROW("alltoall", Alltoall, Ialltoall, HEDDLE_MPI_SEND, HEDDLE_MPI_RECEIVE, call.all),
    HEDDLE_MPI_ROW("alltoallv", Alltoallv, Ialltoallv, HEDDLE_MPI_LIST(send), HEDDLE_MPI_LIST(receive), call.all),
    HEDDLE_MPI_ROW("neighbor_alltoallv", Neighbor_alltoallv, Ineighbor_alltoallv, HEDDLE_MPI_LIST(send),
                   HEDDLE_MPI_LIST(receive), call.ring),
};

class MpiCollectives {
 public:
  explicit MpiCollectives(const char* name) : name_(name) {
    int rank = 0;
    int size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    size_ = static_cast<std::size_t>(size);
    // Sends the first block to the next process and receives the first block of the last: see
    // measure::Member.
    const std::array<int, 2> targets{(rank + 1) % size, (rank + size - 1) % size};
    const std::array<int, 2> sources{targets[1], targets[0]};
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, sources.data(), MPI_UNWEIGHTED, 2, targets.data(), MPI_UNWEIGHTED,
                                   MPI_INFO_NULL, 0, &call_.ring);
    call_.all = MPI_COMM_WORLD;
    call_.request = &request_;
  }
  MpiCollectives(const MpiCollectives&) = delete;
  MpiCollectives& operator=(const MpiCollectives&) = delete;
  ~MpiCollectives() { MPI_Comm_free(&call_.ring); }

  [[nodiscard]] const char* name() const { return name_; }
  void barrier() { MPI_Barrier(MPI_COMM_WORLD); }
  void exchange(const void* mine, std::size_t bytes, void* all) {
    const int count = static_cast<int>(bytes);
    MPI_Allgather(mine, count, MPI_BYTE, all, count, MPI_BYTE, MPI_COMM_WORLD);
  }
  double* send() { return send_.data(); }
  double* receive() { return receive_.data(); }
  [[nodiscard]] static const char* algorithm() { return "none"; }

  bool make(const std::string& operation, const std::string& form, std::size_t doubles) {
    row_ = std::find_if(kRows.begin(), kRows.end(), [&](const Row& row) { return row.name == operation; });
    if (row_ == kRows.end()) return false;
    call_.form = form == "blocking" ? Form::blocking : form == "persistent" ? Form::persistent : Form::nonblocking;
    call_.count = static_cast<int>(doubles);
    const std::size_t blocks = std::max<std::size_t>(size_, 2);
    send_.assign(doubles * blocks + 1, 0);
    receive_.assign(doubles * blocks + 1, 0);
    counts_.assign(blocks, call_.count);
    displacements_.resize(blocks);
    for (std::size_t i = 0; i < blocks; ++i) displacements_[i] = static_cast<int>(i * doubles);
    call_.send = send_.data();
    call_.receive = receive_.data();
    call_.counts = counts_.data();
    call_.displacements = displacements_.data();
    return call_.form != Form::persistent || row_->call(call_) == MPI_SUCCESS;
  }
  void start() {
    if (call_.form == Form::persistent) MPI_Start(&request_);
    if (call_.form == Form::nonblocking) row_->call(call_);
  }
  void wait() {
    if (call_.form == Form::blocking) {
      row_->call(call_);
    } else {
      MPI_Wait(&request_, MPI_STATUS_IGNORE);
    }
  }
  void drop() {
    if (call_.form == Form::persistent) MPI_Request_free(&request_);
  }

 private:
  const char* name_;
  std::size_t size_ = 0;
  const Row* row_ = nullptr;
  MpiCall call_;
  std::vector<double> send_;
  std::vector<double> receive_;
  std::vector<int> counts_;
  std::vector<int> displacements_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

}  // namespace heddle::bench::libraries
