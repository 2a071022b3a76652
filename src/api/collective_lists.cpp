// Collective operations on blocks of any lengths, from the program's lists to a checked
// collective::Call.
#include <algorithm>
#include <numeric>
#include <vector>

#include "api/collective_forms.hpp"
#include "collective/schedule.hpp"

using namespace heddle::api;  // NOLINT: the C functions below are this file's public face
namespace base = heddle::base;
namespace collective = heddle::collective;
namespace engine = heddle::engine;
using collective::Call;
using collective::Exchange;
using collective::ListedBlock;
using collective::Operation;
using collective::Team;

namespace {

// The program's arguments for one side: blocks, or one block of that many bytes.
struct Side {
  const char* name;  // of the side's buffer
  const void* buffer = nullptr;
  const heddle_blocks* blocks = nullptr;
  std::uint64_t bytes = 0;
  bool listed = true;  // as blocks
};
struct ListArguments {
  const char* function;  // with heddle_, for messages
  Operation operation;
  Side send;
  Side receive;
  std::uint32_t root = 0;
  const heddle_neighbors* neighbors = nullptr;
  bool same = false;  // one block of send goes to all targets
};

Status wrong_list(const ListArguments& arguments, const Side& side, const char* what) {
  return base::fail(HEDDLE_ERR_ARGUMENT, "%s: the blocks of %s: %s", arguments.function, side.name, what);
}

Status too_large(const ListArguments& arguments, const Side& side, std::size_t block) {
  return base::fail(HEDDLE_ERR_SIZE, "%s: block %zu of %s ends beyond 2^48 bytes", arguments.function, block,
                    side.name);
}

// The blocks of `side`, block i with peers[i].
Status read_blocks(const ListArguments& arguments, const Side& side, std::span<const std::uint32_t> peers,
                   std::vector<ListedBlock>* to) {
  if (side.blocks == nullptr) return wrong_list(arguments, side, "null; say which they are");
  const heddle_blocks& blocks = *side.blocks;
  const std::size_t size = peers.size();
  if (blocks.counts == nullptr && size > 0)
    return wrong_list(arguments, side, "counts is null; there is one for each block");
  if (blocks.element_bytes == 0)
    return wrong_list(arguments, side, "element_bytes is 0; an element has a byte at least");
  std::uint64_t next = 0;
  to->reserve(size);
  for (std::size_t i = 0; i < size; ++i) {
    ListedBlock message;
    message.peer = peers[i];
    message.here = next;
    std::uint64_t end = 0;
    if (__builtin_mul_overflow(blocks.counts[i], blocks.element_bytes, &message.bytes)) {
      return too_large(arguments, side, i);
    }
    if (blocks.displacements != nullptr &&
        __builtin_mul_overflow(blocks.displacements[i], blocks.element_bytes, &message.here)) {
      // The position of an empty block does not matter.
      if (message.bytes > 0) return too_large(arguments, side, i);
      message.here = 0;
    }
    if (message.bytes > 0 &&
        (__builtin_add_overflow(message.here, message.bytes, &end) || end > kMostCollectiveBytes)) {
      return too_large(arguments, side, i);
    }
    if (message.bytes > 0) next = end;
    to->push_back(message);
  }
  return HEDDLE_DONE;
}

Status read_one(const ListArguments& arguments, const Side& side, std::uint32_t peer, std::vector<ListedBlock>* to) {
  if (side.bytes > kMostCollectiveBytes) {
    return base::fail(HEDDLE_ERR_SIZE, "%s: %llu bytes are more than 2^48", arguments.function,
                      static_cast<unsigned long long>(side.bytes));
  }
  ListedBlock message;
  message.peer = peer;
  message.bytes = side.bytes;
  to->push_back(message);
  return HEDDLE_DONE;
}

// Blocks of one length with the ranks of a list.
Status read_equal(const ListArguments& arguments, const Side& side, std::span<const std::uint32_t> peers, bool same,
                  std::vector<ListedBlock>* to) {
  if (!peers.empty() && side.bytes > kMostCollectiveBytes / peers.size()) {
    return base::fail(HEDDLE_ERR_SIZE, "%s: %zu blocks of %llu bytes are more than 2^48 bytes", arguments.function,
                      peers.size(), static_cast<unsigned long long>(side.bytes));
  }
  for (std::size_t i = 0; i < peers.size(); ++i) {
    ListedBlock& message = to->emplace_back();
    message.peer = peers[i];
    message.bytes = side.bytes;
    message.here = same ? 0 : i * side.bytes;
  }
  return HEDDLE_DONE;
}

Status read_neighbors(const Team& team, const ListArguments& arguments, Exchange* lists) {
  const heddle_neighbors* neighbors = arguments.neighbors;
  if (neighbors == nullptr) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "%s: neighbors is null; name those there are, or empty lists",
                      arguments.function);
  }
  const auto read = [&](const char* name, const std::uint32_t* ranks, std::size_t count, const Side& side, bool same,
                        std::vector<ListedBlock>* to) -> Status {
    if (ranks == nullptr && count > 0) {
      return base::fail(HEDDLE_ERR_ARGUMENT, "%s: %s is null, and has %zu members", arguments.function, name, count);
    }
    const std::span peers(ranks, count);
    for (const std::uint32_t peer : peers) {
      if (peer < team.size()) continue;
      return base::fail(HEDDLE_ERR_RANK, "%s: %u in %s: the team has members 0-%u", arguments.function, peer, name,
                        team.size() - 1);
    }
    if (side.blocks == nullptr && side.listed && count == 0) return HEDDLE_DONE;
    return side.listed ? read_blocks(arguments, side, peers, to) : read_equal(arguments, side, peers, same, to);
  };
  const Status sources =
      read("sources", neighbors->sources, neighbors->source_count, arguments.receive, false, &lists->taken);
  if (sources != HEDDLE_DONE) return sources;
  return read("targets", neighbors->targets, neighbors->target_count, arguments.send, arguments.same, &lists->given);
}

