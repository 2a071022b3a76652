// The verbs transport over the idle libibverbs: what adapters tell of themselves.
#include <infiniband/verbs.h>

#include "transport/test/verbs_fixtures.hpp"

namespace heddle::transport::verbs::verbs_events_test {
namespace {

class VerbsEvents : public Verbs {
 protected:
  // An adapter reports an event: number `adapter` of those that rank `rank` has opened, in a world
  // whose ranks have `adapters` each.
  void tell(std::uint32_t rank, int type, std::uint32_t adapter = 0, std::uint32_t adapters = 1) {
    told_ += tell_event_(rank * adapters + adapter, type) ? 1 : 0;
  }
  [[nodiscard]] bool all_read() const { return idle_->events - before_ == told_; }

  // Without progress of others.
  [[nodiscard]] static bool ends(conformance::Port& port, Token token) {
    return test::within_time([&] { return port.done(token); }, [&] { port.poll(); });
  }

 private:
  std::uint64_t before_ = idle_->events;
  std::uint64_t told_ = 0;
};

// Requests under way end, and so do new ones and those that wait for a connection.
TEST_F(VerbsEvents, AnAdapterThatFailsEndsWhatIsOverIt) {
  World world(setting({{"HEDDLE_NETWORK_TIMEOUT", "0"}}), 3);
  Memory memory(world);
  conformance::Port& port = world.port(0);
  ASSERT_EQ(world.run(port, memory.put()), HEDDLE_DONE);
  idle_->holds = true;
  const Token put = world.must_post(port, memory.put());
  const Token waits = world.must_post(port, message_to(1, 3, pattern(1, 8)));
  ASSERT_NE(put, 0U);
  ASSERT_NE(waits, 0U);
  tell(0, IBV_EVENT_DEVICE_FATAL);
  for (const Token token : {put, waits}) {
    ASSERT_TRUE(ends(port, token));
    EXPECT_EQ(port.status(token), HEDDLE_ERR_PEER_FAILED);
  }
  EXPECT_NE(world.transport(0).lost(1), 0U);
  EXPECT_EQ(world.run(port, message_to(2, 0, pattern(1, 8))), HEDDLE_ERR_PEER_FAILED);
  EXPECT_THROW(world.open_port(0), std::runtime_error);
  release();
  EXPECT_TRUE(all_read());
}

// The helper is busy with notes that nobody acknowledges.
TEST_F(VerbsEvents, AnAdapterThatFailsEndsWhatWaitsForNotes) {
  World world(setting({{"HEDDLE_NETWORK_TIMEOUT", "0"}}), 2);
  idle_->cut = true;
  const Token waits = world.must_post(world.port(0), message_to(1, 0, pattern(1, 8)));
  ASSERT_NE(waits, 0U);
  pump_for(world, std::chrono::milliseconds(100));
  tell(0, IBV_EVENT_DEVICE_FATAL);
  ASSERT_TRUE(ends(world.port(0), waits));
  EXPECT_EQ(world.port(0).status(waits), HEDDLE_ERR_PEER_FAILED);
}

TEST_F(VerbsEvents, WhoSleepsLearnsThatItsAdapterHasFailed) {
  World world(setting({{"HEDDLE_NETWORK_TIMEOUT", "0"}}), 2);
  conformance::Port& port = world.port(1);
  ASSERT_EQ(world.run(world.port(0), message_to(1, 0, pattern(1, 8))), HEDDLE_DONE);
  ASSERT_TRUE(world.until([&] { return port.arrivals.size() == 1; }));
  ASSERT_TRUE(world.until([&] { return port.worker().arm(); }));
  tell(1, IBV_EVENT_DEVICE_FATAL);
  EXPECT_TRUE(test::within_time([&] { return port.worker().has_arrivals(); }));
  EXPECT_TRUE(test::within_time([&] { return world.transport(1).lost(0) != 0; }, [&] { port.poll(); }));
}

// If one of two adapters fails, nothing ends that goes over the other; the peers of the failed one
// are told.
TEST_F(VerbsEvents, TheOtherAdapterGoesOn) {
  World world(setting({{"HEDDLE_NET_DEVICES", "idle0,idle1"}}), 2, 2);
  for (std::uint32_t worker = 0; worker < 2; ++worker)
    ASSERT_EQ(world.run(world.port(0, worker), message_to(1, worker, pattern(1, 8))), HEDDLE_DONE);
  tell(0, IBV_EVENT_DEVICE_FATAL, 1, 2);
  EXPECT_TRUE(world.until([&] { return world.transport(0).lost(1) != 0; }));
  EXPECT_EQ(world.run(world.port(0, 1), message_to(1, 1, pattern(1, 8))), HEDDLE_ERR_PEER_FAILED);
  EXPECT_EQ(world.run(world.port(0, 0), message_to(1, 0, pattern(1, 8))), HEDDLE_DONE);
  EXPECT_TRUE(world.until([&] { return world.transport(1).lost(0) != 0; }));
  EXPECT_EQ(world.run(world.port(1, 0), message_to(0, 0, pattern(1, 8))), HEDDLE_DONE);
}

// A shared receive queue: its worker hears nothing any more.
TEST_F(VerbsEvents, AQueueThatFailsEndsWhatItsWorkerHas) {
  World world(setting(), 2, 2);
  for (std::uint32_t worker = 0; worker < 2; ++worker)
    ASSERT_EQ(world.run(world.port(0, worker), message_to(1, 0, pattern(1, 8))), HEDDLE_DONE);
  tell(0, IBV_EVENT_SRQ_ERR);
  EXPECT_TRUE(world.until([&] { return world.transport(0).lost(1) != 0; }));
  EXPECT_EQ(world.run(world.port(0, 0), message_to(1, 0, pattern(1, 8))), HEDDLE_ERR_PEER_FAILED);
  EXPECT_EQ(world.run(world.port(0, 1), message_to(1, 0, pattern(1, 8))), HEDDLE_DONE);
}

// They are read while nobody polls, and end nothing.
TEST_F(VerbsEvents, OtherEventsAreOnlyTold) {
  World world(setting(), 2);
  ASSERT_EQ(world.run(world.port(0), message_to(1, 0, pattern(1, 8))), HEDDLE_DONE);
  for (const int type : {IBV_EVENT_PORT_ERR, IBV_EVENT_PORT_ACTIVE, IBV_EVENT_LID_CHANGE, IBV_EVENT_GID_CHANGE,
                         IBV_EVENT_SM_CHANGE, IBV_EVENT_CLIENT_REREGISTER}) {
    for (std::uint32_t rank = 0; rank < 2; ++rank) tell(rank, type);
  }
  EXPECT_TRUE(test::within_time([&] { return all_read(); }));
  EXPECT_EQ(world.run(world.port(0), message_to(1, 0, pattern(1, 8))), HEDDLE_DONE);
  EXPECT_EQ(world.transport(0).lost(1) + world.transport(1).lost(0), 0U);
}

}  // namespace
}  // namespace heddle::transport::verbs::verbs_events_test
