// Puts and gets that the short paths (inline/rma.hpp) do not take, and what ends operations.
#pragma once

#include "mpi/rma/reach.hpp"

namespace heddle::mpi {

enum class Direction : bool { put, get };

// Begins it. `tracker`: of a request; null: the target's next flush completes it.
int transfer(Direction direction, const Side& origin, const Reach& reach, Tracker* tracker);

// Waits until all operations that this process has issued on the target are complete there. Returns
// the first operation's error. If the target has died and its memory is mapped here, returns an
// error in any case, since it is not known whether there was an operation.
int complete(Win& win, int rank);
int complete_all(Win& win);

// A remote operation with a request.
class RemoteOperation final : public Operation {
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

}  // namespace heddle::mpi
