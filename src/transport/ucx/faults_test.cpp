// Tests the reports of puts when UCX reports errors, or a peer's worker is closed: a failed put is
// never DONE. UCX's faults come from faulty_ucp.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "transport/test/conformance.hpp"
#include "transport/test/ucx_available.hpp"
#include "transport/test/ucx_faulty.hpp"

namespace heddle::transport::ucx::faults_test {
namespace {

using conformance::message_to;
using conformance::pattern;
using conformance::Setting;
using conformance::World;

// The functions of the library that the transport loads.
struct Faults {
  void* library = dlopen(HEDDLE_FAULTY_UCP, RTLD_NOW | RTLD_NODELETE);
  decltype(&::faulty_ucp_fail_put) fail_put = find<decltype(&::faulty_ucp_fail_put)>("faulty_ucp_fail_put");
  decltype(&::faulty_ucp_hold_flushes) hold_flushes =
      find<decltype(&::faulty_ucp_hold_flushes)>("faulty_ucp_hold_flushes");
  decltype(&::faulty_ucp_held) held = find<decltype(&::faulty_ucp_held)>("faulty_ucp_held");
  decltype(&::faulty_ucp_break) break_held = find<decltype(&::faulty_ucp_break)>("faulty_ucp_break");

 private:
  template <class Function>
  [[nodiscard]] Function find(const char* name) const {
    void* const symbol = library != nullptr ? dlsym(library, name) : nullptr;
    EXPECT_NE(symbol, nullptr) << name;
    return reinterpret_cast<Function>(symbol);
  }
};

Setting setting() {
  return {"tcp",
          "ucx",
          {{"HEDDLE_UCX_TLS", "tcp"},
           {"HEDDLE_NETWORK_WINDOW_BYTES", "24K"},
           {"HEDDLE_LIBRARIES", "ucx=" HEDDLE_FAULTY_UCP}}};
}

// Rank 0, and memory of rank 1 that it puts to. Its worker 0 is connected to worker 0 of rank 1.
class UcxFaults : public testing::Test {
 protected:
  static constexpr std::size_t kBytes = 64;

  void SetUp() override {
    if (const std::string why = why_no_ucx(); !why.empty()) GTEST_SKIP() << why;
    faults_.emplace();
    world_.emplace(setting(), 2, 2);
    auto target = world_->transport(1).allocate(2 * kBytes);
    ASSERT_TRUE(target.ok()) << base::last_message();
    target_ = *target;
    auto memory = world_->transport(0).import(1, target_.key);
    ASSERT_TRUE(memory.ok()) << base::last_message();
    memory_ = *memory;
    ASSERT_EQ(world_->run(port(), put(0)), HEDDLE_DONE);
  }
  void TearDown() override {
    if (!world_) return;
    faults_->hold_flushes(false);
    world_->transport(0).release(memory_);
    world_->transport(1).free(target_);
  }

  conformance::Port& port() { return world_->port(0); }
  // A put to one half of the memory.
  Command put(std::size_t half) {
    Command command;
    command.opcode = Opcode::put;
    command.rank = 1;
    command.remote = &memory_;
    command.offset = half * kBytes;
    command.local = data_.data() + half * kBytes;
    command.bytes = kBytes;
    return command;
  }
  // A put that waits for its flush, which is held, and one behind that flush.
  void post_behind_a_flush(Token* flushed, Token* behind) {
    faults_->hold_flushes(true);
    *flushed = world_->must_post(port(), put(0));
    ASSERT_NE(*flushed, 0U);
    ASSERT_TRUE(world_->until([this] { return faults_->held() == 1; }));
    *behind = world_->must_post(port(), put(1));
    ASSERT_NE(*behind, 0U);
    ASSERT_FALSE(port().done(*flushed) || port().done(*behind));
  }

