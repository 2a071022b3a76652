// Rules about missing progress, and about words and locks whose owner has to be inferred.
#include <gtest/gtest.h>

#include "diagnosis/test_views.hpp"

namespace heddle::diagnosis::verdict_progress_test {
namespace {

void expect_not_said(const Job& job, const std::string& words) {
  EXPECT_EQ(job.verdict().sentence.find(words), std::string::npos) << job.verdict().sentence;
}

// A second worker that nobody was seen to advance.
tap::WorkerState& second_worker(Job& job, std::uint32_t rank) {
  std::vector<tap::WorkerState>& workers = job.view(rank).snapshot->workers;
  workers.push_back({1, false, false, 0, {}, {}});
  return workers.back();
}

// ---- handlers of class USER

TEST(Progress, AHandlerOfClassUserThatDoesNotReturn) {
  Job job(3);
  job.waits(0, "heddle_worker_wait", {}).barrier({1}).worker(2).runs_task = true;
  expect(job, {2}, {"rank 2 has not called the library for 61 s, in a handler of class USER that does not return"});
}

TEST(Progress, MessagesBehindAHandlerThatDoesNotReturn) {
  Job job(2);
  job.waits(0, "heddle_am", {{tap::Cause::tasks, 1, 0, 64, "active message", ""}});
  job.worker(1).runs_task = true;
  job.worker(1).tasks = 3;
  expect(job, {1}, {"in a handler of class USER"});
  expect_not_said(job, "no thread of it calls heddle_run_tasks");
}

TEST(Progress, AHandlerThatDoesNotReturnBesideAThreadThatWaits) {
  Job job(2);
  job.waits(0, "heddle_am", {{tap::Cause::tasks, 1, 0, 64, "active message", ""}}).recv(1, 0, "tag 7");
  job.worker(1).runs_task = true;
  job.worker(1).tasks = 3;
  expect_not_said(job, "no thread of it calls heddle_run_tasks");
}

TEST(Progress, AHandlerOfARankThatAlsoWaitsElsewhere) {
  Job job(3);
  job.waits(0, "heddle_worker_wait", {}).barrier({1, 2}).worker(2).runs_task = true;
  job.worker(2).tasks = 2;
  expect(job, {2},
         {"a handler of class USER of rank 2 does not return, and 2 messages wait behind it",
          "rank 0 waits in heddle_worker_wait"});
}

TEST(Progress, AHandlerSaysNothingWhereEachWaitIsFor) {
  Job job(3);
  job.recv(0, 1, "tag 7").recv(1, 0, "tag 8").barrier({2}).worker(2).runs_task = true;
  expect(job, {0, 1}, {"each wait"});
}

TEST(Progress, MessagesThatNobodyRunsAtARankThatWaitsElsewhere) {
  Job job(4);
  job.waits(0, "heddle_worker_wait", {}).barrier({1, 2, 3}).worker(2).tasks = 1;
  expect(job, {2},
         {"rank 2 has 1 USER message and no thread of it calls heddle_run_tasks: it is in barrier #4", "rank 0 waits"});
}

TEST(Progress, MessagesThatSeveralDoNotRunNameNobody) {
  Job job(4);
  job.waits(0, "heddle_worker_wait", {}).barrier({1, 2, 3});
  job.worker(2).tasks = job.worker(3).tasks = 1;
  expect_not_said(job, "heddle_run_tasks");
}

// HEDDLE_WHEN_MATCHED: it says what it waits for.
TEST(Progress, AMessageThatNobodyReceivesIsNotTheFaultOfOneThatNobodyRuns) {
  const std::vector<tap::Awaited> sent = {{tap::Cause::unreceived, 1, 0, 8, "tagged message", "tag 7"}};
  Job waits(2);
  waits.waits(0, "heddle_counter_wait", sent).waits(1, "heddle_worker_wait", {}).worker(1).tasks = 1;
  expect(waits, {0, 1}, {"rank 0 waits in heddle_counter_wait", "rank 1 does not receive"});
  expect_not_said(waits, "heddle_run_tasks");
  Job computes(2);
  computes.waits(0, "heddle_counter_wait", sent).worker(1).tasks = 1;
  expect(computes, {1}, {"rank 1 has not called the library for 61 s; rank 0 waits in heddle_counter_wait"});
  expect_not_said(computes, "heddle_run_tasks");
}

TEST(Progress, ARankWithoutSuchAHandlerIsInNone) {
  Job job(3);
  job.barrier({0, 1});
  expect(job, {2}, {"rank 2 has not called the library for 61 s; ranks 0 and 1 wait for it"});
  expect_not_said(job, "handler");
}

// ---- messages without a handler

TEST(Progress, AMessageThatWasDroppedForWantOfAHandler) {
  Job job(3);
  job.waits(0, "heddle_worker_wait", {}).waits(1, "heddle_run_tasks", {}).barrier({2}).worker(1).unhandled = 7;
  expect(job, {1},
         {"rank 1 has dropped an active message to worker 0: no handler was registered there for its number, 7",
          "heddle_am_register", "rank 0 waits in heddle_worker_wait"});
}

TEST(Progress, ADroppedMessageSaysNothingWhereEachWaitIsFor) {
  Job job(3);
  job.recv(0, 1, "tag 7").recv(1, 0, "tag 8").barrier({2}).worker(2).unhandled = 7;
  expect(job, {0, 1}, {"each wait"});
}

// ---- messages to workers that are not open

Job& sent_to_unopened(Job& job, std::uint32_t from, std::uint32_t to, std::uint32_t worker, std::uint64_t messages) {
  job.worker(from).unopened.push_back({to, worker, messages});
  return job;
}

// Each waits for the other then, so that none seems to have sent.
TEST(Progress, AMessageToAWorkerThatIsNotOpen) {
  Job job(3);
  job.recv(0, 1, "tag 7").recv(1, 0, "tag 8").barrier({2});
  sent_to_unopened(job, 0, 1, 5, 1);
  expect(job, {0, 1},
         {"rank 0 has sent 1 message to worker 5 of rank 1, which rank 1 has not opened; rank 1 waits in MPI_Recv for "
          "tag 8 from rank 0; rank 0 waits in MPI_Recv for tag 7 from rank 1"});
}

TEST(Progress, AMessageToAWorkerThatIsNotOpenAtARankElsewhere) {
  Job job(4);
  job.waits(0, "heddle_worker_wait", {}).barrier({1, 2, 3});
  sent_to_unopened(job, 0, 2, 1, 3);
  expect(job, {0, 2},
         {"rank 0 has sent 3 messages to worker 1 of rank 2, which rank 2 has not opened; rank 2 is in barrier #4"});
}

TEST(Progress, MessagesToOneNumberOfWorkerThatNobodyHasOpened) {
  Job job(3);
  for (const std::uint32_t rank : {0U, 1U, 2U}) {
    job.waits(rank, "heddle_worker_wait", {});
    sent_to_unopened(job, rank, (rank + 1) % 3, 1, 2);
  }
  sent_to_unopened(job, 0, 1, 4, 9);
  expect(job, {0, 1, 2},
         {"ranks 0-2 have sent 6 messages to worker 1 of ranks 0-2, which these have not opened; rank 0 waits"});
}

TEST(Progress, AMessageToItsOwnWorkerThatIsNotOpen) {
  Job job(2);
  job.waits(0, "heddle_worker_wait", {}).barrier({1});
  sent_to_unopened(job, 0, 0, 1, 1);
  expect(job, {0}, {"rank 0 has sent 1 message to worker 1 of rank 0, which rank 0 has not opened; rank 0 waits"});
}

TEST(Progress, AMessageToAWorkerThatHasBeenOpenedMeanwhileSaysNothing) {
  Job job(2);
  job.recv(0, 1, "tag 7").recv(1, 0, "tag 8");
  sent_to_unopened(job, 0, 1, 1, 1);
  second_worker(job, 1);
  expect(job, {0, 1}, {"each wait"});
  job.view(1).snapshot->workers.resize(tap::kMostListed);
  sent_to_unopened(job, 0, 1, 99, 1);
  expect_not_said(job, "not opened");
}

TEST(Progress, AMessageOfACollectiveToWhoHasNotComeSaysNothing) {
  Job job(2);
  job.recv(0, 1, "tag 7").recv(1, 0, "tag 8");
  sent_to_unopened(job, 0, 1, 5, 1).worker(0).internal = true;
  expect(job, {0, 1}, {"each wait"});
  expect_not_said(job, "not opened");
}

// It may be about to open it; and others may have nothing to do with it.
TEST(Progress, AMessageToAWorkerThatIsNotOpenSaysNothingOfOthers) {
  Job computes(2);
  computes.recv(0, 1, "tag 7");
  sent_to_unopened(computes, 0, 1, 1, 1);
  expect(computes, {1}, {"rank 1 has not called the library"});
  expect_not_said(computes, "not opened");
  Job job(4);
  job.recv(0, 1, "tag 7").recv(1, 0, "tag 8").barrier({2, 3});
  sent_to_unopened(job, 2, 3, 1, 1);
  expect(job, {0, 1}, {"each wait"});
}

// ---- workers that nobody advances

TEST(Progress, AMessageThatIsOfferedToAWorkerThatNobodyAdvances) {
  Job job(3);
  job.waits(0, "heddle_send", {{tap::Cause::unreceived, 1, 1, 100000, "tagged message", "tag 7"}});
  job.waits(1, "heddle_worker_wait", {}).barrier({2});
  second_worker(job, 1);
  expect(job, {0, 1}, {"rank 1 has no thread that makes progress on its worker 1", "rank 0 waits in heddle_send"});
}

TEST(Progress, AMessageThatIsOfferedToAWorkerThatSomebodyAdvances) {
  Job job(2);
  job.waits(0, "heddle_send", {{tap::Cause::unreceived, 1, 1, 100000, "tagged message", "tag 7"}});
  job.waits(1, "heddle_worker_wait", {}, "", 1);
  second_worker(job, 1);
  expect_not_said(job, "no thread that makes progress");
}

TEST(Progress, MessagesHaveComeToAWorkerThatNobodyAdvances) {
  Job job(4);
  job.waits(0, "heddle_worker_wait", {}).barrier({1, 2, 3});
  second_worker(job, 2).untaken = true;
  expect(job, {2},
         {"messages have come to worker 1 of rank 2, and no thread makes progress there", "heddle_run_tasks",
          "rank 0 waits in heddle_worker_wait"});
}

TEST(Progress, WhatHasComeToAWorkerThatSomebodyAdvancesSaysNothing) {
  Job job(4);
  job.waits(0, "heddle_worker_wait", {}).barrier({1, 2, 3});
  tap::WorkerState& worker = second_worker(job, 2);
  worker.untaken = worker.seen = true;
  expect_not_said(job, "have come to worker");
  worker.seen = false;
  worker.internal = true;
  expect_not_said(job, "have come to worker");
}

TEST(Progress, WhatHasComeSaysNothingWhereEachWaitIsFor) {
  Job job(2);
  job.recv(0, 1, "tag 7").recv(1, 0, "tag 8");
  second_worker(job, 1).untaken = true;
  expect(job, {0, 1}, {"each wait"});
  expect_not_said(job, "have come to worker");
}

TEST(Progress, TheOnlyRankThatNobodyAdvancesMayBeWhyAnotherWaits) {
  Job job(4);
  job.waits(0, "heddle_worker_wait", {}).recv(1, 0, "tag 7").barrier({2, 3});
  job.worker(2).seen = false;
  expect(job, {0, 2},
         {"rank 0 waits in heddle_worker_wait; no thread of rank 2 makes progress on its worker 0 or runs "
          "its tasks (heddle_run_tasks): rank 2 is in barrier #4"});
  job.worker(3).seen = false;
  expect_not_said(job, "makes progress");
}

TEST(Progress, WhoWaitsForAWordNeedsNobodysProgress) {
  Job job(3);
  job.word(0).barrier({1, 2}).worker(2).seen = false;
  expect(job, {0}, {"rank 0 waits in heddle_signal_wait"});
  expect_not_said(job, "makes progress");
}

// A rank that polls waits for what it polls.
TEST(Progress, WhatIsUnderWayOnAWorkerThatIsNotPolledHoldsUpNobodyWhoPolls) {
  Job job(3);
  job.polls(0).word(1).barrier({2});
  second_worker(job, 0).under_way = {{tap::Cause::answer, 2, 0, 8, "atomic", ""}};
  expect_not_said(job, "atomic");
  job.worker(0).seen = false;
  expect(job, {0, 2}, {"rank 0 polls in a loop for rank 2 (worker 0) to answer its atomic"});
}

// ---- words

TEST(Words, TheSmallestGroupOfThoseThatWaitForDifferentWords) {
  Job job(7);
  const auto word = [&](std::uint32_t rank, std::uint64_t place, const char* text) {
    job.waits(rank, "shmem_wait_until", {{tap::Cause::word, tap::kNobody, tap::kNobody, place, "word", ""}}, text);
  };
  word(6, 40, "the word at byte 40");
  word(2, 72, "the word at byte 72");
  word(5, 72, "the word at byte 72");
  job.barrier({0, 1, 3, 4});
  expect(job, {6}, {"rank 6 waits in shmem_wait_until for the word at byte 40", "ranks 2 and 5 wait"});
}

TEST(Words, TheSmallestGroupAlsoBesideACallThatFewAreIn) {
  Job job(7);
  const auto word = [&](std::uint32_t rank, std::uint64_t place, const char* call) {
    job.waits(rank, call, {{tap::Cause::word, tap::kNobody, tap::kNobody, place, "word", ""}}, "the word");
  };
  word(0, 40, "shmem_signal_wait_until");
  for (const std::uint32_t rank : {1U, 2U, 4U, 6U}) word(rank, 72, "shmem_wait_until");
  job.barrier({3, 5});
  expect(job, {0}, {"rank 0 waits in shmem_signal_wait_until for the word, which nobody writes"});
}

TEST(Words, AllOfThoseThatWaitForOneWord) {
  Job job(5);
  for (const std::uint32_t rank : {1U, 3U}) {
    job.waits(rank, "shmem_wait_until", {{tap::Cause::word, tap::kNobody, tap::kNobody, 72, "word", ""}},
              "the word at byte 72");
  }
  job.barrier({0, 2, 4});
  expect(job, {1, 3}, {"ranks 1 and 3 wait in shmem_wait_until"});
}

TEST(Words, ACycleExplainsMoreThanTheyDo) {
  Job job(6);
  job.recv(0, 1, "tag 7").recv(1, 0, "tag 7");
  job.word(2).word(3);
  job.barrier({4, 5});
  expect(job, {0, 1}, {"0 -> 1 -> 0"});
}

TEST(Words, AreAllToldOfBesideAStoppedRank) {
  Job job(4);
  job.word(0).word(1).waits(3, "heddle_worker_wait", {}).is(2, Presence::stopped);
  expect(
      job, {2},
      {"rank 2 (pid 17) is stopped", "ranks 0 and 1 wait in heddle_signal_wait", "rank 3 waits in heddle_worker_wait"});
}

// ---- locks

Job& lock(Job& job, std::uint32_t rank, std::uint64_t key) {
  return job.waits(rank, "shmem_set_lock", {{tap::Cause::lock, tap::kNobody, tap::kNobody, key, "lock", ""}},
                   "the lock");
}

TEST(Locks, WhoCannotAnswerHoldsWhatNobodyElseHolds) {
  Job job(3);
  lock(job, 0, 17).word(1).is(2, Presence::stopped);
  expect(job, {2}, {"rank 2, which is stopped, holds the lock that rank 0 waits for in shmem_set_lock"});
}

TEST(Locks, OfSeveralThatCannotAnswerNobodyIsNamed) {
  Job job(4);
  lock(job, 0, 17).word(1).is(2, Presence::stopped).is(3, Presence::dead);
  expect_not_said(job, "holds");
}

// A rank in a barrier names the rank that it has missed first.
TEST(Locks, WhoHoldsOneInABarrierThatSeveralAreMissingFrom) {
  Job job(5);
  lock(job, 2, 17).word(0).word(4).barrier({1, 3});
  job.view(1).snapshot->held = {17};
  for (const std::uint32_t rank : {1U, 3U}) {
    job.view(rank).snapshot->waits[0].things = {{tap::Cause::collective, 0, tap::kNobody, 0, "barrier", ""}};
  }
  expect(job, {1}, {"rank 1 holds the lock that rank 2 waits for in shmem_set_lock, and is in barrier #4"});
  for (const std::uint32_t rank : {1U, 3U}) job.view(rank).snapshot->waits[0].step->operation = "shmem_long_sum_reduce";
  expect(job, {1},
         {"rank 1 holds the lock that rank 2 waits for in shmem_set_lock, and is in shmem_long_sum_reduce #4"});
}

TEST(Locks, WithoutAKeyNobodyIsNamed) {
  Job job(3);
  lock(job, 0, 0).word(1).is(2, Presence::stopped);
  expect_not_said(job, "holds");
}

TEST(Locks, AListThatMayBeCutSaysNothing) {
  Job job(3);
  lock(job, 0, 17).word(1).is(2, Presence::stopped).view(1).snapshot->held.assign(32, 5);
  expect_not_said(job, "holds");
}

TEST(Locks, ACycleOfLocksExplainsMoreThanWhoWaitsForAWord) {
  Job job(4);
  lock(job, 0, 1);
  lock(job, 1, 2);
  job.view(0).snapshot->held = {2};
  job.view(1).snapshot->held = {1};
  job.word(2).barrier({3});
  expect(job, {0, 1}, {"a lock that the next holds", "0 -> 1 -> 0"});
}

}  // namespace
}  // namespace heddle::diagnosis::verdict_progress_test
