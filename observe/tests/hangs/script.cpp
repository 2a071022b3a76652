#include "script.hpp"

#include <algorithm>

namespace hangs {
namespace {

constexpr heddle_sharing kModes[] = {HEDDLE_SHARING_DEFAULT,  HEDDLE_SHARING_EXCLUSIVE, HEDDLE_SHARING_SHARED,
                                     HEDDLE_SHARING_DELEGATE, HEDDLE_SHARING_MUTEX,     HEDDLE_SHARING_AUTO};
constexpr std::uint32_t kCounts[] = {1, 8, 500, 20'000};

std::uint32_t smallest_team(const Script& script, Group group) {
  std::uint32_t fewest = script.ranks;
  for (std::uint32_t rank = 0; rank < script.ranks; ++rank) {
    fewest = std::min(fewest, static_cast<std::uint32_t>(members_of(script, group, rank).size()));
  }
  return fewest;
}

Call draw_call(const Script& script, hang_random& random) {
  Call call;
  call.op = static_cast<Op>(hang_below(&random, 6));
  call.group = static_cast<Group>(hang_below(&random, 3));
  call.way = static_cast<Way>(hang_below(&random, 3));
  call.count = kCounts[hang_below(&random, 4)];
  call.root = hang_below(&random, smallest_team(script, call.group));
  return call;
}

Step draw_step(const Script& script, hang_random& random) {
  Step step;
  step.kind = static_cast<Kind>(hang_below(&random, 10));
  step.form = draw_form(random);
  step.worker = hang_below(&random, script.workers);
  step.distance = hang_between(&random, 1, script.ranks - 1);
  step.from = hang_below(&random, script.ranks);
  step.to = other_rank(script, random, {step.from});
  step.bytes = draw_bytes(random);
  step.tag = draw_tag(random);
  step.registered = hang_chance(&random, 2);
  step.call = draw_call(script, random);
  return step;
}

void draw_meeting(Script& script, hang_random& random) {
  script.meet = static_cast<Meet>(hang_below(&random, 3));
  script.meeting = draw_full_call(script, random);
  script.meeting.group = Group::world;
}

bool is_culprit(const Script& script, std::uint32_t rank) {
  const auto& members = script.fault.members;
  return rank == script.fault.culprit || std::find(members.begin(), members.end(), rank) != members.end();
}

}  // namespace

std::uint32_t colour_of(const Script& script, std::uint32_t rank) {
  return script.by_parity ? rank % 2 : static_cast<std::uint32_t>(rank < script.ranks / 2);
}

std::vector<std::uint32_t> members_of(const Script& script, Group group, std::uint32_t rank) {
  std::vector<std::uint32_t> members;
  for (std::uint32_t other = 0; other < script.ranks; ++other) {
    if (group != Group::half || colour_of(script, other) == colour_of(script, rank)) members.push_back(other);
  }
  return members;
}

std::uint32_t other_rank(const Script& script, hang_random& random, std::vector<std::uint32_t> taken) {
  std::uint32_t rank = hang_below(&random, script.ranks);
  while (std::find(taken.begin(), taken.end(), rank) != taken.end()) rank = (rank + 1) % script.ranks;
  return rank;
}

Form draw_form(hang_random& random) {
  return static_cast<Form>(hang_below(&random, 4));
}

std::uint64_t draw_tag(hang_random& random) {
  return hang_between(&random, 100, 60'000);
}

std::uint32_t draw_bytes(hang_random& random) {
  if (hang_chance(&random, 3)) return draw_long_bytes(random);
  return hang_chance(&random, 4) ? 0 : hang_between(&random, 1, 1500);
}

std::uint32_t draw_long_bytes(hang_random& random) {
  return hang_between(&random, 100'000, 400'000);
}

Call draw_full_call(const Script& script, hang_random& random) {
  Call call = draw_call(script, random);
  call.op = static_cast<Op>(hang_below(&random, kFullOps));
  call.way = Way::blocking;
  return call;
}

void warm(Script& script, hang_random& random, const Call& call) {
  Step step;
  step.kind = Kind::collective;
  step.call = call;
  step.call.way = Way::blocking;
  const auto place = hang_below(&random, static_cast<std::uint32_t>(script.steps.size()) + 1);
  script.steps.insert(script.steps.begin() + place, step);
}

void draw_chain(Script& script, hang_random& random) {
  std::vector<std::uint32_t> order(script.ranks);
  hang_shuffle(&random, order.data(), script.ranks);
  script.chain = {script.fault.victim};
  const std::uint32_t most = 1 + hang_below(&random, script.ranks);
  for (const std::uint32_t rank : order) {
    if (script.chain.size() >= most) break;
    if (rank != script.fault.victim && !is_culprit(script, rank)) script.chain.push_back(rank);
  }
  script.relay.form = draw_form(random);
  script.relay.worker = hang_below(&random, script.workers);
  script.relay.bytes = draw_bytes(random);
  script.relay.tag = draw_tag(random);
}

const char* name_of(Op op) {
  static const char* const names[] = {"barrier", "allreduce", "allgather", "alltoall", "broadcast", "reduce"};
  return names[static_cast<std::size_t>(op)];
}

void words_of_call(Script& script, const Call& call) {
  hang_words(&script.truth, name_of(call.op), HANG_NO_MORE);
}

void words_of_meet(Script& script) {
  if (script.meet == Meet::team) {
    words_of_call(script, script.meeting);
  } else {
    hang_words(&script.truth, "barrier", HANG_NO_MORE);
  }
}

Script draw(const Class& chosen, const hang_options& options, std::uint32_t ranks) {
  hang_random random = hang_seeded(chosen.listed.name, options.seed, 2);
  Script script;
  script.ranks = ranks;
  script.workers = hang_between(&random, 1, 2);
  script.sharing = kModes[hang_below(&random, 6)];
  script.by_parity = hang_chance(&random, 2);
  for (std::uint32_t left = hang_between(&random, 5, 46); left > 0; --left) {
    script.steps.push_back(draw_step(script, random));
  }
  draw_meeting(script, random);
  chosen.plan(script, random);
  if (script.meet == Meet::team) warm(script, random, script.meeting);
  draw_chain(script, random);
  script.truth.step = static_cast<std::uint32_t>(script.steps.size()) + 1;
  return script;
}

}  // namespace hangs
