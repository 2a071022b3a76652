// A collective as a list of steps: functions that run at once, operations of the engine, sets of
// messages. Each step begins when the one before it has ended. All steps and their memory are made
// once, so that a persistent collective only begins again.
//
// All members begin a team's operations in the same order, and a nonblocking collective goes on
// whenever any call makes progress. So engine steps come before all steps of messages, and begin
// within the call.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "mpi/collective/engine_call.hpp"
#include "mpi/collective/op.hpp"
#include "mpi/communicators/comm.hpp"
#include "mpi/core/check.hpp"
#include "mpi/messages/internal.hpp"
#include "mpi/messages/operation.hpp"

namespace heddle::mpi {

class StepSchedule final : public MpiOperation, public Stepped {
 public:
  StepSchedule(Comm& comm, Form form) : comm_(comm), form_(form) {}
  ~StepSchedule() override;

  // ---- making it; may throw std::bad_alloc
  [[nodiscard]] Comm& communicator() const { return comm_; }
  // Memory that lives as long as this.
  std::byte* room(std::size_t bytes);
  // Anything else that does.
  template <class T>
  T& keep(std::shared_ptr<T> kept) {
    T& object = *kept;
    kept_.push_back(std::move(kept));
    return object;
  }
  // Keeps an object that the program may free before the collective ends.
  void hold(Type* type);
  void hold(Op* op);
  void local(std::function<void()> action);
  void engine(EngineCall call);
  // The program's, for texts; null: it is the library's own.
  Call caller = nullptr;
  // Its arguments, for the comparison with those of other members (core/check.hpp).
  Described described;
  // Takes the tag of its messages: called in the same order by all members.
  void use_messages();
  // Begins a set of messages. All sends and receives from now on belong to it. They are all under
  // way at the same time.
  void messages();
  void send(Comm& comm, int rank, const void* data, std::size_t bytes);
  void receive(Comm& comm, int rank, void* data, std::size_t bytes);

  // With checks: called before the collective begins. The blocking form waits until it knows that
  // all members call the same.
  void compare(Call call);

  // ---- running it; MPI_SUCCESS or an error's code
  int run();             // blocking: to the end
  int make();            // persistent: makes the engine's operations ready
  int start() override;  // the others: begins
  bool test(Outcome* outcome) override;
  Lane& lane() override { return *comm_.lane; }
  Comm* comm() override { return &comm_; }
  Made step() override;

 private:
  struct Move {
    Comm* comm;
    int rank;
    std::byte* to;  // null: a send
    const std::byte* from;
    std::size_t bytes;
  };
  struct Step {
    std::function<void()> action;
    std::unique_ptr<EngineCall> call;
    heddle_collective collective{};
    bool open = false;  // the engine's operation is
    std::vector<Move> moves;
    std::unique_ptr<InternalMessage[]> live;  // of the moves
    std::vector<std::size_t> pending;         // of them
    int code = MPI_SUCCESS;                   // the first error of a message
  };

  int begin(Step& step);
  int begin_engine(Step& step);
  int begin_moves(Step& step);
  bool ended(Step& step, int* code);
  bool moves_ended(Step& step, int* code);
  int run_engine(Step& step);
  // Goes on as far as possible without waiting. True: it has ended, with code_. False also if
  // another thread is moving it on.
  bool advance();
  bool advance_steps();
  bool compared();

  struct Freed {
    void operator()(std::byte* memory) const;
  };

  Comm& comm_;
  const Form form_;
  int tag_ = 0;
  std::unique_ptr<Comparison> comparison_;  // null: none, or it has ended
  std::vector<std::unique_ptr<std::byte[], Freed>> rooms_;
  std::vector<std::shared_ptr<void>> kept_;
  std::vector<Type*> types_;
  std::vector<Op*> ops_;
  std::vector<std::unique_ptr<Step>> steps_;

  // Taken by the thread that moves the run on: the owner, or a thread that makes progress. Acquire
  // and release: it guards the members below.
  std::atomic<bool> busy_{false};
  std::size_t at_ = 0;  // the step that is under way, or is next
  bool begun_ = false;  // it is under way
  bool over_ = true;
  int code_ = MPI_SUCCESS;
  bool listed_ = false;  // the owner's: among those that progress advances
};

}  // namespace heddle::mpi
