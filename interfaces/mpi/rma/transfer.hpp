// Puts and gets that the short paths (inline/rma.hpp) do not take, and what ends operations.
#pragma once

#include "mpi/rma/reach.hpp"

namespace heddle::mpi {

enum class Direction : bool { put, get };

// Begins it. `tracker`: of a request; null: the target's next flush completes it.
int transfer(Direction direction, const Side& origin, const Reach& reach, Tracker* tracker);

// All operations on the target that this process has issued are complete there. Returns the first
// one's error; if the target has died and its memory is mapped here, that error: whether there was
// an operation is not known then.
int complete(Win& win, int rank);
int complete_all(Win& win);

// A remote operation with a request.
class RemoteOperation final : public Operation {
 public:
  RemoteOperation(Win& win, int rank) : lane_(*win.comm->lane), job_rank_(rank < 0 ? -1 : job_rank_of(win, rank)) {}
  // Parts that never end, since the target has died, keep the tracker.
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
// Takes it; *request names it. One that has ended already gets the request of all that have.
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
