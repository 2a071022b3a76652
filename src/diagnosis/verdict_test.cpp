#include "diagnosis/verdict.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.hpp"
#include "diagnosis/test_views.hpp"

namespace heddle::diagnosis::verdict_test {
namespace {

// ---- lists

TEST(List, HasRanges) {
  EXPECT_EQ(tap::list_of({}), "");
  EXPECT_EQ(tap::list_of({3}), "3");
  EXPECT_EQ(tap::list_of({0, 1, 2, 3, 5}), "0-3, 5");
  EXPECT_EQ(tap::list_of({0, 1, 3}), "0, 1, 3");
}

TEST(List, IsNotLong) {
  Ranks even;
  for (std::uint32_t rank = 0; rank < 40; rank += 2) even.push_back(rank);
  EXPECT_EQ(tap::list_of(even), "0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22 and 8 more");
}

// ---- ranks that are not there

TEST(Verdict, AStoppedRank) {
  Job job(4);
  job.barrier({0, 1, 3}).is(2, Presence::stopped);
  expect(job, {2}, {"rank 2 (pid 17) is stopped; ranks 0, 1 and 3 wait for it in barrier #4 of the job"});
}

TEST(Verdict, AStoppedRankThatOthersWaitForThroughOthers) {
  Job job(4);
  job.recv(0, 1, "tag 7").recv(1, 2, "tag 7").barrier({3}).is(2, Presence::stopped);
  expect(job, {2}, {"rank 2 (pid 17) is stopped", "rank 1 waits in MPI_Recv for tag 7 from rank 2"});
}

TEST(Verdict, AStoppedRankComesBeforeOneThatComputes) {
  Job job(4);
  job.barrier({0, 1}).is(2, Presence::stopped);
  expect(job, {2}, {"is stopped"});
}

TEST(Verdict, ARankThatHasDied) {
  Job job(3);
  job.word(0).barrier({1}).is(2, Presence::dead);
  expect(job, {2}, {"rank 2 (pid 17) has died"});
}

TEST(Verdict, ARankThatHasLeftAndHoldsALock) {
  Job job(3);
  job.waits(0, "shmem_set_lock", {{tap::Cause::lock, 2, tap::kNobody, 0, "lock", ""}})
      .recv(1, 0, "tag 1")
      .is(2, Presence::left);
  expect(job, {2}, {"rank 2, which has left the job, holds the lock that rank 0 waits for in shmem_set_lock"});
}

TEST(Verdict, ARankThatHasNotJoined) {
  Job job(4);
  job.barrier({0, 1, 2}, 1).is(3, Presence::outside);
  expect(job, {3}, {"rank 3 (pid 17) has not joined the job; ranks 0-2 wait for it in barrier #1"});
}

TEST(Verdict, ARankThatDoesNotAnswer) {
  Job job(3);
  job.barrier({0, 1});
  job.view(2).snapshot.reset();
  expect(job, {2}, {"rank 2 (pid 17) does not answer; ranks 0 and 1 wait for it"});
}

// ---- ranks that compute, or poll

TEST(Verdict, ARankThatComputes) {
  Job job(4);
  job.barrier({0, 1, 3});
  expect(job, {2}, {"rank 2 has not called the library for 61 s; ranks 0, 1 and 3 wait for it in barrier #4"});
}

TEST(Verdict, ARankThatComputesWhileOthersWaitForWhoWaitsForIt) {
  Job job(4);
  job.recv(0, 1, "tag 1").get(1, 2).recv(3, 0, "tag 1");
  expect(job, {2}, {"rank 2 has not called the library", "rank 1 waits in heddle_get_wait"});
}

TEST(Verdict, TwoRanksThatCompute) {
  Job job(4);
  job.barrier({0, 1});
  expect(job, {2, 3}, {"ranks 2 and 3 have not called the library for 61 s; ranks 0 and 1 wait for them"});
}

TEST(Verdict, ARankThatComputesWhileAMessageOfAnotherTagIsThere) {
  Job job(3);
  job.recv(0, 1, "tag 7").kept(0, 1, "tag 8").barrier({2});
  expect(job, {1}, {"has not called the library"});
}

TEST(Verdict, ASenderThatWaitsForAThirdIsNotToBlame) {
  Job job(3);
  job.recv(0, 1, "tag 7").kept(0, 1, "tag 8").recv(1, 2, "tag 3");
  expect(job, {2}, {"rank 2 has not called the library", "rank 1 waits in MPI_Recv for tag 3 from rank 2"});
}

TEST(Verdict, ARankThatPollsForAMessageWaitsForItsSender) {
  Job job(3);
  job.polls(0, {{tap::Cause::receive, 1, tap::kNobody, 0, "receive", "tag 7"}}).barrier({2});
  expect(job, {1},
         {"rank 1 has not called the library", "rank 0 polls in a loop for a message with tag 7 from rank 1"});
}

TEST(Verdict, ARankThatPollsForNothingThatIsKnown) {
  Job job(4);
  job.polls(1).barrier({0, 2, 3});
  expect(job, {1}, {"rank 1 calls the library again and again and waits in no call", "barrier #4"});
}

TEST(Verdict, AMasterThatWaitsForAnyoneWaitsForTheOneThatComputes) {
  Job job(4);
  job.recv(0, tap::kNobody, "tag 5").recv(1, 0, "tag 6").recv(3, 0, "tag 6");
  expect(job, {2}, {"rank 2 has not called the library"});
}

// ---- servers

TEST(Verdict, AServersThreadIsNotWhatARankWaitsFor) {
  Job job(3);
  job.server({0, 1, 2}).barrier({0, 1});
  expect(job, {2}, {"rank 2 has not called the library for 61 s, but for a thread that waits for any message in"});
}

TEST(Verdict, AServersThreadIsNotWhatOthersWaitFor) {
  Job job(4);
  job.server({0, 1, 2, 3}).barrier({0, 1, 3}).recv(2, 0, "tag 9");
  expect(job, {0, 2}, {"rank 2 waits in MPI_Recv for tag 9 from rank 0"});
}

TEST(Verdict, ARankThatOnlyServesIsNotToBlame) {
  Job job(3);
  job.recv(0, 1, "tag 1").recv(1, 0, "tag 1").server({2});
  expect(job, {0, 1}, {"none sends"});
}

TEST(Verdict, AReceiveFromAnybodyThatIsPostedIsNoWait) {
  Job job(3);
  job.waits(0, "heddle_quiet", {}).barrier({1});
  job.worker(0).under_way = {{tap::Cause::receive, tap::kNobody, tap::kNobody, 0, "receive", "any tag"},
                             {tap::Cause::answer, 2, 0, 8, "atomic", ""}};
  expect(job, {2},
         {"rank 2 has not called the library", "rank 0 waits in heddle_quiet for rank 2 (worker 0) to answer"});
}

// ---- collective calls

TEST(Verdict, AnotherOperation) {
  Job job(4);
  job.barrier({0, 1, 2}, 12).barrier({3}, 12, "allreduce");
  expect(job, {3}, {"rank 3 is in allreduce #12 of the job, ranks 0-2 are in barrier #12 of it"});
}

TEST(Verdict, AnotherOperationOfTwoRanks) {
  Job job(2);
  job.barrier({0}, 12).barrier({1}, 12, "allreduce");
  expect(job, {0, 1}, {"barrier #12", "allreduce #12"});
}

TEST(Verdict, OneCallFewer) {
  Job job(4);
  job.barrier({0, 1, 2}, 12).barrier({3}, 11);
  expect(job, {3},
         {"rank 3 is in barrier #11 of the job, ranks 0-2 are in barrier #12 of it: rank 3 has made 1 call"
          " fewer"});
}

TEST(Verdict, OneCallMore) {
  Job job(4);
  job.barrier({0, 1, 2}, 11, "broadcast").barrier({3}, 12);
  expect(job, {3}, {"rank 3 has made 1 call more"});
}

TEST(Verdict, WhoIsBehindBecauseItWaitsForOneThatComputesIsNotToBlame) {
  Job job(4);
  job.barrier({1, 2}, 12).barrier({0}, 11, "reduce");
  expect(job, {3}, {"rank 3 has not called the library", "wait for it in barrier #12"});
}

TEST(Verdict, OneThatIsAtThisCallAlreadyTheOthersAtTheNext) {
  Job job(4);
  job.barrier({0}, 4, "reduce").barrier({1, 3}, 5).barrier({2}, 4);
  expect(job, {2}, {"rank 2 is in barrier #4 of the job, rank 0 is in reduce #4 of it"});
}

TEST(Verdict, TwoTeamsInOppositeOrder) {
  Job job(2);
  job.in({0}, step(5, 3, 2, "team A")).in({1}, step(6, 2, 2, "team B"));
  expect(job, {0, 1}, {"barrier #3 of team A", "barrier #2 of team B"});
}

TEST(Verdict, OneOfARowIsInTheBarrierOfAll) {
  Job job(8);
  job.in({1, 2, 3}, step(5, 3, 4, "the team of ranks 0-3")).barrier({0, 4, 5, 6, 7}, 9);
  expect(job, {0},
         {"rank 0 is in barrier #9 of the job, as are ranks 4-7; ranks 1-3 are in barrier #3 of the team of ranks 0-3 "
          "and wait for it"});
}

TEST(Verdict, OneIsInABarrierOfItsRowThatTheOthersDoNotMake) {
  Job job(8);
  job.in({1}, step(5, 3, 4, "the team of ranks 0-3")).barrier({0, 2, 3, 4, 5, 6, 7}, 9);
  expect(job, {1}, {"rank 1 is in barrier #3 of the team of ranks 0-3"});
}

TEST(Verdict, MembersOfATeamAreReadFromItsName) {
  Job job(5);
  job.in({1, 4}, step(5, 3, 3, "the team of ranks 1, 3, 4"));
  expect(job, {3}, {"rank 3 has not called the library", "ranks 1 and 4 wait for it in barrier #3"});
}

TEST(Verdict, MembersOfATeamThatNobodyNames) {
  Job job(4);
  job.in({0, 1}, step(5, 3, 3, "ROW")).recv(3, 0, "tag 1");
  expect(job, {2}, {"rank 2 has not called the library"});
}

TEST(Verdict, TheWaitSaysWhoHasNotCome) {
  Job job(3);
  job.barrier({1}, 3, "broadcast");
  job.view(1).snapshot->waits[0].things = {{tap::Cause::collective, 0, tap::kNobody, 0, "", ""}};
  expect(job, {0}, {"rank 0 has not called"});
}

TEST(Verdict, ANonblockingCallThatIsUnderWayCountsAsCome) {
  Job job(3);
  job.barrier({0, 1}, 7, "allreduce");
  job.view(2).snapshot->steps.push_back({0, 7, 3, "the job", "allreduce"});
  job.recv(2, 0, "tag 1");
  expect(job, {0, 2}, {"rank 2 waits in MPI_Recv for tag 1 from rank 0; rank 0 has not sent it"});
}

TEST(Verdict, AllAreInTheSameCall) {
  Job job(3);
  job.barrier({0, 1, 2});
  expect(job, {}, {"ranks 0-2 are all in barrier #4 of the job, and it does not end"});
}

TEST(Verdict, ARankLeavesWhileOthersAreInABarrier) {
  Job job(4);
  job.barrier({0, 1, 2}).waits(3, "heddle_context_leave", {});
  expect(job, {3}, {"rank 3 is in heddle_context_leave; ranks 0-2 are in barrier #4 of the job"});
}

TEST(Verdict, ARankLeavesThatHasNotSent) {
  Job job(4);
  job.recv(0, 1, "tag 7").recv(1, 2, "tag 7");
  for (const std::uint32_t rank : {2U, 3U}) job.waits(rank, "MPI_Finalize", {});
  expect(job, {1, 2},
         {"rank 1 waits in MPI_Recv for tag 7 from rank 2; rank 2 has not sent it and is in MPI_Finalize"});
}

// ---- messages

TEST(Verdict, AReceiveWhileAllOthersAreInABarrier) {
  Job job(4);
  job.barrier({0, 1, 3}).recv(2, 0, "tag 9", "heddle_recv_wait");
  expect(job, {0, 2},
         {"rank 2 waits in heddle_recv_wait for tag 9 from rank 0; rank 0 has not sent it and is in "
          "barrier #4 of the job, as are ranks 1 and 3"});
}

TEST(Verdict, SeveralWaitForOneThatIsInABarrier) {
  Job job(4);
  job.barrier({0}).recv(1, 0, "tag 9").recv(2, 0, "tag 9").recv(3, 0, "tag 9");
  expect(job, {0}, {"rank 0 has not sent their messages and is in barrier #4 of the job; ranks 1-3 wait for it"});
}

TEST(Verdict, AnotherTag) {
  Job job(3);
  job.recv(1, 0, "tag 7").kept(1, 0, "tag 8").barrier({0, 2});
  expect(job, {0, 1}, {"rank 1 waits in MPI_Recv for a message with tag 7 from rank 0, which has sent tag 8"});
}

TEST(Verdict, AnotherTagOfASendThatWaits) {
  Job job(3);
  job.recv(1, 0, "tag 7").send(0, 1, "tag 8").barrier({2});
  expect(job, {0, 1}, {"rank 1 waits in MPI_Recv for a message with tag 7 from rank 0, which sends tag 8"});
}

TEST(Verdict, AnotherTagOfAMessageFromAnybody) {
  Job job(3);
  job.recv(1, tap::kNobody, "tag 7").kept(1, 0, "tag 8").barrier({0, 2});
  expect(job, {0, 1}, {"rank 1 waits in MPI_Recv for a message with tag 7 from anybody; rank 0 has sent it tag 8"});
}

TEST(Verdict, AnotherSender) {
  Job job(3);
  job.recv(1, 0, "tag 7").kept(1, 2, "tag 7").barrier({0, 2});
  expect(job, {0, 1}, {"which has not sent it; the message with tag 7 that is there comes from rank 2"});
}

TEST(Verdict, AnotherReceiver) {
  Job job(4);
  job.recv(1, 0, "tag 7").kept(3, 0, "tag 7").barrier({0, 2, 3});
  expect(job, {0, 1}, {"which has sent it to rank 3, where nobody receives it"});
}

TEST(Verdict, AnotherWorker) {
  Job job(2);
  job.recv(1, 0, "tag 7").barrier({0});
  job.view(1).snapshot->workers.push_back({1, true, false, 0, {}, {{0, 0, 1, "tag 7"}}});
  expect(job, {0, 1}, {"on worker 0, which has sent it to worker 1"});
}

TEST(Verdict, AMessageThatIsNotReceived) {
  Job job(3);
  job.send(0, 1, "tag 8").barrier({1, 2});
  expect(job, {0, 1},
         {"rank 0 waits in MPI_Ssend for rank 1 to receive its tagged message of 100000 bytes with tag 8",
          "rank 1 does not receive and is in barrier #4"});
}

TEST(Verdict, NoCreditForOneThatDoesNotReceive) {
  Job job(3);
  job.waits(0, "MPI_Send", {{tap::Cause::credit, 1, 0, 8, "tagged message", "tag 1"}}).kept(1, 0, "tag 1", 768);
  job.barrier({1, 2});
  expect(job, {0, 1}, {"rank 1 has 768 messages of rank 0 that it has not received, and is in barrier #4"});
}

TEST(Verdict, ACycleOfSends) {
  Job job(4);
  for (const std::uint32_t rank : {0U, 1U, 2U}) job.send(rank, (rank + 1) % 3, "tag 1", "MPI_Send");
  job.recv(3, 0, "tag 1");
  expect(job, {0, 1, 2},
         {"ranks 0-2 each send to the next (MPI_Send, tagged message of 100000 bytes) and none "
          "receives: 0 -> 1 -> 2 -> 0"});
}

TEST(Verdict, ACycleOfReceives) {
  Job job(2);
  job.recv(0, 1, "tag 1").recv(1, 0, "tag 1");
  expect(job, {0, 1}, {"ranks 0 and 1 each wait in MPI_Recv for a message from the next and none sends: 0 -> 1 -> 0"});
}

TEST(Verdict, ACycleOfSeveralKinds) {
  Job job(3);
  job.recv(0, 1, "tag 1")
      .get(1, 2)
      .waits(2, "shmem_set_lock", {{tap::Cause::lock, 0, tap::kNobody, 0, "lock", ""}}, "the lock");
  expect(job, {0, 1, 2},
         {"rank 2 waits in shmem_set_lock for the lock (a lock that rank 0 holds)",
          "each waits for the next, 0 -> 1 -> 2 -> 0"});
}

TEST(Verdict, AMessageFromItself) {
  Job job(3);
  job.recv(1, 1, "tag 1").barrier({0, 2});
  expect(job, {1}, {"rank 1 waits in MPI_Recv for tag 1 from rank 1", "ranks 0 and 2 wait for it in barrier #4"});
}

// ---- workers, tasks, locks, words

TEST(Verdict, AWorkerThatNobodyMoves) {
  Job job(3);
  job.get(0, 2, 1).recv(2, 0, "tag 1").barrier({1});
  job.view(2).snapshot->workers.push_back({1, false, false, 0, {}, {}});
  expect(job, {0, 2}, {"rank 2 has no thread that makes progress on its worker 1, and waits in MPI_Recv"});
}

TEST(Verdict, AWorkerThatIsNotThere) {
  Job job(3);
  job.get(0, 2, 5).barrier({1, 2});
  expect(job, {0, 2}, {"rank 2 has no worker 5 open, and is in barrier #4 of the job, as is rank 1"});
}

TEST(Verdict, AThreadInsideAWorker) {
  Job job(3);
  job.get(0, 2).barrier({1}).recv(2, 0, "tag 1");
  job.worker(2).held = true;
  expect(job, {2}, {"a thread of rank 2 does not leave worker 0", "waits in MPI_Recv for tag 1 from rank 0"});
}

TEST(Verdict, TasksThatNobodyRuns) {
  Job job(3);
  job.waits(0, "heddle_am", {{tap::Cause::tasks, 1, 0, 8, "USER message", ""}}).barrier({1, 2});
  job.worker(1).tasks = 12;
  expect(job, {1}, {"rank 1 has 12 USER messages and no thread of it calls heddle_run_tasks", "rank 0 waits for room"});
}

TEST(Verdict, ALockWhoseHolderIsInABarrier) {
  Job job(3);
  job.waits(0, "shmem_set_lock", {{tap::Cause::lock, 1, tap::kNobody, 0, "lock", ""}}).barrier({1, 2});
  expect(job, {1}, {"rank 1 holds the lock that rank 0 waits for in shmem_set_lock, and is in barrier #4"});
}

TEST(Verdict, ALockWhoseHolderWaitsForOneThatComputes) {
  Job job(3);
  job.waits(0, "shmem_set_lock", {{tap::Cause::lock, 1, tap::kNobody, 0, "lock", ""}}).recv(1, 2, "tag 1");
  expect(job, {2}, {"has not called the library"});
}

TEST(Verdict, ALockThatTheRankHoldsItself) {
  Job job(3);
  job.waits(0, "shmem_set_lock", {{tap::Cause::lock, 0, tap::kNobody, 0, "lock", ""}}).barrier({1, 2});
  expect(job, {0}, {"rank 0 waits in shmem_set_lock for a lock that it holds already"});
}

TEST(Verdict, AWordThatNobodyWrites) {
  Job job(4);
  job.word(1).barrier({0, 2, 3});
  expect(job, {1},
         {"rank 1 waits in heddle_signal_wait for the word at 0x7000 to be 1 or more, which nobody writes; "
          "ranks 0, 2 and 3 wait for it in barrier #4"});
}

TEST(Verdict, AWordOfTheOnlyOneThatIsLeft) {
  Job job(3);
  job.word(1).is(0, Presence::left).is(2, Presence::left);
  expect(job, {1}, {"rank 1 waits in heddle_signal_wait", "which nobody writes"});
}

TEST(Verdict, AWordThatOnlyOneCanStillWrite) {
  Job job(4);
  job.word(1).recv(2, 1, "tag 1");
  for (const std::uint32_t rank : {0U, 3U}) job.waits(rank, "MPI_Finalize", {});
  expect(job, {1, 2},
         {"to be 1 or more (only rank 2 can still do that), rank 2 waits in MPI_Recv for tag 1 from rank 1"});
}

TEST(Verdict, AWordIsNotTheReasonIfOthersAreStuckAnyway) {
  Job job(5);
  job.word(0).barrier({1}, 1).in({2, 3}, step(5, 3, 3, "the team of ranks 1-3")).recv(4, 0, "tag 1");
  expect(job, {1}, {"rank 1 is in barrier #1 of the job; ranks 2 and 3 are in barrier #3 of the team of ranks 1-3"});
}

TEST(Verdict, TwoThatPollAndWaitForAWord) {
  Job job(4);
  job.word(1).polls(2).barrier({0, 3});
  expect(job, {1, 2}, {"rank 2 calls the library again and again", "rank 1 waits in heddle_signal_wait"});
}

TEST(Verdict, NobodyWaits) {
  Job job(2);
  expect(job, {}, {"ranks 0 and 1 wait in no call of the library: rank 0 has not called the library for 61 s"});
}

// It is not known what the rank does: it has not answered.
TEST(Verdict, NobodyWaitsAndARankIsStopped) {
  Job job(3);
  job.is(1, Presence::stopped);
  expect(job, {1}, {"rank 1 (pid 17) is stopped; ranks 0 and 2 wait in no call of the library: rank 0 has not called"});
  job.is(2, Presence::stopped);
  expect(job, {1, 2}, {"ranks 1 and 2 are stopped; rank 0 waits in no call of the library: rank 0 has not called"});
  job.is(0, Presence::stopped);
  expect(job, {0, 1, 2}, {"ranks 0-2 are stopped"});
  EXPECT_EQ(job.verdict().sentence.find("wait in"), std::string::npos) << job.verdict().sentence;
}

TEST(Verdict, NobodyWaitsAndARankDoesNotAnswer) {
  Job job(2);
  job.view(1).snapshot.reset();
  expect(job, {}, {"rank 1 (pid 17) does not answer; rank 0 waits in no call of the library: rank 0 has not called"});
  EXPECT_EQ(Job(0).verdict().sentence, "the job has no ranks");
}

TEST(Verdict, UsesTheWordOfTheJob) {
  std::vector<RankView> views(2);
  views[0].presence = Presence::stopped;
  views[1].snapshot.emplace().waits.push_back(
      {"shmem_getmem", "", kSecond, 1, 0, {{tap::Cause::answer, 0, 0, 8, "get", ""}}, {}});
  EXPECT_EQ(judge(views, "PE").sentence,
            "PE 0 is stopped; PE 1 waits in shmem_getmem for PE 0 (worker 0) to answer its get of 8 bytes");
}

// ---- anything at all

tap::Awaited some_thing(base::Random& random, std::uint32_t size) {
  const std::uint64_t rank = random.below(size + 2);
  return {static_cast<tap::Cause>(random.below(static_cast<std::uint64_t>(tap::kLastCause) + 1)),
          rank < size ? static_cast<std::uint32_t>(rank) : tap::kNobody - static_cast<std::uint32_t>(random.below(2)),
          random.below(2) == 0 ? tap::kNobody : static_cast<std::uint32_t>(random.below(3)),
          random.below(100),
          random.below(2) == 0 ? "" : "wh\nat",
          random.below(2) == 0 ? "" : "tag " + std::to_string(random.below(2))};
}

tap::Step some_step(base::Random& random, std::uint32_t size) {
  return {random.below(3), random.below(3), static_cast<std::uint32_t>(random.below(size + 2)),
          random.below(2) == 0 ? "" : "ranks 0-1, 3", random.below(2) == 0 ? "barrier" : "allreduce"};
}

tap::Snapshot some_snapshot(base::Random& random, std::uint32_t size) {
  tap::Snapshot made;
  for (std::uint64_t left = random.below(3); left > 0; --left) {
    tap::Wait wait;
    wait.call = random.below(4) == 0 ? "heddle_context_leave" : std::string(random.below(300), 'c');
    if (random.below(2) == 0) wait.awaited = "so\tmething";
    wait.worker = random.below(2) == 0 ? tap::kNobody : 0;
    for (std::uint64_t things = random.below(3); things > 0; --things) wait.things.push_back(some_thing(random, size));
    if (random.below(3) == 0) wait.step = some_step(random, size);
    made.waits.push_back(wait);
  }
  for (std::uint64_t left = random.below(3); left > 0; --left) {
    tap::WorkerState worker{
        static_cast<std::uint32_t>(left - 1), random.below(2) == 0, random.below(8) == 0, random.below(2), {}, {}};
    for (std::uint64_t things = random.below(3); things > 0; --things) {
      worker.under_way.push_back(some_thing(random, size));
      worker.kept.push_back({static_cast<std::uint32_t>(random.below(size + 1)), 0, 1, "tag 1"});
    }
    made.workers.push_back(worker);
  }
  if (random.below(3) == 0) made.steps.push_back(some_step(random, size));
  return made;
}

TEST(Verdict, IsALineWhateverTheRanksSay) {
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    base::Random random(seed);
    std::vector<RankView> views(random.below(9));
    const auto size = static_cast<std::uint32_t>(views.size());
    for (RankView& view : views) {
      view.presence = random.below(3) == 0 ? static_cast<Presence>(random.below(5)) : Presence::here;
      view.silent_ns = random.below(3) * kSecond;
      view.pid = static_cast<std::int64_t>(random.below(3));
      if (random.below(4) != 0) view.snapshot = some_snapshot(random, size);
    }
    const Verdict verdict = judge(views);
    ASSERT_FALSE(verdict.sentence.empty()) << seed;
    ASSERT_LE(verdict.sentence.size(), 600U) << seed;
    ASSERT_TRUE(std::none_of(verdict.sentence.begin(), verdict.sentence.end(), [](char c) { return c < ' '; })) << seed;
    ASSERT_TRUE(std::is_sorted(verdict.culprits.begin(), verdict.culprits.end())) << seed;
    ASSERT_TRUE(verdict.culprits.empty() || verdict.culprits.back() < size) << seed;
  }
}

}  // namespace
}  // namespace heddle::diagnosis::verdict_test
