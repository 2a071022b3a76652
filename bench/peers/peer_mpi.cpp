// The same work on MPI, MPI_THREAD_MULTIPLE: one window, and a communicator per thread for send and
// receive.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>

#include "main.hpp"
#include "suite.hpp"

namespace heddle::bench::peers {
namespace {

class Mpi {
 public:
  explicit Mpi(std::uint64_t bytes) {
    MPI_Win_allocate(static_cast<MPI_Aint>(bytes), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &own_, &window_);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, window_);
  }
  Mpi(const Mpi&) = delete;
  Mpi& operator=(const Mpi&) = delete;
  ~Mpi() {
    MPI_Win_unlock_all(window_);
    MPI_Win_free(&window_);
  }

  [[nodiscard]] static const char* transport() { return "openmpi"; }
  [[nodiscard]] static const char* sharing() { return "multiple"; }
  [[nodiscard]] static std::uint32_t workers(std::uint32_t) { return 1; }
  [[nodiscard]] std::byte* own() const { return static_cast<std::byte*>(own_); }

  void put(std::uint32_t, std::uint32_t owner, std::uint64_t offset, const void* source, std::uint64_t size) {
    MPI_Put(source, static_cast<int>(size), MPI_BYTE, static_cast<int>(owner), static_cast<MPI_Aint>(offset),
            static_cast<int>(size), MPI_BYTE, window_);
  }
  void get(std::uint32_t, std::uint32_t owner, std::uint64_t offset, void* target, std::uint64_t size) {
    MPI_Get(target, static_cast<int>(size), MPI_BYTE, static_cast<int>(owner), static_cast<MPI_Aint>(offset),
            static_cast<int>(size), MPI_BYTE, window_);
  }
  template <Atomic kOp>
  void atomic(std::uint32_t, std::uint32_t owner, std::uint64_t offset, std::uint64_t operand, std::uint64_t* result) {
    const auto rank = static_cast<int>(owner);
    const auto at = static_cast<MPI_Aint>(offset);
    if constexpr (kOp == Atomic::fetch_add || kOp == Atomic::swap) {
      MPI_Fetch_and_op(&operand, result, MPI_UINT64_T, rank, at, op<kOp>(), window_);
      MPI_Win_flush_local(rank, window_);
    } else {
      MPI_Accumulate(&operand, 1, MPI_UINT64_T, rank, at, 1, MPI_UINT64_T, op<kOp>(), window_);
      MPI_Win_flush_local(rank, window_);
    }
  }
  void flush(std::uint32_t, std::uint32_t owner) { MPI_Win_flush(static_cast<int>(owner), window_); }
  void quiet(std::uint32_t) { MPI_Win_flush_all(window_); }
  // MPI has no lighter order between puts
  void fence(std::uint32_t) { MPI_Win_flush_all(window_); }
  void push(std::uint32_t) { MPI_Win_flush_all(window_); }  // nothing is sure to leave before
  void progress(std::uint32_t) {
    int flag = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
  }

 private:
  template <Atomic kOp>
  static MPI_Op op() {
    switch (kOp) {
      case Atomic::swap:
        return MPI_REPLACE;
      case Atomic::bit_xor:
        return MPI_BXOR;
      case Atomic::bit_and:
        return MPI_BAND;
      case Atomic::bit_or:
        return MPI_BOR;
      default:
        return MPI_SUM;
    }
  }
  void* own_ = nullptr;
  MPI_Win window_ = MPI_WIN_NULL;
};

class Messages {
 public:
  Messages(std::uint32_t rank, std::uint32_t threads)
      : peer_(1 - static_cast<int>(rank)), buffer_(kDataBytes), communicators_(threads) {
    for (MPI_Comm& communicator : communicators_) MPI_Comm_dup(MPI_COMM_WORLD, &communicator);
  }
  [[nodiscard]] static const char* name() { return "tagged"; }
  void send(std::uint32_t thread, std::uint64_t size) {
    MPI_Send(buffer_.data(), static_cast<int>(size), MPI_BYTE, peer_, 1, communicators_[thread]);
  }
  void receive(std::uint32_t thread, std::uint64_t size) {
    MPI_Recv(buffer_.data(), static_cast<int>(size), MPI_BYTE, peer_, 1, communicators_[thread], MPI_STATUS_IGNORE);
  }
  void begin_send(const void* data, std::uint64_t size) {
    MPI_Isend(data, static_cast<int>(size), MPI_BYTE, peer_, 1, communicators_[0], &begun_);
  }
  void begin_receive(void* data, std::uint64_t size) {
    MPI_Irecv(data, static_cast<int>(size), MPI_BYTE, peer_, 1, communicators_[0], &begun_);
  }
  void finish() { MPI_Wait(&begun_, MPI_STATUS_IGNORE); }
  void stream_send(std::uint32_t thread, std::uint64_t n, std::uint64_t size) {
    stream(n, [&](MPI_Request* request) {
      MPI_Isend(buffer_.data(), static_cast<int>(size), MPI_BYTE, peer_, 1, communicators_[thread], request);
    });
    receive(thread, 8);
  }
  void stream_receive(std::uint32_t thread, std::uint64_t n, std::uint64_t size) {
    std::byte target[64];
    stream(n, [&](MPI_Request* request) {
      MPI_Irecv(target, static_cast<int>(size), MPI_BYTE, peer_, 1, communicators_[thread], request);
    });
    send(thread, 8);
  }

