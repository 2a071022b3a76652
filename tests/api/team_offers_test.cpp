// Teams that each member builds alone, from the offers of all: any ranks in any order, several at
// once, again and again; late members, refused calls, and memory that is given back.
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>

#include "api/test_collective.hpp"
#include "base/fence.hpp"

namespace heddle::test::team_offers_test {
namespace {

const std::vector<std::pair<const char*, const char*>> kLittle = {{"HEDDLE_COLLECTIVE_BYTES", "1M"}};

using Record = std::array<std::byte, HEDDLE_TEAM_RECORD_BYTES>;

// How the records of one team's members come to all of them: without the library.
class Mail {
 public:
  explicit Mail(std::vector<std::uint32_t> ranks) : ranks_(std::move(ranks)), records_(ranks_.size()) {}
  [[nodiscard]] const std::vector<std::uint32_t>& ranks() const { return ranks_; }
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(ranks_.size()); }
  [[nodiscard]] bool names(std::uint32_t rank) const { return std::ranges::find(ranks_, rank) != ranks_.end(); }
  void put(std::uint32_t rank, const Record& record) {
    records_.at(static_cast<std::size_t>(std::ranges::find(ranks_, rank) - ranks_.begin())) = record;
    came_.fetch_add(1, std::memory_order_release);
  }
  // Progress meanwhile: others may need it.
  const Record* all(const Context& context) {
    must_be(within_time([&] { return came_.load(std::memory_order_acquire) == ranks_.size(); },
                        [&] { static_cast<void>(context.progress()); }),
            "all records come in time");
    return records_.data();
  }

