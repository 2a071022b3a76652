// Collective operations of MPI, measured as Heddle's are: harness/collective_times.hpp. Persistent
// ones where the MPI has them, by the standard's names (MPI 4) or Open MPI's earlier ones.
#include <mpi.h>
#if defined(OPEN_MPI) && MPI_VERSION < 4
#include <mpi-ext.h>
#endif

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "harness/collective_times.hpp"
#include "harness/option_values.hpp"

#if MPI_VERSION >= 4
#define HEDDLE_PEER_INIT(name, ...) MPI_##name##_init(__VA_ARGS__, MPI_INFO_NULL, call.request)
#elif defined(OMPI_HAVE_MPI_EXT_PCOLLREQ)
#define HEDDLE_PEER_INIT(name, ...) MPIX_##name##_init(__VA_ARGS__, MPI_INFO_NULL, call.request)
#else
#define HEDDLE_PEER_INIT(name, ...) MPI_ERR_UNSUPPORTED_OPERATION
#endif

namespace heddle::bench::peers {
namespace {

enum class Form { persistent, nonblocking, blocking };

// What one process passes; the root is 0.
struct Call {
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

int barrier(const Call& call) {
  if (call.form == Form::blocking) return MPI_Barrier(call.all);
  if (call.form == Form::nonblocking) return MPI_Ibarrier(call.all, call.request);
  return HEDDLE_PEER_INIT(Barrier, call.all);
}
int broadcast(const Call& call) {
  if (call.form == Form::blocking) return MPI_Bcast(call.receive, call.count, MPI_DOUBLE, 0, call.all);
  if (call.form == Form::nonblocking)
    return MPI_Ibcast(call.receive, call.count, MPI_DOUBLE, 0, call.all, call.request);
  return HEDDLE_PEER_INIT(Bcast, call.receive, call.count, MPI_DOUBLE, 0, call.all);
}
int reduce(const Call& call) {
  if (call.form == Form::blocking)
    return MPI_Reduce(call.send, call.receive, call.count, MPI_DOUBLE, MPI_SUM, 0, call.all);
  if (call.form == Form::nonblocking)
    return MPI_Ireduce(call.send, call.receive, call.count, MPI_DOUBLE, MPI_SUM, 0, call.all, call.request);
  return HEDDLE_PEER_INIT(Reduce, call.send, call.receive, call.count, MPI_DOUBLE, MPI_SUM, 0, call.all);
}
int allreduce(const Call& call) {
  if (call.form == Form::blocking)
    return MPI_Allreduce(call.send, call.receive, call.count, MPI_DOUBLE, MPI_SUM, call.all);
  if (call.form == Form::nonblocking)
    return MPI_Iallreduce(call.send, call.receive, call.count, MPI_DOUBLE, MPI_SUM, call.all, call.request);
  return HEDDLE_PEER_INIT(Allreduce, call.send, call.receive, call.count, MPI_DOUBLE, MPI_SUM, call.all);
}
int reduce_scatter(const Call& call) {
  if (call.form == Form::blocking)
    return MPI_Reduce_scatter_block(call.send, call.receive, call.count, MPI_DOUBLE, MPI_SUM, call.all);
  if (call.form == Form::nonblocking)
    return MPI_Ireduce_scatter_block(call.send, call.receive, call.count, MPI_DOUBLE, MPI_SUM, call.all, call.request);
  return HEDDLE_PEER_INIT(Reduce_scatter_block, call.send, call.receive, call.count, MPI_DOUBLE, MPI_SUM, call.all);
}
int scan(const Call& call) {
  if (call.form == Form::blocking) return MPI_Scan(call.send, call.receive, call.count, MPI_DOUBLE, MPI_SUM, call.all);
  if (call.form == Form::nonblocking)
    return MPI_Iscan(call.send, call.receive, call.count, MPI_DOUBLE, MPI_SUM, call.all, call.request);
  return HEDDLE_PEER_INIT(Scan, call.send, call.receive, call.count, MPI_DOUBLE, MPI_SUM, call.all);
}
int gather(const Call& call) {
  if (call.form == Form::blocking)
    return MPI_Gather(call.send, call.count, MPI_DOUBLE, call.receive, call.count, MPI_DOUBLE, 0, call.all);
  if (call.form == Form::nonblocking)
    return MPI_Igather(call.send, call.count, MPI_DOUBLE, call.receive, call.count, MPI_DOUBLE, 0, call.all,
                       call.request);
  return HEDDLE_PEER_INIT(Gather, call.send, call.count, MPI_DOUBLE, call.receive, call.count, MPI_DOUBLE, 0, call.all);
}
int gatherv(const Call& call) {
  if (call.form == Form::blocking)
    return MPI_Gatherv(call.send, call.count, MPI_DOUBLE, call.receive, call.counts, call.displacements, MPI_DOUBLE, 0,
                       call.all);
  if (call.form == Form::nonblocking)
    return MPI_Igatherv(call.send, call.count, MPI_DOUBLE, call.receive, call.counts, call.displacements, MPI_DOUBLE, 0,
                        call.all, call.request);
  return HEDDLE_PEER_INIT(Gatherv, call.send, call.count, MPI_DOUBLE, call.receive, call.counts, call.displacements,
                          MPI_DOUBLE, 0, call.all);
}
int allgather(const Call& call) {
  if (call.form == Form::blocking)
    return MPI_Allgather(call.send, call.count, MPI_DOUBLE, call.receive, call.count, MPI_DOUBLE, call.all);
  if (call.form == Form::nonblocking)
    return MPI_Iallgather(call.send, call.count, MPI_DOUBLE, call.receive, call.count, MPI_DOUBLE, call.all,
                          call.request);
  return HEDDLE_PEER_INIT(Allgather, call.send, call.count, MPI_DOUBLE, call.receive, call.count, MPI_DOUBLE, call.all);
}
int allgatherv(const Call& call) {
  if (call.form == Form::blocking)
    return MPI_Allgatherv(call.send, call.count, MPI_DOUBLE, call.receive, call.counts, call.displacements, MPI_DOUBLE,
                          call.all);
  if (call.form == Form::nonblocking)
    return MPI_Iallgatherv(call.send, call.count, MPI_DOUBLE, call.receive, call.counts, call.displacements, MPI_DOUBLE,
                           call.all, call.request);
  return HEDDLE_PEER_INIT(Allgatherv, call.send, call.count, MPI_DOUBLE, call.receive, call.counts, call.displacements,
                          MPI_DOUBLE, call.all);
}
int scatter(const Call& call) {
  if (call.form == Form::blocking)
    return MPI_Scatter(call.send, call.count, MPI_DOUBLE, call.receive, call.count, MPI_DOUBLE, 0, call.all);
  if (call.form == Form::nonblocking)
    return MPI_Iscatter(call.send, call.count, MPI_DOUBLE, call.receive, call.count, MPI_DOUBLE, 0, call.all,
                        call.request);
  return HEDDLE_PEER_INIT(Scatter, call.send, call.count, MPI_DOUBLE, call.receive, call.count, MPI_DOUBLE, 0,
                          call.all);
}
int scatterv(const Call& call) {
  if (call.form == Form::blocking)
    return MPI_Scatterv(call.send, call.counts, call.displacements, MPI_DOUBLE, call.receive, call.count, MPI_DOUBLE, 0,
                        call.all);
  if (call.form == Form::nonblocking)
    return MPI_Iscatterv(call.send, call.counts, call.displacements, MPI_DOUBLE, call.receive, call.count, MPI_DOUBLE,
                         0, call.all, call.request);
  return HEDDLE_PEER_INIT(Scatterv, call.send, call.counts, call.displacements, MPI_DOUBLE, call.receive, call.count,
                          MPI_DOUBLE, 0, call.all);
}
int alltoall(const Call& call) {
  if (call.form == Form::blocking)
    return MPI_Alltoall(call.send, call.count, MPI_DOUBLE, call.receive, call.count, MPI_DOUBLE, call.all);
  if (call.form == Form::nonblocking)
    return MPI_Ialltoall(call.send, call.count, MPI_DOUBLE, call.receive, call.count, MPI_DOUBLE, call.all,
                         call.request);
  return HEDDLE_PEER_INIT(Alltoall, call.send, call.count, MPI_DOUBLE, call.receive, call.count, MPI_DOUBLE, call.all);
}
int alltoallv(const Call& call) {
  if (call.form == Form::blocking)
    return MPI_Alltoallv(call.send, call.counts, call.displacements, MPI_DOUBLE, call.receive, call.counts,
                         call.displacements, MPI_DOUBLE, call.all);
  if (call.form == Form::nonblocking)
    return MPI_Ialltoallv(call.send, call.counts, call.displacements, MPI_DOUBLE, call.receive, call.counts,
                          call.displacements, MPI_DOUBLE, call.all, call.request);
  return HEDDLE_PEER_INIT(Alltoallv, call.send, call.counts, call.displacements, MPI_DOUBLE, call.receive, call.counts,
                          call.displacements, MPI_DOUBLE, call.all);
}
int neighbor_alltoallv(const Call& call) {
  if (call.form == Form::blocking)
    return MPI_Neighbor_alltoallv(call.send, call.counts, call.displacements, MPI_DOUBLE, call.receive, call.counts,
                                  call.displacements, MPI_DOUBLE, call.ring);
  if (call.form == Form::nonblocking)
    return MPI_Ineighbor_alltoallv(call.send, call.counts, call.displacements, MPI_DOUBLE, call.receive, call.counts,
                                   call.displacements, MPI_DOUBLE, call.ring, call.request);
  return HEDDLE_PEER_INIT(Neighbor_alltoallv, call.send, call.counts, call.displacements, MPI_DOUBLE, call.receive,
                          call.counts, call.displacements, MPI_DOUBLE, call.ring);
}

struct Row {
  std::string_view name;
  int (*call)(const Call& call);
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

class Mpi {
 public:
  explicit Mpi(const char* name) : name_(name) {
    int rank = 0;
    int size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    rank_ = static_cast<std::uint32_t>(rank);
    size_ = static_cast<std::uint32_t>(size);
    // To the next its first block and from the last the first: see harness/collective_times.hpp.
    const std::array<int, 2> targets{(rank + 1) % size, (rank + size - 1) % size};
    const std::array<int, 2> sources{targets[1], targets[0]};
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, sources.data(), MPI_UNWEIGHTED, 2, targets.data(), MPI_UNWEIGHTED,
                                   MPI_INFO_NULL, 0, &call_.ring);
    call_.all = MPI_COMM_WORLD;
    call_.request = &request_;
  }
  Mpi(const Mpi&) = delete;
  Mpi& operator=(const Mpi&) = delete;
  ~Mpi() { MPI_Comm_free(&call_.ring); }

