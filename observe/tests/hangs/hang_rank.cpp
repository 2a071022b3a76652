#include <algorithm>

#include "hang_rank.hpp"

namespace hangs {

namespace {

constexpr heddle_sharing kModes[] = {HEDDLE_SHARING_DEFAULT, HEDDLE_SHARING_EXCLUSIVE, HEDDLE_SHARING_SHARED,
                                     HEDDLE_SHARING_DELEGATE, HEDDLE_SHARING_AUTO};
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

// hang_rank --class NAME --seed S: a job that communicates correctly for a while, until one planted
// fault makes it hang. --fault none: the same without the fault; it ends by itself. --plan prints
// the truth: who is to blame, and which words a report must have. Over the public C API only.

const Class kClasses[] = {
    {{"skipped_collective", 2}, plan_skipped_collective, play_skipped_collective},
    {{"wrong_collective", 2}, plan_wrong_collective, play_wrong_collective},
    {{"swapped_teams", 2}, plan_swapped_teams, play_swapped_teams},
    {{"lost_leave", 2}, plan_lost_leave, play_lost_leave},
    {{"wrong_tag", 2}, plan_wrong_tag, play_wrong_tag},
    {{"wrong_source", 3}, plan_wrong_source, play_wrong_source},
    {{"missing_send", 2}, plan_missing_send, play_missing_send},
    {{"send_cycle", 2}, plan_send_cycle, play_send_cycle},
    {{"recv_cycle", 2}, plan_recv_cycle, play_recv_cycle},
    {{"credit", 2}, plan_credit, play_credit},
    {{"missing_part", 2}, plan_missing_part, play_missing_part},
    {{"computes", 2}, plan_computes, play_computes},
    {{"stopped", 2}, plan_stopped, play_stopped},
    {{"no_tasks", 2}, plan_no_tasks, play_no_tasks},
    {{"unattended_worker", 2}, plan_unattended_worker, play_unattended_worker},
    {{"unopened_worker", 2}, plan_unopened_worker, play_unopened_worker},
    {{"missing_signal", 2}, plan_missing_signal, play_missing_signal},
    {{"stuck_handler", 2}, plan_stuck_handler, play_stuck_handler},
};
const std::uint32_t kClassCount = sizeof kClasses / sizeof kClasses[0];

namespace {

const Class& class_of(const hang_options& options) {
  std::uint32_t i = 0;
  while (strcmp(kClasses[i].listed.name, options.chosen->name) != 0) ++i;
  return kClasses[i];
}

// Ranks do not keep step: each does some work of its own now and then.
void begin_step(Job& job, std::uint32_t step, hang_random& random) {
  job.step = step;
  hang_say(job.rank, step);
  if (hang_chance(&random, 4)) usleep(hang_below(&random, 1500));
}

void run(const Class& chosen, const hang_options& options, heddle_context context, std::uint32_t ranks) {
  const Script script = draw(chosen, options, ranks);
  const auto job = open_job(script, context);
  job->may_answer = options.faulty == 0;
  if (job->rank == 0) hang_print(&options, ranks, &script.truth);
  hang_random pauses = hang_seeded(chosen.listed.name, options.seed, 3 + job->rank);
  std::uint32_t step = 1;
  for (const Step& correct : script.steps) {
    begin_step(*job, step++, pauses);
    play_step(*job, correct);
  }
  begin_step(*job, step++, pauses);
  chosen.play(*job, script, options.faulty != 0);
  begin_step(*job, step++, pauses);
  play_relay(*job);
  begin_step(*job, step++, pauses);
  play_meeting(*job);
  must(heddle_context_leave(context), "leave");
}

hang_options parse(int argc, char** argv) {
  static hang_class listed[sizeof kClasses / sizeof kClasses[0]];
  for (std::uint32_t i = 0; i < kClassCount; ++i) listed[i] = kClasses[i].listed;
  return hang_parse(argc, argv, listed, kClassCount);
}

}  // namespace

}  // namespace hangs

int main(int argc, char** argv) {
  using namespace hangs;
  const hang_options options = parse(argc, argv);
  const Class& chosen = class_of(options);
  if (options.plan != 0) {
    const std::uint32_t ranks = hang_ranks(&options);
    hang_check_ranks(&options, ranks);
    const Script script = draw(chosen, options, ranks);
    hang_print(&options, ranks, &script.truth);
    return 0;
  }
  heddle_context context{};
  must(heddle_context_join(nullptr, &context), "join");
  std::uint32_t ranks = 0;
  must(heddle_context_size(context, &ranks), "size");
  hang_check_ranks(&options, ranks);
  run(chosen, options, context, ranks);
  return 0;
}
