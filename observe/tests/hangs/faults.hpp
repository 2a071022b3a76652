// The classes of faults. Each has a plan, which draws the culprits and states the expected report,
// and a play, which all ranks call: in the control it is correct.
#pragma once

#include "job.hpp"
#include "script.hpp"

namespace hangs {

void plan_skipped_collective(Script& script, hang_random& random);
void play_skipped_collective(Job& job, const Script& script, bool faulty);
void plan_wrong_collective(Script& script, hang_random& random);
void play_wrong_collective(Job& job, const Script& script, bool faulty);
void plan_swapped_teams(Script& script, hang_random& random);
void play_swapped_teams(Job& job, const Script& script, bool faulty);
void plan_lost_leave(Script& script, hang_random& random);
void play_lost_leave(Job& job, const Script& script, bool faulty);

void plan_wrong_tag(Script& script, hang_random& random);
void play_wrong_tag(Job& job, const Script& script, bool faulty);
void plan_wrong_source(Script& script, hang_random& random);
void play_wrong_source(Job& job, const Script& script, bool faulty);
void plan_missing_send(Script& script, hang_random& random);
void play_missing_send(Job& job, const Script& script, bool faulty);
void plan_send_cycle(Script& script, hang_random& random);
void play_send_cycle(Job& job, const Script& script, bool faulty);
void plan_recv_cycle(Script& script, hang_random& random);
void play_recv_cycle(Job& job, const Script& script, bool faulty);
void plan_credit(Script& script, hang_random& random);
void play_credit(Job& job, const Script& script, bool faulty);
void plan_missing_part(Script& script, hang_random& random);
void play_missing_part(Job& job, const Script& script, bool faulty);

void plan_computes(Script& script, hang_random& random);
void play_computes(Job& job, const Script& script, bool faulty);
void plan_stopped(Script& script, hang_random& random);
void play_stopped(Job& job, const Script& script, bool faulty);
void plan_no_tasks(Script& script, hang_random& random);
void play_no_tasks(Job& job, const Script& script, bool faulty);
void plan_unattended_worker(Script& script, hang_random& random);
void play_unattended_worker(Job& job, const Script& script, bool faulty);
void plan_unopened_worker(Script& script, hang_random& random);
void play_unopened_worker(Job& job, const Script& script, bool faulty);
void plan_missing_signal(Script& script, hang_random& random);
void play_missing_signal(Job& job, const Script& script, bool faulty);
void plan_stuck_handler(Script& script, hang_random& random);
void play_stuck_handler(Job& job, const Script& script, bool faulty);

}  // namespace hangs
