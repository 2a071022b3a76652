// Communicators: queries, duplicates, splits, creation from groups.

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <span>
#include <string_view>
#include <units/communicators.hpp>

#include "mpi/communicators/comm.hpp"
#include "mpi/communicators/intercomm.hpp"
#include "mpi/communicators/making.hpp"
#include "mpi/communicators/topology.hpp"
#include "mpi/messages/buffers.hpp"
#include "mpi/messages/internal.hpp"
#include "mpi/messages/message.hpp"
#include "mpi/messages/request.hpp"

namespace heddle::mpi {

namespace {

// Calls function(comm), which returns a code.
template <class Result, class Function>
int with_comm(Call call, MPI_Comm handle, const Result* result, const char* name, Function&& function) {
  Comm* comm = nullptr;
  if (const int code = read_comm(handle, &comm); code != MPI_SUCCESS) return report(call, code);
  if (result == nullptr) return report(call, comm, null_argument(name));
  return told(call, comm, function(*comm));
}

}  // namespace

// ---- queries ------------------------------------------------------------------------------------

int comm_rank(Call call, MPI_Comm comm, int* rank) {
  return with_comm(call, comm, rank, "rank", [&](const Comm& of) -> int {
    *rank = of.rank;
    return MPI_SUCCESS;
  });
}

int comm_size(Call call, MPI_Comm comm, int* size) {
  return with_comm(call, comm, size, "size", [&](const Comm& of) -> int {
    *size = of.size();
    return MPI_SUCCESS;
  });
}

int comm_test_inter(Call call, MPI_Comm comm, int* flag) {
  return with_comm(call, comm, flag, "flag", [&](const Comm& of) -> int {
    *flag = of.inter() ? 1 : 0;
    return MPI_SUCCESS;
  });
}

int comm_remote_size(Call call, MPI_Comm comm, int* size) {
  return with_comm(call, comm, size, "size", [&](const Comm& of) -> int {
    if (!of.inter()) return error(MPI_ERR_COMM, "comm is an intracommunicator");
    *size = of.remote_size();
    return MPI_SUCCESS;
  });
}

namespace {

int give_group(GroupPointer group, MPI_Group* handle) {
  *handle = new_handle(std::move(group));
  return *handle == MPI_GROUP_NULL ? no_memory_for("one more group") : MPI_SUCCESS;
}

}  // namespace

int comm_group(Call call, MPI_Comm comm, MPI_Group* group) {
  return with_comm(call, comm, group, "group", [&](const Comm& of) { return give_group(of.group, group); });
}

int comm_remote_group(Call call, MPI_Comm comm, MPI_Group* group) {
  return with_comm(call, comm, group, "group", [&](const Comm& of) -> int {
    if (!of.inter()) return error(MPI_ERR_COMM, "comm is an intracommunicator");
    return give_group(of.remote_group, group);
  });
}

namespace {

int similarity_of(const Group& a, const Group& b) {
  if (a.ranks() == b.ranks()) return MPI_CONGRUENT;
  return a.size() == b.size() && std::ranges::is_permutation(a.ranks(), b.ranks()) ? MPI_SIMILAR : MPI_UNEQUAL;
}

}  // namespace

int comm_compare(Call call, MPI_Comm comm1, MPI_Comm comm2, int* result) {
  Comm* other = nullptr;
  if (const int code = read_comm(comm2, &other); code != MPI_SUCCESS) return report(call, code);
  return with_comm(call, comm1, result, "result", [&](const Comm& one) -> int {
    if (&one == other) {
      *result = MPI_IDENT;
    } else if (one.inter() != other->inter()) {
      *result = MPI_UNEQUAL;
    } else {
      *result = similarity_of(*one.group, *other->group);
      if (one.inter()) *result = std::max(*result, similarity_of(*one.remote_group, *other->remote_group));
    }
    return MPI_SUCCESS;
  });
}

int comm_get_name(Call call, MPI_Comm comm, char* comm_name, int* resultlen) {
  if (comm_name == nullptr) return report(call, comm_of(comm), null_argument("comm_name"));
  if (comm == MPI_COMM_NULL && resultlen != nullptr) {
    constexpr std::string_view kName = "MPI_COMM_NULL";
    *resultlen = static_cast<int>(kName.copy(comm_name, kName.size()));
    comm_name[kName.size()] = '\0';
    return MPI_SUCCESS;
  }
  return with_comm(call, comm, resultlen, "resultlen", [&](const Comm& of) -> int {
    *resultlen = static_cast<int>(of.name.size());
    std::memcpy(comm_name, of.name.c_str(), of.name.size() + 1);
    return MPI_SUCCESS;
  });
}

int comm_set_name(Call call, MPI_Comm comm, const char* comm_name) {
  return with_comm(call, comm, comm_name, "comm_name", [&](Comm& of) -> int {
    of.name.assign(comm_name, ::strnlen(comm_name, MPI_MAX_OBJECT_NAME - 1));
    return MPI_SUCCESS;
  });
}

int comm_get_parent(Call call, MPI_Comm* parent) {
  if (const int code = check_running(); code != MPI_SUCCESS) return report(call, code);
  if (parent == nullptr) return report(call, null_argument("parent"));
  *parent = MPI_COMM_NULL;  // no process is spawned
  return MPI_SUCCESS;
}

// ---- hints --------------------------------------------------------------------------------------

namespace {

constexpr std::array kCommHints{kNoAnyTag, "mpi_assert_no_any_source", "mpi_assert_exact_length",
                                "mpi_assert_allow_overtaking"};

// Keeps the hints that are known.
void take_hints(Comm& comm, const Info& hints) {
  for (const char* key : kCommHints) {
    if (hints.find(key) != nullptr) comm.info.set(key, hints.flag(key, false) ? "true" : "false");
  }
  comm.no_any_tag = comm.info.flag(kCommHints[0], false);
  comm.no_any_source = comm.info.flag(kCommHints[1], false);
  comm.exact_length = comm.info.flag(kCommHints[2], false);
  comm.allow_overtaking = comm.info.flag(kCommHints[3], false);
}

}  // namespace

int comm_get_info(Call call, MPI_Comm comm, MPI_Info* info_used) {
  return with_comm(call, comm, info_used, "info_used", [&](const Comm& of) -> int {
    Info used;
    for (const char* key : kCommHints) used.set(key, of.info.flag(key, false) ? "true" : "false");
    if (of.by_tag) used.set(kNoAnyTag, "true");  // it is in use, whatever was said later
    *info_used = new_handle(used);
    return *info_used == MPI_INFO_NULL ? no_memory_for("an info") : MPI_SUCCESS;
  });
}

int comm_set_info(Call call, MPI_Comm comm, MPI_Info info) {
  return with_comm(call, comm, call, "info", [&](Comm& of) -> int {
    Info hints;
    if (const int code = read_info(info, &hints); code != MPI_SUCCESS) return code;
    take_hints(of, hints);
    return MPI_SUCCESS;
  });
}

// ---- duplicates ---------------------------------------------------------------------------------

namespace {

// `hints` null: none. A duplicate does not have its parent's.
bool hints_assert_no_any_tag(const Info* hints) {
  return hints != nullptr && hints->flag(kNoAnyTag, false);
}

// Copies the parent's properties to a duplicate, and sets its hints, if there are any.
int hand_down(Comm& parent, const Info* hints, Comm& made) {
  made.topology = parent.topology;
  made.name.clear();
  if (hints != nullptr) take_hints(made, *hints);
  return copy_attributes(handle_of(&parent), parent.attributes, &made.attributes);
}

int duplicate_comm(Comm& parent, const Info* hints, MPI_Comm* newcomm) {
  Comm* made = nullptr;
  *newcomm = MPI_COMM_NULL;
  const int code = parent.inter() ? duplicate_inter(parent, &made)
                                  : make_from(&parent, parent.group, &made, hints_assert_no_any_tag(hints));
  if (code != MPI_SUCCESS) return code;
  *newcomm = handle_of(made);
  if (const int copied = hand_down(parent, hints, *made); copied != MPI_SUCCESS) {
    free_comm(made);
    *newcomm = MPI_COMM_NULL;
    return copied;
  }
  return MPI_SUCCESS;
}

// MPI_Comm_idup. The attributes are copied when it begins, so that the callbacks run in the call.
class Duplicating final : public MpiOperation, public Stepped {
 public:
  Duplicating(Comm& parent, std::unique_ptr<StepwiseMaking> making, MPI_Comm* newcomm)
      : parent_(parent), making_(std::move(making)), newcomm_(newcomm) {}
  ~Duplicating() override { remove_stepped(this); }
  int begin(const Info* hints) {
    if (hints != nullptr) take_hints(like_, *hints);
    if (const int code = copy_attributes(handle_of(&parent_), parent_.attributes, &like_.attributes);
        code != MPI_SUCCESS)
      return code;
    if (const int code = making_->begin(); code != MPI_SUCCESS) return code;
    add_stepped(this);
    return MPI_SUCCESS;
  }
  Made step() override {
    const std::uint32_t before = t_moves;
    Comm* made = nullptr;
    if (!making_->step(&code_, &made)) return t_moves != before ? Made::moved : Made::nothing;
    if (made != nullptr) {
      made->errhandler = retain(parent_.errhandler);
      made->topology = parent_.topology;
      made->attributes = std::move(like_.attributes);
      take_hints(*made, like_.info);
      *newcomm_ = handle_of(made);
    }
    ended_.store(true, std::memory_order_release);
    return Made::finished;
  }
  bool test(Outcome* outcome) override {
    if (!ended_.load(std::memory_order_acquire)) progress(lane());
    if (!ended_.load(std::memory_order_acquire)) return false;
    *outcome = {};
    // the thread that made the steps has the text
    if (code_ != MPI_SUCCESS) outcome->code = error(code_, "the communicator could not be duplicated");
    return true;
  }
  Lane& lane() override { return *parent_.lane; }
  Comm* comm() override { return &parent_; }

