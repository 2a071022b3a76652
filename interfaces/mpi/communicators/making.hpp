// How a communicator comes into being: its members tell each other the numbers by which they know
// it, and what the engine's team needs of each. By messages of a communicator that exists, step by
// step, so that MPI_Comm_idup waits for nobody.
#pragma once

#include <memory>
#include <vector>

#include "mpi/communicators/comm.hpp"
#include "mpi/messages/internal.hpp"

namespace heddle::mpi {

class Making {
 public:
  // routes[i]: to the i-th member of `group`; this process is number `mine`. by_tag: see Comm.
  Making(GroupPointer group, std::vector<Route> routes, std::size_t mine, int tag, bool by_tag = false);
  Making(const Making&) = delete;
  Making& operator=(const Making&) = delete;
  ~Making();
  // MPI_SUCCESS; otherwise it has ended.
  int begin();
  // Goes on without waiting. True: it has ended, with *code. Then *made is the communicator, or
  // null after an error.
  bool step(int* code, Comm** made);
  [[nodiscard]] Lane& lane() const;

 private:
  struct Record;
  [[nodiscard]] int build();
  void give_up();

  const GroupPointer group_;
  std::vector<Route> routes_;
  const std::size_t mine_;
  const int tag_;
  const bool by_tag_;
  std::vector<Record> records_;
  std::vector<int> verdicts_;  // by member: MPI_SUCCESS, or why it could not make it
  std::unique_ptr<InternalAllgather> exchange_;
  bool offered_ = false;  // the engine's team is in the making
  Comm* comm_ = nullptr;
};

// The routes to the members of a group that `over` reaches; *mine: which of them is this process.
std::vector<Route> routes_to(Comm& over, const Group& group, std::size_t* mine);

}  // namespace heddle::mpi
