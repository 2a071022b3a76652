// Intercommunicators: two groups whose members send to each other. All functions are collective
// over both groups.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "mpi/communicators/comm.hpp"
#include "mpi/communicators/making.hpp"

namespace heddle::mpi {

// What a group's leaders tell each other.
struct Bridge {
  Comm* local = nullptr;  // an intracommunicator of this side
  int leader = 0;         // of `local`
  // At the leader: the way to the other side's leader, by messages of this communicator.
  Comm* peer = nullptr;
  int remote_leader = 0;
  int tag = 0;  // internal
};
int make_inter(const Bridge& bridge, Comm** made);
int duplicate_inter(Comm& parent, Comm** made);
// Made of the members of each side's group. *made null: one side is empty, or this process is in
// neither.
int create_inter(Comm& parent, GroupPointer group, Comm** made);
// `mine` of all members of both groups, in their order.
int gather_both(Comm& inter, std::span<const std::byte> mine, std::vector<std::byte>* ours,
                std::vector<std::byte>* theirs);
int split_inter(Comm& parent, int colour, int key, MPI_Comm* newcomm);

// How a duplicate of an intercommunicator is made, step by step (MPI_Comm_idup). First the local
// group makes its intracommunicator. Then each process tells its number to all of the other group.
// Then the local group agrees on the result.
class InterMaking final : public StepwiseMaking {
 public:
  explicit InterMaking(Comm& parent);
  ~InterMaking() override;
  int begin() override;
  bool step(int* code, Comm** made) override;
  [[nodiscard]] Lane& lane() const override { return *parent_.lane; }

 private:
  enum class Phase { local, numbers, verdicts, ended };
  // What a process tells the other group.
  struct Record {
    std::uint32_t number = 0;
    std::int32_t code = MPI_SUCCESS;
  };

  void begin_numbers(int code);
  bool has_numbers();
  void begin_verdicts();
  [[nodiscard]] int verdict();
  int complete();

  Comm& parent_;
  const int tag_;  // of the messages to the other group
  const int local_tag_;
  std::unique_ptr<Making> local_;
  Phase phase_ = Phase::local;
  int local_code_ = MPI_SUCCESS;  // of its beginning
  Comm* comm_ = nullptr;
  Record mine_;
  std::vector<Record> theirs_;
  std::unique_ptr<InternalMessage[]> messages_;  // to each of the other group, and from each
  std::vector<std::size_t> pending_;             // of them
  int code_ = MPI_SUCCESS;                       // of this process
  std::vector<int> verdicts_;                    // of the local group
  std::unique_ptr<InternalAllgather> exchange_;
};

}  // namespace heddle::mpi
