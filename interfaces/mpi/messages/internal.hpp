// The library's own messages within a communicator. Their tags are apart from the program's. Ranks
// are those to which the communicator's messages go (of an intercommunicator: the remote group's).
// All return MPI_SUCCESS or an error's code.
#pragma once

#include <vector>

#include "mpi/communicators/comm.hpp"

namespace heddle::mpi {

// The users of the tags. Each user receives its messages between two ranks in the order of sending.
struct InternalTag {
  static constexpr std::uint32_t kSequences = 1U << 18;
  static constexpr int kIntercomm = 3;
  static constexpr int kTopology = 4;
  static constexpr int kWindow = 5;
  static constexpr int kFree = 6;
  // + a sequence number below kSequences: collectives that are made of messages
  static constexpr int kCollective = 1 << 18;
  // + a sequence number below kSequences: communicators made by all of a parent
  static constexpr int kMake = 1 << 19;
  // + a sequence number below kSequences: what members call, where checks are on
  static constexpr int kCompare = kMake + (1 << 18);
  // + the program's tag mod 2^27: MPI_Comm_create_group, sessions
  static constexpr int kGroupTags = 1 << 27;
};

int internal_send(Comm& comm, int rank, int tag, const void* data, std::size_t bytes);
// The length must be the sender's.
int internal_receive(Comm& comm, int rank, int tag, void* data, std::size_t bytes);

// The way between this process and another: where messages go, and the number by which they are
// identified here.
struct Route {
  Lane* lane = nullptr;
  MemberAddress member;
  std::uint32_t number = 0;  // of the communicator, here
};
Route route_of(Comm& comm, int rank);

// A receive or send that is under way. It must not move until it has ended.
class InternalMessage {
 public:
  InternalMessage() = default;
  InternalMessage(const InternalMessage&) = delete;
  InternalMessage& operator=(const InternalMessage&) = delete;
  // If it is under way: cancels a receive, waits for a send.
  ~InternalMessage();
  int send(Comm& comm, int rank, int tag, const void* data, std::size_t bytes);
  int receive(Comm& comm, int rank, int tag, void* data, std::size_t bytes);
  int send(const Route& route, int tag, const void* data, std::size_t bytes);
  int receive(const Route& route, int tag, void* data, std::size_t bytes);
  // Makes progress. True: it has ended, with *code (or there is none).
  bool test(int* code);
  int wait();

 private:
  enum class Kind { none, send, receive };
  Kind kind_ = Kind::none;
  Lane* lane_ = nullptr;
  std::atomic<int> ended_{0};
  heddle_receive receive_{};
};

// An allgather over an intracommunicator, or over some of its members. `ranks`: their ranks in
// `comm`; ranks[mine] is this process. All of them call it. all: ranks.size() × bytes, in their
// order. It may also be made step by step.
class InternalAllgather {
 public:
  // routes[i]: the route to the i-th process; routes[mine] is not used. `all` must contain this
  // process's part at its place.
  InternalAllgather(std::vector<Route> routes, std::size_t mine, int tag, void* all, std::size_t bytes);
  // Goes on as far as possible without waiting. True: it has ended, with *code.
  bool step(int* code);
  [[nodiscard]] Lane& lane() const { return *lane_; }

 private:
  bool begin_round(int* code);
  bool has_dead();
  const std::vector<Route> routes_;
  const std::size_t mine_;
  const int tag_;
  const std::size_t bytes_;
  std::byte* const all_;
  Lane* lane_;
  std::vector<std::byte> blocks_;  // the parts, this process's first
  std::size_t have_ = 1;           // parts known
  std::size_t coming_ = 0;         // parts of this round; 0: none has begun
  InternalMessage out_;
  InternalMessage in_;
  bool sent_ = false;
  bool received_ = false;
  std::uint32_t looks_ = 0;
};
// The same over all members of an intracommunicator, in one call.
int internal_allgather(Comm& comm, int tag, const void* data, std::size_t bytes, void* all);

}  // namespace heddle::mpi
