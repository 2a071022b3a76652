// How a duplicate of an intercommunicator is made, step by step (MPI_Comm_idup). First the local
// group makes its intracommunicator. Then each process tells its number to all of the other group.
// Then the local group agrees on the result.
#pragma once

#include <memory>
#include <vector>

#include "mpi/communicators/making.hpp"

namespace heddle::mpi {

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
