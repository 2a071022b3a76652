// Collective operations of MPI, measured as Heddle's are: harness/collective_times.hpp. Persistent ones where the MPI has them, by the
// standard's names (MPI 4) or Open MPI's earlier ones.
#include <mpi.h>
#if defined(OPEN_MPI) && MPI_VERSION < 4
#include <mpi-ext.h>
#endif

#include <cstdio>
#include <string>

#include "harness/collective_times.hpp"

#if MPI_VERSION >= 4
#define HEDDLE_PEER_PERSISTENT(name) MPI_##name##_init
#elif defined(OMPI_HAVE_MPI_EXT_PCOLLREQ)
#define HEDDLE_PEER_PERSISTENT(name) MPIX_##name##_init
#endif

namespace heddle::bench::peers {
namespace {

class Mpi {
 public:
  explicit Mpi(const char* name) : name_(name) {
    int rank = 0;
    int size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    rank_ = static_cast<std::uint32_t>(rank);
    size_ = static_cast<std::uint32_t>(size);
  }

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
    operation_ = operation;
    form_ = form;
    count_ = static_cast<int>(doubles);
    send_.assign(doubles * size_ + 1, 0);
    receive_.assign(doubles * size_ + 1, 0);
    return form != "persistent" || init();
  }
  void start() {
    if (form_ == "persistent") MPI_Start(&request_);
    if (form_ == "nonblocking") begin();
  }
  void wait() {
    if (form_ == "blocking") {
      block();
    } else {
      MPI_Wait(&request_, MPI_STATUS_IGNORE);
    }
  }
  void drop() {
    if (form_ == "persistent") MPI_Request_free(&request_);
  }

 private:
  bool init() {
#ifdef HEDDLE_PEER_PERSISTENT
    double* const to = receive_.data();
    const double* const from = send_.data();
    const MPI_Comm all = MPI_COMM_WORLD;
    if (operation_ == "barrier") {
      HEDDLE_PEER_PERSISTENT(Barrier)(all, MPI_INFO_NULL, &request_);
    } else if (operation_ == "broadcast") {
      HEDDLE_PEER_PERSISTENT(Bcast)(to, count_, MPI_DOUBLE, 0, all, MPI_INFO_NULL, &request_);
    } else if (operation_ == "reduce") {
      HEDDLE_PEER_PERSISTENT(Reduce)(from, to, count_, MPI_DOUBLE, MPI_SUM, 0, all, MPI_INFO_NULL, &request_);
    } else if (operation_ == "allreduce") {
      HEDDLE_PEER_PERSISTENT(Allreduce)(from, to, count_, MPI_DOUBLE, MPI_SUM, all, MPI_INFO_NULL, &request_);
    } else if (operation_ == "allgather") {
      HEDDLE_PEER_PERSISTENT(Allgather)(from, count_, MPI_DOUBLE, to, count_, MPI_DOUBLE, all, MPI_INFO_NULL,
                                        &request_);
    } else {
      HEDDLE_PEER_PERSISTENT(Alltoall)(from, count_, MPI_DOUBLE, to, count_, MPI_DOUBLE, all, MPI_INFO_NULL, &request_);
    }
    return true;
#else
    return false;
#endif
  }
  void begin() {
    double* const to = receive_.data();
    const double* const from = send_.data();
    const MPI_Comm all = MPI_COMM_WORLD;
    if (operation_ == "barrier") {
      MPI_Ibarrier(all, &request_);
    } else if (operation_ == "broadcast") {
      MPI_Ibcast(to, count_, MPI_DOUBLE, 0, all, &request_);
    } else if (operation_ == "reduce") {
      MPI_Ireduce(from, to, count_, MPI_DOUBLE, MPI_SUM, 0, all, &request_);
    } else if (operation_ == "allreduce") {
      MPI_Iallreduce(from, to, count_, MPI_DOUBLE, MPI_SUM, all, &request_);
    } else if (operation_ == "allgather") {
      MPI_Iallgather(from, count_, MPI_DOUBLE, to, count_, MPI_DOUBLE, all, &request_);
    } else {
      MPI_Ialltoall(from, count_, MPI_DOUBLE, to, count_, MPI_DOUBLE, all, &request_);
    }
  }
  void block() {
    double* const to = receive_.data();
    const double* const from = send_.data();
    const MPI_Comm all = MPI_COMM_WORLD;
    if (operation_ == "barrier") {
      MPI_Barrier(all);
    } else if (operation_ == "broadcast") {
      MPI_Bcast(to, count_, MPI_DOUBLE, 0, all);
    } else if (operation_ == "reduce") {
      MPI_Reduce(from, to, count_, MPI_DOUBLE, MPI_SUM, 0, all);
    } else if (operation_ == "allreduce") {
      MPI_Allreduce(from, to, count_, MPI_DOUBLE, MPI_SUM, all);
    } else if (operation_ == "allgather") {
      MPI_Allgather(from, count_, MPI_DOUBLE, to, count_, MPI_DOUBLE, all);
    } else {
      MPI_Alltoall(from, count_, MPI_DOUBLE, to, count_, MPI_DOUBLE, all);
    }
  }

  const char* name_;
  std::uint32_t rank_ = 0;
  std::uint32_t size_ = 0;
  std::string operation_;
  std::string form_;
  int count_ = 0;
  std::vector<double> send_;
  std::vector<double> receive_;
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
    std::fprintf(stderr, "%s: %s\n%s", argv[0], error.c_str(), harness::kCollectiveUsage);
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
