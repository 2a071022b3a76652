// Faults in tagged and partitioned messages.
#include <algorithm>

#include "hang_rank.hpp"

namespace hangs {
namespace {

// more short messages than HEDDLE_TAG_CREDIT_BYTES has room for
constexpr std::uint32_t kFlood = 32'000;

void describe(Script& script, const char* how) {
  hang_append(script.truth.how, sizeof script.truth.how, "%s", how);
}

void draw_letter(Script& script, hang_random& random) {
  Fault& fault = script.fault;
  fault.worker = hang_below(&random, script.workers);
  fault.form = draw_form(random);
  fault.receive_form = draw_form(random);
  fault.bytes = draw_bytes(random);
  fault.tag = draw_tag(random);
  fault.other_tag = fault.tag + hang_between(&random, 1, 500);
  fault.matched = hang_chance(&random, 4);
}

Letter to(const Fault& fault, std::uint32_t rank) {
  return {fault.worker, {rank, fault.worker}, fault.tag, fault.bytes, fault.form, fault.matched};
}

Letter from(const Fault& fault, std::uint32_t rank) {
  return {fault.worker, {rank, fault.worker}, fault.tag, fault.bytes, fault.receive_form, false};
}

void draw_members(Script& script, hang_random& random) {
  Fault& fault = script.fault;
  fault.members.resize(script.ranks);
  hang_shuffle(&random, fault.members.data(), script.ranks);
  fault.members.resize(hang_between(&random, 2, script.ranks));
  fault.culprit = fault.victim = fault.members[0];
  auto sorted = fault.members;
  std::sort(sorted.begin(), sorted.end());
  for (const std::uint32_t member : sorted) hang_blame(&script.truth, member);
}

// Next and previous of this rank in the cycle; false: it is not in it.
bool neighbours_of(const Job& job, const Fault& fault, std::uint32_t& next, std::uint32_t& previous) {
  const auto& members = fault.members;
  const auto found = std::find(members.begin(), members.end(), job.rank);
  if (found == members.end()) return false;
  const auto place = static_cast<std::size_t>(found - members.begin());
  next = members[(place + 1) % members.size()];
  previous = members[(place + members.size() - 1) % members.size()];
  return true;
}

}  // namespace

// The tag alone does not tell which side has the wrong one.
void plan_wrong_tag(Script& script, hang_random& random) {
  Fault& fault = script.fault;
  draw_letter(script, random);
  fault.variant = hang_below(&random, 2);
  fault.victim = hang_below(&random, script.ranks);
  fault.third = other_rank(script, random, {fault.victim});  // the sender
  fault.culprit = fault.variant == 0 ? fault.third : fault.victim;
  hang_blame(&script.truth, fault.culprit);
  hang_accept(&script.truth, fault.variant == 0 ? fault.victim : fault.third);
  hang_number(&script.truth, fault.tag);
  hang_number(&script.truth, fault.other_tag);
  hang_words(&script.truth, HANG_RECEIVE, HANG_NO_MORE);
  describe(script, fault.variant == 0 ? "the sender has the wrong tag" : "the receiver has the wrong tag");
}

void play_wrong_tag(Job& job, const Script& script, bool faulty) {
  const Fault& fault = script.fault;
  Letter out = to(fault, fault.victim);
  Letter in = from(fault, fault.third);
  if (faulty) (fault.variant == 0 ? out : in).tag = fault.other_tag;
  if (job.rank == fault.third) send(job, out);
  if (job.rank == fault.victim) receive(job, in);
}

void plan_wrong_source(Script& script, hang_random& random) {
  Fault& fault = script.fault;
  draw_letter(script, random);
  fault.victim = fault.culprit = hang_below(&random, script.ranks);
  fault.third = other_rank(script, random, {fault.victim});  // the sender
  // The rank from which it wants the message.
  fault.members = {other_rank(script, random, {fault.victim, fault.third})};
  hang_blame(&script.truth, fault.culprit);
  hang_words(&script.truth, HANG_RECEIVE, HANG_NO_MORE);
  hang_number(&script.truth, fault.members[0]);
  hang_number(&script.truth, fault.third);
  describe(script, "receives from a rank that does not send");
}

void play_wrong_source(Job& job, const Script& script, bool faulty) {
  const Fault& fault = script.fault;
  if (job.rank == fault.third) send(job, to(fault, fault.victim));
  if (job.rank == fault.victim) receive(job, from(fault, faulty ? fault.members[0] : fault.third));
}

void plan_missing_send(Script& script, hang_random& random) {
  Fault& fault = script.fault;
  draw_letter(script, random);
  fault.culprit = hang_below(&random, script.ranks);
  fault.victim = other_rank(script, random, {fault.culprit});
  hang_blame(&script.truth, fault.culprit);
  hang_words(&script.truth, HANG_RECEIVE, HANG_NO_MORE);
  hang_number(&script.truth, fault.tag);
  words_of_meet(script);
  describe(script, "does not send, and goes on");
}

void play_missing_send(Job& job, const Script& script, bool faulty) {
  const Fault& fault = script.fault;
  if (job.rank == fault.culprit && !faulty) send(job, to(fault, fault.victim));
  if (job.rank == fault.victim) receive(job, from(fault, fault.culprit));
}

void plan_send_cycle(Script& script, hang_random& random) {
  Fault& fault = script.fault;
  draw_letter(script, random);
  if (!fault.matched) fault.bytes = draw_long_bytes(random);
  draw_members(script, random);
  hang_words(&script.truth, HANG_SEND, HANG_NO_MORE);
  hang_words(&script.truth, HANG_CYCLE, HANG_NO_MORE);
  describe(script, "each waits for the end of its send before it receives");
}

void play_send_cycle(Job& job, const Script& script, bool faulty) {
  const Fault& fault = script.fault;
  std::uint32_t next = 0;
  std::uint32_t previous = 0;
  if (!neighbours_of(job, fault, next, previous)) return;
  if (!faulty) return send_and_receive(job, to(fault, next), from(fault, previous));
  send(job, to(fault, next));
  receive(job, from(fault, previous));
}

void plan_recv_cycle(Script& script, hang_random& random) {
  draw_letter(script, random);
  draw_members(script, random);
  hang_words(&script.truth, HANG_RECEIVE, HANG_NO_MORE);
  hang_words(&script.truth, HANG_CYCLE, HANG_NO_MORE);
  describe(script, "each receives before it sends");
}

void play_recv_cycle(Job& job, const Script& script, bool faulty) {
  const Fault& fault = script.fault;
  std::uint32_t next = 0;
  std::uint32_t previous = 0;
  if (!neighbours_of(job, fault, next, previous)) return;
  if (!faulty) return send_and_receive(job, to(fault, next), from(fault, previous));
  receive(job, from(fault, previous));
  send(job, to(fault, next));
}

void plan_credit(Script& script, hang_random& random) {
  Fault& fault = script.fault;
  draw_letter(script, random);
  fault.bytes = hang_between(&random, 1, 900);
  fault.culprit = hang_below(&random, script.ranks);
  fault.victim = other_rank(script, random, {fault.culprit});
  hang_blame(&script.truth, fault.culprit);
  hang_words(&script.truth, HANG_SEND, HANG_NO_MORE);
  hang_words(&script.truth, "credit|receiv|recv|unexpected|kept|full|room", HANG_NO_MORE);
  describe(script, "never receives what another rank sends");
}

void play_credit(Job& job, const Script& script, bool faulty) {
  const Fault& fault = script.fault;
  const heddle_worker worker = job.workers[fault.worker];
  std::vector<std::byte> data(fault.bytes);
  if (job.rank == fault.victim) {
    for (std::uint32_t i = 0; i < kFlood; ++i) {
      must(heddle_send(worker, {fault.culprit, fault.worker}, fault.tag, data.data(), fault.bytes, nullptr), "send");
    }
    quiet(worker, fault.form);
  }
  if (job.rank != fault.culprit || faulty) return;
  const heddle_wanted wanted{{fault.victim, fault.worker}, fault.tag, UINT64_MAX};
  for (std::uint32_t i = 0; i < kFlood; ++i) {
    heddle_receive one{};
    must(heddle_recv(worker, &wanted, data.data(), fault.bytes, &one, nullptr), "receive");
    must(heddle_recv_wait(worker, &one, HEDDLE_FOREVER), "receive");
  }
}

void plan_missing_part(Script& script, hang_random& random) {
  Fault& fault = script.fault;
  draw_letter(script, random);
  fault.bytes = hang_between(&random, 8, 20'000);
  fault.variant = hang_between(&random, 2, 16);      // parts
  fault.third = hang_below(&random, fault.variant);  // the one that is not marked
  fault.culprit = hang_below(&random, script.ranks);
  fault.victim = other_rank(script, random, {fault.culprit});
  hang_blame(&script.truth, fault.culprit);
  hang_words(&script.truth, "part", HANG_NO_MORE);
  describe(script, "marks all parts of a partitioned send but one");
}

void play_missing_part(Job& job, const Script& script, bool faulty) {
  const Fault& fault = script.fault;
  const bool sends = job.rank == fault.culprit;
  if (!sends && job.rank != fault.victim) return;
  const heddle_worker worker = job.workers[fault.worker];
  const heddle_peer peer{sends ? fault.victim : fault.culprit, fault.worker};
  std::vector<std::byte> data(std::size_t{fault.bytes} * fault.variant);
  heddle_partitioned handle{};
  must(sends ? heddle_psend_init(worker, data.data(), fault.variant, fault.bytes, peer, fault.tag, &handle)
             : heddle_precv_init(worker, data.data(), fault.variant, fault.bytes, peer, fault.tag, &handle),
       "partitioned");
  must(heddle_partitioned_start(handle), "partitioned");
  for (std::uint32_t part = 0; sends && part < fault.variant; ++part) {
    if (!faulty || part != fault.third) must(heddle_pready(handle, part), "ready");
  }
  must(heddle_partitioned_wait(handle, HEDDLE_FOREVER), "partitioned");
  // The peer's run may need this side until it has ended, too.
  const Letter end{fault.worker, peer, fault.other_tag, 0, Form::plain};
  send_and_receive(job, end, end);
  must(heddle_partitioned_free(handle), "partitioned");
}

}  // namespace hangs
