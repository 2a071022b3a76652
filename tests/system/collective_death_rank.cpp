// A rank for collective_death_test.cpp: repeats the collective operation named by the first
// argument, in the form of the second, with blocks of so many doubles as the third says, until rank
// 1, which takes part, is killed by a second thread of its own somewhere in the midst. Prints
// "pid", "told RANK" for each rank to which the operation reported the death, and "survived RANK".
// With a fourth argument the living make a team before ("recovered RANK").
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <string_view>
#include <thread>
#include <vector>

#include "bench/libraries/collective_calls.hpp"
#include "rank_support.hpp"

namespace heddle::tests {
namespace {

using bench::libraries::CollectiveCall;
using bench::libraries::Form;

constexpr std::uint32_t kVictim = 1;
constexpr std::uint64_t kRoundsBeforeDeath = 20;
// With a death known: an operation that needs nothing of the dead may go well again and again, but
// not for ever.
constexpr std::uint64_t kRoundsAfterwards = 200;

Form form_of(std::string_view name) {
  if (name == "persistent") return Form::persistent;
  check(name == "nonblocking" || name == "blocking", "the form is persistent, nonblocking or blocking");
  return name == "blocking" ? Form::blocking : Form::nonblocking;
}

class Rank {
 public:
  Rank(std::string_view operation, Form form, std::size_t doubles) : operation_(operation) {
    done(heddle_context_join(nullptr, &context_), "join");
    done(heddle_team_world(context_, &call_.team), "world");
    done(heddle_team_rank(call_.team, &call_.rank), "rank");
    done(heddle_team_size(call_.team, &call_.size), "size");
    send_.resize(doubles * call_.size);
    receive_.resize(doubles * call_.size);
    call_.form = form;
    call_.send = send_.data();
    call_.receive = receive_.data();
    call_.doubles = doubles;
    call_.collective = &collective_;
    if (form == Form::persistent) done(bench::libraries::call_collective(operation_, call_), "init");
  }

  [[nodiscard]] std::uint32_t rank() const { return call_.rank; }
  [[nodiscard]] std::uint32_t size() const { return call_.size; }
  [[nodiscard]] heddle_context context() const { return context_; }

  heddle_status run() {
    if (call_.form == Form::blocking) return bench::libraries::call_collective(operation_, call_);
    const heddle_status started = call_.form == Form::persistent ? heddle_collective_start(collective_)
                                                                 : bench::libraries::call_collective(operation_, call_);
    if (started < 0) return started;
    return heddle_collective_wait(collective_, Deadline::kNs);
  }
  void leave() {
    if (call_.form == Form::persistent) done(heddle_collective_free(collective_), "free");
    done(heddle_team_free(call_.team), "team_free");
    done(heddle_context_leave(context_), "leave");
  }

 private:
  std::string_view operation_;
  heddle_context context_{};
  CollectiveCall call_{};
  heddle_collective collective_{};
  std::vector<double> send_;
  std::vector<double> receive_;
};

[[noreturn]] void die(Rank& rank) {
  std::atomic<std::uint64_t> rounds{0};  // relaxed: a number
  std::thread killer([&] {
    const Deadline deadline("the operation does not get on");
    while (rounds.load(std::memory_order_relaxed) < kRoundsBeforeDeath) deadline.idle();
    say("pid", ::getpid());
    ::kill(::getpid(), SIGKILL);
  });
  for (;; rounds.fetch_add(1, std::memory_order_relaxed)) done(rank.run(), "the victim's operation");
}

// A team of the living, which get each other's offers as messages.
void recover(heddle_context context, std::uint32_t own, std::uint32_t size) {
  constexpr std::uint64_t kTag = 7;
  using Record = std::array<std::byte, HEDDLE_TEAM_RECORD_BYTES>;
  std::vector<std::uint32_t> living;
  for (std::uint32_t rank = 0; rank < size; ++rank) {
    if (rank != kVictim) living.push_back(rank);
  }
  const auto count = static_cast<std::uint32_t>(living.size());
  Record mine{};
  done(heddle_team_offer(context, count, mine.data()), "offer");
  heddle_worker worker{};
  done(heddle_worker_open(context, nullptr, &worker), "worker_open");
  for (const std::uint32_t rank : living) {
    accepted(heddle_send(worker, {rank, 0}, kTag, mine.data(), mine.size(), nullptr), "send to the living");
  }
  std::vector<Record> records(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    const heddle_wanted wanted = {{living[i], 0}, kTag, UINT64_MAX};
    heddle_receive receive{};
    heddle_status status = heddle_recv(worker, &wanted, records[i].data(), records[i].size(), &receive, nullptr);
    if (status == HEDDLE_POSTED) status = heddle_recv_wait(worker, &receive, Deadline::kNs);
    done(status, "an offer of the living");
  }
  done(heddle_quiet(worker), "quiet");
  heddle_team team{};
  done(heddle_team_build(context, living.data(), count, records.data(), &team), "build");
  const double one = 1;
  double sum = 0;
  heddle_reduction how{};
  how.type = HEDDLE_DOUBLE;
  how.op = HEDDLE_SUM;
  done(heddle_allreduce(team, &one, &sum, 1, &how), "allreduce of the living");
  check(sum == count, "the sum is of all living");
  done(heddle_team_free(team), "team_free");
  done(heddle_worker_close(worker), "worker_close");
  say("recovered", own);
}

void survive(Rank& rank, bool recovers) {
  std::uint64_t afterwards = 0;
  heddle_status status = HEDDLE_DONE;
  while (status == HEDDLE_DONE && afterwards < kRoundsAfterwards) {
    status = rank.run();
    if (heddle_context_peer_status(rank.context(), kVictim) != HEDDLE_DONE) ++afterwards;
  }
  if (status != HEDDLE_DONE) {
    expect(status, HEDDLE_ERR_PEER_FAILED, "the operation after the death");
    check(std::string_view(heddle_last_error()).find("rank 1") != std::string_view::npos, heddle_last_error());
    say("told", rank.rank());
  }
  const Deadline known("the death is not told by peer_status");
  while (heddle_context_peer_status(rank.context(), kVictim) == HEDDLE_DONE) {
    check(heddle_context_progress(rank.context()) >= 0, "progress");
    known.idle();
  }
  if (recovers) recover(rank.context(), rank.rank(), rank.size());
  rank.leave();
  say("survived", rank.rank());
}

}  // namespace
}  // namespace heddle::tests

int main(int argc, char** argv) {
  using namespace heddle::tests;
  check(argc == 4 || argc == 5, "usage: collective_death_rank OPERATION FORM DOUBLES [recover]");
  Rank rank(argv[1], form_of(argv[2]), std::strtoull(argv[3], nullptr, 10));
  if (rank.rank() == kVictim) die(rank);
  survive(rank, argc == 5);
  return 0;
}