Status read_lists(const Team& team, const ListArguments& arguments, Exchange* lists) {
  const std::uint32_t rank = team.rank();
  const bool root = rank == arguments.root;
  const auto blocks = [&](const Side& side, std::vector<ListedBlock>* to) {
    std::vector<std::uint32_t> all(team.size());
    std::iota(all.begin(), all.end(), 0U);
    return read_blocks(arguments, side, all, to);
  };
  const auto one = [&](const Side& side, std::vector<ListedBlock>* to) {
    return read_one(arguments, side, arguments.root, to);
  };
  switch (arguments.operation) {
    case Operation::allgatherv: {
      if (const Status status = blocks(arguments.receive, &lists->taken); status != HEDDLE_DONE) return status;
      for (std::uint32_t peer = 0; peer < team.size(); ++peer) {
        ListedBlock& message = lists->given.emplace_back();
        message.peer = peer;
        message.bytes = lists->taken[rank].bytes;
      }
      return HEDDLE_DONE;
    }
    case Operation::gatherv:
      if (const Status status = one(arguments.send, &lists->given); status != HEDDLE_DONE) return status;
      return root ? blocks(arguments.receive, &lists->taken) : HEDDLE_DONE;
    case Operation::scatterv:
      if (const Status status = one(arguments.receive, &lists->taken); status != HEDDLE_DONE) return status;
      return root ? blocks(arguments.send, &lists->given) : HEDDLE_DONE;
    case Operation::neighbor_alltoallv:
      return read_neighbors(team, arguments, lists);
    default:
      if (const Status status = blocks(arguments.send, &lists->given); status != HEDDLE_DONE) return status;
      return blocks(arguments.receive, &lists->taken);
  }
}

// A block in the program's memory.
struct Extent {
  std::uintptr_t begin;
  std::uintptr_t end;
  std::uint32_t peer;
  bool taken;
};

