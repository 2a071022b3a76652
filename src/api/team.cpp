// Teams: world, split, strided, subset, built of offers, members and ranks.
#include <cstring>
#include <optional>
#include <vector>

#include "api/arguments.hpp"
#include "collective/team.hpp"
#include "heddle/collectives.h"
#include "worker/worker.hpp"

using namespace heddle::api;  // NOLINT: the C functions below are this file's public face
namespace base = heddle::base;
namespace engine = heddle::engine;
namespace worker = heddle::worker;
using heddle::collective::Team;
using heddle::collective::TeamRecord;

namespace {

// Checks common to all functions that make a team: `team` is valid, and this thread may wait.
Status may_make(const char* function, const heddle_team* team) {
  if (engine::inside_of() != nullptr) return engine::reject_wait(function);
  if (team == nullptr)
    return base::fail(HEDDLE_ERR_ARGUMENT, "%s: team is null; pass an address that is valid", function);
  return HEDDLE_DONE;
}

Status give(base::Result<Team*> made, heddle_team* team) {
  if (!made) return made.status();
  if (*made != nullptr) team->id = (*made)->handle();
  return HEDDLE_DONE;
}

Status no_member(const char* function, const char* what, std::int64_t rank, const Team& team) {
  return base::fail(HEDDLE_ERR_RANK, "%s: %s %lld: the team has members 0-%u", function, what,
                    static_cast<long long>(rank), team.size() - 1);
}

// `ranks`: of the parent, in the order of the new team.
Status make_subset(const char* function, Team* parent, std::span<const std::uint32_t> ranks, heddle_team* team) {
  std::vector<bool> named(parent->size());
  for (const std::uint32_t rank : ranks) {
    if (rank >= parent->size()) return no_member(function, "rank", rank, *parent);
    if (named[rank]) {
      return base::fail(HEDDLE_ERR_ARGUMENT, "%s: rank %u is named twice; a member has one place in a team", function,
                        rank);
    }
    named[rank] = true;
  }
  return give(parent->subset(ranks), team);
}

}  // namespace

heddle_status heddle_team_world(heddle_context handle, heddle_team* team) {
  Context* context = find_handle<Context>(handle.id);
  if (context == nullptr) return bad_handle("context", handle.id);
  if (const Status status = may_make("heddle_team_world", team); status != HEDDLE_DONE) return status;
  *team = {};
  return guarded([&]() -> Status { return give(Team::world(*context), team); });
}

heddle_status heddle_team_split(heddle_team handle, uint32_t colour, int64_t key, heddle_team* team) {
  Team* parent = find_handle<Team>(handle.id);
  if (parent == nullptr) return bad_handle("team", handle.id);
  if (const Status status = may_make("heddle_team_split", team); status != HEDDLE_DONE) return status;
  *team = {};
  const auto known = colour == HEDDLE_NO_COLOUR ? std::nullopt : std::optional(colour);
  return guarded([&]() -> Status { return give(parent->split(known, key), team); });
}

heddle_status heddle_team_strided(heddle_team handle, uint32_t start, int32_t stride, uint32_t size,
                                  heddle_team* team) {
  constexpr const char* kFunction = "heddle_team_strided";
  Team* parent = find_handle<Team>(handle.id);
  if (parent == nullptr) return bad_handle("team", handle.id);
  if (const Status status = may_make(kFunction, team); status != HEDDLE_DONE) return status;
  *team = {};
  if (size == 0) return base::fail(HEDDLE_ERR_ARGUMENT, "%s: size 0; a team has a member at least", kFunction);
  if (stride == 0 && size > 1) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "%s: stride 0 with size %u names one member several times", kFunction, size);
  }
  if (start >= parent->size()) return no_member(kFunction, "start", start, *parent);
  // No product of these exceeds 64 bits.
  const std::int64_t last = std::int64_t{start} + std::int64_t{stride} * (std::int64_t{size} - 1);
  if (last < 0 || last >= std::int64_t{parent->size()}) {
    return base::fail(HEDDLE_ERR_RANK, "%s: start %u, stride %d, size %u end at member %lld: the team has members 0-%u",
                      kFunction, start, stride, size, static_cast<long long>(last), parent->size() - 1);
  }
  return guarded([&]() -> Status {
    std::vector<std::uint32_t> ranks;
    for (std::int64_t i = 0; i < std::int64_t{size}; ++i)
      ranks.push_back(static_cast<std::uint32_t>(start + stride * i));
    return make_subset(kFunction, parent, ranks, team);
  });
}

heddle_status heddle_team_subset(heddle_team handle, const uint32_t* ranks, uint32_t count, heddle_team* team) {
  constexpr const char* kFunction = "heddle_team_subset";
  Team* parent = find_handle<Team>(handle.id);
  if (parent == nullptr) return bad_handle("team", handle.id);
  if (const Status status = may_make(kFunction, team); status != HEDDLE_DONE) return status;
  *team = {};
  if (ranks == nullptr) return null_argument("team_subset", "ranks");
  if (count == 0) return base::fail(HEDDLE_ERR_ARGUMENT, "%s: count 0; a team has a member at least", kFunction);
  return guarded([&]() -> Status { return make_subset(kFunction, parent, {ranks, count}, team); });
}