  [[nodiscard]] const char* name() const { return name_; }
  [[nodiscard]] std::uint32_t rank() const { return rank_; }
  [[nodiscard]] std::uint32_t size() const { return size_; }
  void barrier() { MPI_Barrier(MPI_COMM_WORLD); }
  void exchange(const void* mine, std::size_t bytes, void* all) {
    const int count = static_cast<int>(bytes);
    MPI_Allgather(mine, count, MPI_BYTE, all, count, MPI_BYTE, MPI_COMM_WORLD);
  }
  double* send() { return send_.data(); }
  double* receive() { return receive_.data(); }
  [[nodiscard]] static std::string algorithm() { return "-"; }

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
  std::uint32_t rank_ = 0;
  std::uint32_t size_ = 0;
  const Row* row_ = nullptr;
  Call call_;
  std::vector<double> send_;
  std::vector<double> receive_;
  std::vector<int> counts_;
  std::vector<int> displacements_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

constexpr const char* library_name() {
#if defined(OPEN_MPI)
  return "openmpi";
#elif defined(MPICH)
  return "mpich";
#else
  return "mpi";
#endif
}

}  // namespace
}  // namespace heddle::bench::peers

int main(int argc, char** argv) {
  using namespace heddle::bench;
  std::string error;
  const auto options = harness::parse_collective_options(argc, argv, &error);
  if (!options) {
    std::fprintf(stderr, "%s: %s\n%s", argv[0], error.c_str(), harness::kHelpHint);
    return 2;
  }
  MPI_Init(&argc, &argv);
  bool right = false;
  {
    peers::Mpi library(peers::library_name());
    right = harness::CollectiveTimes(library, *options).run();
  }
  MPI_Finalize();
  return right ? 0 : 1;
}
