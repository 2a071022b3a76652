// The collective operations in their three forms.
#include <algorithm>
#include <array>
#include <tuple>

#include "rank.hpp"

namespace heddle::tests::api {
namespace {

constexpr std::size_t kMostOperations = 16;
constexpr std::size_t kBeyond = (std::size_t{1} << 48) + 1;  // more than any operation may move
constexpr std::uint32_t kLists = 4;

constexpr const char* kAlgorithms[] = {"allgather.bruck",
                                       "allgather.kept",
                                       "allgather.ring",
                                       "allgatherv.direct",
                                       "allgatherv.kept",
                                       "allreduce.doubling",
                                       "allreduce.flat",
                                       "allreduce.rabenseifner",
                                       "allreduce.ring",
                                       "allreduce.kept",
                                       "allreduce.kept_ring",
                                       "alltoall.bruck",
                                       "alltoall.grid",
                                       "alltoall.kept",
                                       "alltoall.pairwise",
                                       "alltoallv.direct",
                                       "alltoallv.kept",
                                       "barrier.dissemination",
                                       "barrier.flat",
                                       "barrier.wide",
                                       "broadcast.binomial",
                                       "broadcast.chain",
                                       "broadcast.flat",
                                       "broadcast.kept",
                                       "broadcast.kept_pull",
                                       "broadcast.pull",
                                       "broadcast.trinary",
                                       "broadcast.scatter_allgather",
                                       "gather.linear",
                                       "gatherv.direct",
                                       "gatherv.kept",
                                       "neighbor_alltoallv.direct",
                                       "reduce.binomial",
                                       "reduce_scatter.kept",
                                       "reduce_scatter.ring",
                                       "scan.doubling",
                                       "scatter.linear",
                                       "scatterv.direct",
                                       "broadcast.chain_session",
                                       "barrier.gates",
                                       "nonesuch",
                                       ""};

// The team of an operation.
struct Target {
  heddle_team team{};
  std::size_t index = 0;  // in Rank::teams
  std::uint32_t members = 1;
  bool calls = true;  // this rank is a member
};

Target target(Rank& rank) {
  Target chosen;
  if (rank.together()) {
    chosen.index = rank.below(rank.teams.size());
    chosen.team = rank.teams[chosen.index].handle;
    chosen.members = rank.teams[chosen.index].members;
    chosen.calls = chosen.team.id != 0;
    return chosen;
  }
  if (!rank.closed_teams.empty() && rank.chance(15)) {
    static_cast<void>(rank.bad(rank.side_teams));
    chosen.team = rank.closed_teams[rank.below(rank.closed_teams.size())];
  } else {
    chosen.team = rank.pick(rank.side_teams, 70);
  }
  return chosen;
}

// Bytes of one block; times the number of members it fits the memory, or is more than any operation
// may have.
std::size_t block(Rank& rank) {
  if (rank.chance(8)) return std::max<std::size_t>(rank.odd(), kBeyond);
  std::size_t bytes = rank.fitting(kBig / 4);
  if (rank.differ && bytes < kBig / 8) bytes += rank.number() + 1;
  return bytes;
}
std::uint32_t root(Rank& rank) {
  return rank.chance(85) ? static_cast<std::uint32_t>(rank.below(2)) : rank.odd32();
}
const void* send(Rank& rank, std::size_t bytes) {
  return rank.maybe_null(rank.data(0, bytes <= kBig / 4 ? 2 * bytes : bytes, rank.chance(95) || rank.careful ? 16 : 1));
}
void* receive(Rank& rank, std::size_t bytes) {
  // Now and then over what is sent; which for one member is in place, and good, and for another is
  // not.
  return rank.maybe_null(rank.data(rank.chance(92) || rank.together() ? 1 : 0, bytes <= kBig / 4 ? 2 * bytes : bytes,
                                   rank.chance(95) || rank.careful ? 16 : 1));
}

void combine(void* inout, const void* in, std::size_t bytes, const void*) {
  for (std::size_t i = 0; i < bytes; ++i)
    static_cast<unsigned char*>(inout)[i] ^= static_cast<const unsigned char*>(in)[i];
}
struct Elements {
  std::size_t count;
  std::size_t bytes;
  const heddle_reduction* reduction;
};
Elements elements(Rank& rank) {
  heddle_reduction made{};
  std::size_t width = 16;
  if (rank.chance(25)) {
    constexpr std::size_t kWidths[] = {0, 1, 3, 8, 24, 64, kBeyond, SIZE_MAX};
    made.fn = combine;
    made.element_bytes = width = kWidths[rank.below(std::size(kWidths))];
    if (rank.chance(10)) made.type = HEDDLE_INT8;
  } else {
    made.type = rank.chance(5) ? static_cast<heddle_type>(0) : rank.enumeration<heddle_type>(HEDDLE_COMPLEX_DOUBLE);
    made.op = rank.enumeration<heddle_operator>(HEDDLE_LXOR);
    if (rank.chance(5)) made.element_bytes = rank.odd();
  }
  std::size_t count = rank.chance(8) ? std::max<std::size_t>(rank.odd(), kBeyond) : rank.fitting(kBig / 4 / 64);
  if (rank.differ && count < 1024) count += rank.number() + 1;
  const std::size_t bytes = count < kBig && width < kBig ? count * width : SIZE_MAX;
  return {count, bytes, rank.maybe_null<const heddle_reduction>(rank.keep_one(made))};
}

// Blocks that lie in the memory, or of which one leaves what an operation may move.
const heddle_blocks* blocks(Rank& rank, std::uint32_t count) {
  const bool lies = rank.chance(15) && !rank.careful;
  auto* counts = static_cast<std::size_t*>(rank.keep(count * sizeof(std::size_t)));
  auto* displacements = static_cast<std::size_t*>(rank.keep(count * sizeof(std::size_t)));
  heddle_blocks made{counts, rank.chance(60) ? displacements : nullptr,
                     rank.chance(60) ? std::size_t{1} : std::size_t{8}};
  const std::size_t most = kBig / 8 / kLists;
  // with what members differ by no block reaches into the next
  const std::size_t same = rank.fitting(most / 8 - 2);
  for (std::uint32_t i = 0; i < count; ++i) {
    counts[i] = same + (rank.differ ? rank.number() + 1 : 0);
    displacements[i] = i * most / 8 + (rank.chance(10) && !rank.careful ? rank.below(most / 8) : 0);
  }
  if (lies && count > 0) {
    switch (rank.below(4)) {
      case 0:
        counts[rank.below(count)] = std::max<std::size_t>(rank.odd(), kBeyond);
        break;
      case 1:
        // A block of nothing may lie anywhere; another one beyond all.
        displacements[rank.below(count)] = std::max<std::size_t>(rank.odd(), kBeyond);
        break;
      case 2:
        made.element_bytes = rank.chance(50) ? 0 : std::max<std::size_t>(rank.odd(), kBeyond);
        break;
      default:
        made.counts = nullptr;
        break;
    }
  }
  return rank.maybe_null<const heddle_blocks>(rank.keep_one(made));
}

const heddle_neighbors* neighbors(Rank& rank, const Target& to, std::uint32_t* sources, std::uint32_t* targets) {
  // Two members that name each other and themselves equally often; else something odd.
  *sources = *targets = static_cast<std::uint32_t>(rank.below(kLists + 1));
  if (rank.chance(10)) *targets = static_cast<std::uint32_t>(rank.below(kLists + 1));
  auto* from = static_cast<std::uint32_t*>(rank.keep(*sources * sizeof(std::uint32_t)));
  auto* into = static_cast<std::uint32_t*>(rank.keep(*targets * sizeof(std::uint32_t)));
  for (std::uint32_t i = 0; i < *sources; ++i) from[i] = to.members == 2 && i % 2 == 0 ? 1 - rank.number() : 0;
  for (std::uint32_t i = 0; i < *targets; ++i) into[i] = to.members == 2 && i % 2 == 0 ? 1 - rank.number() : 0;
  for (std::uint32_t i = 1; i < *sources && to.members == 2; i += 2) from[i] = rank.number();
  for (std::uint32_t i = 1; i < *targets && to.members == 2; i += 2) into[i] = rank.number();
  if (*sources > 0 && rank.chance(8)) from[rank.below(*sources)] = rank.odd32();
  const heddle_neighbors made{rank.maybe_null(from), *sources, rank.maybe_null(into), *targets};
  return rank.maybe_null<const heddle_neighbors>(rank.keep_one(made));
}

const heddle_collective_options* options(Rank& rank) {
  if (rank.chance(40)) return nullptr;
  heddle_collective_options made{};
  made.size = rank.chance(10) ? rank.struct_size(sizeof made) : sizeof made;
  if (rank.chance(60)) made.algorithm = kAlgorithms[rank.below(std::size(kAlgorithms))];
  made.segment_bytes = rank.chance(70) ? 0 : rank.odd();
  auto* bytes = static_cast<std::byte*>(rank.keep(std::max(made.size, sizeof made)));
  std::memcpy(bytes, &made, sizeof made);
  if (made.size > sizeof made && rank.chance(50)) bytes[made.size - 1] = std::byte{1};
  return static_cast<heddle_collective_options*>(static_cast<void*>(bytes));
}

// Both members tell alike how it went: an operation is there at both, or at none. True: it is to be
// listed, in the same place at both ranks, as nothing where there is none.
bool alike(Rank& rank, const Target& to, heddle_status status) {
  const bool good = status >= 0;
  const bool other = rank.meet(good ? 1 : 0) != 0;
  if (to.members == 2 && to.calls && good != other) rank.wrong("an operation of both ended well at one rank only");
  return good || other;
}

template <class Fn, class... Arguments>
void blocking(Rank& rank, const char* name, Fn* fn, const Target& to, const std::tuple<Arguments...>& arguments) {
  heddle_status status = HEDDLE_DONE;
  if (to.calls) status = std::apply([&](auto... each) { return rank.call(name, fn, to.team, each...); }, arguments);
  if (rank.together()) alike(rank, to, status);
}

template <bool kPersistent, class Fn, class... Arguments>
void make(Rank& rank, const char* name, Fn* fn, const Target& to, const std::tuple<Arguments...>& arguments) {
  auto* made = rank.maybe_null(rank.keep_one(heddle_collective{}));
  if (!rank.together() && rank.side_operations.live.size() > 12) return rank.not_bad();
  heddle_status status = HEDDLE_DONE;
  if (to.calls)
    status = std::apply([&](auto... each) { return rank.call(name, fn, to.team, each..., made); }, arguments);
  if (!rank.together()) {
    if (status >= 0) rank.side_operations.add(*made, 0);
    return;
  }
  if (!alike(rank, to, status)) return;
  const bool there = to.calls && status >= 0;
  rank.operations.push_back({there ? *made : heddle_collective{}, to.index, kPersistent, there && !kPersistent});
  if (rank.operations.size() > kMostOperations) rank.drop_operation(rank.below(rank.operations.size()));
}

template <class Make>
auto arguments(Rank& rank, const Target& to, Make make_arguments, bool may_differ) {
  rank.differ = may_differ && rank.together() && to.members == 2 && rank.chance(8);
  auto made = make_arguments(rank, to);
  rank.differ = false;
  return made;
}

// ---- the arguments of each ----

class Careful {
 public:
  Careful(Rank& rank, const Target& to) : rank_(rank) { rank.careful = rank.together() && to.members == 2; }
  ~Careful() { rank_.careful = false; }
  Careful(const Careful&) = delete;
  Careful& operator=(const Careful&) = delete;