 private:
  Comm& parent_;
  const std::unique_ptr<StepwiseMaking> making_;
  Comm like_;  // holds what the new one gets
  MPI_Comm* const newcomm_;
  int code_ = MPI_SUCCESS;
  std::atomic<bool> ended_{false};  // release with code_ and *newcomm_; acquire by the test
};

std::unique_ptr<StepwiseMaking> making_of_duplicate(Comm& parent, const Info* hints) {
  if (parent.inter()) return std::make_unique<InterMaking>(parent);
  std::size_t mine = 0;
  std::vector<Route> routes = routes_to(parent, *parent.group, &mine);
  return std::make_unique<Making>(parent.group, std::move(routes), mine, next_make_tag(parent),
                                  hints_assert_no_any_tag(hints));
}

int duplicate_later(Comm& parent, const Info* hints, MPI_Comm* newcomm, MPI_Request* request) {
  if (request == nullptr || newcomm == nullptr) return null_argument(request == nullptr ? "request" : "newcomm");
  *newcomm = MPI_COMM_NULL;
  auto operation = std::make_unique<Duplicating>(parent, making_of_duplicate(parent, hints), newcomm);
  if (const int code = operation->begin(hints); code != MPI_SUCCESS) return code;
  return new_request(std::move(operation), false, request);
}

}  // namespace

int comm_dup(Call call, MPI_Comm comm, MPI_Comm* newcomm) {
  return with_comm(call, comm, newcomm, "newcomm", [&](Comm& of) { return duplicate_comm(of, nullptr, newcomm); });
}

int comm_dup_with_info(Call call, MPI_Comm comm, MPI_Info info, MPI_Comm* newcomm) {
  return with_comm(call, comm, newcomm, "newcomm", [&](Comm& of) -> int {
    Info hints;
    if (const int code = read_info(info, &hints); code != MPI_SUCCESS) return code;
    return duplicate_comm(of, &hints, newcomm);
  });
}

int comm_idup(Call call, MPI_Comm comm, MPI_Comm* newcomm, MPI_Request* request) {
  return with_comm(call, comm, newcomm, "newcomm",
                   [&](Comm& of) { return duplicate_later(of, nullptr, newcomm, request); });
}

int comm_idup_with_info(Call call, MPI_Comm comm, MPI_Info info, MPI_Comm* newcomm, MPI_Request* request) {
  return with_comm(call, comm, newcomm, "newcomm", [&](Comm& of) -> int {
    Info hints;
    if (const int code = read_info(info, &hints); code != MPI_SUCCESS) return code;
    return duplicate_later(of, &hints, newcomm, request);
  });
}

// ---- subsets ------------------------------------------------------------------------------------

namespace {

// A group that is to be a communicator has members of the parent only.
int check_members(const Comm& parent, const Group& group) {
  for (const std::uint32_t rank : group.ranks()) {
    if (parent.group->rank_of(rank) == MPI_UNDEFINED)
      return error(MPI_ERR_GROUP, "the group has rank %u of MPI_COMM_WORLD, which is not in the communicator", rank);
  }
  return MPI_SUCCESS;
}

}  // namespace

int comm_create(Call call, MPI_Comm comm, MPI_Group group, MPI_Comm* newcomm) {
  return with_comm(call, comm, newcomm, "newcomm", [&](Comm& of) -> int {
    *newcomm = MPI_COMM_NULL;
    const GroupPointer wanted = group_of(group);
    if (wanted == nullptr) return bad_group(group);
    if (const int code = check_members(of, *wanted); code != MPI_SUCCESS) return code;
    Comm* made = nullptr;
    const int code = of.inter() ? create_inter(of, wanted, &made) : make_from(&of, wanted, &made);
    *newcomm = handle_of(made);
    return code;
  });
}

int comm_create_group(Call call, MPI_Comm comm, MPI_Group group, int tag, MPI_Comm* newcomm) {
  return with_comm(call, comm, newcomm, "newcomm", [&](Comm& of) -> int {
    *newcomm = MPI_COMM_NULL;
    const GroupPointer wanted = group_of(group);
    if (wanted == nullptr) return bad_group(group);
    if (of.inter()) return error(MPI_ERR_COMM, "comm is an intercommunicator");
    if (tag < 0 || tag > kTagUb) return error(MPI_ERR_TAG, "tag %d: tags are 0-%d", tag, kTagUb);
    if (const int code = check_members(of, *wanted); code != MPI_SUCCESS) return code;
    if (wanted->rank_of(g_job.rank) == MPI_UNDEFINED) return MPI_SUCCESS;
    Comm* made = nullptr;
    const int internal = InternalTag::kGroupTags + tag % InternalTag::kGroupTags;
    const int code = make_comm({wanted, &of, internal}, &made);
    if (made != nullptr) made->errhandler = retain(of.errhandler);
    *newcomm = handle_of(made);
    return code;
  });
}

namespace {

struct SplitKey {
  int colour;
  int key;
};

int split_intra(Comm& parent, const SplitKey& mine, MPI_Comm* newcomm) {
  *newcomm = MPI_COMM_NULL;
  if (mine.colour < 0 && mine.colour != MPI_UNDEFINED)
    return error(MPI_ERR_ARG, "color %d is negative, and not MPI_UNDEFINED", mine.colour);
  std::vector<SplitKey> all(static_cast<std::size_t>(parent.size()));
  if (const int code = internal_allgather(parent, next_make_tag(parent), &mine, sizeof mine, all.data());
      code != MPI_SUCCESS)
    return code;
  std::vector<int> ranks(all.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  std::erase_if(ranks, [&](int rank) { return all[static_cast<std::size_t>(rank)].colour != mine.colour; });
  std::ranges::stable_sort(ranks, {}, [&](int rank) { return all[static_cast<std::size_t>(rank)].key; });
  std::vector<std::uint32_t> members;
  for (const int rank : ranks) members.push_back((*parent.group)[rank]);
  if (mine.colour == MPI_UNDEFINED) members.clear();
  Comm* made = nullptr;
  const int code = make_from(&parent, std::make_shared<Group>(std::move(members), parent.group->session()), &made);
  *newcomm = handle_of(made);
  return code;
}

}  // namespace

int comm_split(Call call, MPI_Comm comm, int color, int key, MPI_Comm* newcomm) {
  return with_comm(call, comm, newcomm, "newcomm", [&](Comm& of) -> int {
    return of.inter() ? split_inter(of, color, key, newcomm) : split_intra(of, {color, key}, newcomm);
  });
}

int comm_split_type(Call call, MPI_Comm comm, int split_type, int key, MPI_Info info, MPI_Comm* newcomm) {
  return with_comm(call, comm, newcomm, "newcomm", [&](Comm& of) -> int {
    *newcomm = MPI_COMM_NULL;
    Info hints;
    if (const int code = read_info(info, &hints); code != MPI_SUCCESS) return code;
    int colour = MPI_UNDEFINED;
    if (const int code = colour_of_type(of, split_type, hints, &colour); code != MPI_SUCCESS) return code;
    return of.inter() ? split_inter(of, colour, key, newcomm) : split_intra(of, {colour, key}, newcomm);
  });
}

// ---- the end ------------------------------------------------------------------------------------

namespace {

// MPI_Comm_disconnect: waits until no operation of it is under way. If a member has died, an
// operation may wait for that member, such as a receive from any source. The call does not wait for
// such operations.
void wait_pending(const Comm& comm) {
  constexpr std::uint32_t kLooks = 64;
  std::uint32_t looks = 0;
  const auto ended = [&] {
    if (!has_pending(comm) && has_no_buffered(comm)) return true;
    return ++looks % kLooks == 0 && has_dead_member(comm);
  };
  wait_until(*comm.lane, ended, "MPI_Comm_disconnect");
}

int end(Call call, MPI_Comm* handle, bool waits) {
  if (handle == nullptr) return report(call, null_argument("comm"));
  Comm* comm = nullptr;
  if (const int code = read_comm(*handle, &comm); code != MPI_SUCCESS) return report(call, code);
  if (comm == g_world || comm == g_self)
    return report(call, comm, error(MPI_ERR_COMM, "%s cannot be freed", comm->name.c_str()));
  if (const int code = delete_attributes(*handle, &comm->attributes); code != MPI_SUCCESS)
    return report(call, comm, code);
  if (waits) wait_pending(*comm);
  free_comm(comm);
  *handle = MPI_COMM_NULL;
  return MPI_SUCCESS;
}

}  // namespace

int comm_free(Call call, MPI_Comm* comm) {
  return end(call, comm, false);
}
int comm_disconnect(Call call, MPI_Comm* comm) {
  return end(call, comm, true);
}

namespace {

using Packed = std::array<std::byte, HEDDLE_PACKED_REGION_BYTES>;

struct SharedProbe {
  Packed region{};
  std::uint64_t bytes = 0;  // 0: this member has no memory for it
  std::uint32_t job_rank = 0;
};

// True: this process can load and store in the memory of the member.
bool maps(const SharedProbe& probe) {
  heddle_remote_region remote{};
  if (heddle_region_unpack(g_job.context, probe.region.data(), probe.bytes, &remote) < 0) return false;
  int mapped = 0;
  const bool known = heddle_remote_mapped({remote, 0}, 1, &mapped) >= 0;
  static_cast<void>(heddle_remote_region_release(remote));
  return known && mapped != 0;
}

// `mine` of all members; of an intercommunicator, those of the local group and then those of the
// remote one.
template <class T>
int gather_from_all(Comm& comm, const T& mine, std::vector<T>* all) {
  if (!comm.inter()) {
    all->resize(static_cast<std::size_t>(comm.size()));
    return internal_allgather(comm, next_make_tag(comm), &mine, sizeof mine, all->data());
  }
  std::vector<std::byte> ours;
  std::vector<std::byte> theirs;
  if (const int code = gather_both(comm, std::as_bytes(std::span(&mine, 1)), &ours, &theirs); code != MPI_SUCCESS)
    return code;
  ours.insert(ours.end(), theirs.begin(), theirs.end());
  all->resize(ours.size() / sizeof(T));
  std::memcpy(all->data(), ours.data(), ours.size());
  return MPI_SUCCESS;
}

// The first rank of the job, of the members, whose memory this process maps: the same for all that
// share memory.
int shared_with(Comm& comm, int* colour) {
  constexpr std::size_t kBytes = 4096;
  heddle_region region{};
  SharedProbe mine;
  mine.job_rank = g_job.rank;
  if (heddle_region_alloc(g_job.context, kBytes, &region) >= 0) {
    std::size_t bytes = mine.region.size();
    if (heddle_region_pack(region, mine.region.data(), &bytes) >= 0) mine.bytes = bytes;
  }
  std::vector<SharedProbe> all;
  int code = gather_from_all(comm, mine, &all);
  std::uint32_t first = g_job.rank;
  for (const SharedProbe& probe : all) {
    const bool better = probe.job_rank < first && probe.bytes != 0 && mine.bytes != 0;
    if (better && maps(probe)) first = probe.job_rank;
  }
  *colour = static_cast<int>(first);
  // once all have answered, all have looked
  std::vector<int> colours;
  if (code == MPI_SUCCESS) code = gather_from_all(comm, *colour, &colours);
  if (region.id != 0) static_cast<void>(heddle_region_release(region));
  return code;
}

// A split that would leave the communicator as it is gives MPI_UNDEFINED.
int smaller_only(Comm& comm, int* colour) {
  std::vector<int> colours;
  if (const int code = gather_from_all(comm, *colour, &colours); code != MPI_SUCCESS) return code;
  bool same = true;
  for (const int other : colours) same = same && other == *colour;
  if (same) *colour = MPI_UNDEFINED;
  return MPI_SUCCESS;
}

}  // namespace

int colour_of_type(Comm& comm, int split_type, const Info& hints, int* colour) {
  *colour = MPI_UNDEFINED;
  const std::string* const resource = hints.find("mpi_hw_resource_type");
  int mine = MPI_UNDEFINED;
  // all members take part, whatever they ask for
  if (const int code = shared_with(comm, &mine); code != MPI_SUCCESS) return code;
  switch (split_type) {
    case MPI_UNDEFINED:
      return MPI_SUCCESS;
    case MPI_COMM_TYPE_SHARED:
      *colour = mine;
      return MPI_SUCCESS;
    case MPI_COMM_TYPE_HW_GUIDED:
    case MPI_COMM_TYPE_RESOURCE_GUIDED:
      if (resource != nullptr && *resource == "mpi_shared_memory") *colour = mine;
      return MPI_SUCCESS;
    case MPI_COMM_TYPE_HW_UNGUIDED:
      *colour = mine;
      return smaller_only(comm, colour);
    default:
      return error(MPI_ERR_ARG, "split_type %d is none of MPI_COMM_TYPE_…", split_type);
  }
}

}  // namespace heddle::mpi
