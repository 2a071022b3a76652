// Session queues on the emulator: chains of ranks that forward without a call of the ranks between,
// runs that overlap, and errors. In strict mode the emulator ends the job if credits are left over
// when a queue is freed.
#include "transport/session.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/test_support.hpp"
#include "bootstrap/inproc/inproc.hpp"
#include "transport/utofu/utofu.hpp"

namespace heddle::transport::utofu::session_test {
namespace {

using Overrides = base::Config::Overrides;

class Side {
 public:
  Side(bootstrap::inproc::ThreadJob& job, std::uint32_t rank, Overrides variables = {},
       base::Level level = base::Level::error) {
    variables.insert({"HEDDLE_LIBRARIES", "utofu=" HEDDLE_TOFUCOM});
    variables.insert({"HEDDLE_MAX_WORKERS", "1"});
    auto config = base::Config::read(variables);
    EXPECT_TRUE(config.ok()) << base::last_message();
    environment_.config = *config;
    environment_.log = base::Log(level, rank);
    environment_.clock = &clock_;
    bootstrap_ = std::move(*bootstrap::inproc::open(job, rank));
    auto transport = open(*bootstrap_, environment_);
    EXPECT_TRUE(transport.ok()) << base::last_message();
    if (transport) transport_ = std::move(*transport);
  }
  [[nodiscard]] SessionQueues* sessions() { return transport_->sessions(); }

 private:
  base::SystemClock clock_;
  base::Environment environment_;
  std::unique_ptr<bootstrap::Bootstrap> bootstrap_;
  std::unique_ptr<Transport> transport_;
};

// `count` queues without a link.
std::vector<std::uint32_t> queues(std::size_t count) {
  return std::vector<std::uint32_t>(count, SessionQueues::kAnyLink);
}

// One rank of a chain. Queue 0: segments, released by their arrival. Queue 1, not in the last rank:
// credits when the successor is ready. The root sends when its successor is ready, so its queue 1
// gives credits to its queue 0.
class Link {
 public:
  Link(Side& side, std::uint32_t rank, std::uint32_t ranks, std::uint32_t segments, std::size_t bytes)
      : rank_(rank), ranks_(ranks), segments_(segments), memory_(segments * bytes), bytes_(bytes) {
    auto opened = side.sessions()->open(queues(last() ? 1 : 2), memory_);
    EXPECT_TRUE(opened.ok()) << base::last_message();
    if (opened) session_ = std::move(*opened);
  }

  [[nodiscard]] Session& session() { return *session_; }
  [[nodiscard]] bool root() const { return rank_ == 0; }
  [[nodiscard]] bool last() const { return rank_ + 1 == ranks_; }

  void bind(Link* previous, Link* next) {
    std::vector<SessionCommand> commands;
    const SessionKey mine = session_->key(0);
    const SessionKey onward = next != nullptr ? next->session_->key(0) : SessionKey{};
    const SessionKey back = previous != nullptr ? previous->session_->key(1) : SessionKey{};
    for (std::uint32_t i = 0; i < segments_; ++i) {
      const std::uint64_t at = i * bytes_;
      commands.push_back(last() ? SessionCommand{0} : SessionCommand{0, &onward, at, at, bytes_, 1});
    }
    if (root()) release(&mine, &commands);
    if (!root()) commands.push_back({last() ? SessionCommand::kFreeQueue : 1, &back, 0, 0, 0, previous->reports()});
    ASSERT_EQ(session_->bind(commands), HEDDLE_DONE) << base::last_message();
  }

  void fill(std::uint64_t run) {
    for (std::size_t i = 0; i < memory_.size(); ++i) memory_[i] = root() ? expected(run, i) : std::byte{0};
  }
  [[nodiscard]] bool right(std::uint64_t run) const {
    for (std::size_t i = 0; i < memory_.size(); ++i)
      if (memory_[i] != expected(run, i)) return false;
    return true;
  }

