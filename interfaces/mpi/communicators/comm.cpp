#include "mpi/communicators/comm.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>

#include "mpi/collective/engine_call.hpp"
#include "mpi/communicators/making.hpp"
#include "mpi/core/check.hpp"
#include "mpi/core/objects.hpp"
#include "mpi/core/progress.hpp"
#include "mpi/messages/buffers.hpp"
#include "mpi/messages/internal.hpp"
#include "mpi/messages/message.hpp"
#include "mpi/messages/request.hpp"

namespace heddle::mpi {

Comm* g_base = nullptr;
Comm* g_world = nullptr;
Comm* g_self = nullptr;

namespace {

constexpr std::uint32_t kMostComms = 1U << 18;
constinit ObjectPool<Comm, kMostComms> g_comms;

// The even numbers that are free. Those of base, world and self are the same everywhere.
constexpr std::uint32_t kBaseNumber = 0;
constexpr std::uint32_t kWorldNumber = 2;
constexpr std::uint32_t kSelfNumber = 4;
std::mutex g_comms_mutex;           // guards what follows
std::vector<std::uint32_t> g_free;  // given back
std::uint32_t g_next = 6;           // never used yet

// The end of a communicator that this process has freed. Other members may still use it, and their
// engines refer to memory of the team on this process. So its number and its team stay until all
// members have freed it and have no operation of it under way. The members tell each other by
// messages, in the rounds of a dissemination barrier. Nobody waits for these rounds: calls that
// make or free a communicator advance them.
class Closing {
 public:
  enum class State : std::uint8_t { under_way, ended, died };

  explicit Closing(Comm& over) : over_(over) {}
  // Goes on without waiting. `ended`: all have freed it; `died`: a member has, and others may have
  // heard of it later.
  State step() {
    for (;;) {
      if (distance_ >= over_.size()) return State::ended;
      if (!begun_ && !begin()) return State::died;
      int got = MPI_SUCCESS;
      int sent = MPI_SUCCESS;
      const bool ended = in_.test(&got) && out_.test(&sent);
      if (got != MPI_SUCCESS || sent != MPI_SUCCESS) return State::died;
      if (!ended) return sees_dead_member(over_) ? State::died : State::under_way;
      distance_ *= 2;
      begun_ = false;
    }
  }

 private:
  bool begin() {
    const int size = over_.size();
    const int from = (over_.rank + size - distance_) % size;
    const int to = (over_.rank + distance_) % size;
    begun_ = in_.receive(over_, from, InternalTag::kFree, &got_, sizeof got_) == MPI_SUCCESS &&
             out_.send(over_, to, InternalTag::kFree, &kWord, sizeof kWord) == MPI_SUCCESS;
    return begun_;
  }