// The memory that is received into must overlap nothing, except in place with a block that this
// member gives to itself.
Status check_overlap(const ListArguments& arguments, const Call& call, std::uint32_t rank, const Exchange& lists) {
  std::vector<Extent> extents;
  const auto add = [&](const std::vector<ListedBlock>& messages, const void* buffer, bool taken) {
    for (const ListedBlock& message : messages) {
      const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(buffer) + message.here;
      if (message.bytes > 0) extents.push_back({begin, begin + message.bytes, message.peer, taken});
    }
  };
  add(lists.taken, call.receive, true);
  // An allgatherv gives only one block.
  const bool one = arguments.operation == Operation::allgatherv && !lists.given.empty();
  add(one ? std::vector<ListedBlock>{lists.given[rank]} : lists.given, call.send, false);
  std::ranges::sort(extents, {}, [](const Extent& extent) { return std::pair(extent.begin, extent.end); });
  const bool may_be_in_place =
      arguments.operation != Operation::alltoallv && arguments.operation != Operation::neighbor_alltoallv;
  // For each kind, the earlier extent that ends last.
  const Extent* taken = nullptr;
  const Extent* given = nullptr;
  for (const Extent& extent : extents) {
    for (const Extent* before : {taken, extent.taken ? given : nullptr}) {
      if (before == nullptr || before->end <= extent.begin) continue;
      const bool in_place = may_be_in_place && before->taken != extent.taken && before->begin == extent.begin &&
                            before->end == extent.end && before->peer == rank && extent.peer == rank;
      if (in_place) continue;
      return base::fail(HEDDLE_ERR_ARGUMENT,
                        "%s: the block that is %s member %u and the one that is %s member %u overlap; keep what is "
                        "received apart, or exactly in place",
                        arguments.function, before->taken ? "received from" : "sent to", before->peer,
                        extent.taken ? "received from" : "sent to", extent.peer);
    }
    const Extent*& last = extent.taken ? taken : given;
    if (last == nullptr || last->end < extent.end) last = &extent;
  }
  return HEDDLE_DONE;
}

// Checks the arguments and fills *call and *lists.
Status prepare_lists(const Team& team, const ListArguments& arguments, Exchange* lists, Call* call) {
  if (engine::inside_of() != nullptr) return engine::reject_wait(arguments.function);
  if (arguments.root >= team.size()) {
    return base::fail(HEDDLE_ERR_RANK, "%s: root %u: the team has members 0-%u", arguments.function, arguments.root,
                      team.size() - 1);
  }
  if (const Status status = read_lists(team, arguments, lists); status != HEDDLE_DONE) return status;
  call->operation = arguments.operation;
  call->root = arguments.root;
  call->lists = lists;
  // A buffer that is not needed is ignored.
  const std::uint64_t sent = collective::extent(lists->given);
  const std::uint64_t received = collective::extent(lists->taken);
  call->send = sent == 0 ? nullptr : arguments.send.buffer;
  call->receive = received == 0 ? nullptr : const_cast<void*>(arguments.receive.buffer);
  for (const auto& [bytes, buffer, name] :
       {std::tuple{sent, call->send, arguments.send.name},
        std::tuple{received, const_cast<const void*>(call->receive), arguments.receive.name}}) {
    if (bytes == 0 || buffer != nullptr) continue;
    return base::fail(HEDDLE_ERR_ARGUMENT, "%s: %s is null, and this member needs it for %llu bytes",
                      arguments.function, name, static_cast<unsigned long long>(bytes));
  }
  if (const Status status = check_overlap(arguments, *call, team.rank(), *lists); status != HEDDLE_DONE) return status;
  collective::lay_out(team.rank(), lists);
  return HEDDLE_DONE;
}

// Allocates memory; an exception becomes a status.
auto preparing_lists(const ListArguments& arguments, Exchange* lists) {
  return [&arguments, lists](const Team& team, Call* call) {
    return guarded([&]() -> Status { return prepare_lists(team, arguments, lists, call); });
  };
}

Status run_lists(heddle_team team, const ListArguments& arguments) {
  Exchange lists;
  return run_form(team, preparing_lists(arguments, &lists));
}
Status start_lists(heddle_team team, const ListArguments& arguments, heddle_collective* collective) {
  Exchange lists;
  return start_form(arguments.function, team, preparing_lists(arguments, &lists), collective);
}
Status init_lists(heddle_team team, const ListArguments& arguments, const heddle_collective_options* options,
                  heddle_collective* collective) {
  Exchange lists;
  return init_form(arguments.function, team, preparing_lists(arguments, &lists), options, collective);
}

