// Teams, and the calls on an operation of a team once it is made.
#include <algorithm>

#include "rank.hpp"

namespace heddle::tests::api {
namespace {

constexpr std::size_t kMostTeams = 8;
constexpr std::size_t kMostOffers = 4;

// A team made by both ranks. A rank that is no member gets the null handle.
void keep_team(Rank& rank, heddle_status status, heddle_team team) {
  if (rank.inside()) {  // nothing collective is begun there
    if (status >= 0) rank.wrong("a team was made inside a handler");
    return;
  }
  std::uint32_t members = 0;
  if (status == HEDDLE_DONE && team.id != 0 && heddle_team_size(team, &members) != HEDDLE_DONE)
    rank.wrong("a team has no size");
  const std::int64_t mine = status < 0 ? -1 : std::int64_t{members};
  const std::int64_t other = rank.meet(mine);
  if ((mine < 0) != (other < 0)) rank.wrong("a team was made at one rank only");
  if (mine < 0) return;
  rank.teams.push_back({team, static_cast<std::uint32_t>(std::max(mine, other))});
  if (rank.teams.size() > kMostTeams) rank.drop_team(1 + rank.below(rank.teams.size() - 1));
}

heddle_team bad_team(Rank& rank) {
  if (!rank.closed_teams.empty() && rank.chance(40)) {
    const heddle_team closed = rank.closed_teams[rank.below(rank.closed_teams.size())];
    static_cast<void>(rank.bad(rank.side_teams));
    return closed;
  }
  return rank.bad(rank.side_teams);
}

// Of two members, so that both call.
heddle_team parent(Rank& rank) {
  if (!rank.together()) return bad_team(rank);
  std::vector<heddle_team> some;
  for (const Team& team : rank.teams) {
    if (team.members == 2) some.push_back(team.handle);
  }
  return some[rank.below(some.size())];
}

void world(Rank& rank) {
  auto* team = rank.maybe_null(rank.keep_one(heddle_team{}));
  if (!rank.together()) {
    const heddle_context context = rank.pick(rank.contexts, 70);
    if (HEDDLE_CALL(rank, heddle_team_world, context, team) == HEDDLE_DONE) rank.side_teams.add(*team, context.id);
    return;
  }
  const heddle_status status = HEDDLE_CALL(rank, heddle_team_world, rank.main(), team);
  keep_team(rank, status, team == nullptr ? heddle_team{} : *team);
}

template <class Fn, class... Arguments>
void derive(Rank& rank, const char* name, Fn* fn, Arguments... arguments) {
  auto* team = rank.maybe_null(rank.keep_one(heddle_team{}));
  const heddle_team from = parent(rank);
  const heddle_status status = rank.call(name, fn, from, arguments..., team);
  if (rank.together()) keep_team(rank, status, team == nullptr ? heddle_team{} : *team);
}

void split(Rank& rank) {
  std::uint32_t colour = rank.chance(70) ? static_cast<std::uint32_t>(rank.below(2)) : rank.odd32();
  if (rank.chance(30)) colour += rank.number();
  derive(rank, "heddle_team_split", heddle_team_split, colour, static_cast<std::int64_t>(rank.odd()));
}
void strided(Rank& rank) {
  const std::uint32_t start = rank.rank_number();
  const std::int32_t stride = rank.chance(70) ? static_cast<std::int32_t>(rank.below(5)) - 2 : rank.odd_int();
  derive(rank, "heddle_team_strided", heddle_team_strided, start, stride,
         rank.chance(80) ? static_cast<std::uint32_t>(rank.below(4)) : rank.odd32());
}
void subset(Rank& rank) {
  const std::uint32_t count = static_cast<std::uint32_t>(rank.below(5));
  auto* ranks = static_cast<std::uint32_t*>(rank.keep(count * sizeof(std::uint32_t)));
  for (std::uint32_t i = 0; i < count; ++i) ranks[i] = rank.rank_number();
  derive(rank, "heddle_team_subset", heddle_team_subset, static_cast<const std::uint32_t*>(rank.maybe_null(ranks)),
         count);
}

// ---- built of offers ----

std::byte* new_record(Rank& rank) {
  return static_cast<std::byte*>(rank.keep(HEDDLE_TEAM_RECORD_BYTES));
}
// One of this rank's, or any bytes.
std::byte* some_record(Rank& rank) {
  if (!rank.offers.empty() && rank.chance(70)) return rank.offers[rank.below(rank.offers.size())];
  std::byte* const record = new_record(rank);
  for (std::size_t i = 0; i < HEDDLE_TEAM_RECORD_BYTES; ++i) record[i] = static_cast<std::byte>(rank.below(256));
  return record;
}

void withdraw(Rank& rank) {
  const heddle_context context = rank.chance(85) ? rank.main() : rank.pick(rank.contexts, 70);
  std::byte* const record = some_record(rank);
  if (HEDDLE_CALL(rank, heddle_team_withdraw, context, static_cast<const void*>(rank.maybe_null(record))) ==
      HEDDLE_DONE)
    std::erase(rank.offers, record);
}

void offer(Rank& rank) {
  const heddle_context context = rank.chance(85) ? rank.main() : rank.pick(rank.contexts, 70);
  std::byte* const record = new_record(rank);
  const std::uint32_t size = rank.chance(85) ? 1 + static_cast<std::uint32_t>(rank.below(2)) : rank.odd32();
  const heddle_status status =
      HEDDLE_CALL(rank, heddle_team_offer, context, size, static_cast<void*>(rank.maybe_null(record)));
  if (status != HEDDLE_DONE || context.id != rank.main().id) return;
  rank.offers.push_back(record);
  if (rank.offers.size() > kMostOffers) withdraw(rank);
}

// By this rank: a team that has no other member, or none at all.
void build_alone(Rank& rank) {
  const heddle_context context = rank.chance(85) ? rank.main() : rank.pick(rank.contexts, 70);
  auto* const ranks = rank.keep_one(rank.chance(85) ? rank.number() : rank.rank_number());
  std::byte* const record = some_record(rank);
  const std::uint32_t size = rank.chance(90) ? 1 : rank.below(2) == 0 ? 0 : UINT32_MAX;
  auto* const team = rank.keep_one(heddle_team{});
  const heddle_status status =
      HEDDLE_CALL(rank, heddle_team_build, context, static_cast<const std::uint32_t*>(rank.maybe_null(ranks)), size,
                  static_cast<const void*>(rank.maybe_null(record)), rank.maybe_null(team));
  if (status == HEDDLE_DONE) rank.side_teams.add(*team, context.id);
  // used up, or stays: who knows
  if (context.id == rank.main().id && size == 1) std::erase(rank.offers, record);
}

// By both: the records go by the fuzzer's own way.
void build(Rank& rank) {
  if (!rank.together()) return build_alone(rank);
  constexpr std::size_t kWords = HEDDLE_TEAM_RECORD_BYTES / sizeof(std::int64_t);
  const auto first = static_cast<std::uint32_t>(rank.below(2));
  const std::uint32_t order[] = {first, 1 - first};
  auto* const records = static_cast<std::byte*>(rank.keep(std::size_t{2} * HEDDLE_TEAM_RECORD_BYTES));
  const auto of = [&](std::uint32_t number) { return records + (number == first ? 0 : HEDDLE_TEAM_RECORD_BYTES); };
  void* const mine = of(rank.number());
  static_cast<void>(HEDDLE_CALL(rank, heddle_team_offer, rank.main(), 2U, mine));
  for (std::size_t i = 0; i < kWords; ++i) {
    std::int64_t word = 0;
    std::memcpy(&word, of(rank.number()) + i * sizeof word, sizeof word);
    word = rank.meet(word);
    std::memcpy(of(1 - rank.number()) + i * sizeof word, &word, sizeof word);
  }
  auto* const ranks = static_cast<std::uint32_t*>(std::memcpy(rank.keep(sizeof order), order, sizeof order));
  auto* const team = rank.keep_one(heddle_team{});
  const heddle_status status =
      HEDDLE_CALL(rank, heddle_team_build, rank.main(), static_cast<const std::uint32_t*>(ranks), 2U,
                  static_cast<const void*>(records), team);
  keep_team(rank, status, *team);
}

heddle_team any_team(Rank& rank) {
  if (rank.teams.empty() || rank.chance(20)) return rank.pick(rank.side_teams);
  const heddle_team team = rank.teams[rank.below(rank.teams.size())].handle;
  return team.id != 0 ? team : rank.pick(rank.side_teams);
}
void team_rank(Rank& rank) {
  HEDDLE_CALL(rank, heddle_team_rank, any_team(rank), rank.maybe_null(rank.keep_one(std::uint32_t{})));
}
void team_size(Rank& rank) {
  HEDDLE_CALL(rank, heddle_team_size, any_team(rank), rank.maybe_null(rank.keep_one(std::uint32_t{})));
}
void translate(Rank& rank) {
  const heddle_team from = any_team(rank);
  const heddle_team to = any_team(rank);
  HEDDLE_CALL(rank, heddle_team_translate, from, rank.rank_number(), to,
              rank.maybe_null(rank.keep_one(std::uint32_t{})));
}

void free_team(Rank& rank) {
  if (rank.together()) {
    if (rank.teams.size() > 2) rank.drop_team(1 + rank.below(rank.teams.size() - 1));
    return;
  }
  // One with open operations stays: the call has to refuse.
  for (const Operation& operation : rank.operations) {
    if (operation.handle.id == 0 || rank.chance(50) || rank.teams[operation.team].handle.id == 0) continue;
    const heddle_team team = rank.teams[operation.team].handle;
    if (HEDDLE_CALL(rank, heddle_team_free, team) != HEDDLE_ERR_STATE) rank.wrong("a team with operations was freed");
    return;
  }
  if (rank.chance(60)) {
    HEDDLE_CALL(rank, heddle_team_free, bad_team(rank));
    return;
  }
  const heddle_team team = rank.pick(rank.side_teams);
  if (HEDDLE_CALL(rank, heddle_team_free, team) == HEDDLE_DONE) rank.side_teams.remove(team);
}

// ---- operations ----

heddle_collective bad_operation(Rank& rank) {
  const heddle_collective bad = rank.bad(rank.side_operations);
  if (rank.closed_operations.empty() || rank.chance(50)) return bad;
  return rank.closed_operations[rank.below(rank.closed_operations.size())];
}

// One that is open here, if `wanted` holds of it.
template <class Wanted>
Operation* open_operation(Rank& rank, Wanted wanted) {
  std::vector<Operation*> some;
  for (Operation& operation : rank.operations) {
    if (operation.handle.id != 0 && wanted(operation)) some.push_back(&operation);
  }
  return some.empty() ? nullptr : some[rank.below(some.size())];
}

void start(Rank& rank) {
  if (rank.together()) {
    // All members begin it, or none: an operation that runs, or has ended at one member alone, is
    // not begun.
    if (rank.operations.empty()) return;
    Operation& operation = rank.operations[rank.below(rank.operations.size())];
    const bool ready = operation.handle.id != 0 && operation.persistent && !operation.running;
    const std::uint32_t members = rank.teams[operation.team].members;
    const bool other = rank.meet(ready ? 1 : 0) != 0;
    if (!ready || (members == 2 && !other)) return;
    const heddle_status status = HEDDLE_CALL(rank, heddle_collective_start, operation.handle);
    operation.running = status == HEDDLE_POSTED;
    return;
  }
  if (Operation* one = open_operation(rank, [](const Operation& a) { return a.running; }); one && rank.chance(60)) {
    if (HEDDLE_CALL(rank, heddle_collective_start, one->handle) >= 0) rank.wrong("an operation that runs was begun");
    return;
  }
  HEDDLE_CALL(rank, heddle_collective_start, rank.chance(50) ? bad_operation(rank) : rank.pick(rank.side_operations));
}

// The result of test or wait.
void told(Rank& rank, Operation& operation, heddle_status status) {
  if (status == HEDDLE_AGAIN || status == HEDDLE_ERR_TIMEOUT || status == HEDDLE_ERR_STATE) return;
  operation.running = false;
  if (operation.persistent) return;
  rank.closed_operations.push_back(operation.handle);
  operation.handle = {};
}

template <class Fn, class... Time>
void ask(Rank& rank, const char* name, Fn* fn, Time... time) {
  if (Operation* one = open_operation(rank, [](const Operation&) { return true; }); one && rank.chance(60)) {
    rank.allow((std::int64_t{0} + ... + time));
    return told(rank, *one, rank.call(name, fn, one->handle, time...));
  }
  if (rank.chance(50)) {
    rank.call(name, fn, bad_operation(rank), time...);
    return;
  }
  const heddle_collective side = rank.pick(rank.side_operations);
  rank.call(name, fn, side, time...);
  const char* algorithm = nullptr;
  if (heddle_collective_algorithm(side, &algorithm) == HEDDLE_ERR_HANDLE) rank.side_operations.remove(side);
}

void test(Rank& rank) {
  ask(rank, "heddle_collective_test", heddle_collective_test);
}
void wait(Rank& rank) {
  if (!rank.together()) return ask(rank, "heddle_collective_wait", heddle_collective_wait, std::int64_t{1'000'000});
  if (!rank.operations.empty()) rank.finish(rank.below(rank.operations.size()));
}

// Members may differ in it. No call on the team is under way: this thread makes them all.
void set_waits(Rank& rank) {
  static constexpr auto kNothing = [](void*) { return 0; };
  heddle_team_waits waits{};
  waits.size = rank.chance(80) ? sizeof waits : rank.below(sizeof waits + 1);
  if (rank.chance(70)) waits.progress = kNothing;
  if (rank.chance(30)) waits.worker = {~std::uint64_t{rank.below(1000)}};
  const heddle_team_waits* given = rank.chance(70) ? &waits : nullptr;
  HEDDLE_CALL(rank, heddle_team_set_waits, any_team(rank), given);
}

void free_operation(Rank& rank) {
  if (rank.together()) {
    if (!rank.operations.empty()) rank.drop_operation(rank.below(rank.operations.size()));
    return;
  }
  const auto refuses = [](const Operation& a) { return !a.persistent; };
  if (Operation* one = open_operation(rank, refuses); one && rank.chance(60)) {
    if (HEDDLE_CALL(rank, heddle_collective_free, one->handle) != HEDDLE_ERR_STATE)
      rank.wrong("an operation was freed that is not persistent");
    return;
  }
  const heddle_collective one = rank.chance(50) ? bad_operation(rank) : rank.pick(rank.side_operations);
  if (HEDDLE_CALL(rank, heddle_collective_free, one) == HEDDLE_DONE) rank.side_operations.remove(one);
}

heddle_collective any_operation(Rank& rank) {
  if (Operation* one = open_operation(rank, [](const Operation&) { return true; }); one && rank.chance(60))
    return one->handle;
  return rank.chance(50) ? bad_operation(rank) : rank.pick(rank.side_operations);
}
void algorithm(Rank& rank) {
  HEDDLE_CALL(rank, heddle_collective_algorithm, any_operation(rank),
              rank.maybe_null(rank.keep_one<const char*>(nullptr)));
}
void offloaded(Rank& rank) {
  HEDDLE_CALL(rank, heddle_collective_offloaded, any_operation(rank), rank.maybe_null(rank.keep_one(0)));
}
void awaited(Rank& rank) {
  HEDDLE_CALL(rank, heddle_collective_awaited, any_operation(rank), rank.maybe_null(rank.keep_one<std::uint32_t>(0)));
}

}  // namespace

std::vector<Row> team_rows() {
  return {
      {"heddle_team_world", When::together, world},
      {"heddle_team_split", When::together, split},
      {"heddle_team_strided", When::together, strided},
      {"heddle_team_subset", When::together, subset},
      {"heddle_team_offer", When::anywhere, offer},
      {"heddle_team_withdraw", When::anywhere, withdraw},
      {"heddle_team_build", When::together, build},
      {"heddle_team_rank", When::anywhere, team_rank},
      {"heddle_team_size", When::anywhere, team_size},
      {"heddle_team_translate", When::anywhere, translate},
      {"heddle_team_set_waits", When::anywhere, set_waits},
      {"heddle_team_free", When::together, free_team},
      {"heddle_collective_start", When::together, start},
      {"heddle_collective_test", When::anywhere, test},
      {"heddle_collective_wait", When::together, wait},
      {"heddle_collective_free", When::together, free_operation},
      {"heddle_collective_algorithm", When::anywhere, algorithm},
      {"heddle_collective_offloaded", When::anywhere, offloaded},
      {"heddle_collective_awaited", When::anywhere, awaited},
  };
}

}  // namespace heddle::tests::api