 private:
  Rank& rank_;
};

auto none(Rank&, const Target&) {
  return std::tuple<>();
}
auto broadcast(Rank& rank, const Target&) {
  const std::size_t bytes = block(rank);
  return std::tuple(receive(rank, bytes), bytes, root(rank));
}
auto reduce(Rank& rank, const Target& to) {
  const Careful careful(rank, to);
  const Elements all = elements(rank);
  return std::tuple(send(rank, all.bytes), receive(rank, all.bytes), all.count, all.reduction, root(rank));
}
auto allreduce(Rank& rank, const Target&) {
  const Elements all = elements(rank);
  return std::tuple(send(rank, all.bytes), receive(rank, all.bytes), all.count, all.reduction);
}
auto gather(Rank& rank, const Target& to) {
  const Careful careful(rank, to);
  const std::size_t bytes = block(rank);
  return std::tuple(send(rank, bytes), receive(rank, bytes), bytes, root(rank));
}
auto allgather(Rank& rank, const Target&) {
  const std::size_t bytes = block(rank);
  return std::tuple(send(rank, bytes), receive(rank, bytes), bytes);
}
auto allgatherv(Rank& rank, const Target& to) {
  return std::tuple(send(rank, kBig / 4), receive(rank, kBig / 4), blocks(rank, to.members));
}
auto alltoallv(Rank& rank, const Target& to) {
  return std::tuple(send(rank, kBig / 4), blocks(rank, to.members), receive(rank, kBig / 4), blocks(rank, to.members));
}
auto gatherv(Rank& rank, const Target& to) {
  const Careful careful(rank, to);
  const std::size_t bytes = block(rank);
  return std::tuple(send(rank, bytes), bytes, receive(rank, kBig / 4), blocks(rank, to.members), root(rank));
}
auto scatterv(Rank& rank, const Target& to) {
  const Careful careful(rank, to);
  const std::size_t bytes = block(rank);
  return std::tuple(send(rank, kBig / 4), blocks(rank, to.members), receive(rank, bytes), bytes, root(rank));
}
auto neighbor_alltoallv(Rank& rank, const Target& to) {
  std::uint32_t sources = 0;
  std::uint32_t targets = 0;
  const auto* lists = neighbors(rank, to, &sources, &targets);
  return std::tuple(lists, send(rank, kBig / 4), blocks(rank, targets), receive(rank, kBig / 4), blocks(rank, sources));
}
auto neighbor_blocks(Rank& rank, const Target& to) {
  std::uint32_t sources = 0;
  std::uint32_t targets = 0;
  const auto* lists = neighbors(rank, to, &sources, &targets);
  const std::size_t bytes = rank.chance(92) ? rank.fitting(kBig / 16) : std::max<std::size_t>(rank.odd(), kBeyond);
  return std::tuple(lists, send(rank, kBig / 4), receive(rank, kBig / 4), bytes);
}

template <class Tuple>
auto with_options(Rank& rank, const Tuple& tuple) {
  return std::tuple_cat(tuple, std::tuple(options(rank)));
}

}  // namespace

#define HEDDLE_FORMS(operation, make_arguments)                                                                \
  {"heddle_" #operation, When::together,                                                                       \
   [](Rank& rank) {                                                                                            \
     const Target to = target(rank);                                                                           \
     blocking(rank, "heddle_" #operation, heddle_##operation, to, arguments(rank, to, make_arguments, false)); \
   }},                                                                                                         \
      {"heddle_" #operation "_start", When::together,                                                          \
       [](Rank& rank) {                                                                                        \
         const Target to = target(rank);                                                                       \
         make<false>(rank, "heddle_" #operation "_start", heddle_##operation##_start, to,                      \
                     arguments(rank, to, make_arguments, true));                                               \
       }},                                                                                                     \
  {                                                                                                            \
    "heddle_" #operation "_init", When::together, [](Rank& rank) {                                             \
      const Target to = target(rank);                                                                          \
      make<true>(rank, "heddle_" #operation "_init", heddle_##operation##_init, to,                            \
                 with_options(rank, arguments(rank, to, make_arguments, true)));                               \
    }                                                                                                          \
  }

std::vector<Row> operation_rows() {
  return {
      HEDDLE_FORMS(barrier, none),
      HEDDLE_FORMS(broadcast, broadcast),
      HEDDLE_FORMS(reduce, reduce),
      HEDDLE_FORMS(allreduce, allreduce),
      HEDDLE_FORMS(gather, gather),
      HEDDLE_FORMS(allgather, allgather),
      HEDDLE_FORMS(scatter, gather),
      HEDDLE_FORMS(alltoall, allgather),
      HEDDLE_FORMS(reduce_scatter, allreduce),
      HEDDLE_FORMS(scan, allreduce),
      HEDDLE_FORMS(allgatherv, allgatherv),
      HEDDLE_FORMS(alltoallv, alltoallv),
      HEDDLE_FORMS(gatherv, gatherv),
      HEDDLE_FORMS(scatterv, scatterv),
      HEDDLE_FORMS(neighbor_alltoallv, neighbor_alltoallv),
      HEDDLE_FORMS(neighbor_alltoall, neighbor_blocks),
      HEDDLE_FORMS(neighbor_allgather, neighbor_blocks),
  };
}

}  // namespace heddle::tests::api