ListArguments allgatherv_of(const char* function, const void* send, void* receive, const heddle_blocks* blocks) {
  return {function, Operation::allgatherv, {"send", send}, {"receive", receive, blocks}};
}
ListArguments alltoallv_of(const char* function, const void* send, const heddle_blocks* send_blocks, void* receive,
                           const heddle_blocks* receive_blocks) {
  return {function, Operation::alltoallv, {"send", send, send_blocks}, {"receive", receive, receive_blocks}};
}
ListArguments gatherv_of(const char* function, const void* send, std::size_t bytes, void* receive,
                         const heddle_blocks* blocks, std::uint32_t root) {
  return {function, Operation::gatherv, {"send", send, nullptr, bytes}, {"receive", receive, blocks}, root};
}
ListArguments scatterv_of(const char* function, const void* send, const heddle_blocks* blocks, void* receive,
                          std::size_t bytes, std::uint32_t root) {
  return {function, Operation::scatterv, {"send", send, blocks}, {"receive", receive, nullptr, bytes}, root};
}

ListArguments neighbors_of(const char* function, const heddle_neighbors* neighbors, const void* send,
                           const heddle_blocks* send_blocks, void* receive, const heddle_blocks* receive_blocks) {
  return {function, Operation::neighbor_alltoallv, {"send", send, send_blocks}, {"receive", receive, receive_blocks}, 0,
          neighbors};
}
ListArguments equal_of(const char* function, const heddle_neighbors* neighbors, const void* send, void* receive,
                       std::size_t bytes, bool same) {
  return {function,
          Operation::neighbor_alltoallv,
          {"send", send, nullptr, bytes, false},
          {"receive", receive, nullptr, bytes, false},
          0,
          neighbors,
          same};
}

}  // namespace

heddle_status heddle_allgatherv(heddle_team team, const void* send, void* receive, const heddle_blocks* blocks) {
  return run_lists(team, allgatherv_of("heddle_allgatherv", send, receive, blocks));
}
heddle_status heddle_allgatherv_start(heddle_team team, const void* send, void* receive, const heddle_blocks* blocks,
                                      heddle_collective* collective) {
  return start_lists(team, allgatherv_of("heddle_allgatherv_start", send, receive, blocks), collective);
}
heddle_status heddle_allgatherv_init(heddle_team team, const void* send, void* receive, const heddle_blocks* blocks,
                                     const heddle_collective_options* options, heddle_collective* collective) {
  return init_lists(team, allgatherv_of("heddle_allgatherv_init", send, receive, blocks), options, collective);
}

heddle_status heddle_alltoallv(heddle_team team, const void* send, const heddle_blocks* send_blocks, void* receive,
                               const heddle_blocks* receive_blocks) {
  return run_lists(team, alltoallv_of("heddle_alltoallv", send, send_blocks, receive, receive_blocks));
}
heddle_status heddle_alltoallv_start(heddle_team team, const void* send, const heddle_blocks* send_blocks,
                                     void* receive, const heddle_blocks* receive_blocks,
                                     heddle_collective* collective) {
  return start_lists(team, alltoallv_of("heddle_alltoallv_start", send, send_blocks, receive, receive_blocks),
                     collective);
}
heddle_status heddle_alltoallv_init(heddle_team team, const void* send, const heddle_blocks* send_blocks, void* receive,
                                    const heddle_blocks* receive_blocks, const heddle_collective_options* options,
                                    heddle_collective* collective) {
  return init_lists(team, alltoallv_of("heddle_alltoallv_init", send, send_blocks, receive, receive_blocks), options,
                    collective);
}

heddle_status heddle_gatherv(heddle_team team, const void* send, size_t bytes, void* receive,
                             const heddle_blocks* blocks, uint32_t root) {
  return run_lists(team, gatherv_of("heddle_gatherv", send, bytes, receive, blocks, root));
}
heddle_status heddle_gatherv_start(heddle_team team, const void* send, size_t bytes, void* receive,
                                   const heddle_blocks* blocks, uint32_t root, heddle_collective* collective) {
  return start_lists(team, gatherv_of("heddle_gatherv_start", send, bytes, receive, blocks, root), collective);
}
heddle_status heddle_gatherv_init(heddle_team team, const void* send, size_t bytes, void* receive,
                                  const heddle_blocks* blocks, uint32_t root, const heddle_collective_options* options,
                                  heddle_collective* collective) {
  return init_lists(team, gatherv_of("heddle_gatherv_init", send, bytes, receive, blocks, root), options, collective);
}