 private:
  static constexpr std::uint64_t kWindow = 64;
  template <class Post>
  void stream(std::uint64_t n, Post&& post) {
    MPI_Request requests[kWindow];
    while (n > 0) {
      const std::uint64_t count = n < kWindow ? n : kWindow;
      for (std::uint64_t i = 0; i < count; ++i) post(&requests[i]);
      MPI_Waitall(static_cast<int>(count), requests, MPI_STATUSES_IGNORE);
      n -= count;
    }
  }
  int peer_;
  MPI_Request begun_ = MPI_REQUEST_NULL;
  std::vector<std::byte> buffer_;
  std::vector<MPI_Comm> communicators_;
};

void run(Session& session) {
  const auto threads = harness::threads_of(session.options());
  std::uint32_t most = 1;
  for (const std::uint32_t count : threads) most = std::max(most, count);
  const std::uint64_t words = harness::gups_words_per_rank(session.options().total_words, session.options().quick);
  Mpi mpi(region_bytes(session.options()));
  Messages messages(session.rank(), most);
  one_sided_latency(session, mpi);
  message_latency(session, mpi, messages);
  overlap(session, mpi, messages);
  for (const std::uint32_t count : threads) {
    one_sided_rate(session, mpi, count);
    message_rate(session, mpi, messages, count);
  }
  bandwidth(session, mpi);
  overhead(session, mpi);
  harness::Crowd pair(session.channel(), session.rank(), 2);
  duplex(&session, session.options(), pair, mpi);
  one_atomic<Atomic::fetch_add>(session, mpi, "fadd");
  one_atomic<Atomic::swap>(session, mpi, "swap");
  // Without compare and swap: it never returns in Open MPI 4.1.4 on shared memory.
  one_atomic<Atomic::add>(session, mpi, "add");
  one_atomic<Atomic::bit_xor>(session, mpi, "xor");
  if (!session.wants("gups")) return;
  for (const std::uint32_t count : threads) gups(session, mpi, count, words);
}

// More than two processes: the measurement that is made of several pairs.
void run_pairs(harness::Channel& channel, const harness::Options& options, std::uint32_t rank, std::uint32_t size) {
  Mpi mpi(region_bytes(options));
  harness::Crowd crowd(channel, rank, size);
  if (!crowd.leads()) {
    duplex<Mpi>(nullptr, options, crowd, mpi);
    return;
  }
  channel.set_rank(rank);
  harness::Session session(channel, options, harness::print_sample);
  duplex(&session, options, crowd, mpi);
}

}  // namespace
}  // namespace heddle::bench::peers

int main(int argc, char** argv) {
  using namespace heddle::bench;
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (provided < MPI_THREAD_MULTIPLE || size < 2 || size % 2 != 0) {
    std::fprintf(stderr, "peer_mpi: needs MPI_THREAD_MULTIPLE and pairs of processes\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  const harness::Options options = peers::options_or_exit(argc, argv);
  harness::Channel channel = peers::channel_or_exit(options);
  if (size > 2) {
    peers::run_pairs(channel, options, static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(size));
  } else {
    channel.set_rank(static_cast<std::uint32_t>(rank));
    harness::Session session(channel, options, harness::print_sample);
    peers::run(session);
  }
  MPI_Finalize();
  return 0;
}