  static constexpr std::byte kWord{1};
  Comm& over_;
  int distance_ = 1;  // of this round
  bool begun_ = false;
  std::byte got_{};
  InternalMessage in_;
  InternalMessage out_;
};

struct Freed {
  Comm* comm = nullptr;
  std::unique_ptr<Closing> closing;  // null: operations are under way here
};
std::vector<Freed> g_freed;  // by the program, and not ended yet
std::size_t g_ending = 0;    // the number of those, and of the ones that a thread advances now

bool take_number(std::uint32_t* number) {
  const std::scoped_lock lock(g_comms_mutex);
  if (!g_free.empty()) {
    *number = g_free.back();
    g_free.pop_back();
    return true;
  }
  if (g_next + kInternal >= kMostNumbers) return false;
  *number = g_next;
  g_next += 2;
  return true;
}

void end_comm(Comm* comm) {
  comm->kept.reset();  // its operations are the team's
  const bool has_team = comm->team.id != 0 && comm->team.id != g_job.world.id;
  if (has_team && !comm->retired) static_cast<void>(heddle_team_free(comm->team));
  discard_comm(comm);
}

// True: it is gone.
bool go_on(Freed& freed) {
  if (freed.closing == nullptr) {
    if (has_requests(*freed.comm) || !has_no_buffered(*freed.comm)) return false;
    freed.closing = std::make_unique<Closing>(freed.comm->inter() ? *freed.comm->local : *freed.comm);
  }
  const Closing::State state = freed.closing->step();
  if (state == Closing::State::under_way) return false;
  freed.closing.reset();
  freed.comm->retired = state == Closing::State::died;
  if (freed.comm->local != nullptr) freed.comm->local->retired = freed.comm->retired;
  end_comm(freed.comm);
  return true;
}

std::size_t ending() {
  const std::scoped_lock lock(g_comms_mutex);
  return g_ending;
}

// Called when the job is left: no number is taken any more. If members use only sessions, this
// process may come here before others have ended their last operation of a team. That operation
// then ends with the context.
void drop_freed() {
  std::erase_if(g_freed, [](Freed& freed) {
    freed.closing.reset();
    if (has_requests(*freed.comm) || !has_no_buffered(*freed.comm)) return false;
    freed.comm->retired = true;
    if (freed.comm->local != nullptr) freed.comm->local->retired = true;
    end_comm(freed.comm);
    return true;
  });
}

Comm* fixed_comm(std::uint32_t number, std::vector<std::uint32_t> ranks, const char* name) {
  Comm* const comm = g_comms.take();
  if (comm == nullptr) return nullptr;
  comm->number = number;
  comm->group = std::make_shared<Group>(std::move(ranks));
  for (const std::uint32_t rank : comm->group->ranks()) comm->members.push_back(member_of(rank, number));
  complete_comm(*comm, comm->group->rank_of(g_job.rank));
  comm->name = name;
  return comm;
}

}  // namespace

Comm* find_comm(MPI_Comm handle) {
  Comm* const comm = g_comms.find(handle);
  return comm == nullptr || comm->freed ? nullptr : comm;
}

std::size_t live_comms() {
  std::size_t live = 0;
  g_comms.each([&](const Comm& comm) {
    const bool own = &comm == g_base || &comm == g_world || &comm == g_self;
    live += own || comm.freed ? 0 : 1;
    live -= comm.local != nullptr ? 1 : 0;
  });
  return live - live_windows();  // each has one of its own
}

MPI_Comm handle_of(Comm* comm) {
  if (comm == nullptr) return MPI_COMM_NULL;
  if (comm == g_world) return MPI_COMM_WORLD;
  if (comm == g_self) return MPI_COMM_SELF;
  return reinterpret_cast<MPI_Comm>(comm);
}

std::uint32_t number_of(const Comm* comm) {
  return g_comms.number(comm);
}
Comm* comm_at(std::uint32_t number) {
  return g_comms.at(number);
}

int bad_comm(MPI_Comm handle) {
  if (const int code = check_running(); code != MPI_SUCCESS && g_base == nullptr) return code;
  if (handle == MPI_COMM_NULL) return error(MPI_ERR_COMM, "comm is MPI_COMM_NULL");
  return error(MPI_ERR_COMM, "comm %#llx is no communicator, or was freed",
               static_cast<unsigned long long>(value_of(handle)));
}

MemberAddress member_of(std::uint32_t job_rank, std::uint32_t number) {
  return {{job_rank, number / 2 % g_job.lanes_of[job_rank]}, number, g_job.no_any_tag_of[job_rank]};
}

void complete_comm(Comm& comm, int rank) {
  comm.rank = rank;
  comm.by_tag |= g_job.no_any_tag;
  comm.lane = g_job.lanes[comm.number / 2 % g_job.lanes.size()];
  const Group& others = comm.inter() ? *comm.remote_group : *comm.group;
  bool identical = true;
  for (int i = 0; i < others.size(); ++i) identical = identical && others[i] == static_cast<std::uint32_t>(i);
  if (identical) return;
  comm.rank_of = std::make_unique<int[]>(g_job.size);
  std::fill_n(comm.rank_of.get(), g_job.size, MPI_UNDEFINED);
  for (int i = 0; i < others.size(); ++i) comm.rank_of[others[i]] = i;
}

Comm* new_comm(GroupPointer group, std::uint32_t* number) {
  end_freed();
  if (!take_number(number)) return nullptr;
  Comm* const comm = g_comms.take();
  if (comm == nullptr) {
    const std::scoped_lock lock(g_comms_mutex);
    g_free.push_back(*number);
    return nullptr;
  }
  comm->number = *number;
  comm->group = std::move(group);
  return comm;
}

void discard_comm(Comm* comm) {
  release(comm->errhandler);
  if (comm->local != nullptr) end_comm(comm->local);
  const std::uint32_t number = comm->number;
  const bool retired = comm->retired;
  g_comms.give_back(comm);
  const std::scoped_lock lock(g_comms_mutex);
  if (number > kSelfNumber && !retired) g_free.push_back(number);
}

int next_make_tag(Comm& parent) {
  const std::uint32_t sequence = parent.made.fetch_add(1, std::memory_order_relaxed);
  return InternalTag::kMake + static_cast<int>(sequence % InternalTag::kSequences);
}

int make_comm(const NewComm& what, Comm** made) {
  std::size_t mine = 0;
  std::vector<Route> routes = routes_to(*what.over, *what.group, &mine);
  Making making(what.group, std::move(routes), mine, what.tag, what.by_tag);
  *made = nullptr;
  if (const int code = making.begin(); code != MPI_SUCCESS) return code;
  int code = MPI_SUCCESS;
  wait_until(making.lane(), [&] { return making.step(&code, made); });
  return code;
}

int make_from(Comm* parent, GroupPointer group, Comm** made, bool by_tag) {
  *made = nullptr;
  const int tag = next_make_tag(*parent);
  if (group->rank_of(g_job.rank) == MPI_UNDEFINED) return MPI_SUCCESS;
  if (const int code = make_comm({std::move(group), parent, tag, by_tag}, made); code != MPI_SUCCESS) return code;
  (*made)->errhandler = retain(parent->errhandler);
  return MPI_SUCCESS;
}

// They are off the list meanwhile: a step makes progress, which may call functions of the program.
void end_freed() {
  std::vector<Freed> all;
  {
    const std::scoped_lock lock(g_comms_mutex);
    all.swap(g_freed);
  }
  const std::size_t gone = std::erase_if(all, go_on);
  const std::scoped_lock lock(g_comms_mutex);
  g_ending -= gone;
  std::ranges::move(all, std::back_inserter(g_freed));
}

bool wait_for_freed(Lane& lane) {
  const std::size_t before = ending();
  if (before == 0) return false;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  bool gone = false;
  const auto is_over = [&] {
    end_freed();
    gone = ending() < before;
    return gone || std::chrono::steady_clock::now() > until;
  };
  wait_until(lane, is_over, "making a communicator");
  return gone;
}

void free_comm(Comm* comm) {
  comm->freed = true;
  {
    const std::scoped_lock lock(g_comms_mutex);
    g_freed.push_back({comm, nullptr});
    ++g_ending;
  }
  end_freed();
}

// ---- the fixed ones -----------------------------------------------------------------------------

namespace {

std::vector<std::uint32_t> all_ranks() {
  std::vector<std::uint32_t> ranks(g_job.size);
  std::iota(ranks.begin(), ranks.end(), 0U);
  return ranks;
}

}  // namespace

int open_base() {
  g_base = fixed_comm(kBaseNumber, all_ranks(), "");
  return g_base == nullptr ? no_memory_for("communicators") : MPI_SUCCESS;
}

int open_world() {
  Comm* const world = fixed_comm(kWorldNumber, all_ranks(), "MPI_COMM_WORLD");
  Comm* const self = fixed_comm(kSelfNumber, {g_job.rank}, "MPI_COMM_SELF");
  if (world == nullptr || self == nullptr) return no_memory_for("communicators");
  if (g_job.size > 1) world->team = g_job.world;
  g_world = world;
  g_self = self;
  return g_job.size > 1 ? set_waits(*world) : MPI_SUCCESS;
}

void close_world() {
  for (Comm** comm : {&g_world, &g_self}) {
    if (*comm == nullptr) continue;
    (*comm)->kept.reset();
    if ((*comm)->team.id != 0) static_cast<void>(heddle_team_set_waits((*comm)->team, nullptr));
    discard_comm(*comm);
    *comm = nullptr;
  }
}

void close_base() {
  drop_freed();
  if (g_base != nullptr) discard_comm(g_base);
  g_base = nullptr;
}

}  // namespace heddle::mpi
