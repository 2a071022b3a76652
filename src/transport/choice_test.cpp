// Which transport a job uses, by its settings, where its ranks are, and what each machine has.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/common.hpp"
#include "bootstrap/inproc/inproc.hpp"
#include "transport/transport.hpp"

namespace heddle::transport::choice_test {
namespace {

using Overrides = base::Config::Overrides;

// What one rank chooses, or "error: " and why not.
std::string choose_as(bootstrap::inproc::ThreadJob* job, std::uint32_t rank, const Overrides& overrides,
                      const char* asked) {
  const auto member = std::move(*bootstrap::inproc::open(*job, rank));
  base::SystemClock clock;
  base::Environment environment;
  environment.clock = &clock;
  environment.config = *base::Config::read(overrides);
  const auto choice = choose(asked, *member, environment);
  return choice ? choice->name : std::string("error: ") + base::last_message();
}

// What each rank chooses, with settings of its own.
std::vector<std::string> chosen(const std::vector<Overrides>& of_ranks, const char* asked = nullptr) {
  bootstrap::inproc::ThreadJob job(static_cast<std::uint32_t>(of_ranks.size()));
  std::vector<std::string> all(of_ranks.size());
  std::vector<std::thread> ranks;
  for (std::uint32_t rank = 0; rank < of_ranks.size(); ++rank) {
    ranks.emplace_back([&, rank] { all[rank] = choose_as(&job, rank, of_ranks[rank], asked); });
  }
  for (std::thread& rank : ranks) rank.join();
  return all;
}

// What all choose alike, with the same settings.
std::string chosen(std::uint32_t size, const Overrides& overrides, const char* asked = nullptr) {
  const std::vector<std::string> all = chosen(std::vector<Overrides>(size, overrides), asked);
  for (const std::string& one : all) EXPECT_EQ(one, all.front());
  return all.front();
}

Overrides with(Overrides overrides, const char* name, const char* value) {
  overrides[name] = value;
  return overrides;
}

TEST(Choice, FollowsWhereTheRanksAre) {
  EXPECT_EQ(chosen(4, {}), "shm");
  EXPECT_EQ(chosen(1, {{"HEDDLE_NODE_RANKS", "1"}}), "shm");
  EXPECT_EQ(chosen(4, {{"HEDDLE_NODE_RANKS", "2"}, {"HEDDLE_TRANSPORTS", "shm,loopback"}}), "shm,loopback");
  EXPECT_EQ(chosen(4, {{"HEDDLE_NODE_RANKS", "3"}, {"HEDDLE_TRANSPORTS", "shm,loopback"}}), "shm,loopback");
  EXPECT_EQ(chosen(4, {{"HEDDLE_NODE_RANKS", "2"}, {"HEDDLE_TRANSPORTS", "ucx"}}), "ucx");
  EXPECT_EQ(chosen(4, {{"HEDDLE_NODE_RANKS", "1"}, {"HEDDLE_TRANSPORTS", "fault+shm,loopback"}}), "fault+loopback");
  EXPECT_EQ(chosen(4, {{"HEDDLE_TRANSPORTS", "fault+shm,loopback"}}), "fault+shm");
}

TEST(Choice, WhatIsNamedIsTaken) {
  EXPECT_EQ(chosen(4, {{"HEDDLE_NODE_RANKS", "2"}, {"HEDDLE_TRANSPORT", "loopback"}}), "loopback");
  EXPECT_EQ(chosen(4, {{"HEDDLE_TRANSPORT", "ucx"}, {"HEDDLE_TRANSPORTS", "ucx"}}), "ucx");
  EXPECT_EQ(chosen(4, {{"HEDDLE_TRANSPORT", "shm"}, {"HEDDLE_TRANSPORTS", "ucx"}}, "loopback"), "loopback");
  EXPECT_EQ(chosen(4, {{"HEDDLE_TRANSPORT", "ucx"}}, "auto"), "ucx");
}

const Overrides kNothingThere = {{"HEDDLE_NODE_RANKS", "2"},
                                 {"HEDDLE_LIBRARIES", "ucx=libnothing.so,ofi=libnothing.so,verbs=libnothing.so"}};

TEST(Choice, TheFirstNetworkIsTakenThatAllRanksHave) {
  const Overrides has = {{"HEDDLE_NODE_RANKS", "2"}, {"HEDDLE_TRANSPORTS", "shm,loopback,loopback-messages"}};
  EXPECT_EQ(chosen(4, has), "shm,loopback");
  const Overrides order = with(kNothingThere, "HEDDLE_TRANSPORTS", "shm,ucx,ofi,loopback");
  EXPECT_EQ(chosen(4, order), "shm,loopback");
  EXPECT_EQ(chosen(3, with(order, "HEDDLE_NODE_RANKS", "1")), "loopback");
}

// A setting of a network shows that the user meant to use it. So if the network is left out, one of
// the ranks that lack it reports that.
TEST(Choice, ANetworkThatIsLeftOutInSpiteOfItsSettingIsToldOnce) {
  const Overrides order = {{"HEDDLE_NODE_RANKS", "2"}, {"HEDDLE_TRANSPORTS", "shm,ofi,loopback"}};
  const Overrides wrong = with(order, "HEDDLE_LIBRARIES", "ofi=libnothing.so");
  testing::internal::CaptureStderr();
  EXPECT_EQ(chosen(4, wrong), "shm,loopback");
  const std::string said = testing::internal::GetCapturedStderr();
  const std::string told = "the transport ofi is left out, though HEDDLE_LIBRARIES.ofi is set: ";
  const std::size_t at = said.find(told);
  ASSERT_NE(at, std::string::npos) << said;
  EXPECT_NE(said.find("libnothing.so cannot be loaded", at), std::string::npos) << said;
  EXPECT_NE(said.find("; the job uses loopback", at), std::string::npos) << said;
  EXPECT_EQ(said.find(told, at + 1), std::string::npos) << said;
}

TEST(Choice, ADeviceThatIsNotThereIsTold) {
  const Overrides order = {{"HEDDLE_NODE_RANKS", "2"}, {"HEDDLE_TRANSPORTS", "shm,verbs,loopback"}};
  testing::internal::CaptureStderr();
  EXPECT_EQ(chosen(4, with(order, "HEDDLE_NET_DEVICES", "mlx5_9")), "shm,loopback");
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("the transport verbs is left out, though HEDDLE_NET_DEVICES is set"), std::string::npos) << said;
}

TEST(Choice, ANetworkThatIsUsedOrWasNotSetUpIsNotTold) {
  const Overrides order = {{"HEDDLE_NODE_RANKS", "2"}, {"HEDDLE_TRANSPORTS", "shm,loopback,ofi"}};
  testing::internal::CaptureStderr();
  EXPECT_EQ(chosen(4, with(order, "HEDDLE_LIBRARIES", "ofi=libnothing.so")), "shm,loopback");
  EXPECT_EQ(chosen(4, {{"HEDDLE_TRANSPORTS", "shm,ofi,loopback"}, {"HEDDLE_LIBRARIES", "ofi=libnothing.so"}}), "shm");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

// If one rank lacks a network, all ranks choose as that rank does, although the others have the
// network.
TEST(Choice, OneRankThatLacksANetworkIsEnough) {
  const Overrides order = {{"HEDDLE_NODE_RANKS", "2"}, {"HEDDLE_TRANSPORTS", "shm,ucx,loopback"}};
  const Overrides lacks = with(order, "HEDDLE_LIBRARIES", "ucx=libnothing.so");
  EXPECT_EQ(chosen({order, order, lacks, order}), std::vector<std::string>(4, "shm,loopback"));
}

TEST(Choice, NoNetworkIsAnErrorThatSaysWhy) {
  for (const std::string& one : chosen(std::vector<Overrides>(3, kNothingThere))) {
    EXPECT_NE(one.find("rank 0 can use none of the networks ofi with an adapter of its own, ucx, verbs, ofi"),
              std::string::npos)
        << one;
    EXPECT_NE(one.find("libnothing.so cannot be loaded"), std::string::npos) << one;
  }
}

void expect_in(const std::string& said, const std::string& part) {
  EXPECT_NE(said.find(part), std::string::npos) << said;
}

// A rank takes part in the exchange whatever its settings are, and all ranks get the settings by
// name.
TEST(Choice, OtherSettingsInOneRankAreNamedToAll) {
  const std::string mine = "HEDDLE_TRANSPORTS=shm,loopback,ucx and HEDDLE_NODE_RANKS=1";
  const Overrides order = {{"HEDDLE_NODE_RANKS", "1"}, {"HEDDLE_TRANSPORTS", "shm,loopback,ucx"}};
  const std::vector<std::pair<Overrides, std::string>> others = {
      {with(order, "HEDDLE_TRANSPORTS", "shm,loopback,ofi"), "HEDDLE_TRANSPORTS=shm,loopback,ofi"},
      {with(order, "HEDDLE_TRANSPORTS", "shm,loopback"), "HEDDLE_TRANSPORTS=shm,loopback"},
      {with(order, "HEDDLE_TRANSPORTS", "shm"), "HEDDLE_TRANSPORTS=shm"},
      {with(order, "HEDDLE_TRANSPORTS", ""), "neither HEDDLE_TRANSPORT nor HEDDLE_TRANSPORTS"},
      {{{"HEDDLE_NODE_RANKS", "1"}, {"HEDDLE_TRANSPORT", "loopback"}}, "HEDDLE_TRANSPORT=loopback"}};
  for (const auto& [other, theirs] : others) {
    const std::vector<std::string> all = chosen({order, other, order});
    for (const std::size_t rank : {0U, 2U}) {
      EXPECT_EQ(all[rank], "error: rank 1 has " + theirs + " and HEDDLE_NODE_RANKS=1, this rank " + mine +
                               "; give all ranks the same");
    }
    EXPECT_EQ(all[1], "error: rank 0 has " + mine + ", this rank " + theirs +
                          " and HEDDLE_NODE_RANKS=1; give all ranks the same");
  }
  for (const std::string& one : chosen({order, with(order, "HEDDLE_NODE_RANKS", "2"), order})) {
    expect_in(one, "HEDDLE_TRANSPORTS=shm,loopback,ucx and HEDDLE_NODE_RANKS=2");
    expect_in(one, mine);
  }
}

TEST(Choice, TheSameByAnotherVariableIsTheSame) {
  const Overrides nodes = {{"HEDDLE_NODE_RANKS", "1"}};
  EXPECT_EQ(chosen({with(nodes, "HEDDLE_TRANSPORT", "loopback"), with(nodes, "HEDDLE_TRANSPORTS", "loopback")}),
            std::vector<std::string>(2, "loopback"));
}

// On one machine a rank without HEDDLE_NODE_RANKS exchanges nothing. It is found out when it has
// published its card, or by what it exchanges later.
TEST(Choice, NodesInOneRankOnlyAreAnError) {
  using Later = std::function<void(bootstrap::Bootstrap&)>;
  const Later publishes = [](bootstrap::Bootstrap& member) { EXPECT_EQ(member.publish({}), HEDDLE_DONE); };
  const Later exchanges = [](bootstrap::Bootstrap& member) { EXPECT_EQ(member.exchange_start({}), HEDDLE_DONE); };
  for (const Later& later : {publishes, exchanges}) {
    bootstrap::inproc::ThreadJob job(2);
    const auto member = std::move(*bootstrap::inproc::open(job, 1));
    base::Environment environment;
    environment.config = *base::Config::read(Overrides{});
    EXPECT_EQ(choose(nullptr, *member, environment)->name, "shm");
    later(*member);
    expect_in(choose_as(&job, 0, {{"HEDDLE_NODE_RANKS", "1"}}, nullptr), "rank 1 does not say which networks");
  }
}

TEST(Choice, ContradictionsNameBoth) {
  const std::string both = chosen(4, {{"HEDDLE_TRANSPORT", "shm"}, {"HEDDLE_TRANSPORTS", "shm,ucx"}});
  EXPECT_NE(both.find("HEDDLE_TRANSPORT=shm "), std::string::npos) << both;
  EXPECT_NE(both.find("HEDDLE_TRANSPORTS=shm,ucx "), std::string::npos) << both;
  EXPECT_NE(chosen(4, {{"HEDDLE_NODE_RANKS", "2"}, {"HEDDLE_TRANSPORTS", "shm"}}).find("on 2 nodes"),
            std::string::npos);
  for (const char* list : {"pigeon", "shm,ucx,pigeon", "shm ucx"}) {
    EXPECT_NE(chosen(4, {{"HEDDLE_TRANSPORTS", list}}).find("names a transport that there is not"), std::string::npos)
        << list;
  }
  for (const char* list : {"shm,", ",ucx", "shm,,ucx", ","}) {
    EXPECT_NE(chosen(4, {{"HEDDLE_TRANSPORTS", list}}).find("has an empty entry"), std::string::npos) << list;
  }
  for (const char* list : {"shm,shm", "ucx,shm", "shm,ucx,shm"}) {
    const std::string error = chosen(4, {{"HEDDLE_NODE_RANKS", "1"}, {"HEDDLE_TRANSPORTS", list}});
    EXPECT_NE(error.find("shm reaches the ranks of its own node"), std::string::npos) << list << ": " << error;
  }
}

TEST(Nodes, AreFilledInTheOrderOfRanks) {
  bootstrap::inproc::ThreadJob job(5);
  const auto member = std::move(*bootstrap::inproc::open(job, 0));
  using Nodes = std::vector<std::uint32_t>;
  EXPECT_EQ(bootstrap::nodes_of(*member, 0), (Nodes{0, 0, 0, 0, 0}));
  EXPECT_EQ(bootstrap::nodes_of(*member, 1), (Nodes{0, 1, 2, 3, 4}));
  EXPECT_EQ(bootstrap::nodes_of(*member, 2), (Nodes{0, 0, 1, 1, 2}));
  EXPECT_EQ(bootstrap::nodes_of(*member, 5), (Nodes{0, 0, 0, 0, 0}));
}

}  // namespace
}  // namespace heddle::transport::choice_test