 private:
  static std::byte expected(std::uint64_t run, std::size_t i) {
    return static_cast<std::byte>((run * 29 + i * 3 + (i >> 8U)) & 0xffU);
  }
  // Credits that a ready successor gives: to the root as many as it has puts to itself.
  [[nodiscard]] std::uint32_t reports() const { return root() ? (segments_ + 14) / 15 : 1; }
  void release(const SessionKey* mine, std::vector<SessionCommand>* commands) const {
    for (std::uint32_t left = segments_; left > 0;) {
      const std::uint32_t credits = std::min(left, 15U);
      commands->push_back({1, mine, 0, 0, 0, credits});
      left -= credits;
    }
  }

  const std::uint32_t rank_;
  const std::uint32_t ranks_;
  const std::uint32_t segments_;
  std::vector<std::byte> memory_;
  const std::size_t bytes_;
  std::unique_ptr<Session> session_;
};

class Chain {
 public:
  Chain(std::uint32_t ranks, std::uint32_t segments, std::size_t bytes, const Overrides& variables = {}) : job_(ranks) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      sides_.push_back(std::make_unique<Side>(job_, rank, variables));
      links_.push_back(std::make_unique<Link>(*sides_.back(), rank, ranks, segments, bytes));
    }
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      links_[rank]->bind(rank > 0 ? links_[rank - 1].get() : nullptr,
                         rank + 1 < ranks ? links_[rank + 1].get() : nullptr);
  }
  [[nodiscard]] std::vector<std::unique_ptr<Link>>& links() { return links_; }
  [[nodiscard]] Link& last() { return *links_.back(); }

 private:
  bootstrap::inproc::ThreadJob job_;
  std::vector<std::unique_ptr<Side>> sides_;
  std::vector<std::unique_ptr<Link>> links_;
};

bool ends(Session& session) {
  base::Status status = HEDDLE_AGAIN;
  return test::within_time([&] { return (status = session.poll()) != HEDDLE_AGAIN; }) && status == HEDDLE_DONE;
}

// Only the last rank polls before it is done: the others could compute meanwhile.
TEST(UtofuSession, TheLastOneReceivesThoughNobodyElseCallsAnything) {
  for (const std::uint32_t ranks : {2U, 3U, 5U}) {
    for (const std::uint32_t segments : {1U, 2U, 30U}) {
      Chain chain(ranks, segments, 3000);
      for (std::uint64_t run = 1; run <= 10; ++run) {
        for (auto& link : chain.links()) link->fill(run);
        // In another order each time: a rank that starts early has commands that wait, and a rank
        // that starts late has credits that were kept.
        std::vector<std::size_t> order(ranks);
        std::iota(order.begin(), order.end(), run % ranks);
        for (const std::size_t i : order) chain.links()[i % ranks]->session().start();
        ASSERT_TRUE(ends(chain.last().session())) << base::last_message();
        ASSERT_TRUE(chain.last().right(run)) << ranks << " ranks, " << segments << " segments, run " << run;
        for (auto& link : chain.links()) {
          ASSERT_TRUE(ends(link->session())) << base::last_message();
          ASSERT_TRUE(link->right(run));
          ASSERT_EQ(link->session().poll(), HEDDLE_DONE);  // and it stays done
        }
      }
    }
  }
}

TEST(UtofuSession, ARankThatIsARunAheadWaits) {
  Chain chain(3, 4, 5000);
  for (auto& link : chain.links()) link->fill(1);
  for (auto& link : chain.links()) link->session().start();
  ASSERT_TRUE(ends(chain.last().session()));
  // The last rank starts again before the others have seen the end of the previous run.
  chain.last().fill(2);
  chain.last().session().start();
  EXPECT_EQ(chain.last().session().poll(), HEDDLE_AGAIN);
  for (std::size_t i : {1U, 0U}) {
    ASSERT_TRUE(ends(chain.links()[i]->session()));
    chain.links()[i]->fill(2);
  }
  chain.links()[1]->session().start();
  EXPECT_EQ(chain.links()[1]->session().poll(), HEDDLE_AGAIN);
  chain.links()[0]->session().start();
  for (auto& link : chain.links()) {
    ASSERT_TRUE(ends(link->session()));
    EXPECT_TRUE(link->right(2));
  }
}

