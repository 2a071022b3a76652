// How a communicator is made: its members tell each other the numbers by which they know it, and
// what the engine's team needs of each. They use messages of an existing communicator, step by
// step, so that MPI_Comm_idup waits for nobody.
#pragma once

#include <memory>
#include <vector>

#include "mpi/communicators/comm.hpp"
#include "mpi/messages/internal.hpp"

namespace heddle::mpi {

// A communicator of the group without members, with a number of its own. Null: no memory, or no
// number is left.
Comm* new_comm(GroupPointer group, std::uint32_t* number);
// Frees a communicator that was not made after all, or is not used any more, and its number.
void discard_comm(Comm* comm);
// Where a rank of the job receives the messages of a communicator that it knows by that number.
MemberAddress member_of(std::uint32_t job_rank, std::uint32_t number);
// Called when its members are known: sets rank, lane, and the table of ranks by rank in the job.
void complete_comm(Comm& comm, int rank);

std::uint32_t number_of(const Comm* comm);  // for integer handles
Comm* comm_at(std::uint32_t number);

class StepwiseMaking {
 public:
  StepwiseMaking() = default;
  StepwiseMaking(const StepwiseMaking&) = delete;
  StepwiseMaking& operator=(const StepwiseMaking&) = delete;
  virtual ~StepwiseMaking() = default;
  // MPI_SUCCESS; otherwise it has ended.
  virtual int begin() = 0;
  // Goes on without waiting. True: it has ended, with *code. Then *made is the communicator, or
  // null after an error.
  virtual bool step(int* code, Comm** made) = 0;
  [[nodiscard]] virtual Lane& lane() const = 0;
};

// Of an intracommunicator.
class Making final : public StepwiseMaking {
 public:
  // routes[i]: to the i-th member of `group`; this process is number `mine`. by_tag: see Comm.
  Making(GroupPointer group, std::vector<Route> routes, std::size_t mine, int tag, bool by_tag = false);
  ~Making() override;
  int begin() override;
  bool step(int* code, Comm** made) override;
  [[nodiscard]] Lane& lane() const override;

 private:
  struct Record;
  [[nodiscard]] int offer();
  [[nodiscard]] int build();
  void abandon();

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
