// Faults in collective operations.
#include <algorithm>

#include "hang_rank.hpp"

namespace hangs {
namespace {

void describe(Script& script, const char* how) {
  hang_append(script.truth.how, sizeof script.truth.how, "%s", how);
}

// A culprit, and a team with others in it.
Group draw_group(const Script& script, hang_random& random, std::uint32_t culprit) {
  const auto group = static_cast<Group>(hang_below(&random, 3));
  return members_of(script, group, culprit).size() < 2 ? Group::world : group;
}

std::uint32_t member_number(const Script& script, Group group, std::uint32_t rank) {
  const auto members = members_of(script, group, rank);
  return static_cast<std::uint32_t>(std::find(members.begin(), members.end(), rank) - members.begin());
}

std::uint32_t other_member(const Script& script, hang_random& random, Group group, std::uint32_t rank) {
  const auto members = members_of(script, group, rank);
  const auto size = static_cast<std::uint32_t>(members.size());
  return members[(member_number(script, group, rank) + hang_between(&random, 1, size - 1)) % size];
}

// If two members disagree, either may be wrong.
void blame_member(Script& script, Group group) {
  const Fault& fault = script.fault;
  hang_blame(&script.truth, fault.culprit);
  const auto members = members_of(script, group, fault.culprit);
  if (members.size() == 2) hang_accept(&script.truth, members[0] == fault.culprit ? members[1] : members[0]);
}

bool deviates(const Job& job, const Script& script, bool faulty) {
  return faulty && job.rank == script.fault.culprit;
}

}  // namespace

void plan_skipped_collective(Script& script, hang_random& random) {
  Fault& fault = script.fault;
  fault.culprit = hang_below(&random, script.ranks);
  fault.variant = hang_below(&random, 3);
  fault.call = draw_full_call(script, random);
  fault.call.group = draw_group(script, random, fault.culprit);
  if (hang_chance(&random, 4)) {  // the others wait for its data
    fault.call.op = Op::broadcast;
    fault.call.root = member_number(script, fault.call.group, fault.culprit);
  }
  fault.victim = other_member(script, random, fault.call.group, fault.culprit);
  fault.other_call = fault.call;
  // Its next call of the team must not be taken for the one left out, unless that is meant.
  if (fault.variant != 1 && script.meet == Meet::team && fault.call.group == Group::world) script.meet = Meet::context;
  if (fault.variant == 1) {
    while (fault.other_call.op == fault.call.op) fault.other_call.op = static_cast<Op>(hang_below(&random, kFullOps));
    warm(script, random, fault.other_call);
  }
  if (fault.variant == 2) fault.call.way = static_cast<Way>(hang_below(&random, 3));
  // Each half calls it, with the root of its own team.
  if (fault.call.group == Group::half && fault.call.op == Op::broadcast) {
    fault.call.op = Op::allgather;
    if (fault.variant == 0) fault.other_call.op = Op::allgather;
    if (fault.variant == 1) fault.other_call.op = Op::barrier, warm(script, random, fault.other_call);
  }
  warm(script, random, fault.call);
  blame_member(script, fault.call.group);
  words_of_call(script, fault.call);
  static const char* const how[] = {"the same operation follows", "another operation of the team follows",
                                    "something else follows"};
  describe(script, how[fault.variant]);
  if (fault.variant == 1) {
    words_of_call(script, fault.other_call);
  } else {
    words_of_meet(script);
  }
}

void play_skipped_collective(Job& job, const Script& script, bool faulty) {
  if (!deviates(job, script, faulty)) collective(job, script.fault.call);
  if (script.fault.variant != 2) collective(job, script.fault.other_call);
}

void plan_wrong_collective(Script& script, hang_random& random) {
  Fault& fault = script.fault;
  fault.culprit = hang_below(&random, script.ranks);
  fault.variant = hang_below(&random, 3);
  fault.call = draw_full_call(script, random);
  fault.call.group = draw_group(script, random, fault.culprit);
  if (fault.variant == 1 && fault.call.group == Group::half) fault.call.group = Group::again;
  fault.victim = other_member(script, random, fault.call.group, fault.culprit);
  fault.other_call = fault.call;
  if (fault.variant == 0) {
    while (fault.other_call.op == fault.call.op) fault.other_call.op = static_cast<Op>(hang_below(&random, kFullOps));
  } else if (fault.variant == 1) {
    fault.call.op = fault.other_call.op = Op::broadcast;
    fault.call.root = fault.culprit;
    fault.other_call.root = fault.victim;
  } else {
    fault.call.op = fault.other_call.op = static_cast<Op>(hang_between(&random, 1, kFullOps - 1));
    fault.other_call.count = fault.call.count + hang_between(&random, 1, 50);
  }
  warm(script, random, fault.call);
  warm(script, random, fault.other_call);
  blame_member(script, fault.call.group);
  words_of_call(script, fault.call);
  static const char* const how[] = {"another operation", "another root", "another count"};
  describe(script, how[fault.variant]);
  if (fault.variant == 0) words_of_call(script, fault.other_call);
  if (fault.variant == 1) hang_words(&script.truth, "root", HANG_NO_MORE);
  if (fault.variant == 2) {
    hang_words(&script.truth, "count|byte|length|size|element|argument|differ|disagree|another call", HANG_NO_MORE);
  }
}

void play_wrong_collective(Job& job, const Script& script, bool faulty) {
  collective(job, deviates(job, script, faulty) ? script.fault.other_call : script.fault.call);
}

void plan_swapped_teams(Script& script, hang_random& random) {
  Fault& fault = script.fault;
  fault.culprit = hang_below(&random, script.ranks);
  fault.call = draw_full_call(script, random);
  fault.other_call = draw_full_call(script, random);
  const std::uint32_t first = hang_below(&random, 3);
  fault.call.group = static_cast<Group>(first);
  fault.other_call.group = static_cast<Group>((first + hang_between(&random, 1, 2)) % 3);
  if (members_of(script, Group::half, fault.culprit).size() < 2) {
    fault.call.group = Group::world;
    fault.other_call.group = Group::again;
  }
  fault.victim = other_member(script, random, fault.call.group, fault.culprit);
  warm(script, random, fault.call);
  warm(script, random, fault.other_call);
  blame_member(script, fault.call.group);
  describe(script, "calls the second team's operation first");
  words_of_call(script, fault.call);
  words_of_call(script, fault.other_call);
  if (fault.call.op == fault.other_call.op) hang_words(&script.truth, "team", HANG_NO_MORE);
}

void play_swapped_teams(Job& job, const Script& script, bool faulty) {
  const bool swapped = deviates(job, script, faulty);
  collective(job, swapped ? script.fault.other_call : script.fault.call);
  collective(job, swapped ? script.fault.call : script.fault.other_call);
}

// The others must not be in a barrier of the context: both sides would get an error.
void plan_lost_leave(Script& script, hang_random& random) {
  Fault& fault = script.fault;
  script.meet = Meet::team;
  fault.culprit = hang_below(&random, script.ranks);
  fault.variant = hang_below(&random, 2);
  fault.call = draw_full_call(script, random);
  fault.call.way = static_cast<Way>(hang_below(&random, 3));
  fault.call.group = draw_group(script, random, fault.culprit);
  fault.victim = other_member(script, random, fault.call.group, fault.culprit);
  fault.form = draw_form(random);
  fault.bytes = draw_bytes(random);
  fault.tag = draw_tag(random);
  hang_blame(&script.truth, fault.culprit);
  hang_words(&script.truth, "leave|left|leaving", HANG_NO_MORE);
  const char* waits = fault.variant == 0 ? HANG_RECEIVE : name_of(fault.call.op);
  hang_words(&script.truth, waits, name_of(script.meeting.op), HANG_NO_MORE);
  describe(script, fault.variant == 0 ? "another rank waits for its message" : "its team waits for it");
}

void play_lost_leave(Job& job, const Script& script, bool faulty) {
  const Fault& fault = script.fault;
  if (deviates(job, script, faulty)) {
    must(heddle_context_leave(job.context), "leave");
    _exit(0);
  }
  if (fault.variant == 1) return collective(job, fault.call);
  if (job.rank == fault.culprit) send(job, {0, {fault.victim, 0}, fault.tag, fault.bytes, fault.form});
  if (job.rank == fault.victim) receive(job, {0, {fault.culprit, 0}, fault.tag, fault.bytes, fault.form});
}

}  // namespace hangs