// The setting says 1024, the emulator has 64 or 32 slots here: the message says how to set it.
TEST(UtofuSession, ADepthThatIsNotSoIsTold) {
  for (const bool right : {false, true}) {
    bootstrap::inproc::ThreadJob job(1);
    Side side(job, 0, right ? Overrides{{"HEDDLE_UTOFU_SESSIONS", "depth=16"}} : Overrides{}, base::Level::warn);
    auto opened = side.sessions()->open(queues(1), {});
    ASSERT_TRUE(opened.ok()) << base::last_message();
    const SessionKey key = (*opened)->key(0);
    std::vector<SessionCommand> commands(right ? 16 : 200, SessionCommand{0});
    commands.insert(commands.end(), commands.size(), {SessionCommand::kFreeQueue, &key, 0, 0, 0, 1});
    ASSERT_EQ((*opened)->bind(commands), HEDDLE_DONE) << base::last_message();
    testing::internal::CaptureStderr();
    (*opened)->start();
    EXPECT_TRUE(ends(**opened)) << base::last_message();
    const std::string told = testing::internal::GetCapturedStderr();
    EXPECT_EQ(told.find("HEDDLE_UTOFU_SESSIONS=depth") != std::string::npos, !right) << told;
  }
}

// More commands than there are slots: polls post the rest. The emulator has 64 or 32 slots here.
TEST(UtofuSession, CommandsThatHaveNoRoomFollow) {
  Chain chain(3, 200, 64);
  for (std::uint64_t run = 1; run <= 3; ++run) {
    for (auto& link : chain.links()) link->fill(run);
    for (auto& link : chain.links()) link->session().start();
    ASSERT_TRUE(test::within_time([&] {
      bool all = true;
      for (auto& link : chain.links()) all = link->session().poll() == HEDDLE_DONE && all;
      return all;
    })) << base::last_message();
    for (auto& link : chain.links()) ASSERT_TRUE(link->right(run));
  }
}

TEST(UtofuSession, QueuesAreGivenBack) {
  bootstrap::inproc::ThreadJob job(1);
  Side side(job, 0);
  std::vector<std::byte> memory(64);
  std::size_t most = 0;
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<Session>> open;
    for (;;) {
      auto opened = side.sessions()->open(queues(1), memory);
      if (!opened) {
        EXPECT_EQ(opened.status(), HEDDLE_ERR_NO_MEMORY) << base::last_message();
        break;
      }
      open.push_back(std::move(*opened));
    }
    EXPECT_GT(open.size(), 4U);
    EXPECT_TRUE(round == 0 || open.size() == most);
    most = open.size();
    open.pop_back();
    EXPECT_FALSE(side.sessions()->open(queues(2), memory).ok());  // and keeps nothing
    EXPECT_TRUE(side.sessions()->open(queues(1), memory).ok());
  }
}

TEST(UtofuSession, AsManyAsAllowed) {
  bootstrap::inproc::ThreadJob job(1);
  Side side(job, 0, {{"HEDDLE_UTOFU_SESSIONS", "2"}});
  EXPECT_TRUE(side.sessions()->open(queues(2), {}).ok());
  EXPECT_EQ(side.sessions()->open(queues(3), {}).status(), HEDDLE_ERR_NO_MEMORY);
  EXPECT_TRUE(side.sessions()->open(queues(2), {}).ok());
}

