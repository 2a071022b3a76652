// MPI as a library of the programs: requests and MPI_Wait…, a window with passive targets. Compiled
// for each MPI there is.
#define OMPI_SKIP_MPICXX 1  // the long gone C++ bindings
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstdio>
#include <cstring>

#include "peers/main.hpp"
#include "programs/all.hpp"

namespace heddle::bench::programs {
namespace {

#if defined(HEDDLE_PEER_NAME)
constexpr const char* kName = HEDDLE_PEER_NAME;
#else
constexpr const char* kName = "mpi";
#endif

class Window {
 public:
  Window() {
    MPI_Win_allocate(static_cast<MPI_Aint>(kRegionBytes), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &own_, &window_);
    std::memset(own_, 0, kRegionBytes);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, window_);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
  ~Window() {
    MPI_Win_unlock_all(window_);
    MPI_Win_free(&window_);
  }
  [[nodiscard]] std::byte* own() const { return static_cast<std::byte*>(own_); }
  [[nodiscard]] MPI_Win handle() const { return window_; }

 private:
  void* own_ = nullptr;
  MPI_Win window_ = MPI_WIN_NULL;
};

// A communicator for each lane, or one for all. One-sided operations are all of one window.
class Mpi {
 public:
  static constexpr bool kMessages = true;
  static constexpr bool kSignals = false;
  static constexpr bool kActive = false;
  static constexpr bool kCounts = false;
  using Request = MPI_Request;
  static Request nothing() { return MPI_REQUEST_NULL; }

  Mpi(const Window& window, std::uint32_t lanes, std::uint32_t communicators)
      : window_(window), communicators_(communicators), lanes_(lanes) {
    for (MPI_Comm& communicator : communicators_) MPI_Comm_dup(MPI_COMM_WORLD, &communicator);
    for (std::uint32_t i = 0; i < lanes; ++i) lanes_[i] = communicators_[i % communicators];
  }
  Mpi(const Mpi&) = delete;
  Mpi& operator=(const Mpi&) = delete;
  ~Mpi() {
    for (MPI_Comm& communicator : communicators_) MPI_Comm_free(&communicator);
  }

  [[nodiscard]] static const char* transport() { return kName; }
  [[nodiscard]] const char* sharing() const {
    return lanes_.size() == 1 ? "single" : communicators_.size() == 1 ? "one" : "own";
  }
  [[nodiscard]] static bool is_variant() { return false; }
  [[nodiscard]] std::uint32_t workers(std::uint32_t threads) const { return communicators_.size() == 1 ? 1 : threads; }
  [[nodiscard]] std::byte* own() const { return window_.own(); }

  void send(std::uint32_t lane, std::uint32_t to, std::uint64_t tag, const void* data, std::uint64_t bytes,
            Request& request) {
    MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, static_cast<int>(to), static_cast<int>(tag), lanes_[lane],
              &request);
  }
  void receive(std::uint32_t lane, std::uint32_t from, std::uint64_t tag, void* data, std::uint64_t bytes,
               Request& request) {
    MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, source(from), static_cast<int>(tag), lanes_[lane], &request);
  }
  void wait_all(std::uint32_t, Request* requests, std::uint64_t count) {
    MPI_Waitall(static_cast<int>(count), requests, MPI_STATUSES_IGNORE);
  }
  int wait_some(std::uint32_t, Request* requests, int count, int* ended) {
    int found = 0;
    MPI_Waitsome(count, requests, &found, ended, MPI_STATUSES_IGNORE);
    return found == MPI_UNDEFINED ? 0 : found;
  }
  void send_now(std::uint32_t lane, std::uint32_t to, std::uint64_t tag, const void* data, std::uint64_t bytes) {
    MPI_Send(data, static_cast<int>(bytes), MPI_BYTE, static_cast<int>(to), static_cast<int>(tag), lanes_[lane]);
  }
  void receive_now(std::uint32_t lane, std::uint32_t from, std::uint64_t tag, void* data, std::uint64_t bytes) {
    MPI_Recv(data, static_cast<int>(bytes), MPI_BYTE, source(from), static_cast<int>(tag), lanes_[lane],
             MPI_STATUS_IGNORE);
  }

  void put(std::uint32_t, std::uint32_t to, std::uint64_t offset, const void* data, std::uint64_t bytes) {
    MPI_Put(data, static_cast<int>(bytes), MPI_BYTE, static_cast<int>(to), static_cast<MPI_Aint>(offset),
            static_cast<int>(bytes), MPI_BYTE, window_.handle());
  }
  void get(std::uint32_t, std::uint32_t from, std::uint64_t offset, void* data, std::uint64_t bytes) {
    MPI_Get(data, static_cast<int>(bytes), MPI_BYTE, static_cast<int>(from), static_cast<MPI_Aint>(offset),
            static_cast<int>(bytes), MPI_BYTE, window_.handle());
  }
  void flush(std::uint32_t, std::uint32_t rank) { MPI_Win_flush(static_cast<int>(rank), window_.handle()); }
  void meet() { MPI_Barrier(MPI_COMM_WORLD); }

 private:
  static int source(std::uint32_t from) { return from == kAny ? MPI_ANY_SOURCE : static_cast<int>(from); }
  const Window& window_;
  std::vector<MPI_Comm> communicators_;
  std::vector<MPI_Comm> lanes_;
};

void run(harness::Session* session, harness::Crowd& crowd, const harness::Options& options, bool threads) {
  Bench bench(session, crowd, options);
  const Window window;
  const std::uint32_t lanes = threads ? kMostThreads : 1;
  {
    Mpi own(window, lanes, lanes);
    run_own(bench, own);
  }
  if (!threads) return;
  Mpi one(window, lanes, 1);
  run_one(bench, one);
}

}  // namespace
}  // namespace heddle::bench::programs

int main(int argc, char** argv) {
  using namespace heddle::bench;
  const harness::Options options = peers::options_or_exit(argc, argv);
  // As programs do that have no threads, and as those do that have.
  const bool threads = programs::has_threads(options);
  const int wanted = threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE;
  int provided = 0;
  int rank = 0;
  int size = 0;
  MPI_Init_thread(&argc, &argv, wanted, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (provided < wanted || (size != 2 && size != static_cast<int>(programs::kManyProcesses))) {
    std::fprintf(stderr, "program_%s: needs 2 or %u processes, and MPI_THREAD_MULTIPLE for programs with threads\n",
                 programs::kName, programs::kManyProcesses);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  harness::Channel channel = peers::channel_or_exit(options);
  if (rank < 2) channel.set_rank(static_cast<std::uint32_t>(rank));
  harness::Crowd crowd(channel, static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(size));
  if (crowd.leads()) {
    harness::Session session(channel, options, harness::print_sample);
    programs::run(&session, crowd, options, threads && size == 2);
  } else {
    programs::run(nullptr, crowd, options, false);
  }
  MPI_Finalize();
  return 0;
}