 private:
  const std::vector<std::uint32_t> ranks_;
  std::vector<Record> records_;
  std::atomic<std::size_t> came_{0};
};

Record offer(const Context& context, std::uint32_t size) {
  Record record;
  must(heddle_team_offer(context.handle(), size, record.data()), "offer");
  return record;
}

Team build(const Context& context, Mail& mail) {
  const Record* records = mail.all(context);
  heddle_team team{};
  must(heddle_team_build(context.handle(), mail.ranks().data(), mail.size(), records, &team), "build");
  return Team(team);
}

Team make(const Context& context, Mail& mail) {
  mail.put(context.rank(), offer(context, mail.size()));
  return build(context, mail);
}

void expect_members(const Member& member, const Team& team, const std::vector<std::uint32_t>& ranks) {
  must_be(team.size() == ranks.size() && ranks[team.rank()] == member.rank(), "this rank stands where it was named");
  std::vector<std::uint32_t> all(team.size());
  const std::uint32_t me = member.rank();
  must(team.allgather<std::uint32_t>(std::span(&me, 1), all.data()), "allgather of a team");
  must_be(all == ranks, "the members are those that were named");
  for (std::uint32_t i = 0; i < all.size(); ++i)
    must_be(team.translate(i, member.world) == ranks[i], "translate gives who is a member");
}

class TeamOffers : public testing::TestWithParam<Setting> {
 protected:
  Variables variables_{GetParam().variables};
};
INSTANTIATE_TEST_SUITE_P(Over, TeamOffers, testing::ValuesIn(all_settings()), name_of);

TEST_P(TeamOffers, AnyRanksInAnyOrderAreATeam) {
  const std::vector<std::vector<std::uint32_t>> teams = {{0, 1, 2, 3, 4}, {4, 3, 2, 1, 0}, {3, 1}, {2},
                                                         {0, 4, 2},       {1, 0}};
  std::vector<std::unique_ptr<Mail>> mails;
  for (const auto& ranks : teams) mails.push_back(std::make_unique<Mail>(ranks));
  run_members(5, GetParam().transport, [&](const Member& member) {
    std::vector<Team> open;
    for (const auto& mail : mails) {
      if (!mail->names(member.rank())) continue;
      const Team& team = open.emplace_back(make(member.context, *mail));
      expect_members(member, team, mail->ranks());
      for (const Operation operation : {Operation::barrier, Operation::allreduce, Operation::alltoallv}) {
        Part part(member.context, team, {operation, 1000, 0, Memory::own, false, nullptr, 0});
        for (const Form form : {Form::blocking, Form::persistent}) part.run(form, 2);
      }
    }
    // A team of a team that was built so.
    const Team half = open.front().split(member.rank() % 2);
    must(half.barrier(), "barrier");
  });
}

// A member that has built the team uses it at once; the others have only made their offer.
TEST_P(TeamOffers, WhatComesBeforeAMemberHasBuiltItIsNotLost) {
  constexpr std::uint32_t kRanks = 3;
  for (std::uint32_t late = 0; late < kRanks; ++late) {
    Mail mail({1, 2, 0});
    std::atomic<std::uint32_t> begun{0};
    run_members(kRanks, GetParam().transport, [&](const Member& member) {
      const Context& context = member.context;
      mail.put(member.rank(), offer(context, kRanks));
      static_cast<void>(mail.all(context));
      if (member.rank() == late) {
        must_be(within_time([&] { return begun == kRanks - 1; }, [&] { static_cast<void>(context.progress()); }),
                "begun");
        const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
        while (std::chrono::steady_clock::now() < until) static_cast<void>(context.progress());
      }
      const Team team = build(context, mail);
      std::array<heddle_collective, 4> started{};
      std::array<std::uint64_t, 4> words{};
      for (std::uint32_t i = 0; i < started.size(); ++i) {
        words.at(i) = team.rank() == i % kRanks ? 100 + i : 0;
        must(heddle_broadcast_start(team.handle(), &words.at(i), 8, i % kRanks, &started.at(i)), "start");
        for (int turn = 0; turn < 10; ++turn) static_cast<void>(context.progress());
        if (i == 0) ++begun;
      }
      for (std::uint32_t i = 0; i < started.size(); ++i) {
        must(heddle_collective_wait(started.at(i), HEDDLE_FOREVER), "wait");
        must_be(words.at(i) == 100 + i, "the root's word");
      }
      expect_members(member, team, mail.ranks());
    });
  }
}

// Each thread makes teams of its own, all from one context.
TEST_P(TeamOffers, ThreadsMakeThemAtOnce) {
  // As in teams_test: each rank maps the memory that all share at addresses of its own.
  if (base::kThreadSanitizer && std::string(GetParam().transport).find("shm") != std::string::npos)
    GTEST_SKIP() << "skipped: ThreadSanitizer sees no order through two mappings of one memory";
  constexpr std::uint32_t kThreads = 3;
  constexpr int kTeams = 10;
  std::vector<std::unique_ptr<Mail>> mails;
  for (std::uint32_t i = 0; i < kThreads * kTeams; ++i) {
    mails.push_back(
        std::make_unique<Mail>(i % 2 == 0 ? std::vector<std::uint32_t>{2, 0, 1} : std::vector<std::uint32_t>{1, 2, 0}));
  }
  run_members(3, GetParam().transport, [&](const Member& member) {
    std::array<std::string, kThreads> wrong;
    std::vector<std::thread> threads;
    for (std::uint32_t thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        try {
          for (int i = 0; i < kTeams; ++i) {
            Mail& mail = *mails[thread * kTeams + static_cast<std::uint32_t>(i)];
            const Team team = make(member.context, mail);
            expect_members(member, team, mail.ranks());
            must(team.barrier(), "barrier");  // nobody begins another operation of it
          }
        } catch (const std::exception& error) {
          wrong.at(thread) = error.what();
          static_cast<void>(heddle_inproc_fail(member.job, member.rank()));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& each : wrong) must_be(each.empty(), each);
  });
}

// The memory of a freed team, a withdrawn offer and a refused record is free again.
TEST_P(TeamOffers, NothingIsLostHoweverOften) {
  const Variables little(kLittle);
  constexpr std::size_t kTimes = 60;
  constexpr std::size_t kSpare = 20;  // rooms for an offer: more than one team and its barrier take
  std::vector<std::unique_ptr<Mail>> mails;
  for (std::size_t i = 0; i < kTimes; ++i) mails.push_back(std::make_unique<Mail>(std::vector<std::uint32_t>{1, 0}));
  run_members(2, GetParam().transport, [&](const Member& member) {
    const heddle_context context = member.context.handle();
    const auto withdraw = [&](const Record& record) { return heddle_team_withdraw(context, record.data()); };
    must(member.world.barrier(), "barrier");  // which takes its room
    std::vector<Record> offers;
    const auto fill = [&] {
      Record last;
      Status status = HEDDLE_DONE;
      while ((status = heddle_team_offer(context, 2, last.data())) == HEDDLE_DONE) offers.push_back(last);
      must_be(status == HEDDLE_ERR_NO_MEMORY, "the room has an end");
      must_be(std::string(heddle_last_error()).find("HEDDLE_COLLECTIVE_BYTES") != std::string::npos,
              heddle_last_error());
      must(withdraw(last), "what has failed holds nothing");
    };
    fill();
    const std::size_t most = offers.size();
    must_be(most > 2 * kSpare, "there is room for some");
    const std::array<std::uint32_t, 2> ranks = {member.rank(), 1 - member.rank()};
    for (std::size_t i = 0; i < kSpare; ++i) {
      const Record record = offers.back();
      offers.pop_back();
      heddle_team team{};
      const std::array<Record, 2> records = {record, record};  // the other member's is not its own
      i % 2 == 0 ? must(withdraw(record), "withdraw")
                 : must_be(heddle_team_build(context, ranks.data(), 2, records[0].data(), &team) == HEDDLE_ERR_ARGUMENT,
                           "refused");
      must_be(withdraw(record) == HEDDLE_ERR_ARGUMENT, "it was given back");
    }
    for (std::size_t i = 0; i < kTimes; ++i) {
      const Team team = make(member.context, *mails[i]);
      must(team.barrier(), "barrier");
      if (i % 10 == 0) must(team.barrier(), "another barrier");
      must(member.world.barrier(), "barrier of all");
    }
    fill();
    must_be(offers.size() + 2 >= most, "what the teams had is there again");
    for (const Record& each : offers) must(withdraw(each), "withdraw");
  });
}

// One member has no room: all learn of it from its record.
TEST_P(TeamOffers, WhatKeepsOneMemberFromItIsToldToAll) {
  const Variables little(kLittle);
  Mail mail({0, 1});
  run_members(2, GetParam().transport, [&](const Member& member) {
    const heddle_context context = member.context.handle();
    std::vector<Record> offers;
    Record mine;
    if (member.rank() == 1)
      while (heddle_team_offer(context, 2, mine.data()) == HEDDLE_DONE) offers.push_back(mine);
    else
      mine = offer(member.context, 2);
    mail.put(member.rank(), mine);
    heddle_team team{7};
    const Record* records = mail.all(member.context);
    must_be(heddle_team_build(context, mail.ranks().data(), 2, records, &team) == HEDDLE_ERR_NO_MEMORY, "no memory");
    must_be(std::string(heddle_last_error()).find("rank 1 has no room") != std::string::npos, heddle_last_error());
    must_be(team.id == 0, "no team");
    for (const Record& each : offers) must(heddle_team_withdraw(context, each.data()), "withdraw");
    must_be(member.rank() == 1 || heddle_team_withdraw(context, mine.data()) == HEDDLE_ERR_ARGUMENT, "given back");
  });
}

// Members that die before or after: the others are told by the first operation, and make another
// team without it.
void run_with_a_death(const char* transport, bool builds) {
  constexpr std::uint32_t kRanks = 4;
  constexpr std::uint32_t kDead = 2;
  Mail all({0, 1, 2, 3});
  Mail rest({3, 0, 1});
  const Job job(kRanks, transport);
  std::atomic<std::uint32_t> through{0};
  std::atomic<std::uint32_t> ready{0};
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      Context context;
      try {
        context = job.join(rank);
        const Team world = Team::world(context);
        const auto wait_for = [&](const std::atomic<std::uint32_t>& count, std::uint32_t value) {
          must_be(within_time([&] { return count == value; }, [&] { static_cast<void>(context.progress()); }),
                  "in time");
        };
        all.put(rank, offer(context, kRanks));
        static_cast<void>(all.all(context));
        ++ready;
        wait_for(ready, kRanks);
        if (rank == kDead) {
          const Team team = builds ? build(context, all) : Team();
          must(heddle_inproc_fail(job.handle(), kDead), "fail");
        } else {
          const Team team = build(context, all);
          const Status status = team.barrier();
          must_be(status == HEDDLE_ERR_PEER_FAILED, heddle_status_name(status));
          must_be(std::string(heddle_last_error()).find("rank 2") != std::string::npos, heddle_last_error());
          const Team others = make(context, rest);
          must(others.barrier(), "barrier of the living");
        }
        ++through;
        wait_for(through, kRanks);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
        ++through;
        static_cast<void>(heddle_inproc_fail(job.handle(), rank));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(TeamOffersFailure, AFailedMemberIsToldAndTheOthersGoOn) {
  for (const char* transport : {"shm", "loopback-messages"}) {
    for (const bool builds : {false, true}) run_with_a_death(transport, builds);
  }
}

// ---- what is refused ----------------------------------------------------------------------------

void expect_error(Status status, Status expected, const char* words) {
  EXPECT_EQ(status, expected) << heddle_status_name(status) << ": " << heddle_last_error();
  EXPECT_NE(std::string(heddle_last_error()).find(words), std::string::npos) << heddle_last_error();
}

TEST(TeamOfferArguments, AreNamedWithTheirValues) {
  const Context context = Context::join();
  const heddle_context handle = context.handle();
  const std::uint32_t me = 0;
  const std::uint32_t other = 1;
  heddle_team made{77};
  Record record{};
  expect_error(heddle_team_offer(handle, 1, record.data()), HEDDLE_ERR_STATE, "call heddle_team_world");
  expect_error(heddle_team_build(handle, &me, 1, record.data(), &made), HEDDLE_ERR_STATE, "call heddle_team_world");
  EXPECT_EQ(made.id, 0U) << "what has failed gives the null handle";
  const Team world = Team::world(context);
  expect_error(heddle_team_build(handle, &me, 1, record.data(), &made), HEDDLE_ERR_STATE, "rank 0 could make no offer");
  EXPECT_EQ(heddle_team_withdraw(handle, record.data()), HEDDLE_DONE);
  expect_error(heddle_team_offer({}, 1, record.data()), HEDDLE_ERR_HANDLE, "null handle");
  expect_error(heddle_team_offer(handle, 1, nullptr), HEDDLE_ERR_ARGUMENT, "record is null");
  expect_error(heddle_team_offer(handle, 0, record.data()), HEDDLE_ERR_ARGUMENT, "size 0");
  expect_error(heddle_team_offer(handle, 2, record.data()), HEDDLE_ERR_ARGUMENT, "size 2: the job has 1 rank");
  EXPECT_EQ(heddle_team_offer(handle, 1, record.data()), HEDDLE_DONE);
  expect_error(heddle_team_build({}, &me, 1, record.data(), &made), HEDDLE_ERR_HANDLE, "null handle");
  expect_error(heddle_team_build(handle, nullptr, 1, record.data(), &made), HEDDLE_ERR_ARGUMENT, "ranks is null");
  expect_error(heddle_team_build(handle, &me, 1, nullptr, &made), HEDDLE_ERR_ARGUMENT, "records is null");
  expect_error(heddle_team_build(handle, &me, 1, record.data(), nullptr), HEDDLE_ERR_ARGUMENT, "team is null");
  expect_error(heddle_team_build(handle, &me, 0, record.data(), &made), HEDDLE_ERR_ARGUMENT, "size 0");
  expect_error(heddle_team_build(handle, &other, 1, record.data(), &made), HEDDLE_ERR_ARGUMENT,
               "this rank, 0, is not among");
  EXPECT_EQ(made.id, 0U);
  // None of these has taken the offer.
  ASSERT_EQ(heddle_team_build(handle, &me, 1, record.data(), &made), HEDDLE_DONE) << heddle_last_error();
  EXPECT_EQ(heddle_barrier(made), HEDDLE_DONE);
  EXPECT_EQ(heddle_team_free(made), HEDDLE_DONE);
  expect_error(heddle_team_build(handle, &me, 1, record.data(), &made), HEDDLE_ERR_ARGUMENT, "was used or withdrawn");
  expect_error(heddle_team_withdraw(handle, record.data()), HEDDLE_ERR_ARGUMENT, "was used or withdrawn");
  expect_error(heddle_team_withdraw(handle, nullptr), HEDDLE_ERR_ARGUMENT, "record is null");
  expect_error(heddle_team_withdraw({}, record.data()), HEDDLE_ERR_HANDLE, "null handle");
  // Of another context, which is another job.
  const Context foreign = Context::join();
  const Team foreign_world = Team::world(foreign);
  ASSERT_EQ(heddle_team_offer(foreign.handle(), 1, record.data()), HEDDLE_DONE);
  EXPECT_LT(heddle_team_build(handle, &me, 1, record.data(), &made), 0);
}

// One word of the other member's record, or of the order, is wrong.
struct Fault {
  const char* what;
  std::size_t at;  // in the record of the other member
  std::vector<unsigned char> bytes;
  Status status;
  const char* words;
};

TEST(TeamOfferArguments, RecordsAreChecked) {
  const std::vector<Fault> faults = {
      {"another beginning", 0, {1, 2, 3}, HEDDLE_ERR_PROTOCOL, "is none that heddle_team_offer writes"},
      {"another job", 8, {1, 2, 3}, HEDDLE_ERR_PROTOCOL, "is of another job"},
      {"memory that is not aligned", 24, {1}, HEDDLE_ERR_PROTOCOL, "names memory"},
      {"memory behind the end", 24, {0, 0, 0, 0, 0, 0, 0, 0xF0}, HEDDLE_ERR_PROTOCOL, "names memory"},
      {"another rank", 32, {9}, HEDDLE_ERR_ARGUMENT, "is of rank 9"},
      {"another size", 36, {1}, HEDDLE_ERR_ARGUMENT, "to a team of 1 members, this one has 2"},
      {"an unknown status", 40, {77}, HEDDLE_ERR_PROTOCOL, "is none that heddle_team_offer writes"},
      {"an error", 40, {0xFF, 0xFF, 0xFF, 0xFF}, static_cast<Status>(-1), "rank"},
      {"more than is written", 60, {1}, HEDDLE_ERR_PROTOCOL, "is none that heddle_team_offer writes"},
  };
  run_members(2, "shm", [&](const Member& member) {
    const heddle_context context = member.context.handle();
    const std::uint32_t me = member.rank();
    const std::array<std::uint32_t, 2> ranks = {0, 1};
    std::array<Record, 2> records{};
    const auto exchange = [&] {
      const Record mine = offer(member.context, 2);
      must(member.world.allgather<std::byte>(mine, records[0].data()), "allgather");
    };
    heddle_team team{};
    const auto refused = [&](const std::array<std::uint32_t, 2>& named, Status status, const char* words) {
      expect_error(heddle_team_build(context, named.data(), 2, records[0].data(), &team), status, words);
      must_be(team.id == 0, "no team");
    };
    for (const Fault& fault : faults) {
      SCOPED_TRACE(fault.what);
      exchange();
      const Record mine = records.at(me);
      std::memcpy(records.at(1 - me).data() + fault.at, fault.bytes.data(), fault.bytes.size());
      refused(ranks, fault.status, fault.words);
      expect_error(heddle_team_withdraw(context, mine.data()), HEDDLE_ERR_ARGUMENT, "was used or withdrawn");
    }
    exchange();
    std::swap(records[0], records[1]);
    refused(ranks, HEDDLE_ERR_ARGUMENT, "records come in the order of ranks");
    expect_error(heddle_team_withdraw(context, records.at(1 - me).data()), HEDDLE_ERR_ARGUMENT,
                 "was used or withdrawn");
    exchange();
    refused({me, me}, HEDDLE_ERR_ARGUMENT, "is named twice");
    exchange();
    refused({me, 17}, HEDDLE_ERR_RANK, "rank 17: the job has ranks 0-1");
    // A record that this rank has not written is unchanged.
    exchange();
    const Record mine = records.at(me);
    records.at(me)[16] ^= std::byte{1};
    refused(ranks, HEDDLE_ERR_ARGUMENT, "names no offer");
    records.at(me) = mine;
    must(heddle_team_build(context, ranks.data(), 2, records[0].data(), &team), "build");
    must(heddle_barrier(team), "barrier");
    must(heddle_barrier(member.world.handle()), "barrier");
    must(heddle_team_free(team), "free");
  });
}

}  // namespace
}  // namespace heddle::test::team_offers_test
