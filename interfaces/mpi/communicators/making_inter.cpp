#include "mpi/communicators/making_inter.hpp"

#include "mpi/communicators/registry.hpp"

namespace heddle::mpi {
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