// The bytes that each TNI has carried show where the queues are: link i is on TNI i, and so is link
// i + 6.
TEST(UtofuSession, EachLinkHasATniOfItsOwn) {
  constexpr std::uint32_t kTnis = 6;
  bootstrap::inproc::ThreadJob job(1);
  Side side(job, 0);
  EXPECT_EQ(side.sessions()->limits().spread_bytes, 65'536U);
  void* library = dlopen(HEDDLE_TOFUCOM, RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto carried = reinterpret_cast<std::uint64_t (*)(unsigned)>(dlsym(library, "utofu_emu_put_bytes"));
  ASSERT_NE(carried, nullptr) << dlerror();
  const std::vector<std::uint32_t> links = {SessionQueues::kAnyLink, 5, 10, 3, 2, 1, 0};
  const auto bytes_of = [](std::uint32_t tni) { return std::uint64_t{1000} * (tni + 1); };
  std::vector<std::byte> memory(2 * bytes_of(kTnis));
  auto opened = side.sessions()->open(links, memory);
  ASSERT_TRUE(opened.ok()) << base::last_message();
  std::vector<SessionKey> keys;
  for (std::uint32_t queue = 0; queue < links.size(); ++queue) keys.push_back((*opened)->key(queue));
  std::vector<SessionCommand> commands;
  for (std::uint32_t queue = 1; queue < links.size(); ++queue) {
    commands.push_back({SessionCommand::kFreeQueue, &keys[queue], 0, 0, 0, 1});
    commands.push_back({queue, keys.data(), 0, bytes_of(kTnis), bytes_of(links[queue] % kTnis), 1});
    commands.push_back({0});
  }
  ASSERT_EQ((*opened)->bind(commands), HEDDLE_DONE) << base::last_message();
  std::array<std::uint64_t, kTnis> before{};
  for (std::uint32_t tni = 0; tni < kTnis; ++tni) before[tni] = carried(tni);
  (*opened)->start();
  ASSERT_TRUE(ends(**opened)) << base::last_message();
  for (std::uint32_t tni = 0; tni < kTnis; ++tni) {
    const std::uint64_t bytes = carried(tni) - before[tni];
    EXPECT_GE(bytes, bytes_of(tni)) << "TNI " << tni;
    EXPECT_LE(bytes, bytes_of(tni) + 8 * kTnis) << "TNI " << tni << ": more than the credits alone";
  }
  dlclose(library);
}

TEST(UtofuSession, NothingIsSpreadWhereThatIsNotWanted) {
  bootstrap::inproc::ThreadJob job(1);
  EXPECT_EQ(Side(job, 0, {{"HEDDLE_UTOFU_SPREAD_BYTES", "0"}}).sessions()->limits().spread_bytes,
            SessionQueues::Limits::kNever);
}

TEST(UtofuSession, ThereAreNoneWhereNotWanted) {
  bootstrap::inproc::ThreadJob job(1);
  EXPECT_EQ(Side(job, 0, {{"HEDDLE_UTOFU_SESSIONS", "0"}}).sessions(), nullptr);
  bootstrap::inproc::ThreadJob other(1);
  EXPECT_EQ(Side(other, 0, {{"HEDDLE_UTOFU_SINGLE_THREAD", "1"}}).sessions(), nullptr);
}

TEST(UtofuSession, WhatIsNotSoIsRefused) {
  bootstrap::inproc::ThreadJob job(1);
  Side side(job, 0);
  std::vector<std::byte> memory(100);
  auto opened = side.sessions()->open(queues(2), memory);
  ASSERT_TRUE(opened.ok()) << base::last_message();
  Session& session = **opened;
  const SessionKey key = session.key(0);
  SessionKey forged = key;
  forged.bytes[8] ^= std::byte{1};
  const auto bind = [&](const SessionCommand& command) { return session.bind({&command, 1}); };
  EXPECT_EQ(bind({0, &forged, 0, 0, 8, 1}), HEDDLE_ERR_PROTOCOL);
  EXPECT_EQ(bind({0, &key, 93, 0, 8, 1}), HEDDLE_ERR_RANGE);
  EXPECT_EQ(bind({0, &key, 0, 93, 8, 1}), HEDDLE_ERR_RANGE);
  EXPECT_EQ(bind({0, &key, ~0ULL, 0, 8, 1}), HEDDLE_ERR_RANGE);
  EXPECT_EQ(bind({0, &key, 0, ~0ULL, 8, 1}), HEDDLE_ERR_RANGE);
  EXPECT_EQ(bind({0, &key, 0, 0, 8, 16}), HEDDLE_ERR_RANGE);
  EXPECT_EQ(bind({2, &key, 0, 0, 8, 1}), HEDDLE_ERR_RANGE);
  EXPECT_EQ(bind({SessionCommand::kFreeQueue, &key, 92, 92, 8, 0}), HEDDLE_DONE) << base::last_message();
  EXPECT_EQ(session.poll(), HEDDLE_DONE);
}

// Data from the free queue, whose VCQ many Sessions share.
TEST(UtofuSession, TheFreeQueueIsFree) {
  bootstrap::inproc::ThreadJob job(1);
  Side side(job, 0);
  constexpr std::size_t kSessions = 4;
  std::vector<std::vector<std::byte>> memory(kSessions, std::vector<std::byte>(2048));
  std::vector<std::unique_ptr<Session>> sessions;
  for (std::size_t i = 0; i < kSessions; ++i) {
    auto opened = side.sessions()->open(queues(1), memory[i]);
    ASSERT_TRUE(opened.ok()) << base::last_message();
    sessions.push_back(std::move(*opened));
    const SessionKey key = sessions.back()->key(0);
    const SessionCommand commands[] = {{SessionCommand::kFreeQueue, &key, 0, 1024, 1000, 1}, {0}};
    ASSERT_EQ(sessions.back()->bind(commands), HEDDLE_DONE) << base::last_message();
  }
  for (unsigned run = 1; run <= 20; ++run) {
    for (std::size_t i = 0; i < kSessions; ++i) {
      std::memset(memory[i].data(), static_cast<int>(run + i), 1000);
      sessions[i]->start();
    }
    for (std::size_t i = kSessions; i-- > 0;) {
      ASSERT_TRUE(ends(*sessions[i])) << base::last_message();
      ASSERT_EQ(std::memcmp(memory[i].data(), memory[i].data() + 1024, 1000), 0);
    }
  }
}

// Two Sessions at once have more commands in their free queues than the common VCQ has slots.
TEST(UtofuSession, TheFreeQueueGoesInPieces) {
  bootstrap::inproc::ThreadJob job(1);
  Side side(job, 0);
  constexpr std::uint64_t kCommands = 300;
  std::vector<std::vector<std::byte>> memory(2, std::vector<std::byte>(2 * kCommands));
  std::vector<std::unique_ptr<Session>> sessions;
  for (std::vector<std::byte>& its : memory) {
    auto opened = side.sessions()->open(queues(1), its);
    ASSERT_TRUE(opened.ok()) << base::last_message();
    sessions.push_back(std::move(*opened));
    const SessionKey key = sessions.back()->key(0);
    std::vector<SessionCommand> commands;
    for (std::uint64_t i = 0; i < kCommands; ++i)
      commands.push_back({SessionCommand::kFreeQueue, &key, i, kCommands + i, 1, 1});
    commands.insert(commands.end(), kCommands, SessionCommand{0});
    ASSERT_EQ(sessions.back()->bind(commands), HEDDLE_DONE) << base::last_message();
  }
  for (unsigned run = 1; run <= 3; ++run) {
    for (std::size_t i = 0; i < sessions.size(); ++i) {
      for (std::size_t at = 0; at < kCommands; ++at) memory[i][at] = static_cast<std::byte>(run + i + at);
      sessions[i]->start();
    }
    ASSERT_TRUE(test::within_time([&] {
      bool all = true;
      for (auto& session : sessions) all = session->poll() == HEDDLE_DONE && all;
      return all;
    })) << base::last_message();
    for (const std::vector<std::byte>& its : memory)
      ASSERT_EQ(std::memcmp(its.data(), its.data() + kCommands, kCommands), 0);
  }
}

// A run that never ends: queue, commands and memory stay with the NIC, and the process ends as
// usual.
TEST(UtofuSession, WhatIsLeftStays) {
  bootstrap::inproc::ThreadJob job(1);
  Side side(job, 0);
  // Is never freed, not even at the end of the process: commands that the NIC still holds may put
  // into it.
  static auto& memory = *new std::vector<std::byte>(64);
  auto opened = side.sessions()->open(queues(2), memory);
  ASSERT_TRUE(opened.ok()) << base::last_message();
  // The source of the free queue's put is registered with the common VCQ, which stays, too.
  const SessionKey key = (*opened)->key(1);
  const SessionCommand commands[] = {{0}, {SessionCommand::kFreeQueue, &key, 0, 32, 8, 1}, {1}};
  ASSERT_EQ((*opened)->bind(commands), HEDDLE_DONE);
  (*opened)->start();
  EXPECT_EQ((*opened)->poll(), HEDDLE_AGAIN);
  (*opened)->leave();
}

}  // namespace
}  // namespace heddle::transport::utofu::session_test
