// Tests the calls that the way by session queues makes to an interface, and when its memory may be
// reused. The test provides the interface.
#include "collective/session_offload.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "collective/assembly.hpp"

namespace heddle::collective::session_offload_test {
namespace {

// The history of a session; the session may be destroyed already.
struct Seen {
  std::vector<std::uint32_t> links;
  std::vector<transport::SessionCommand> commands;
  int starts = 0;
  bool left = false;
  bool gone = false;
  base::Status answer = HEDDLE_AGAIN;  // of poll()
};

class Session final : public transport::Session {
 public:
  explicit Session(Seen& seen) : seen_(seen) {}
  ~Session() override { seen_.gone = true; }
  [[nodiscard]] transport::SessionKey key(std::uint32_t queue) const override {
    transport::SessionKey key;
    key.bytes[0] = std::byte{static_cast<std::uint8_t>(queue + 1)};
    return key;
  }
  base::Status bind(std::span<const transport::SessionCommand> commands) override {
    seen_.commands.assign(commands.begin(), commands.end());
    for (const transport::SessionCommand& command : commands) {
      EXPECT_TRUE(command.target == nullptr || command.target->bytes[0] != std::byte{0});
    }
    return HEDDLE_DONE;
  }
  void start() override { ++seen_.starts; }
  base::Status poll() override { return seen_.answer; }
  void leave() override { seen_.left = true; }

 private:
  Seen& seen_;
};

class Queues final : public transport::SessionQueues {
 public:
  explicit Queues(std::uint32_t most) : most_(most) {}
  [[nodiscard]] Limits limits() const override { return {64, 15, 1 << 20}; }
  base::Result<std::unique_ptr<transport::Session>> open(std::span<const std::uint32_t> links,
                                                         std::span<std::byte>) override {
    if (links.size() > most_) return base::fail(HEDDLE_ERR_NO_MEMORY, "there are %u queues", most_);
    seen.links.assign(links.begin(), links.end());
    return std::unique_ptr<transport::Session>(std::make_unique<Session>(seen));
  }
  Seen seen;

 private:
  const std::uint32_t most_;
};

Schedule chain(Rank rank) {
  const AlgorithmRequest request{Operation::broadcast, rank, 3, 0, 256, 1, 64, {0, 0, 0}};
  return broadcast_chain_session(request);
}

// The records of all members, as each of them tells rank `told`.
std::vector<SetupRecord> records_of(const SessionOffload& offload, Rank told) {
  std::vector<SetupRecord> records(3);
  for (SetupRecord& record : records) offload.tell(told, &record);
  return records;
}

TEST(SessionOffload, IsThereOnlyWhereTheInterfaceHasWhatItTakes) {
  std::array<std::byte, 256> receive{};
  EXPECT_EQ(SessionOffload::open(nullptr, chain(1), receive), nullptr);
  Queues none(0);
  EXPECT_EQ(SessionOffload::open(&none, chain(1), receive), nullptr);
  Queues many(16);
  const AlgorithmRequest other{Operation::allgather, 1, 3, 0, 64, 1, 0, {0, 0, 0}};
  EXPECT_EQ(SessionOffload::open(&many, allgather_bruck(other), receive), nullptr);
  EXPECT_NE(SessionOffload::open(&many, chain(1), receive), nullptr);
}

TEST(SessionOffload, GivesTheInterfaceOneCommandForEachOfTheSchedule) {
  std::array<std::byte, 256> receive{};
  Queues queues(16);
  const Schedule schedule = chain(1);
  const auto offload = SessionOffload::open(&queues, schedule, receive);
  ASSERT_NE(offload, nullptr);
  EXPECT_TRUE(offload->offloaded());
  ASSERT_EQ(offload->bind(schedule, records_of(*offload, 1)), HEDDLE_DONE);
  ASSERT_EQ(queues.seen.commands.size(), schedule.commands.size());
  for (std::size_t i = 0; i < schedule.commands.size(); ++i) {
    const bool puts = schedule.commands[i].action == Action::put;
    EXPECT_EQ(queues.seen.commands[i].target != nullptr, puts);
    EXPECT_EQ(queues.seen.commands[i].bytes, puts ? schedule.commands[i].source.bytes : 0U);
  }
}

TEST(SessionOffload, RunsWhileNobodyIsNeeded) {
  std::array<std::byte, 256> receive{};
  Queues queues(16);
  const auto offload = SessionOffload::open(&queues, chain(2), receive);
  ASSERT_NE(offload, nullptr);
  for (int run = 1; run <= 3; ++run) {
    queues.seen.answer = HEDDLE_AGAIN;
    offload->start();
    EXPECT_EQ(queues.seen.starts, run);
    EXPECT_FALSE(offload->advance());
    EXPECT_FALSE(offload->done());
    queues.seen.answer = HEDDLE_DONE;
    EXPECT_TRUE(offload->advance());
    EXPECT_TRUE(offload->done());
    EXPECT_EQ(offload->status(), HEDDLE_DONE);
  }
  EXPECT_EQ(offload->runs(), 3U);
}

TEST(SessionOffload, ARunThatTheInterfaceFailsIsTheLast) {
  std::array<std::byte, 256> receive{};
  Queues queues(16);
  const auto offload = SessionOffload::open(&queues, chain(1), receive);
  ASSERT_NE(offload, nullptr);
  queues.seen.answer = HEDDLE_ERR_PROTOCOL;
  offload->start();
  EXPECT_TRUE(offload->advance());
  EXPECT_EQ(offload->status(), HEDDLE_ERR_PROTOCOL);
  offload->start();
  EXPECT_TRUE(offload->advance());
  EXPECT_EQ(offload->status(), HEDDLE_ERR_PROTOCOL);
}

struct End {
  const char* what;
  Runner::Past past;
  bool leaves;
  Runner::Memory memory;
};

TEST(SessionOffload, LeavesToTheInterfaceWhatMembersMayReach) {
  constexpr bool kNo = false;
  constexpr bool kYes = true;
  // never, agreed, rejected, ran, whole
  const End ends[] = {
      {"nobody was told", {kYes, kNo, kNo, kNo, kYes}, false, Runner::Memory::now},
      {"all were told that nobody runs it", {kNo, kYes, kYes, kNo, kYes}, false, Runner::Memory::now},
      {"all runs have ended", {kNo, kYes, kNo, kYes, kYes}, false, Runner::Memory::now},
      {"all runs have ended here, a member has died", {kNo, kYes, kNo, kYes, kNo}, true, Runner::Memory::now},
      {"a run has not ended", {kNo, kYes, kNo, kNo, kNo}, true, Runner::Memory::now},
      {"it is not known what others do", {kNo, kNo, kNo, kNo, kNo}, true, Runner::Memory::never},
  };
  for (const End& end : ends) {
    std::array<std::byte, 256> receive{};
    Queues queues(16);
    auto offload = SessionOffload::open(&queues, chain(1), receive);
    ASSERT_NE(offload, nullptr);
    EXPECT_EQ(offload->retire(end.past), end.memory) << end.what;
    EXPECT_EQ(queues.seen.left, end.leaves) << end.what;
    offload.reset();
    EXPECT_TRUE(queues.seen.gone) << end.what;
  }
}

}  // namespace
}  // namespace heddle::collective::session_offload_test