  std::optional<Faults> faults_;
  std::optional<World> world_;
  LocalMemory target_;
  RemoteMemory memory_;
  std::vector<std::byte> data_ = pattern(5, 2 * kBytes);
};

// The flush that follows such a put goes well, before or after UCX reports the error.
TEST_F(UcxFaults, APutThatUcxEndsWithAnErrorFails) {
  for (const bool flushed_later : {false, true}) {
    faults_->hold_flushes(flushed_later);
    faults_->fail_put(UCS_ERR_NO_MEMORY);
    Command command = put(1);
    command.wants_source_free = true;
    const Token token = world_->must_post(port(), command);
    ASSERT_NE(token, 0U);
    ASSERT_TRUE(world_->until([&] { return port().source_free(token); }));
    EXPECT_FALSE(flushed_later && port().done(token));
    faults_->hold_flushes(false);
    ASSERT_TRUE(world_->until([&] { return port().done(token); }));
    EXPECT_EQ(port().status(token), HEDDLE_ERR_NO_MEMORY);
  }
  EXPECT_EQ(world_->run(port(), put(1)), HEDDLE_DONE) << "the next one";
  EXPECT_EQ(std::memcmp(target_.address, data_.data(), data_.size()), 0);
}

// A flush says nothing of puts that were posted after it, and no other flush follows on a broken
// connection.
TEST_F(UcxFaults, APutBehindTheFlushOfABrokenConnectionFails) {
  Token flushed = 0;
  Token behind = 0;
  post_behind_a_flush(&flushed, &behind);
  faults_->break_held();
  ASSERT_TRUE(world_->until([&] { return port().done(flushed) && port().done(behind); }));
  EXPECT_EQ(port().status(flushed), HEDDLE_DONE) << "its flush ends well when the connection is closed";
  EXPECT_EQ(port().status(behind), HEDDLE_ERR_PEER_FAILED);
}

// Rank 0 learns that the worker is closed when it sends it more than its window.
TEST_F(UcxFaults, PutsToAWorkerThatClosesAreFlushed) {
  Token flushed = 0;
  Token behind = 0;
  post_behind_a_flush(&flushed, &behind);
  world_->close_port(1, 0);
  ASSERT_TRUE(world_->until([this] { return port().worker().closed({1, 0}); }));
  const std::vector<std::byte> payload = pattern(3, 4096);
  ASSERT_TRUE(test::within_time([&] {
    const Token message = port().post_one(message_to(1, 0, payload));
    if (message == 0) port().poll();
    return message != 0 && port().done(message);  // dropped at once
  })) << "it was never taken for closed";
  ASSERT_FALSE(port().done(flushed) || port().done(behind));
  faults_->hold_flushes(false);
  ASSERT_TRUE(world_->until([&] { return port().done(flushed) && port().done(behind); }));
  EXPECT_EQ(port().status(flushed), HEDDLE_DONE);
  EXPECT_EQ(port().status(behind), HEDDLE_DONE);
  EXPECT_EQ(std::memcmp(target_.address, data_.data(), data_.size()), 0);
}

// As a worker does that is closed while its own transfers do not end.
TEST_F(UcxFaults, AClosedWorkerWhoseConnectionBreaksIsNoLostRank) {
  Token flushed = 0;
  Token behind = 0;
  post_behind_a_flush(&flushed, &behind);
  world_->close_port(1, 0);
  ASSERT_TRUE(world_->until([this] { return port().worker().closed({1, 0}); }));
  faults_->break_held();
  ASSERT_TRUE(world_->until([&] { return port().done(flushed) && port().done(behind); }));
  EXPECT_EQ(port().status(flushed), HEDDLE_DONE) << "its flush ends well when the connection is closed";
  EXPECT_EQ(port().status(behind), HEDDLE_ERR_PEER_FAILED);
  faults_->hold_flushes(false);
  EXPECT_TRUE(port().worker().closed({1, 0}));
  const std::vector<std::byte> payload = pattern(3, 8);
  EXPECT_EQ(world_->run(port(), message_to(1, 0, payload)), HEDDLE_DONE) << "messages to a closed worker are lost";
  EXPECT_EQ(world_->run(port(), put(1)), HEDDLE_ERR_PEER_FAILED);
  EXPECT_EQ(world_->run(port(), message_to(1, 1, payload)), HEDDLE_DONE) << "its other worker goes on";
  EXPECT_EQ(world_->transport(0).lost(1), 0U);
}

// The error of a put comes before UCX says that the connection is broken.
TEST_F(UcxFaults, APutThatFailsWithAClosedWorkerIsNoLossOfItsRank) {
  world_->close_port(1, 0);
  ASSERT_TRUE(world_->until([this] { return port().worker().closed({1, 0}); }));
  faults_->fail_put(UCS_ERR_CONNECTION_RESET);
  EXPECT_EQ(world_->run(port(), put(1)), HEDDLE_ERR_PEER_FAILED);
  EXPECT_EQ(world_->run(port(), message_to(1, 1, pattern(3, 8))), HEDDLE_DONE) << "its other worker goes on";
  EXPECT_EQ(world_->transport(0).lost(1), 0U);
}

}  // namespace
}  // namespace heddle::transport::ucx::faults_test