heddle_status heddle_team_offer(heddle_context handle, uint32_t size, void* record) {
  constexpr const char* kFunction = "heddle_team_offer";
  Context* context = find_handle<Context>(handle.id);
  if (context == nullptr) return bad_handle("context", handle.id);
  if (record == nullptr) return null_argument("team_offer", "record");
  if (size == 0) return base::fail(HEDDLE_ERR_ARGUMENT, "%s: size 0; a team has a member at least", kFunction);
  if (size > context->size()) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "%s: size %u: the job has %u ranks", kFunction, size, context->size());
  }
  TeamRecord written;
  const Status status = guarded([&]() -> Status { return Team::offer(*context, size, &written); });
  std::memcpy(record, &written, sizeof written);
  return status;
}

heddle_status heddle_team_withdraw(heddle_context handle, const void* record) {
  Context* context = find_handle<Context>(handle.id);
  if (context == nullptr) return bad_handle("context", handle.id);
  if (record == nullptr) return null_argument("team_withdraw", "record");
  TeamRecord written;
  std::memcpy(&written, record, sizeof written);
  return guarded([&]() -> Status { return Team::withdraw(*context, written); });
}

heddle_status heddle_team_build(heddle_context handle, const uint32_t* ranks, uint32_t size, const void* records,
                                heddle_team* team) {
  Context* context = find_handle<Context>(handle.id);
  if (context == nullptr) return bad_handle("context", handle.id);
  if (team == nullptr) return null_argument("team_build", "team");
  *team = {};
  if (ranks == nullptr) return null_argument("team_build", "ranks");
  if (records == nullptr) return null_argument("team_build", "records");
  if (size == 0 || size > context->size()) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "heddle_team_build: size %u: a team has 1 to %u members, the job's ranks",
                      size, context->size());
  }
  return guarded([&]() -> Status {
    std::vector<TeamRecord> all(size);
    std::memcpy(all.data(), records, size * sizeof(TeamRecord));
    return give(Team::from_offers(*context, {ranks, size}, all), team);
  });
}

heddle_status heddle_team_rank(heddle_team handle, uint32_t* rank) {
  const Team* team = find_handle<Team>(handle.id);
  if (team == nullptr) return bad_handle("team", handle.id);
  if (rank == nullptr) return null_argument("team_rank", "rank");
  *rank = team->rank();
  return HEDDLE_DONE;
}

heddle_status heddle_team_size(heddle_team handle, uint32_t* size) {
  const Team* team = find_handle<Team>(handle.id);
  if (team == nullptr) return bad_handle("team", handle.id);
  if (size == nullptr) return null_argument("team_size", "size");
  *size = team->size();
  return HEDDLE_DONE;
}

heddle_status heddle_team_translate(heddle_team from_handle, uint32_t rank, heddle_team to_handle, uint32_t* to_rank) {
  Team* from = find_handle<Team>(from_handle.id);
  if (from == nullptr) return bad_handle("team", from_handle.id);
  Team* to = find_handle<Team>(to_handle.id);
  if (to == nullptr) return bad_handle("team", to_handle.id);
  if (to_rank == nullptr) return null_argument("team_translate", "to_rank");
  if (&from->context() != &to->context()) {
    return base::fail(HEDDLE_ERR_ARGUMENT, "heddle_team_translate: the teams belong to different contexts");
  }
  if (rank >= from->size()) return no_member("heddle_team_translate", "rank", rank, *from);
  *to_rank = to->member(from->rank_in_job(rank)).value_or(HEDDLE_NO_RANK);
  return HEDDLE_DONE;
}

heddle_status heddle_team_set_waits(heddle_team handle, const heddle_team_waits* waits) {
  constexpr const char* kFunction = "heddle_team_set_waits";
  Team* team = find_handle<Team>(handle.id);
  if (team == nullptr) return bad_handle("team", handle.id);
  heddle_team_waits all{};
  if (const Status status = read_options("heddle_team_waits", waits, kFirstTeamWaits, &all); status != HEDDLE_DONE)
    return status;
  heddle::collective::Waits wanted{nullptr, all.progress, all.tell, all.arg};
  if (all.worker.id != 0) {
    wanted.worker = find_handle<worker::Worker>(all.worker.id);
    if (wanted.worker == nullptr) return bad_handle("worker", all.worker.id);
    if (&wanted.worker->context() != &team->context())
      return base::fail(HEDDLE_ERR_ARGUMENT, "%s: the worker is of another context than the team", kFunction);
  }
  team->set_waits(wanted);
  return HEDDLE_DONE;
}

heddle_status heddle_team_free(heddle_team handle) {
  Team* team = find_handle<Team>(handle.id);
  if (team == nullptr) return bad_handle("team", handle.id);
  return guarded([&]() -> Status { return team->close(); });
}
