#include "observe/explain/blame.hpp"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "base/random.hpp"
#include "observe/explain/ending.hpp"

namespace heddle::observe::explain::blame_test {
namespace {

using tap::Cause;

Story story_of(std::uint32_t ranks) {
  Story story;
  story.size = ranks;
  story.ranks.resize(ranks);
  for (std::uint32_t i = 0; i < ranks; ++i) {
    story.ranks[i].number = i;
    story.ranks[i].seen = {0, 10'000'000};
    story.ranks[i].threads.resize(1);
  }
  return story;
}

WaitStory wait_of(std::size_t rank, std::int64_t begin, std::int64_t end) {
  WaitStory wait;
  wait.begin = begin;
  wait.end = wait.until = end;
  wait.rank = rank;
  wait.worker = 0;
  wait.call = "heddle_recv_wait";
  return wait;
}

// Of rank 0, from 1 to 3 ms, for rank 1.
WaitStory wait_for(Cause cause, std::uint8_t worker = tap::kNoTraceWorker) {
  WaitStory wait = wait_of(0, 1'000'000, 3'000'000);
  AwaitedThing awaited;
  awaited.cause = cause;
  awaited.rank = 1;
  awaited.worker = worker;
  wait.awaited.push_back(awaited);
  return wait;
}

// From a rank to another, received by a receive that was there.
void add_message(Story& story, std::uint32_t from, std::uint32_t to, std::int64_t posted, std::int64_t at) {
  Message message;
  message.at = at;
  message.posted = posted;
  message.rank = from;
  story.ranks[to].messages.push_back(message);
  Match match;
  match.at = at;
  match.received = 1;
  match.rank = from;
  match.message = message;
  story.ranks[to].matches.push_back(match);
}

std::map<std::pair<Why, std::size_t>, std::int64_t> sums_of(const std::vector<Blame>& parts) {
  std::map<std::pair<Why, std::size_t>, std::int64_t> sums;
  for (const Blame& part : parts) sums[{part.why, part.rank}] += part.length();
  return sums;
}

TEST(Blame, AReceiveWaitsForItsSender) {
  Story story = story_of(2);
  story.waits.push_back(wait_of(0, 1'000'000, 3'010'000));
  add_message(story, 1, 0, 3'000'000, 3'005'000);
  const auto sums = sums_of(blame_all(story)[0]);
  EXPECT_EQ(sums.at({Why::late_sender, 1}), 2'000'000);
  EXPECT_EQ(sums.at({Why::under_way, kNoRank}), 10'000);
}

// Rank 0 waits for 1, which waits for 2.
TEST(Blame, TheDelayIsOfWhomTheSenderWaitsFor) {
  Story story = story_of(3);
  story.waits.push_back(wait_of(0, 1'000'000, 3'000'000));
  story.waits.push_back(wait_of(1, 1'500'000, 2'500'000));
  add_message(story, 2, 1, 2'500'000, 2'500'000);
  add_message(story, 1, 0, 3'000'000, 3'000'000);
  const auto sums = sums_of(blame_all(story)[0]);
  EXPECT_EQ(sums.at({Why::late_sender, 2}), 1'000'000);
  EXPECT_EQ(sums.at({Why::late_sender, 1}), 1'000'000);
}

TEST(Blame, AThreadWithoutACoreIsNotLate) {
  Story story = story_of(2);
  story.waits.push_back(wait_of(0, 1'000'000, 3'000'000));
  add_message(story, 1, 0, 3'000'000, 3'000'000);
  story.ranks[1].threads[0].core_time = {{1'000'000, 0}, {3'000'000, 500'000}};
  const auto sums = sums_of(blame_all(story)[0]);
  EXPECT_EQ(sums.at({Why::no_core, 1}), 500'000);
  EXPECT_EQ(sums.at({Why::late_sender, 1}), 1'500'000);
}

// The message came at 2 ms; the thread that waits for it woke later.
TEST(Blame, WhoSleepsInItsWaitNoticesLate) {
  Story story = story_of(3);
  story.waits.push_back(wait_of(0, 1'000'000, 3'000'000));
  add_message(story, 1, 0, 2'000'000, 2'900'000);
  std::vector<Slice>& slices = story.ranks[0].threads[0].slices;
  const auto add_slice = [&](Slice::What what, std::int64_t begin, std::int64_t end) {
    Slice& slice = slices.emplace_back();
    slice.begin = begin;
    slice.end = end;
    slice.what = what;
  };
  add_slice(Slice::What::wait, 1'000'000, 3'000'000);
  add_slice(Slice::What::sleep, 1'500'000, 1'600'000);
  add_slice(Slice::What::sleep, 1'900'000, 2'500'000);
  add_slice(Slice::What::sleep, 2'600'000, 2'850'000);
  const auto sums = sums_of(blame_all(story)[0]);
  EXPECT_EQ(sums.at({Why::late_sender, 1}), 1'000'000) << "while nothing was sent it might as well sleep";
  EXPECT_EQ(sums.at({Why::asleep, 0}), 750'000);
  EXPECT_EQ(sums.at({Why::under_way, kNoRank}), 250'000);

  const std::string alone = text_of(sum_up(story), story, 10);
  EXPECT_NE(alone.find("750.0 us  asleep, in 1 wait\n    rank 0 waits in heddle_recv_wait and slept while nobody was "
                       "late: nothing had come for 1 ms or more"),
            std::string::npos)
      << alone;
  // Another rank of its machine had no core for a tenth of the time.
  story.ranks[1].threads[0].core_time = {{0, 0}, {10'000'000, 1'000'000}};
  const std::string crowded = text_of(sum_up(story), story, 10);
  EXPECT_NE(crowded.find("its machine has more busy threads than cores"), std::string::npos) << crowded;
  EXPECT_NE(crowded.find("less with a core for each thread"), std::string::npos) << crowded;
  story.ranks[1].machine = "elsewhere";
  EXPECT_EQ(text_of(sum_up(story), story, 10).find("more busy threads"), std::string::npos);
  // And whoever waits for it.
  story.waits.push_back(wait_of(2, 1'000'000, 3'000'000));
  story.waits.back().call = "MPI_Recv";
  add_message(story, 0, 2, 3'000'000, 3'000'000);
  EXPECT_EQ(sums_of(blame_all(story)[1]).at({Why::asleep, 0}), 750'000);
  const std::string both = text_of(sum_up(story), story, 10);
  EXPECT_NE(both.find("rank 2 waits in MPI_Recv for rank 0, whose thread waited itself and slept while"),
            std::string::npos)
      << both;
}

TEST(Blame, AnOperationWaitsForWhoLooksAtTheWorker) {
  Story story = story_of(2);
  story.waits.push_back(wait_for(Cause::answer, 0));
  story.ranks[1].away[0].push_back({500'000, 2'900'000});
  story.ranks[1].away[3].push_back({500'000, 2'950'000});  // another worker's
  const std::vector<Blame> parts = blame_all(story)[0];
  EXPECT_EQ(sums_of(parts).at({Why::no_progress, 1}), 1'900'000);
  EXPECT_EQ(parts.front().worker, 0);
}

// The awaited thing came while nobody looked there: no look was needed.
TEST(Blame, WhoLooksTooLateWasNotNeeded) {
  Story story = story_of(2);
  story.waits.push_back(wait_for(Cause::answer));
  story.ranks[1].away[0].push_back({500'000, 8'000'000});
  story.ranks[0].threads[0].core_time = {{500'000, 0}, {3'500'000, 3'000'000}};
  const auto sums = sums_of(blame_all(story)[0]);
  EXPECT_FALSE(sums.contains({Why::no_progress, 1}));
  EXPECT_EQ(sums.at({Why::no_core, 0}), 2'000'000);
}

// Rank 1 waits for a message that rank 0 does not send, because rank 0 is in a barrier. Then the
// trace ends.
TEST(Blame, WhatNeverCameIsToldAsThat) {
  Story story = story_of(2);
  WaitStory receive = wait_of(1, 1'000'000, 9'000'000);
  receive.ended = false;
  AwaitedThing message;
  message.cause = Cause::receive;
  message.rank = 0;
  receive.awaited.push_back(message);
  WaitStory barrier = wait_of(0, 1'500'000, 9'000'000);
  barrier.call = "heddle_context_barrier";
  barrier.ended = false;
  AwaitedThing all;
  all.cause = Cause::collective;
  all.number = 4;
  barrier.awaited.push_back(all);
  story.waits = {receive, barrier};
  story.entries[{0, 4}] = {{1'500'000, 0, 0}};
  story.members[{0, 4}] = 2;
  add_message(story, 0, 1, 1'100'000, 1'200'000);  // of another tag
  // threads of the library itself are not considered
  story.ranks[0].threads.resize(2);
  story.ranks[0].threads[0].name = "heddle-progress";
  story.waits[1].thread = 1;
  // one that ended meanwhile, by a handler of the thread whose wait did not
  story.waits.push_back(wait_of(0, 1'000'000, 1'200'000));
  add_message(story, 1, 0, 1'200'000, 1'200'000);
  const auto parts = blame_all(story);
  EXPECT_EQ(sums_of(parts[2]).at({Why::late_sender, 1}), 200'000);
  EXPECT_EQ(sums_of(parts[0]).at({Why::never, 0}), 8'000'000);
  EXPECT_EQ(sums_of(parts[1]).at({Why::late_member, 1}), 7'500'000) << "it does not wait for itself";
  const std::string text = text_of(sum_up(story), story, 10);
  EXPECT_NE(text.find("never came, in 1 wait\n    rank 1 waits in heddle_recv_wait for what rank 0 had not done when "
                      "the trace ended; the thread of rank 0 was outside the library.\n"),
            std::string::npos)
      << text;
}

// Rank 0 waits for ranks 2 and 1, rank 1 for rank 2, and rank 3 for rank 1.
TEST(Blame, WhatNeverCameIsOfWhomTheVerdictBlames) {
  Story story = story_of(4);
  const auto add_wait = [&](std::size_t rank, const std::vector<std::uint32_t>& senders) {
    WaitStory wait = wait_of(rank, 1'000'000, 9'000'000);
    wait.ended = false;
    for (const std::uint32_t sender : senders) {
      AwaitedThing& awaited = wait.awaited.emplace_back();
      awaited.cause = Cause::receive;
      awaited.rank = sender;
    }
    story.waits.push_back(wait);
  };
  add_wait(0, {2, 1});
  add_wait(1, {2});
  add_wait(3, {1});
  const auto parts = blame_all(story);
  for (const auto& each : parts) EXPECT_EQ(sums_of(each).at({Why::never, 2}), 8'000'000);
  // Each of a ring owes what the next one waits for.
  story.waits.clear();
  add_wait(0, {1});
  add_wait(1, {2});
  add_wait(2, {0});
  const auto ring = blame_all(story);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(sums_of(ring[i]).at({Why::never, (i + 1) % 3}), 8'000'000);
}

// Of two ranks the other one has to send it, whoever may.
TEST(Blame, WhatAnybodyMaySendIsOfTheOnlyOneThatIsLeft) {
  Story story = story_of(2);
  WaitStory wait = wait_of(0, 1'000'000, 9'000'000);
  wait.ended = false;
  wait.awaited.emplace_back().cause = Cause::receive;
  story.waits.push_back(wait);
  EXPECT_EQ(sums_of(blame_all(story)[0]).at({Why::never, 1}), 8'000'000);
  // It leaves the job.
  wait = wait_of(1, 1'000'000, 9'000'000);
  wait.call = "heddle_context_leave";
  wait.ended = false;
  story.waits.push_back(wait);
  EXPECT_EQ(sums_of(blame_all(story)[0]).at({Why::never, kNoRank}), 8'000'000);
}

TEST(Ending, RanksReportWhatTheyWaitedFor) {
  Story story = story_of(3);
  story.size = 4;  // rank 3 has left no file
  WaitStory wait = wait_of(0, 1'000'000, 9'000'000);
  AwaitedThing& call = wait.awaited.emplace_back();
  call.cause = Cause::collective;
  call.team = 7;
  call.number = 2;
  AwaitedThing& member = wait.awaited.emplace_back();
  member.cause = Cause::collective;
  member.rank = 1;
  wait.ended = false;
  story.waits = {wait_of(2, 1'000'000, 2'000'000), wait};
  story.entries[{7, 1}] = {{1, 0, 0}, {1, 1, 0}};
  story.entries[{7, 2}] = {{1'000'000, 0, 0}};
  story.members[{7, 2}] = 2;
  const std::vector<diagnosis::RankView> views = views_at_end(story);
  ASSERT_EQ(views.size(), 4U);
  EXPECT_FALSE(views[3].snapshot.has_value());
  EXPECT_TRUE(views[2].snapshot->waits.empty()) << "it has ended";
  ASSERT_EQ(views[0].snapshot->waits.size(), 1U);
  const tap::Wait& told = views[0].snapshot->waits[0];
  ASSERT_TRUE(told.step.has_value());
  EXPECT_EQ(told.step->team, 7U);
  EXPECT_EQ(told.step->number, 2U);
  EXPECT_EQ(told.step->size, 2U);
  ASSERT_EQ(told.things.size(), 1U);
  EXPECT_EQ(told.things[0].rank, 1U);
  EXPECT_TRUE(views[0].snapshot->passed.empty()) << "it is in the last one";
  ASSERT_EQ(views[1].snapshot->passed.size(), 1U);
  EXPECT_EQ(views[1].snapshot->passed[0].number, 1U);
  EXPECT_EQ(ending_of(story).culprits, std::vector<std::uint32_t>{1});
}

TEST(Blame, ALongMessageWaitsForItsReceive) {
  Story story = story_of(2);
  story.waits.push_back(wait_for(Cause::unreceived));
  Match match;
  match.at = match.received = 2'500'000;
  match.rank = 0;
  story.ranks[1].matches.push_back(match);
  EXPECT_EQ(sums_of(blame_all(story)[0]).at({Why::late_receiver, 1}), 1'500'000);
}

TEST(Blame, ACollectiveWaitsForTheLastMember) {
  Story story = story_of(3);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    WaitStory wait = wait_of(rank, 1'000'000, 3'000'000);
    AwaitedThing awaited;
    awaited.cause = Cause::collective;
    awaited.team = 7;
    awaited.number = 4;
    wait.awaited.push_back(awaited);
    story.waits.push_back(wait);
  }
  story.entries[{7, 4}] = {{1'000'000, 0, 0}, {1'000'000, 1, 0}, {2'800'000, 2, 0}};
  const auto parts = blame_all(story);
  EXPECT_EQ(sums_of(parts[0]).at({Why::late_member, 2}), 1'800'000);
  EXPECT_EQ(sums_of(parts[1]).at({Why::late_member, 2}), 1'800'000);
}

// Ranks 1 and 3 are a team, as an earlier call of theirs shows; at the next one rank 3 never is.
TEST(Blame, AMemberOfATeamThatNeverCameIsLate) {
  Story story = story_of(4);
  WaitStory wait = wait_of(1, 1'000'000, 9'000'000);
  AwaitedThing call;
  call.cause = Cause::collective;
  call.team = 7;
  call.number = 2;
  wait.awaited.push_back(call);
  wait.ended = false;
  story.waits.push_back(wait);
  story.entries[{7, 1}] = {{500'000, 1, 0}, {600'000, 3, 0}};
  story.entries[{7, 2}] = {{1'000'000, 1, 0}};
  story.members[{7, 1}] = story.members[{7, 2}] = 2;
  EXPECT_EQ(sums_of(blame_all(story)[0]).at({Why::late_member, 3}), 8'000'000);
  // It has come to a later call, so the record of its coming to this one is missing.
  story.entries[{7, 3}] = {{2'000'000, 3, 0}};
  EXPECT_FALSE(sums_of(blame_all(story)[0]).contains({Why::late_member, 3}));
}

// Waits that wait for each other, at any moments, with anything around: parts are the wait, in
// order.
TEST(Blame, PartsAreTheWholeWait) {
  base::Random random(17);
  for (int round = 0; round < 300; ++round) {
    const auto ranks = static_cast<std::uint32_t>(2 + random.below(4));
    Story story = story_of(ranks);
    const auto moment = [&] { return static_cast<std::int64_t>(1 + random.below(5'000'000)); };
    for (std::uint64_t i = 0; i < 20; ++i) {
      const std::int64_t begin = moment();
      WaitStory wait = wait_of(random.below(ranks), begin, begin + static_cast<std::int64_t>(random.below(900'000)));
      AwaitedThing awaited;
      awaited.cause = static_cast<Cause>(random.below(static_cast<std::uint64_t>(tap::kLastCause) + 1));
      awaited.rank = random.below(3) == 0 ? tap::kAnyRank : static_cast<std::uint32_t>(random.below(ranks + 1));
      awaited.number = random.below(3);
      if (random.below(4) != 0) wait.awaited.push_back(awaited);
      wait.ended = random.below(5) != 0;
      story.waits.push_back(wait);
      const std::int64_t posted = moment();
      const auto to = static_cast<std::uint32_t>(random.below(ranks));
      add_message(story, static_cast<std::uint32_t>(random.below(ranks)), to, posted, posted + 1000);
      story.ranks[to].away[0].push_back({posted - 1, posted});
      story.entries[{0, random.below(3)}].push_back({moment(), random.below(ranks), 0});
    }
    for (Rank& rank : story.ranks) {
      std::ranges::sort(rank.messages, {}, &Message::at);
      std::ranges::sort(rank.matches, {}, &Match::at);
      std::ranges::sort(rank.away[0], {}, &TimeSpan::end);
    }
    std::ranges::sort(story.waits, {}, &WaitStory::begin);
    const auto all = blame_all(story);
    ASSERT_EQ(all.size(), story.waits.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      std::int64_t at = story.waits[i].begin;
      for (const Blame& part : all[i]) {
        EXPECT_EQ(part.begin, at);
        EXPECT_GT(part.end, part.begin);
        at = part.end;
      }
      EXPECT_EQ(at, story.waits[i].end);
    }
    EXPECT_FALSE(text_of(sum_up(story), story, 10).empty());
  }
}

// All parts of a wait with the same cause count as one. A very short time gets no sentence.
TEST(Report, CountsWaits) {
  Story story = story_of(2);
  story.waits.push_back(wait_for(Cause::answer));
  story.ranks[1].away[0] = {{1'100'000, 1'200'000}, {1'300'000, 1'400'000}, {1'500'000, 1'600'000}};
  story.waits.push_back(wait_of(0, 4'000'000, 4'002'000));
  const Report report = sum_up(story);
  ASSERT_EQ(report.losses.size(), 3U);
  EXPECT_EQ(report.losses[1].why, Why::no_progress);
  EXPECT_EQ(report.losses[1].times, 1U);
  EXPECT_EQ(report.losses[1].longest_ns, 300'000);
  const std::string text = text_of(report, story, 10);
  EXPECT_NE(text.find("300.0 us  no progress, in 1 wait\n"), std::string::npos) << text;
  EXPECT_NE(text.find("2.0 us  for 1 smaller cause\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("not known"), std::string::npos) << text;
}

TEST(Report, LargestFirstAndWhoIsToBlame) {
  Story story = story_of(2);
  story.waits.push_back(wait_of(0, 1'000'000, 3'000'000));
  story.waits.push_back(wait_of(0, 4'000'000, 4'500'000));
  add_message(story, 1, 0, 3'000'000, 3'000'000);
  const Report report = sum_up(story);
  ASSERT_EQ(report.losses.size(), 2U);
  EXPECT_EQ(report.losses[0].why, Why::late_sender);
  EXPECT_EQ(report.losses[1].why, Why::unknown);
  const std::string text = text_of(report, story, 10);
  EXPECT_NE(text.find("rank 0 waits in heddle_recv_wait for what rank 1 sends later, which was outside the library"),
            std::string::npos);
  EXPECT_NE(json_of(report, story).find("\"cause\":\"late sender\",\"rank\":1,\"ns\":2000000"), std::string::npos);
}

}  // namespace
}  // namespace heddle::observe::explain::blame_test
