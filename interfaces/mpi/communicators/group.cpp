#include "mpi/communicators/group.hpp"

#include <algorithm>

#include <units/groups.hpp>
#include "mpi/core/check.hpp"
#include "mpi/core/errors.hpp"
#include "mpi/core/job.hpp"
#include "mpi/core/objects.hpp"

namespace heddle::mpi {
namespace {

struct Holder {
  GroupPointer group;
};
constexpr std::uint32_t kMostGroups = 1U << 20;
ObjectPool<Holder, kMostGroups> g_groups;

const GroupPointer& empty_group() {
  static const GroupPointer empty = std::make_shared<const Group>(std::vector<std::uint32_t>{});
  return empty;
}

int find_group(MPI_Group handle, GroupPointer* group) {
  *group = group_of(handle);
  return *group == nullptr ? bad_group(handle) : MPI_SUCCESS;
}
int find_groups(MPI_Group handle1, MPI_Group handle2, GroupPointer* group1, GroupPointer* group2) {
  if (const int code = find_group(handle1, group1); code != MPI_SUCCESS) return code;
  return find_group(handle2, group2);
}

// `of`: what it is derived from.
int give_derived(std::vector<std::uint32_t> ranks, const Group& of, MPI_Group* out) {
  const MPI_Group handle =
      new_handle(ranks.empty() ? empty_group() : std::make_shared<const Group>(std::move(ranks), of.session()));
  if (handle == MPI_GROUP_NULL) return no_memory_for("a group");
  *out = handle;
  return MPI_SUCCESS;
}

// Ranks in a group, by rank in the job.
class Index {
 public:
  explicit Index(const Group& group) {
    const auto highest = std::ranges::max_element(group.ranks());
    if (highest == group.ranks().end()) return;
    ranks_.resize(std::size_t{*highest} + 1, MPI_UNDEFINED);
    for (int i = 0; i < group.size(); ++i) ranks_[group[i]] = i;
  }
  // MPI_UNDEFINED: no member.
  [[nodiscard]] int rank_of(std::uint32_t job_rank) const {
    return job_rank < ranks_.size() ? ranks_[job_rank] : MPI_UNDEFINED;
  }
  [[nodiscard]] bool holds(std::uint32_t job_rank) const { return rank_of(job_rank) != MPI_UNDEFINED; }

 private:
  std::vector<int> ranks_;
};

int check_rank_of_group(const Group& group, std::int64_t rank, const char* argument, int place) {
  if (rank >= 0 && rank < group.size()) return MPI_SUCCESS;
  if (group.size() == 0) {
    return error(MPI_ERR_RANK, "%s[%d] is %lld: the group has no members", argument, place,
                 static_cast<long long>(rank));
  }
  return error(MPI_ERR_RANK, "%s[%d] is %lld: the group has ranks 0-%d", argument, place, static_cast<long long>(rank),
               group.size() - 1);
}

// Ranks of a group, each at most once.
class ChosenRanks {
 public:
  explicit ChosenRanks(const Group& group) : group_(group), chosen_(static_cast<std::size_t>(group.size())) {}
  // `place`: in the program's list, for the message.
  int add(std::int64_t rank, const char* argument, int place) {
    if (const int code = check_rank_of_group(group_, rank, argument, place); code != MPI_SUCCESS) return code;
    const auto index = static_cast<std::size_t>(rank);
    if (chosen_[index]) {
      return error(MPI_ERR_RANK, "%s[%d]: it names rank %lld once more", argument, place, static_cast<long long>(rank));
    }
    chosen_[index] = true;
    ranks_.push_back(group_[static_cast<int>(rank)]);
    return MPI_SUCCESS;
  }
  [[nodiscard]] std::vector<std::uint32_t> in_order_given() && { return std::move(ranks_); }
  [[nodiscard]] std::vector<std::uint32_t> others() const {
    std::vector<std::uint32_t> others;
    for (int i = 0; i < group_.size(); ++i)
      if (!chosen_[static_cast<std::size_t>(i)]) others.push_back(group_[i]);
    return others;
  }

