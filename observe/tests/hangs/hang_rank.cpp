// hang_rank --class NAME --seed S: a job that communicates correctly for a while, until one planted
// fault makes it hang. --fault none: the same without the fault; it ends by itself. --plan prints
// the truth: who is to blame, and which words a report must have. Over the public C API only.
#include "faults.hpp"

namespace hangs {

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
