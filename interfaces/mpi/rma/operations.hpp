// Puts and gets that the short paths (inline/rma.hpp) do not take, and what ends operations.
#pragma once

#include <cstddef>
#include <vector>

#include "mpi/collective/op.hpp"
#include "mpi/rma/ask.hpp"
#include "mpi/rma/win.hpp"
#include "mpi/types/type.hpp"

namespace heddle::mpi {

// Elements of a type at one side of an operation.
struct Side {
  void* buffer = nullptr;
  MPI_Count count = 0;
  Type* type = nullptr;
  [[nodiscard]] MPI_Count bytes() const { return count * type->size; }
};
int read_side(const void* buffer, MPI_Count count, MPI_Datatype datatype, const char* name, Side* side);

struct Reach {
  Win* win = nullptr;
  int rank = MPI_PROC_NULL;
  MPI_Count count = 0;
  Type* type = nullptr;
  std::uint64_t offset = 0;     // from the window's start; an absolute address in a dynamic window
  std::byte* memory = nullptr;  // the target memory, if it is mapped here
  [[nodiscard]] MPI_Count bytes() const { return count * type->size; }
  [[nodiscard]] Far& far() const { return win->far[static_cast<std::size_t>(rank)]; }
};
// Checks the window, the epoch and the range. MPI_PROC_NULL: MPI_SUCCESS with reach->rank ==
// MPI_PROC_NULL.
int read_reach(Win& win, int rank, MPI_Aint disp, MPI_Count count, MPI_Datatype datatype, Reach* reach);

// Checks that an access to the rank is allowed now. After a fence, the first access begins the
// fence's epoch.
int check_epoch(Win& win, int rank);

// Bytes in order: of a buffer from its address on, of a target from the window's start.
struct MemoryBlock {
  std::uint64_t offset;
  std::uint64_t bytes;
};
std::vector<MemoryBlock> blocks_of(MPI_Count count, const Type& type, std::uint64_t offset);
// The same as runs of elements of the type's basic type.
std::vector<Run> runs_of(MPI_Count count, const Type& type, const Type& element, std::uint64_t offset);
// The basic type that it is made of; null: several.
inline const Type* element_of(const Type& type) {
  if (type.element != nullptr) return type.element;
  return type.predefined ? &type : nullptr;
}

enum class Direction : bool { put, get };

// Begins it. `tracker`: of a request; null: the target's next flush completes it.
int transfer(Direction direction, const Side& origin, const Reach& reach, Tracker* tracker);

// Waits until all operations that this process has issued on the target are complete there. Returns
// the first operation's error. If the target has died and its memory is mapped here, returns an
// error in any case, since it is not known whether there was an operation.
int complete(Win& win, int rank);
int complete_all(Win& win);

// A remote operation with a request.
class RemoteOperation final : public MpiOperation {
 public:
  RemoteOperation(Win& win, int rank) : lane_(*win.comm->lane), job_rank_(rank < 0 ? -1 : job_rank_of(win, rank)) {}
  // If parts never end because the target has died, the tracker is not freed.
  ~RemoteOperation() override;
  bool test(Outcome* outcome) override;
  Lane& lane() override { return lane_; }
  [[nodiscard]] Tracker& tracker() { return *tracker_; }

 private:
  static std::int64_t job_rank_of(const Win& win, int rank) {
    return win.comm->members[static_cast<std::size_t>(rank)].peer.rank;
  }
  Lane& lane_;
  std::int64_t job_rank_;
  unsigned tests_ = 0;
  std::unique_ptr<Tracker> tracker_ = std::make_unique<Tracker>();
};
// Takes the operation; *request names it. If it has ended already, *request is the one that all
// such operations share.
int give_request(std::unique_ptr<RemoteOperation> operation, MPI_Request* request);

// A request of an operation on the rank: issue(tracker) begins it.
template <class Issue>
int issue_request(Win& win, int rank, MPI_Request* request, Issue&& issue) {
  auto operation = std::make_unique<RemoteOperation>(win, rank);
  const int code = issue(&operation->tracker());
  operation->tracker().end(code);
  if (code == MPI_SUCCESS) return give_request(std::move(operation), request);
  // Parts of it may be under way.
  Outcome ignored;
  wait_until(operation->lane(), [&] { return operation->test(&ignored); });
  return code;
}

// Accumulates on memory that is mapped here. Each element is changed atomically with respect to all
// others that change it so, from any rank: by one atomic instruction if it is an aligned word of 1,
// 2, 4 or 8 bytes, else under the target's guard.

// The window, the rank that owns the memory, and the control block that guards it.
struct Guarded {
  Win& win;
  int rank;
  Control& control;
  bool in_handler = false;
};

// Both functions return an error and do nothing if a dead rank holds the guard. Elements of the
// target may be half written then, so the guard stays held.
//
// target[i] = operand[i] op target[i] for `count` elements of a predefined type, which lie their
// extent apart in memory. `operands` is in packed form (null: MPI_NO_OP). `old` gets the former
// values in packed form; it may be null.
int accumulate_here(const Guarded& where, const Op& op, const Type& element, const std::byte* operands,
                    std::byte* target, std::byte* old, MPI_Count count);
int compare_swap_here(const Guarded& where, const Type& element, const void* compare, const void* value,
                      std::byte* target, void* old);

// Accumulates.

struct Accumulation {
  const Op* op = nullptr;
  Side origin;                // not read if the operator is MPI_NO_OP
  const Side* old = nullptr;  // where old values go; null: they are not wanted
  Reach reach;
};
// Checks that its parts fit together.
int check_accumulation(const Accumulation& what);
// Begins it. `tracker`: of a request; null: the target's next flush completes it.
int accumulate(const Accumulation& what, Tracker* tracker);

// Accumulates of one rank on one target take effect in the order in which they were issued.
int keep_order(const Reach& reach);
// The number by which messages name a basic type.
std::uint32_t element_number(const Type& element);

}  // namespace heddle::mpi
