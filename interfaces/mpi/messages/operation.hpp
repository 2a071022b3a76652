// The operation behind a request of a slower kind: a collective, an operation of several steps, a
// generalized request, a remote operation … Sends and receives are requests themselves
// (request.hpp).
#pragma once

#include <memory>

#include "mpi/core/progress.hpp"

namespace heddle::mpi {

// What a completed request tells.
struct Outcome {
  int source = MPI_ANY_SOURCE;
  int tag = MPI_ANY_TAG;
  int code = MPI_SUCCESS;  // of the operation
  MPI_Count bytes = 0;     // received
  bool cancelled = false;
};
// Stores it; `status` may be MPI_STATUS_IGNORE. MPI_ERROR is left alone: the calls that complete
// several requests set it.
void store(const Outcome& outcome, MPI_Status* status);
// The status of an inactive or null request, MPI_ERROR included.
void store_empty(MPI_Status* status);
// The status of an inactive or null request.
inline constexpr Outcome kEmptyOutcome{};
// The outcome of an operation with MPI_PROC_NULL.
inline constexpr Outcome kNoProcess{MPI_PROC_NULL, MPI_ANY_TAG, MPI_SUCCESS, 0, false};

class MpiOperation {
 public:
  MpiOperation() = default;
  MpiOperation(const MpiOperation&) = delete;
  MpiOperation& operator=(const MpiOperation&) = delete;
  virtual ~MpiOperation() = default;

  // Kinds for which the program has functions of their own.
  enum class Kind { other, partitioned, generalized };
  [[nodiscard]] virtual Kind kind() const { return Kind::other; }
  // For persistent operations: begins a run. MPI_SUCCESS or an error's code (see core/errors.hpp).
  virtual int start() { return error(MPI_ERR_REQUEST, "the request is not persistent"); }
  // Makes progress on the operation, without waiting. True: it has ended, and *outcome says how.
  // It is called until then, by one thread at a time. A persistent operation is tested again only
  // after the next start().
  virtual bool test(Outcome* outcome) = 0;
  // The lane on which a wait makes progress while test() finds nothing.
  virtual Lane& lane() = 0;
  // The communicator whose error handler gets errors. It is not freed before the operation has
  // ended. Null: errors go to the handler of MPI_COMM_SELF.
  virtual Comm* comm() { return nullptr; }
  virtual int cancel() { return MPI_SUCCESS; }
  // Called when its request is removed. The code is an error of the call that completes or frees
  // the request.
  virtual int end() { return MPI_SUCCESS; }
  // The program has freed the request of an operation that is under way. True: it is to be tested
  // until it ends, then destroyed. False: it is destroyed now.
  virtual bool outlives_request() { return true; }
};

// A new request of an operation, active unless it is persistent. Takes the operation. MPI_SUCCESS
// or MPI_ERR_NO_MEM.
int new_request(std::unique_ptr<MpiOperation> operation, bool persistent, MPI_Request* request);

}  // namespace heddle::mpi
