#include "mpi/communicators/making.hpp"

#include <algorithm>
#include <cstring>

#include "mpi/collective/engine_call.hpp"

namespace heddle::mpi {

// What a member tells the others.
struct Making::Record {
  std::uint32_t number = 0;
  std::int32_t code = MPI_SUCCESS;
  std::uint32_t by_tag = 0;  // see Comm
  std::byte team[HEDDLE_TEAM_RECORD_BYTES]{};
};

Making::Making(GroupPointer group, std::vector<Route> routes, std::size_t mine, int tag, bool by_tag)
    : group_(std::move(group)),
      routes_(std::move(routes)),
      mine_(mine),
      tag_(tag),
      by_tag_(by_tag && g_job.lanes.size() > 1),
      records_(routes_.size()) {}

Making::~Making() {
  abandon();
}

Lane& Making::lane() const {
  return *routes_[mine_].lane;
}

void Making::abandon() {
  if (offered_) static_cast<void>(heddle_team_withdraw(g_job.context, records_[mine_].team));
  offered_ = false;
  if (comm_ != nullptr) discard_comm(comm_);
  comm_ = nullptr;
}

int Making::offer() {
  Record& mine = records_[mine_];
  if (comm_ == nullptr) comm_ = new_comm(group_, &mine.number);
  if (comm_ == nullptr) return MPI_ERR_NO_MEM;
  if (group_->size() == 1) return MPI_SUCCESS;
  const heddle_status status = heddle_team_offer(g_job.context, static_cast<std::uint32_t>(group_->size()), mine.team);
  offered_ = status >= 0;
  return code_of(status);
}

int Making::begin() {
  Record& mine = records_[mine_];
  mine.by_tag = by_tag_ ? 1 : 0;
  // A communicator that was freed here may still be in use elsewhere, usually for a short time.
  do mine.code = offer();
  while (mine.code == MPI_ERR_NO_MEM && wait_for_freed(lane()));
  if (routes_.size() == 1) return mine.code;
  exchange_ = std::make_unique<InternalAllgather>(routes_, mine_, tag_, records_.data(), sizeof(Record));
  return MPI_SUCCESS;
}

int Making::build() {
  Comm& comm = *comm_;
  std::vector<std::byte> team;
  for (std::size_t i = 0; i < records_.size(); ++i) {
    const Record& record = records_[i];
    if (record.code != MPI_SUCCESS)
      return error(record.code,
                   "rank %zu has no room for one more communicator: free some, or raise "
                   "HEDDLE_COLLECTIVE_BYTES",
                   i);
    comm.members.push_back(member_of((*group_)[static_cast<int>(i)], record.number));
    comm.members.back().by_tag |= record.by_tag != 0;
    team.insert(team.end(), std::begin(record.team), std::end(record.team));
  }
  comm.by_tag = by_tag_;
  complete_comm(comm, static_cast<int>(mine_));
  if (group_->size() == 1) return MPI_SUCCESS;
  offered_ = false;
  const int code = code_of(heddle_team_build(g_job.context, group_->ranks().data(),
                                             static_cast<std::uint32_t>(group_->size()), team.data(), &comm.team));
  return code == MPI_SUCCESS ? set_waits(comm) : code;
}

bool Making::step(int* code, Comm** made) {
  *code = MPI_SUCCESS;
  *made = nullptr;
  if (verdicts_.empty()) {
    if (exchange_ != nullptr && !exchange_->step(code)) {
      end_freed();  // a member may wait for room
      return false;
    }
    if (*code == MPI_SUCCESS && (exchange_ != nullptr || comm_ != nullptr)) {
      verdicts_.resize(routes_.size());
      verdicts_[mine_] = comm_ == nullptr ? MPI_ERR_NO_MEM : build();
      if (exchange_ != nullptr)
        exchange_ = std::make_unique<InternalAllgather>(routes_, mine_, tag_, verdicts_.data(), sizeof(int));
    }
  }
  if (*code == MPI_SUCCESS && exchange_ != nullptr && !exchange_->step(code)) return false;
  for (std::size_t i = 0; *code == MPI_SUCCESS && i < verdicts_.size(); ++i) {
    if (verdicts_[i] == MPI_SUCCESS) continue;
    *code = i == mine_ ? verdicts_[i] : error(verdicts_[i], "rank %zu could not make the communicator", i);
  }
  if (*code == MPI_SUCCESS)
    *made = std::exchange(comm_, nullptr);
  else
    abandon();
  return true;
}

std::vector<Route> routes_to(Comm& over, const Group& group, std::size_t* mine) {
  std::vector<Route> routes;
  for (int i = 0; i < group.size(); ++i) {
    if (group[i] == g_job.rank) *mine = static_cast<std::size_t>(i);
    routes.push_back(route_of(over, over.rank_of_job(group[i])));
  }
  return routes;
}

}  // namespace heddle::mpi
