#include "mpi/communicators/intercomm.hpp"

#include <algorithm>
#include <units/communicators.hpp>

#include "mpi/communicators/making.hpp"

namespace heddle::mpi {

namespace {

// What a member of one group tells the other group.
struct MemberRecord {
  std::uint32_t job_rank = 0;
  std::uint32_t number = 0;
  std::int32_t code = MPI_SUCCESS;
};

template <class T>
int gather_all(Comm& comm, int tag, const T& mine, std::vector<T>* all) {
  all->resize(static_cast<std::size_t>(comm.size()));
  return internal_allgather(comm, tag, &mine, sizeof mine, all->data());
}

// The root's bytes go to all members.
int broadcast(Comm& comm, int root, int tag, void* data, std::size_t bytes) {
  if (comm.rank != root) return internal_receive(comm, root, tag, data, bytes);
  for (int rank = 0; rank < comm.size(); ++rank) {
    if (rank == root) continue;
    if (const int code = internal_send(comm, rank, tag, data, bytes); code != MPI_SUCCESS) return code;
  }
  return MPI_SUCCESS;
}

// Each leader sends its bytes and receives those of the other leader.
int swap(const Bridge& bridge, const void* mine, std::size_t bytes, void* theirs, std::size_t their_bytes) {
  InternalMessage out;
  InternalMessage in;
  int code = in.receive(*bridge.peer, bridge.remote_leader, bridge.tag, theirs, their_bytes);
  if (code == MPI_SUCCESS) code = out.send(*bridge.peer, bridge.remote_leader, bridge.tag, mine, bytes);
  if (code == MPI_SUCCESS) code = in.wait();
  const int of_send = out.wait();
  return code == MPI_SUCCESS ? of_send : code;
}

// All members of one side get a list of the other side. `mine` is this side's list, which the
// leader has.
template <class T>
int exchange_lists(const Bridge& bridge, const std::vector<T>& mine, std::vector<T>* theirs) {
  const int tag = next_make_tag(*bridge.local);
  const std::uint64_t count = mine.size();
  std::uint64_t their_count = 0;
  const bool leads = bridge.local->rank == bridge.leader;
  if (leads) {
    const int code = swap(bridge, &count, sizeof count, &their_count, sizeof their_count);
    if (code != MPI_SUCCESS) return code;
  }
  if (const int code = broadcast(*bridge.local, bridge.leader, tag, &their_count, sizeof their_count);
      code != MPI_SUCCESS)
    return code;
  theirs->resize(their_count);
  if (leads) {
    const int code = swap(bridge, mine.data(), count * sizeof(T), theirs->data(), their_count * sizeof(T));
    if (code != MPI_SUCCESS) return code;
  }
  return broadcast(*bridge.local, bridge.leader, tag, theirs->data(), their_count * sizeof(T));
}

// The members of both sides are known. Errors of any of them are errors of all.
int fill(Comm& comm, const std::vector<MemberRecord>& mine, const std::vector<MemberRecord>& theirs, int rank) {
  for (const std::vector<MemberRecord>* side : {&mine, &theirs}) {
    for (const MemberRecord& record : *side)
      if (record.code != MPI_SUCCESS) return error(record.code, "a member has no memory for one more communicator");
  }
  std::vector<std::uint32_t> remote;
  for (const MemberRecord& record : theirs) {
    if (comm.group->rank_of(record.job_rank) != MPI_UNDEFINED)
      return error(MPI_ERR_COMM, "rank %u of MPI_COMM_WORLD is in both groups", record.job_rank);
    remote.push_back(record.job_rank);
    comm.members.push_back(member_of(record.job_rank, record.number));
  }
  comm.remote_group = std::make_shared<Group>(std::move(remote), comm.group->session());
  complete_comm(comm, rank);
  return MPI_SUCCESS;
}

}  // namespace

int make_inter(const Bridge& bridge, Comm** made) {
  Comm& local = *bridge.local;
  *made = nullptr;
  MemberRecord mine{g_job.rank, 0, MPI_SUCCESS};
  Comm* const comm = new_comm(local.group, &mine.number);
  if (comm == nullptr) mine.code = MPI_ERR_NO_MEM;
  std::vector<MemberRecord> ours;
  std::vector<MemberRecord> theirs;
  int code = gather_all(local, next_make_tag(local), mine, &ours);
  if (code == MPI_SUCCESS) code = exchange_lists(bridge, ours, &theirs);
  if (code == MPI_SUCCESS && comm == nullptr) code = no_memory_for("one more communicator");
  if (code == MPI_SUCCESS) code = fill(*comm, ours, theirs, local.rank);
  if (code == MPI_SUCCESS) code = make_from(&local, local.group, &comm->local);
  if (code != MPI_SUCCESS) {
    if (comm != nullptr) discard_comm(comm);
    return code;
  }
  comm->errhandler = retain(local.errhandler);
  *made = comm;
  return MPI_SUCCESS;
}

int duplicate_inter(Comm& parent, Comm** made) {
  const int code = make_inter({parent.local, 0, &parent, 0, next_make_tag(parent)}, made);
  if (code != MPI_SUCCESS) return code;
  (*made)->errhandler = retain(parent.errhandler);
  return MPI_SUCCESS;
}

namespace {

// The part of each side: makes an intercommunicator between `ours`, a group within parent.local,
// and the remote group whose first member is `their_first`. Processes that are not in it, or whose
// remote group is empty, get null.
int make_part(Comm& parent, GroupPointer ours, int their_first, Comm** made) {
  *made = nullptr;
  const int tag = next_make_tag(parent);
  Comm* sub = nullptr;
  int code = make_from(parent.local, std::move(ours), &sub);
  if (code != MPI_SUCCESS || sub == nullptr) return code;
  if (their_first != MPI_UNDEFINED) code = make_inter({sub, 0, &parent, their_first, tag}, made);
  free_comm(sub);
  if (*made != nullptr) (*made)->errhandler = retain(parent.errhandler);
  return code;
}

}  // namespace

int create_inter(Comm& parent, GroupPointer group, Comm** made) {
  const int first = group->size() == 0 ? MPI_UNDEFINED : parent.group->rank_of((*group)[0]);
  std::vector<int> theirs;
  const int code = exchange_lists<int>({parent.local, 0, &parent, 0, next_make_tag(parent)}, {first}, &theirs);
  if (code != MPI_SUCCESS) return code;
  return make_part(parent, std::move(group), theirs[0], made);
}

namespace {

struct SplitMember {
  int colour;
  int key;
  int rank;  // in its group
};

// The processes of one colour, in the order of key and rank.
std::vector<SplitMember> of_colour(std::vector<SplitMember> all, int colour) {
  std::erase_if(all, [&](const SplitMember& one) { return one.colour != colour; });
  std::ranges::stable_sort(all, {}, &SplitMember::key);
  return all;
}

}  // namespace

int gather_both(Comm& inter, std::span<const std::byte> mine, std::vector<std::byte>* ours,
                std::vector<std::byte>* theirs) {
  ours->resize(static_cast<std::size_t>(inter.local->size()) * mine.size());
  const int code =
      internal_allgather(*inter.local, next_make_tag(*inter.local), mine.data(), mine.size(), ours->data());
  return code == MPI_SUCCESS ? exchange_lists({inter.local, 0, &inter, 0, next_make_tag(inter)}, *ours, theirs) : code;
}

int split_inter(Comm& parent, int colour, int key, MPI_Comm* newcomm) {
  *newcomm = MPI_COMM_NULL;
  if (colour < 0 && colour != MPI_UNDEFINED)
    return error(MPI_ERR_ARG, "color %d is negative, and not MPI_UNDEFINED", colour);
  std::vector<SplitMember> ours;
  std::vector<SplitMember> theirs;
  int code = gather_all(*parent.local, next_make_tag(*parent.local), SplitMember{colour, key, parent.rank}, &ours);
  if (code == MPI_SUCCESS) code = exchange_lists({parent.local, 0, &parent, 0, next_make_tag(parent)}, ours, &theirs);
  if (code != MPI_SUCCESS) return code;
  std::vector<std::uint32_t> members;
  if (colour != MPI_UNDEFINED) {
    for (const SplitMember& one : of_colour(ours, colour)) members.push_back((*parent.group)[one.rank]);
    theirs = of_colour(theirs, colour);
  }
  Comm* made = nullptr;
  const int first = theirs.empty() ? MPI_UNDEFINED : theirs[0].rank;
  code = make_part(parent, std::make_shared<Group>(std::move(members), parent.group->session()), first, &made);
  *newcomm = handle_of(made);
  return code;
}

// ---- the program's calls ------------------------------------------------------------------------

namespace {

int create_intercomm(Comm& local, int local_leader, MPI_Comm peer_comm, int remote_leader, int tag, MPI_Comm* made) {
  if (local.inter()) return error(MPI_ERR_COMM, "local_comm is an intercommunicator");
  if (local_leader < 0 || local_leader >= local.size())
    return error(MPI_ERR_RANK, "local_leader %d: local_comm has ranks 0-%d", local_leader, local.size() - 1);
  Bridge bridge{&local, local_leader, nullptr, remote_leader, InternalTag::kGroupTags + tag % InternalTag::kGroupTags};
  if (local.rank == local_leader) {
    bridge.peer = comm_of(peer_comm);
    if (bridge.peer == nullptr) return bad_comm(peer_comm);
    if (tag < 0 || tag > kTagUb) return error(MPI_ERR_TAG, "tag %d: tags are 0-%d", tag, kTagUb);
    if (remote_leader < 0 || remote_leader >= bridge.peer->remote_size()) {
      return error(MPI_ERR_RANK, "remote_leader %d: peer_comm has ranks 0-%d", remote_leader,
                   bridge.peer->remote_size() - 1);
    }
  }
  Comm* comm = nullptr;
  const int code = make_inter(bridge, &comm);
  *made = handle_of(comm);
  return code;
}

int merge(Comm& inter, int high, MPI_Comm* merged) {
  std::vector<int> theirs;
  const int mine = high != 0 ? 1 : 0;
  int code = exchange_lists<int>({inter.local, 0, &inter, 0, next_make_tag(inter)}, {mine}, &theirs);
  if (code != MPI_SUCCESS) return code;
  const int tag = next_make_tag(inter);
  const bool first = mine != theirs[0] ? mine == 0 : (*inter.group)[0] < (*inter.remote_group)[0];
  std::vector<std::uint32_t> ranks;
  std::vector<Route> routes;
  const auto add = [&](const Group& group, Comm& over) {
    for (int i = 0; i < group.size(); ++i) {
      ranks.push_back(group[i]);
      routes.push_back(route_of(over, i));
    }
  };
  if (first) add(*inter.group, *inter.local);
  add(*inter.remote_group, inter);
  if (!first) add(*inter.group, *inter.local);
  const std::size_t at = (first ? 0 : inter.remote_group->ranks().size()) + static_cast<std::size_t>(inter.rank);
  Making making(std::make_shared<Group>(std::move(ranks), inter.group->session()), std::move(routes), at, tag);
  code = making.begin();
  Comm* made = nullptr;
  if (code == MPI_SUCCESS) wait_until(making.lane(), [&] { return making.step(&code, &made); });
  if (made != nullptr) made->errhandler = retain(inter.errhandler);
  *merged = handle_of(made);
  return code;
}

}  // namespace

int intercomm_create(Call call, MPI_Comm local_comm, int local_leader, MPI_Comm peer_comm, int remote_leader, int tag,
                     MPI_Comm* newintercomm) {
  if (const int code = check_running(); code != MPI_SUCCESS) return report(call, code);
  Comm* const local = comm_of(local_comm);
  if (local == nullptr) return report(call, bad_comm(local_comm));
  if (newintercomm == nullptr) return report(call, local, null_argument("newintercomm"));
  *newintercomm = MPI_COMM_NULL;
  return told(call, local, create_intercomm(*local, local_leader, peer_comm, remote_leader, tag, newintercomm));
}

int intercomm_merge(Call call, MPI_Comm intercomm, int high, MPI_Comm* newintracomm) {
  if (const int code = check_running(); code != MPI_SUCCESS) return report(call, code);
  Comm* const inter = comm_of(intercomm);
  if (inter == nullptr) return report(call, bad_comm(intercomm));
  if (!inter->inter()) return report(call, inter, error(MPI_ERR_COMM, "comm is an intracommunicator"));
  if (newintracomm == nullptr) return report(call, inter, null_argument("newintracomm"));
  *newintracomm = MPI_COMM_NULL;
  return told(call, inter, merge(*inter, high, newintracomm));
}

namespace {

std::unique_ptr<Making> making_of(Comm& local) {
  std::size_t mine = 0;
  std::vector<Route> routes = routes_to(local, *local.group, &mine);
  return std::make_unique<Making>(local.group, std::move(routes), mine, next_make_tag(local));
}

}  // namespace

InterMaking::InterMaking(Comm& parent)
    : parent_(parent),
      tag_(next_make_tag(parent)),
      local_tag_(next_make_tag(*parent.local)),
      local_(making_of(*parent.local)),
      theirs_(parent.members.size()),
      messages_(std::make_unique<InternalMessage[]>(2 * parent.members.size())) {
  pending_.reserve(2 * parent.members.size());
}

InterMaking::~InterMaking() {
  if (comm_ != nullptr) discard_comm(comm_);
}

int InterMaking::begin() {
  comm_ = new_comm(parent_.group, &mine_.number);
  // The other group waits for this process, even after an error here.
  local_code_ = local_->begin();
  return MPI_SUCCESS;
}

// `code`: the result of making the local group's communicator.
void InterMaking::begin_numbers(int code) {
  mine_.code = comm_ == nullptr ? MPI_ERR_NO_MEM : code;
  code_ = mine_.code;
  const std::size_t others = theirs_.size();
  for (std::size_t i = 0; i < 2 * others; ++i) {
    const int rank = static_cast<int>(i % others);
    const int begun = i < others ? messages_[i].receive(parent_, rank, tag_, &theirs_[i], sizeof(Record))
                                 : messages_[i].send(parent_, rank, tag_, &mine_, sizeof mine_);
    if (begun == MPI_SUCCESS)
      pending_.push_back(i);
    else
      code_ = begun;
  }
  phase_ = Phase::numbers;
}

bool InterMaking::has_numbers() {
  std::erase_if(pending_, [&](std::size_t i) {
    int code = MPI_SUCCESS;
    if (!messages_[i].test(&code)) return false;
    if (code != MPI_SUCCESS) code_ = code;
    return true;
  });
  return pending_.empty();
}

void InterMaking::begin_verdicts() {
  for (const Record& record : theirs_)
    if (record.code != MPI_SUCCESS) code_ = record.code;
  const auto mine = static_cast<std::size_t>(parent_.rank);
  verdicts_.resize(static_cast<std::size_t>(parent_.size()));
  verdicts_[mine] = code_;
  if (parent_.size() > 1) {
    std::size_t number = 0;
    std::vector<Route> routes = routes_to(*parent_.local, *parent_.group, &number);
    exchange_ =
        std::make_unique<InternalAllgather>(std::move(routes), number, local_tag_, verdicts_.data(), sizeof(int));
  }
  phase_ = Phase::verdicts;
}

int InterMaking::verdict() {
  if (code_ != MPI_SUCCESS) return error(code_, "an intercommunicator could not be duplicated here, or by a member");
  for (std::size_t i = 0; i < verdicts_.size(); ++i)
    if (verdicts_[i] != MPI_SUCCESS) return error(verdicts_[i], "rank %zu could not make the communicator", i);
  return MPI_SUCCESS;
}

int InterMaking::complete() {
  comm_->remote_group = parent_.remote_group;
  for (std::size_t i = 0; i < theirs_.size(); ++i)
    comm_->members.push_back(member_of((*parent_.remote_group)[static_cast<int>(i)], theirs_[i].number));
  complete_comm(*comm_, parent_.rank);
  return MPI_SUCCESS;
}

bool InterMaking::step(int* code, Comm** made) {
  *code = MPI_SUCCESS;
  *made = nullptr;
  if (phase_ == Phase::local) {
    Comm* local = nullptr;
    int local_code = local_code_;
    if (local_code == MPI_SUCCESS && !local_->step(&local_code, &local)) return false;
    if (comm_ != nullptr)
      comm_->local = local;
    else if (local != nullptr)
      discard_comm(local);
    begin_numbers(local_code);
  }
  if (phase_ == Phase::numbers) {
    if (!has_numbers()) return false;
    begin_verdicts();
  }
  if (exchange_ != nullptr && !exchange_->step(code)) return false;
  if (*code == MPI_SUCCESS) *code = verdict();
  if (*code == MPI_SUCCESS) *code = complete();
  if (*code == MPI_SUCCESS) *made = std::exchange(comm_, nullptr);
  phase_ = Phase::ended;
  return true;
}

}  // namespace heddle::mpi