heddle_status heddle_scatterv(heddle_team team, const void* send, const heddle_blocks* blocks, void* receive,
                              size_t bytes, uint32_t root) {
  return run_lists(team, scatterv_of("heddle_scatterv", send, blocks, receive, bytes, root));
}
heddle_status heddle_scatterv_start(heddle_team team, const void* send, const heddle_blocks* blocks, void* receive,
                                    size_t bytes, uint32_t root, heddle_collective* collective) {
  return start_lists(team, scatterv_of("heddle_scatterv_start", send, blocks, receive, bytes, root), collective);
}
heddle_status heddle_scatterv_init(heddle_team team, const void* send, const heddle_blocks* blocks, void* receive,
                                   size_t bytes, uint32_t root, const heddle_collective_options* options,
                                   heddle_collective* collective) {
  return init_lists(team, scatterv_of("heddle_scatterv_init", send, blocks, receive, bytes, root), options, collective);
}

heddle_status heddle_neighbor_alltoallv(heddle_team team, const heddle_neighbors* neighbors, const void* send,
                                        const heddle_blocks* send_blocks, void* receive,
                                        const heddle_blocks* receive_blocks) {
  return run_lists(team,
                   neighbors_of("heddle_neighbor_alltoallv", neighbors, send, send_blocks, receive, receive_blocks));
}
heddle_status heddle_neighbor_alltoallv_start(heddle_team team, const heddle_neighbors* neighbors, const void* send,
                                              const heddle_blocks* send_blocks, void* receive,
                                              const heddle_blocks* receive_blocks, heddle_collective* collective) {
  return start_lists(
      team, neighbors_of("heddle_neighbor_alltoallv_start", neighbors, send, send_blocks, receive, receive_blocks),
      collective);
}
heddle_status heddle_neighbor_alltoallv_init(heddle_team team, const heddle_neighbors* neighbors, const void* send,
                                             const heddle_blocks* send_blocks, void* receive,
                                             const heddle_blocks* receive_blocks,
                                             const heddle_collective_options* options, heddle_collective* collective) {
  return init_lists(
      team, neighbors_of("heddle_neighbor_alltoallv_init", neighbors, send, send_blocks, receive, receive_blocks),
      options, collective);
}

heddle_status heddle_neighbor_alltoall(heddle_team team, const heddle_neighbors* neighbors, const void* send,
                                       void* receive, size_t bytes) {
  return run_lists(team, equal_of("heddle_neighbor_alltoall", neighbors, send, receive, bytes, false));
}
heddle_status heddle_neighbor_alltoall_start(heddle_team team, const heddle_neighbors* neighbors, const void* send,
                                             void* receive, size_t bytes, heddle_collective* collective) {
  return start_lists(team, equal_of("heddle_neighbor_alltoall_start", neighbors, send, receive, bytes, false),
                     collective);
}
heddle_status heddle_neighbor_alltoall_init(heddle_team team, const heddle_neighbors* neighbors, const void* send,
                                            void* receive, size_t bytes, const heddle_collective_options* options,
                                            heddle_collective* collective) {
  return init_lists(team, equal_of("heddle_neighbor_alltoall_init", neighbors, send, receive, bytes, false), options,
                    collective);
}

heddle_status heddle_neighbor_allgather(heddle_team team, const heddle_neighbors* neighbors, const void* send,
                                        void* receive, size_t bytes) {
  return run_lists(team, equal_of("heddle_neighbor_allgather", neighbors, send, receive, bytes, true));
}
heddle_status heddle_neighbor_allgather_start(heddle_team team, const heddle_neighbors* neighbors, const void* send,
                                              void* receive, size_t bytes, heddle_collective* collective) {
  return start_lists(team, equal_of("heddle_neighbor_allgather_start", neighbors, send, receive, bytes, true),
                     collective);
}
heddle_status heddle_neighbor_allgather_init(heddle_team team, const heddle_neighbors* neighbors, const void* send,
                                             void* receive, size_t bytes, const heddle_collective_options* options,
                                             heddle_collective* collective) {
  return init_lists(team, equal_of("heddle_neighbor_allgather_init", neighbors, send, receive, bytes, true), options,
                    collective);
}
