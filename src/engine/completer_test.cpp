// The completer and its table of protocols, over a transport that is played: no protocol but a
// double.
#include "engine/completer.hpp"

#include <string>

#include "engine/test_core.hpp"

namespace heddle::engine::completer_test {
namespace {

class Double final : public Protocol {
 public:
  [[nodiscard]] bool arrived(heddle_peer source, std::uint32_t immediate, std::span<const std::byte> packet) override {
    log += "arrived " + std::to_string(source.rank) + " " + std::to_string(packet.size()) + ";";
    last_immediate = immediate;
    return understands;
  }
  bool advance(bool* more) override {
    log += "advance;";
    *more = *more || --rounds > 0;
    return true;
  }
  void note_failures() override { log += "failures;"; }
  void begin_cancel() override { log += "begin;"; }
  void cancel(base::Status status) override {
    log += status == HEDDLE_ERR_CANCELLED ? "cancel;" : "cancel with another status;";
  }
  void failed(const Operation&) override { log += "failed;"; }
  void ended(Operation&) override { log += "ended;"; }

  std::string log;
  std::uint32_t last_immediate = 0;
  bool understands = true;
  int rounds = 1;
};

class CompleterTest : public test::PlayedCore {
 protected:
  CompleterTest() {
    completer.add(wire::row_of(wire::Kind::request), first);
    completer.add(wire::row_of(wire::Kind::reply), first);
    completer.add(wire::kExtensionRow, second);
  }
  Double first;
  Double second;
  Double numbered;  // with no row
};

TEST_F(CompleterTest, HandsArrivalsToTheProtocolOfTheirRow) {
  const std::uint64_t word = 7;
  played.arrive(1, wire::immediate_of(wire::Kind::reply), &word, 8);
  played.arrive(1, wire::kExtension, &word, 3);
  EXPECT_EQ(progress(), 2);
  EXPECT_EQ(first.log, "arrived 1 8;");
  EXPECT_EQ(first.last_immediate, wire::immediate_of(wire::Kind::reply));
  EXPECT_EQ(second.log, "arrived 1 3;");
  EXPECT_EQ(core.stats.dropped, 0U);
}

TEST_F(CompleterTest, EachNumberHasARowOfItsOwn) {
  const std::uint32_t last = wire::kExtensions - 1;
  completer.add(wire::row_of(wire::extension(last)), numbered);
  played.arrive(1, wire::extension(last), nullptr, 0);
  played.arrive(1, wire::extension(0), nullptr, 0);
  EXPECT_EQ(progress(), 2);
  EXPECT_EQ(numbered.log, "arrived 1 0;");
  EXPECT_EQ(second.log, "arrived 1 0;");
  played.arrive(1, wire::extension(1), nullptr, 0);                  // nobody's
  played.arrive(1, wire::extension(wire::kExtensions), nullptr, 0);  // no number: a part
  EXPECT_EQ(progress(), 2);
  EXPECT_EQ(core.stats.dropped, 2U);
  EXPECT_EQ(completer.at(wire::row_of(wire::extension(last))), &numbered);
  EXPECT_EQ(completer.at(wire::row_of(wire::extension(1))), nullptr);
}

TEST_F(CompleterTest, DropsWhatNobodyUnderstands) {
  const std::uint64_t word = 7;
  first.understands = false;
  played.arrive(1, wire::immediate_of(wire::Kind::request), &word, 8);
  played.arrive(1, wire::immediate_of(wire::Kind::tagged), &word, 8);  // has no row here
  played.arrive(1, 6U << wire::kKindShift, &word, 8);                  // of no kind
  played.arrive(1, 0, &word, 8);
  EXPECT_EQ(progress(), 4);
  EXPECT_EQ(core.stats.dropped, 4U);
}

TEST_F(CompleterTest, AdvancesProtocolsAsLongAsTheyWantIt) {
  EXPECT_EQ(progress(), 0);
  EXPECT_EQ(first.log + second.log, "");
  first.rounds = 3;
  core.want_advance();
  core.want_advance();
  for (int i = 0; i < 6; ++i) static_cast<void>(progress());
  EXPECT_EQ(first.log, "advance;advance;advance;") << "once for each call, though it has two rows";
  EXPECT_EQ(second.log, first.log);
  EXPECT_FALSE(completer.under_way());
}

TEST_F(CompleterTest, TellsProtocolsOfFailuresOnce) {
  static_cast<void>(inproc.fail(1));
  for (int i = 0; i < 3; ++i) static_cast<void>(progress());
  EXPECT_EQ(first.log, "failures;");
  EXPECT_TRUE(core.failed[1]);
  EXPECT_EQ(played.failed, (std::vector<std::uint32_t>{1}));
}

TEST_F(CompleterTest, CancelsBetweenTheTwoWordsToProtocols) {
  played.done_at_once = false;
  heddle_status told = HEDDLE_AGAIN;
  const CallersCompletion completion{
      [](void* arg, heddle_status status) { *static_cast<heddle_status*>(arg) = status; }, &told, nullptr,
      HEDDLE_WHEN_REMOTE};
  ASSERT_EQ(core.requester.try_message({1, 0}, wire::immediate_of(wire::Kind::request), {}, {}, completion),
            HEDDLE_POSTED);
  Operation* const operation = core.operations.find(played.posted.at(0).token);
  ASSERT_NE(operation, nullptr);
  operation->owner = &first;
  completer.cancel_all(HEDDLE_ERR_CANCELLED);
  EXPECT_EQ(first.log, "begin;failed;ended;cancel;");
  EXPECT_EQ(told, HEDDLE_ERR_CANCELLED);
  EXPECT_FALSE(completer.under_way());
}

// ---- commands of which nobody is told -----------------------------------------------------------

TEST_F(CompleterTest, WhatNobodyIsToldOfIsCountedUntilItsEnd) {
  played.done_at_once = false;
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(core.requester.try_message({1, 0}, wire::encode_am(1, 0), {}, {}, kNoCompletion), HEDDLE_POSTED);
  }
  EXPECT_EQ(core.operations.under_way(), 3U);
  EXPECT_FALSE(core.operations.full());
  for (const Operation& operation : core.operations.slots()) EXPECT_FALSE(operation.live);
  EXPECT_EQ(core.operations.flush(0), HEDDLE_DONE) << "of another rank";
  EXPECT_EQ(core.operations.flush(1), HEDDLE_AGAIN);
  EXPECT_EQ(core.operations.quiet(), HEDDLE_AGAIN);
  for (const auto& posted : played.posted) played.complete(posted.token);
  EXPECT_EQ(progress(), 3);
  EXPECT_EQ(core.operations.quiet(), HEDDLE_DONE);
}

TEST_F(CompleterTest, AnErrorOfWhatNobodyIsToldOfIsTheFlushsToTell) {
  played.done_at_once = false;
  ASSERT_EQ(core.requester.try_message({1, 0}, wire::encode_am(1, 0), {}, {}, kNoCompletion), HEDDLE_POSTED);
  played.complete(played.posted[0].token, HEDDLE_ERR_NO_MEMORY);
  EXPECT_EQ(progress(), 1);
  EXPECT_EQ(core.operations.failed(), 1U);
  EXPECT_EQ(core.operations.flush(1), HEDDLE_ERR_NO_MEMORY);
  EXPECT_NE(std::string(base::last_message()).find("rank 1"), std::string::npos);
  EXPECT_EQ(core.operations.flush(1), HEDDLE_DONE) << "told once";
}

TEST_F(CompleterTest, AnEndThatComesAfterTheCancellingIsOfNothing) {
  played.done_at_once = false;
  ASSERT_EQ(core.requester.try_message({1, 0}, wire::encode_am(1, 0), {}, {}, kNoCompletion), HEDDLE_POSTED);
  completer.cancel_all(HEDDLE_ERR_CANCELLED);
  EXPECT_EQ(core.operations.under_way(), 0U);
  EXPECT_EQ(core.operations.failed(), 1U);
  played.complete(played.posted[0].token);
  static_cast<void>(progress());
  EXPECT_EQ(core.operations.under_way(), 0U);
}

// Callbacks that run while everything is cancelled may post again, into slots that were passed.
TEST_F(CompleterTest, WhatCallbacksPostWhileAllIsCancelledIsCancelledWithTheNext) {
  played.done_at_once = false;
  struct Again {
    Core* core;
    int told = 0;
    static void ended(void* arg, heddle_status status) {
      auto* self = static_cast<Again*>(arg);
      EXPECT_EQ(status, HEDDLE_ERR_CANCELLED);
      if (++self->told <= 2) {
        EXPECT_EQ(self->post(), HEDDLE_POSTED);
      }
    }
    base::Status post() {
      const CallersCompletion completion{ended, this, nullptr, HEDDLE_WHEN_REMOTE};
      return core->requester.try_message({1, 0}, wire::encode_am(1, 0), {}, {}, completion);
    }
  } again{&core};
  ASSERT_EQ(again.post(), HEDDLE_POSTED);
  ASSERT_EQ(again.post(), HEDDLE_POSTED);
  ASSERT_EQ(core.requester.try_message({1, 0}, wire::encode_am(1, 0), {}, {}, kNoCompletion), HEDDLE_POSTED);
  completer.cancel_all(HEDDLE_ERR_CANCELLED);
  EXPECT_EQ(core.operations.under_way(), static_cast<std::uint32_t>(4 - again.told));
  completer.cancel_all(HEDDLE_ERR_CANCELLED);
  EXPECT_EQ(again.told, 4);
  EXPECT_EQ(core.operations.under_way(), 0U);
  EXPECT_EQ(core.operations.under_way_to(1), 0U);
  EXPECT_EQ(core.operations.failed(), 5U);
}

TEST_F(CompleterTest, ABatchIsPostedAsFarAsThereIsRoom) {
  played.room = 2;
  played.done_at_once = false;
  std::vector<transport::Command> batch(4);
  const std::uint64_t word = 5;
  for (transport::Command& command : batch) {
    command.rank = 1;
    command.immediate = wire::encode_am(1, 0);
    command.set_message(nullptr, 0, &word, 8);
    ASSERT_TRUE(Requester::prepare(command));
  }
  EXPECT_EQ(core.requester.post(batch), 2U);
  EXPECT_EQ(core.operations.under_way_to(1), 2U);
}

}  // namespace
}  // namespace heddle::engine::completer_test
