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

// The three forms of an operation, whose arguments are the same but for what each ends with.
#define HEDDLE_PEER_ROW(name, direct, started, ...)                                        \
  Row {                                                                                    \
    name, [](const Call& call) {                                                           \
      if (call.form == Form::blocking) return MPI_##direct(__VA_ARGS__);                   \
      if (call.form == Form::nonblocking) return MPI_##started(__VA_ARGS__, call.request); \
      return HEDDLE_PEER_INIT(direct, __VA_ARGS__);                                        \
    }                                                                                      \
  }
#define HEDDLE_PEER_SEND call.send, call.count, MPI_DOUBLE
#define HEDDLE_PEER_RECEIVE call.receive, call.count, MPI_DOUBLE
#define HEDDLE_PEER_REDUCED call.send, call.receive, call.count, MPI_DOUBLE, MPI_SUM
#define HEDDLE_PEER_LIST(buffer) call.buffer, call.counts, call.displacements, MPI_DOUBLE

struct Row {
  std::string_view name;
  int (*call)(const Call& call);
};
const std::array kRows = {
    HEDDLE_PEER_ROW("barrier", Barrier, Ibarrier, call.all),
    HEDDLE_PEER_ROW("broadcast", Bcast, Ibcast, HEDDLE_PEER_RECEIVE, 0, call.all),
    HEDDLE_PEER_ROW("reduce", Reduce, Ireduce, HEDDLE_PEER_REDUCED, 0, call.all),
    HEDDLE_PEER_ROW("allreduce", Allreduce, Iallreduce, HEDDLE_PEER_REDUCED, call.all),
    HEDDLE_PEER_ROW("reduce_scatter", Reduce_scatter_block, Ireduce_scatter_block, HEDDLE_PEER_REDUCED, call.all),
    HEDDLE_PEER_ROW("scan", Scan, Iscan, HEDDLE_PEER_REDUCED, call.all),
    HEDDLE_PEER_ROW("gather", Gather, Igather, HEDDLE_PEER_SEND, HEDDLE_PEER_RECEIVE, 0, call.all),
    HEDDLE_PEER_ROW("gatherv", Gatherv, Igatherv, HEDDLE_PEER_SEND, HEDDLE_PEER_LIST(receive), 0, call.all),
    HEDDLE_PEER_ROW("allgather", Allgather, Iallgather, HEDDLE_PEER_SEND, HEDDLE_PEER_RECEIVE, call.all),
    HEDDLE_PEER_ROW("allgatherv", Allgatherv, Iallgatherv, HEDDLE_PEER_SEND, HEDDLE_PEER_LIST(receive), call.all),
    HEDDLE_PEER_ROW("scatter", Scatter, Iscatter, HEDDLE_PEER_SEND, HEDDLE_PEER_RECEIVE, 0, call.all),
    HEDDLE_PEER_ROW("scatterv", Scatterv, Iscatterv, HEDDLE_PEER_LIST(send), HEDDLE_PEER_RECEIVE, 0, call.all),
    HEDDLE_PEER_ROW("alltoall", Alltoall, Ialltoall, HEDDLE_PEER_SEND, HEDDLE_PEER_RECEIVE, call.all),
    HEDDLE_PEER_ROW("alltoallv", Alltoallv, Ialltoallv, HEDDLE_PEER_LIST(send), HEDDLE_PEER_LIST(receive), call.all),
    HEDDLE_PEER_ROW("neighbor_alltoallv", Neighbor_alltoallv, Ineighbor_alltoallv, HEDDLE_PEER_LIST(send),
                    HEDDLE_PEER_LIST(receive), call.ring),
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
