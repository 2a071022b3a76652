#include "collective/select.hpp"

#include <algorithm>
#include <string_view>

namespace heddle::collective {
namespace {

constexpr std::uint64_t kKi = 1024;
// From this size on every rank puts only once, along a chain or a ring, whatever the number of
// ranks.
constexpr std::uint64_t kStreamBytes = 256 * kKi;
// At most this many ranks copy from one rank's memory at once.
constexpr Rank kPullRanks = 16;
constexpr std::uint64_t kDoublingBytes = 16 * kKi;

// True: few ranks and few bytes, so that one rank can serve the others one by one.
bool flat(const Request& request) {
  constexpr std::uint64_t kFlatBytes = 2 * kKi;
  return request.ranks > 2 && request.ranks <= 8 && request.bytes <= kFlatBytes;
}

const char* usual(const Request& request, bool reachable, bool mapped) {
  const std::uint64_t bytes = request.bytes;
  switch (request.operation) {
    case Operation::barrier:
      // An additional cache line is cheaper than an additional step; an additional message is not.
      if (mapped && request.ranks > 2) return "barrier.wide";
      return flat(request) ? "barrier.flat" : "barrier.dissemination";
    case Operation::broadcast:
      if (flat(request)) return "broadcast.flat";
      if (mapped && bytes > kKeptBytes && request.ranks <= kPullRanks)
        return reachable ? "broadcast.pull" : request.ranks > 2 ? "broadcast.kept_pull" : "broadcast.kept";
      if (bytes <= kKeptBytes || !reachable) return "broadcast.kept";
      return bytes >= kStreamBytes && request.ranks > 2 ? "broadcast.chain" : "broadcast.binomial";
    case Operation::reduce:
      return "reduce.binomial";
    case Operation::allreduce:
      if (flat(request)) return "allreduce.flat";
      return bytes <= kDoublingBytes ? "allreduce.doubling" : "allreduce.ring";
    case Operation::gather:
      return "gather.linear";
    case Operation::allgather:
      return bytes <= kKeptBytes || !reachable ? "allgather.kept" : "allgather.ring";
    case Operation::scatter:
      return "scatter.linear";
    case Operation::alltoall:
      return bytes <= (reachable ? kKeptBytes : 4 * kKeptBytes) ? "alltoall.kept" : "alltoall.pairwise";
    case Operation::reduce_scatter:
      return "reduce_scatter.ring";
    case Operation::allgatherv:
      return "allgatherv.direct";
    case Operation::alltoallv:
      return "alltoallv.direct";
    case Operation::gatherv:
      return "gatherv.direct";
    case Operation::scatterv:
      return "scatterv.direct";
    case Operation::neighbor_alltoallv:
      return "neighbor_alltoallv.direct";
    case Operation::scan:
    case Operation::kCount:
      break;
  }
  return "scan.doubling";
}

}  // namespace

base::Result<Selection> Selection::read(const std::string& names, std::uint64_t segment_bytes, SelectionTable table) {
  Selection selection;
  selection.table_ = std::move(table);
  selection.segment_bytes_ = segment_bytes;
  std::string_view left = names;
  while (!left.empty()) {
    const std::string name(left.substr(0, left.find(',')));
    left.remove_prefix(std::min(left.size(), name.size() + 1));
    const Algorithm* algorithm = find_algorithm(name);
    if (algorithm == nullptr) {
      return base::fail(HEDDLE_ERR_CONFIG,
                        "HEDDLE_COLLECTIVE_ALGORITHMS: \"%s\" is no algorithm; `heddle info --schedule` lists them",
                        name.c_str());
    }
    selection.forced_[static_cast<std::size_t>(algorithm->operation)] = algorithm;
  }
  return selection;
}

base::Result<Selection::Choice> Selection::choose(const Call& call, const Request& request, bool reachable,
                                                  bool mapped) const {
  const Algorithm* forced = forced_[static_cast<std::size_t>(call.operation)];
  if (forced != nullptr && (forced->refuses(request) != nullptr || (!mapped && forced->gets))) forced = nullptr;
  const SelectionTable::Row* row =
      call.algorithm == nullptr && forced == nullptr
          ? table_.find(request, call.whole != 0 ? call.whole : request.bytes, !reachable, mapped)
          : nullptr;
  Choice choice{nullptr, call.segment_bytes, call.algorithm != nullptr || forced != nullptr};
  if (choice.segment_bytes == 0 && row != nullptr) choice.segment_bytes = row->segment_bytes;
  if (choice.segment_bytes == 0) choice.segment_bytes = segment_bytes_;
  // Bounds the number of segments: a schedule has commands for each.
  constexpr std::uint64_t kMostSegments = 4096;
  choice.segment_bytes = std::max(choice.segment_bytes, (call.bytes / kMostSegments + 63) / 64 * 64);
  if (call.algorithm != nullptr) {
    choice.algorithm = find_algorithm(call.algorithm);
    if (choice.algorithm == nullptr || choice.algorithm->operation != call.operation) {
      return base::fail(HEDDLE_ERR_ARGUMENT,
                        "\"%s\" is no algorithm for %s; `heddle info --schedule` lists those there are", call.algorithm,
                        name_of(call.operation));
    }
    if (const char* why = choice.algorithm->refuses(request); why != nullptr)
      return base::fail(HEDDLE_ERR_ARGUMENT, "algorithm %s cannot do this: %s", call.algorithm, why);
    if (choice.algorithm->gets && !mapped) {
      return base::fail(HEDDLE_ERR_ARGUMENT, "algorithm %s is for ranks that map each other's memory; these do not",
                        call.algorithm);
    }
    return choice;
  }
  if (forced != nullptr)
    choice.algorithm = forced;
  else
    choice.algorithm = row != nullptr ? row->algorithm : find_algorithm(usual(request, reachable, mapped));
  return choice;
}

}  // namespace heddle::collective