 private:
  const Group& group_;
  std::vector<bool> chosen_;
  std::vector<std::uint32_t> ranks_;
};

int choose(ChosenRanks* choice, int n, const int ranks[]) {
  if (n < 0) return error(MPI_ERR_ARG, "n %d is negative", n);
  if (n > 0 && ranks == nullptr) return null_argument("ranks");
  for (int i = 0; i < n; ++i)
    if (const int code = choice->add(ranks[i], "ranks", i); code != MPI_SUCCESS) return code;
  return MPI_SUCCESS;
}

// Each range is first, last, stride: first, first + stride, … not beyond last.
int choose(ChosenRanks* choice, int n, int ranges[][3]) {
  if (n < 0) return error(MPI_ERR_ARG, "n %d is negative", n);
  if (n > 0 && ranges == nullptr) return null_argument("ranges");
  for (int i = 0; i < n; ++i) {
    const std::int64_t first = ranges[i][0];
    const std::int64_t last = ranges[i][1];
    const std::int64_t stride = ranges[i][2];
    if (stride == 0) return error(MPI_ERR_ARG, "ranges[%d]: the stride is 0", i);
    if (stride > 0 ? first > last : first < last) {
      return error(MPI_ERR_ARG, "ranges[%d]: from %d the stride %d does not lead to %d", i, ranges[i][0], ranges[i][2],
                   ranges[i][1]);
    }
    for (std::int64_t rank = first; stride > 0 ? rank <= last : rank >= last; rank += stride)
      if (const int code = choice->add(rank, "ranges", i); code != MPI_SUCCESS) return code;
  }
  return MPI_SUCCESS;
}

enum class Keep { chosen, others };
template <class Ranks>
int subset(MPI_Group handle, int n, Ranks ranks, Keep keep, MPI_Group* out) {
  GroupPointer group;
  if (const int code = find_group(handle, &group); code != MPI_SUCCESS) return code;
  if (out == nullptr) return null_argument("newgroup");
  ChosenRanks choice(*group);
  if (const int code = choose(&choice, n, ranks); code != MPI_SUCCESS) return code;
  return give_derived(keep == Keep::chosen ? std::move(choice).in_order_given() : choice.others(), *group, out);
}

// The members of `first` that are in `second`, or those that are not.
std::vector<std::uint32_t> part(const Group& first, const Group& second, bool in_second) {
  const Index index(second);
  std::vector<std::uint32_t> ranks;
  for (const std::uint32_t rank : first.ranks())
    if (index.holds(rank) == in_second) ranks.push_back(rank);
  return ranks;
}

enum class Join { sum, common, difference };
int join_groups(MPI_Group handle1, MPI_Group handle2, Join how, MPI_Group* out) {
  GroupPointer group1;
  GroupPointer group2;
  if (const int code = find_groups(handle1, handle2, &group1, &group2); code != MPI_SUCCESS) return code;
  if (out == nullptr) return null_argument("newgroup");
  const Group& of = group1->session() != nullptr ? *group1 : *group2;
  if (how != Join::sum) return give_derived(part(*group1, *group2, how == Join::common), of, out);
  std::vector<std::uint32_t> ranks = group1->ranks();
  const std::vector<std::uint32_t> more = part(*group2, *group1, false);
  ranks.insert(ranks.end(), more.begin(), more.end());
  return give_derived(std::move(ranks), of, out);
}

int compare_groups(MPI_Group handle1, MPI_Group handle2, int* result) {
  GroupPointer group1;
  GroupPointer group2;
  if (const int code = find_groups(handle1, handle2, &group1, &group2); code != MPI_SUCCESS) return code;
  if (result == nullptr) return null_argument("result");
  if (group1 == group2 || group1->ranks() == group2->ranks()) {
    *result = MPI_IDENT;
  } else if (group1->size() == group2->size() && part(*group1, *group2, false).empty()) {
    *result = MPI_SIMILAR;
  } else {
    *result = MPI_UNEQUAL;
  }
  return MPI_SUCCESS;
}

int translate(MPI_Group handle1, int n, const int ranks1[], MPI_Group handle2, int ranks2[]) {
  GroupPointer group1;
  GroupPointer group2;
  if (const int code = find_groups(handle1, handle2, &group1, &group2); code != MPI_SUCCESS) return code;
  if (n < 0) return error(MPI_ERR_ARG, "n %d is negative", n);
  if (n > 0 && ranks1 == nullptr) return null_argument("ranks1");
  if (n > 0 && ranks2 == nullptr) return null_argument("ranks2");
  for (int i = 0; i < n; ++i) {
    if (ranks1[i] == MPI_PROC_NULL) continue;
    if (const int code = check_rank_of_group(*group1, ranks1[i], "ranks1", i); code != MPI_SUCCESS) return code;
  }
  constexpr int kFewRanks = 4;
  if (n <= kFewRanks) {
    for (int i = 0; i < n; ++i)
      ranks2[i] = ranks1[i] == MPI_PROC_NULL ? MPI_PROC_NULL : group2->rank_of((*group1)[ranks1[i]]);
    return MPI_SUCCESS;
  }
  const Index index(*group2);
  for (int i = 0; i < n; ++i)
    ranks2[i] = ranks1[i] == MPI_PROC_NULL ? MPI_PROC_NULL : index.rank_of((*group1)[ranks1[i]]);
  return MPI_SUCCESS;
}

int free_group(MPI_Group* handle) {
  if (handle == nullptr) return null_argument("group");
  if (*handle != MPI_GROUP_EMPTY) {
    Holder* const holder = g_groups.find(*handle);
    if (holder == nullptr) return bad_group(*handle);
    g_groups.give_back(holder);
  }
  *handle = MPI_GROUP_NULL;
  return MPI_SUCCESS;
}

}  // namespace

// ---- groups and their handles -------------------------------------------------------------------

int Group::rank_of(std::uint32_t job_rank) const {
  if (job_rank < ranks_.size() && ranks_[job_rank] == job_rank) return static_cast<int>(job_rank);
  const auto found = std::ranges::find(ranks_, job_rank);
  return found == ranks_.end() ? MPI_UNDEFINED : static_cast<int>(found - ranks_.begin());
}

GroupPointer group_of(MPI_Group handle) {
  if (handle == MPI_GROUP_EMPTY) return empty_group();
  const Holder* const holder = g_groups.find(handle);
  return holder == nullptr ? nullptr : holder->group;
}

int bad_group(MPI_Group handle) {
  if (handle == MPI_GROUP_NULL) return error(MPI_ERR_GROUP, "group is MPI_GROUP_NULL");
  return error(MPI_ERR_GROUP, "group %p: it is no group, or was freed", static_cast<void*>(handle));
}

MPI_Group new_handle(GroupPointer group) {
  if (group->size() == 0) return MPI_GROUP_EMPTY;
  Holder* const holder = g_groups.take(std::move(group));
  return holder == nullptr ? MPI_GROUP_NULL : reinterpret_cast<MPI_Group>(holder);
}

std::size_t live_groups() {
  std::size_t live = 0;
  g_groups.each([&](const Holder& /*holder*/) { ++live; });
  return live;
}

MPI_Group group_at(std::uint32_t number) {
  Holder* const holder = g_groups.at(number);
  return holder == nullptr ? MPI_GROUP_NULL : reinterpret_cast<MPI_Group>(holder);
}
std::uint32_t group_number(MPI_Group handle) {
  return g_groups.number(reinterpret_cast<const Holder*>(handle));
}

// ---- the functions ------------------------------------------------------------------------------

int group_size(Call call, MPI_Group group, int* size) {
  GroupPointer found;
  if (const int code = find_group(group, &found); code != MPI_SUCCESS) return told(call, code);
  if (size == nullptr) return told(call, null_argument("size"));
  *size = found->size();
  return MPI_SUCCESS;
}

int group_rank(Call call, MPI_Group group, int* rank) {
  GroupPointer found;
  if (const int code = find_group(group, &found); code != MPI_SUCCESS) return told(call, code);
  if (rank == nullptr) return told(call, null_argument("rank"));
  *rank = found->rank_of(g_job.rank);
  return MPI_SUCCESS;
}

int group_compare(Call call, MPI_Group group1, MPI_Group group2, int* result) {
  return told(call, guarded("a group", [&] { return compare_groups(group1, group2, result); }));
}

int group_translate_ranks(Call call, MPI_Group group1, int n, const int ranks1[], MPI_Group group2, int ranks2[]) {
  return told(call, guarded("a group", [&] { return translate(group1, n, ranks1, group2, ranks2); }));
}

int group_union(Call call, MPI_Group group1, MPI_Group group2, MPI_Group* newgroup) {
  return told(call, guarded("a group", [&] { return join_groups(group1, group2, Join::sum, newgroup); }));
}

int group_intersection(Call call, MPI_Group group1, MPI_Group group2, MPI_Group* newgroup) {
  return told(call, guarded("a group", [&] { return join_groups(group1, group2, Join::common, newgroup); }));
}

int group_difference(Call call, MPI_Group group1, MPI_Group group2, MPI_Group* newgroup) {
  return told(call, guarded("a group", [&] { return join_groups(group1, group2, Join::difference, newgroup); }));
}

int group_incl(Call call, MPI_Group group, int n, const int ranks[], MPI_Group* newgroup) {
  return told(call, guarded("a group", [&] { return subset(group, n, ranks, Keep::chosen, newgroup); }));
}

int group_excl(Call call, MPI_Group group, int n, const int ranks[], MPI_Group* newgroup) {
  return told(call, guarded("a group", [&] { return subset(group, n, ranks, Keep::others, newgroup); }));
}

int group_range_incl(Call call, MPI_Group group, int n, int ranges[][3], MPI_Group* newgroup) {
  return told(call, guarded("a group", [&] { return subset(group, n, ranges, Keep::chosen, newgroup); }));
}

int group_range_excl(Call call, MPI_Group group, int n, int ranges[][3], MPI_Group* newgroup) {
  return told(call, guarded("a group", [&] { return subset(group, n, ranges, Keep::others, newgroup); }));
}

int group_free(Call call, MPI_Group* group) {
  return told(call, free_group(group));
}

}  // namespace heddle::mpi
