// MPI as a library that is measured: requests and MPI_Wait…, a window with passive targets.
// Compiled for each MPI there is.
#define OMPI_SKIP_MPICXX 1  // the long gone C++ bindings
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <vector>

#include "libraries/main.hpp"
#include "libraries/mpi_collectives.hpp"
#include "measure/all.hpp"

namespace heddle::bench::libraries {
namespace {

#if defined(HEDDLE_PEER_NAME)
constexpr const char* kName = HEDDLE_PEER_NAME;
#else
constexpr const char* kName = "mpi";
#endif

constexpr const char* kMultiple = "multiple";  // one window, and a communicator for each thread

using measure::Atomic;

class Window {
 public:
  explicit Window(std::uint64_t bytes) {
    MPI_Win_allocate(static_cast<MPI_Aint>(bytes), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &own_, &window_);
    std::memset(own_, 0, bytes);
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
  using Request = MPI_Request;
  static Request nothing() { return MPI_REQUEST_NULL; }

  // `name`: of the sharing, in records.
  Mpi(const Window& window, std::uint32_t lanes, std::uint32_t communicators, const char* name)
      : window_(window), name_(name), communicators_(communicators), lanes_(lanes) {
    for (MPI_Comm& communicator : communicators_) MPI_Comm_dup(MPI_COMM_WORLD, &communicator);
    for (std::uint32_t i = 0; i < lanes; ++i) lanes_[i] = communicators_[i % communicators];
  }
  Mpi(const Mpi&) = delete;
  Mpi& operator=(const Mpi&) = delete;
  ~Mpi() {
    for (MPI_Comm& communicator : communicators_) MPI_Comm_free(&communicator);
  }

  [[nodiscard]] measure::Identity identity() const {
    const bool own = name_ != kMultiple && (communicators_.size() > 1 || lanes_.size() == 1);
    return {kName, name_, "allocated", own, false, false};
  }
  [[nodiscard]] std::byte* own(std::uint64_t offset) const { return window_.own() + offset; }

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

  bool put(std::uint32_t, std::uint32_t to, std::uint64_t offset, const void* data, std::uint64_t bytes) {
    MPI_Put(data, static_cast<int>(bytes), MPI_BYTE, static_cast<int>(to), static_cast<MPI_Aint>(offset),
            static_cast<int>(bytes), MPI_BYTE, window_.handle());
    return true;
  }
  bool get(std::uint32_t, std::uint32_t from, std::uint64_t offset, void* data, std::uint64_t bytes) {
    MPI_Get(data, static_cast<int>(bytes), MPI_BYTE, static_cast<int>(from), static_cast<MPI_Aint>(offset),
            static_cast<int>(bytes), MPI_BYTE, window_.handle());
    return true;
  }
  // Compare-and-swap never returns in Open MPI 4.1.4 on shared memory.
  template <Atomic kOp>
    requires(kOp != Atomic::compare_swap)
  bool atomic(std::uint32_t, std::uint32_t to, std::uint64_t offset, std::uint64_t operand, std::uint64_t* result) {
    const std::array<MPI_Op, 7> ops = {MPI_SUM, MPI_REPLACE, MPI_OP_NULL, MPI_SUM, MPI_BXOR, MPI_BAND, MPI_BOR};
    const MPI_Op op = ops[static_cast<std::size_t>(kOp)];
    const auto rank = static_cast<int>(to);
    const auto at = static_cast<MPI_Aint>(offset);
    if constexpr (kOp == Atomic::fetch_add || kOp == Atomic::swap) {
      MPI_Fetch_and_op(&operand, result, MPI_UINT64_T, rank, at, op, window_.handle());
    } else {
      MPI_Accumulate(&operand, 1, MPI_UINT64_T, rank, at, 1, MPI_UINT64_T, op, window_.handle());
    }
    MPI_Win_flush_local(rank, window_.handle());
    return true;
  }
  void flush(std::uint32_t, std::uint32_t rank) { MPI_Win_flush(static_cast<int>(rank), window_.handle()); }
  void quiet(std::uint32_t) { MPI_Win_flush_all(window_.handle()); }
  // MPI has no lighter order between puts, and nothing is sure to leave before a flush.
  bool put_signal(std::uint32_t lane, std::uint32_t to, std::uint64_t offset, const void* data, std::uint64_t bytes,
                  std::uint64_t word, std::uint64_t value) {
    put(lane, to, offset, data, bytes);
    quiet(lane);
    set_word(lane, to, word, value);
    return false;
  }
  void set_word(std::uint32_t lane, std::uint32_t to, std::uint64_t word, std::uint64_t value) {
    put(lane, to, word, &value, sizeof value);
    quiet(lane);
  }
  bool progress(std::uint32_t) {
    int flag = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    return flag != 0;
  }
  void meet() { MPI_Barrier(MPI_COMM_WORLD); }

 private:
  static int source(std::uint32_t from) { return from == measure::kAny ? MPI_ANY_SOURCE : static_cast<int>(from); }
  const Window& window_;
  const char* name_;
  std::vector<MPI_Comm> communicators_;
  std::vector<MPI_Comm> lanes_;
};

void run(harness::BenchSession& session, bool threads) {
  measure::Bench bench(session);
  const measure::Needs needs = measure::needs_of(session);
  const Window window(needs.region_bytes);
  const bool programs = measure::only_programs(session.options());
  {
    Mpi own(window, needs.lanes, needs.lanes, !programs ? kMultiple : needs.lanes == 1 ? "single" : "own");
    bench.use(own);
    programs ? run_programs(bench, own) : run_all(bench, own);
  }
  if (!programs || !threads) return;
  Mpi one(window, needs.lanes, 1, "one");
  bench.use(one);
  run_shared_programs(bench, one, false);
}

}  // namespace
}  // namespace heddle::bench::libraries

int main(int argc, char** argv) {
  using namespace heddle::bench;
  const harness::BenchOptions options = libraries::options_or_exit(argc, argv);
  const bool collectives = harness::are_collectives(options);
  // Initialises as programs without threads do, and as programs with threads do.
  const bool threads = !collectives && (!measure::only_programs(options) || measure::has_threads(options));
  const int wanted = threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE;
  int provided = 0;
  int rank = 0;
  int size = 0;
  MPI_Init_thread(&argc, &argv, wanted, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (provided < wanted || (!collectives && size % 2 != 0)) {
    std::fprintf(stderr, "%s: needs pairs of processes, and MPI_THREAD_MULTIPLE for threads\n", argv[0]);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  {
    harness::Channel channel = libraries::channel_or_exit(options);
    channel.set_rank(static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(size));
    harness::BenchSession session(channel, options, harness::print_sample);
    if (collectives) {
      libraries::MpiCollectives library(libraries::kName);
      measure::CollectiveTimes(session, library).run();
    } else {
      libraries::run(session, threads);
    }
  }
  MPI_Finalize();
  return 0;
}
