// The door of this very process: a thread serves it, others ask. Guests that do not behave are
// played over plain sockets.
#include "bootstrap/local/door.hpp"

#include "tap/ask.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <thread>

namespace heddle::bootstrap::local::door_test {
namespace {

constexpr int kLongMs = 60'000;  // more than anything takes

// A guest that does as the test says.
class Guest {
 public:
  Guest() : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const tap::DoorName name(::getpid());
    EXPECT_EQ(::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&name.address), name.length), 0);
  }
  void say(const std::string& text) const {
    static_cast<void>(::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL));
  }
  // Until the door has ended the connection.
  std::string hear() const {
    std::string all;
    for (;;) {
      pollfd readable{socket_.get(), POLLIN, 0};
      EXPECT_EQ(::poll(&readable, 1, kLongMs), 1) << "the door keeps the guest";
      std::array<char, 4096> bytes{};
      const ssize_t got = ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (got <= 0) return all;
      all.append(bytes.data(), static_cast<std::size_t>(got));
    }
  }
  void leave() { socket_.reset(); }

 private:
  base::Fd socket_;
};

// The test serves the door itself, or lets a thread do it.
class DoorTest : public testing::Test {
 protected:
  ~DoorTest() override { stop(); }

  void open() {
    auto opened = Door::open([this](std::string_view request, Door::Answer told) {
      requests_.emplace_back(request);
      if (keeps_) {
        kept_.push_back(std::move(told));
      } else {
        told(answer_.empty() ? "you said " + std::string(request) : answer_);
      }
    });
    ASSERT_TRUE(opened) << base::last_message();
    door_ = std::move(*opened);
  }
  // Serves everything that has come.
  void serve() {
    for (int rounds = 0; rounds < 1000; ++rounds) {
      pollfd readable{door_->fd(), POLLIN, 0};
      if (::poll(&readable, 1, 0) != 1) return;
      door_->serve();
    }
    ADD_FAILURE() << "the door wants to be served for ever";
  }
  void serve_in_thread() {
    server_ = std::thread([this] {
      while (!ends_.load()) {
        pollfd readable{door_->fd(), POLLIN, 0};
        if (::poll(&readable, 1, 5) == 1) door_->serve();
      }
    });
  }
  void stop() {
    ends_.store(true);
    if (server_.joinable()) server_.join();
    ends_.store(false);
  }
  // The door still works.
  void expect_well() {
    keeps_ = false;
    answer_.clear();
    const Guest guest;
    guest.say("well?\n");
    serve();
    EXPECT_EQ(guest.hear(), "you said well?");
  }

  std::unique_ptr<Door> door_;
  std::vector<std::string> requests_;
  std::vector<Door::Answer> kept_;
  bool keeps_ = false;  // the answers are given later
  std::string answer_;
  std::thread server_;
  std::atomic<bool> ends_{false};
};

TEST_F(DoorTest, WhoAsksIsAnswered) {
  open();
  serve_in_thread();
  for (const char* request : {"hang", "", "ranks 1 2"}) {
    const auto answer = tap::ask_door(::getpid(), request, kLongMs);
    ASSERT_TRUE(answer) << base::last_message();
    EXPECT_EQ(*answer, std::string("you said ") + request);
  }
  stop();
  EXPECT_EQ(requests_.size(), 3U);
}

TEST_F(DoorTest, SeveralAskAtOnce) {
  open();
  serve_in_thread();
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([i] {
      for (int j = 0; j < 20; ++j) {
        const std::string request = std::to_string(i) + ' ' + std::to_string(j);
        const auto answer = tap::ask_door(::getpid(), request, kLongMs);
        EXPECT_TRUE(answer && *answer == "you said " + request);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(DoorTest, IsFoundWhileItIsOpen) {
  const auto found = [] {
    const std::vector<pid_t> all = tap::find_doors();
    EXPECT_TRUE(std::ranges::is_sorted(all));
    return std::ranges::count(all, ::getpid());
  };
  EXPECT_EQ(found(), 0);
  open();
  EXPECT_EQ(found(), 1);
  const Guest guest;
  serve();
  EXPECT_EQ(found(), 1) << "connections have the same name";
  door_.reset();
  EXPECT_EQ(found(), 0);
}

TEST_F(DoorTest, AProcessHasOne) {
  open();
  EXPECT_EQ(Door::open([](std::string_view, const Door::Answer&) {}).status(), HEDDLE_ERR_SYSTEM);
  expect_well();
  door_.reset();
  open();
  expect_well();
}

TEST_F(DoorTest, ALongAnswerArrivesWhole) {
  open();
  for (std::size_t i = 0; answer_.size() < 1'000'000; ++i) answer_ += std::to_string(i) + '\n';
  serve_in_thread();
  const auto answer = tap::ask_door(::getpid(), "hang", kLongMs);
  ASSERT_TRUE(answer) << base::last_message();
  EXPECT_TRUE(*answer == answer_) << answer->size() << " of " << answer_.size() << " bytes";
}

TEST_F(DoorTest, AnAnswerMayComeLater) {
  open();
  keeps_ = true;
  const Guest first;
  const Guest second;
  first.say("1\n");
  second.say("2\n");
  serve();
  ASSERT_EQ(kept_.size(), 2U);
  const bool in_order = requests_[0] == "1";
  kept_[in_order ? 1 : 0]("the second");
  serve();
  EXPECT_EQ(second.hear(), "the second");
  kept_[in_order ? 0 : 1]("the first");
  serve();
  EXPECT_EQ(first.hear(), "the first");
}

TEST_F(DoorTest, ARequestMayComeInPieces) {
  open();
  const Guest guest;
  for (const char* piece : {"ha", "", "n", "g\n"}) {
    guest.say(piece);
    serve();
  }
  EXPECT_EQ(guest.hear(), "you said hang");
}

TEST_F(DoorTest, TooLongARequestIsNotHeard) {
  open();
  const Guest guest;
  for (int i = 0; i < 30; ++i) guest.say(std::string(10, 'x'));
  guest.say("\n");
  serve();
  EXPECT_EQ(guest.hear(), "");
  EXPECT_TRUE(requests_.empty());
  expect_well();
}

TEST_F(DoorTest, GarbageIsARequestAsAnyOther) {
  open();
  const Guest guest;
  std::string garbage;
  for (int i = 0; i < 200; ++i) garbage.push_back(static_cast<char>(i == '\n' ? 0 : 200 - i));
  std::ranges::replace(garbage, '\n', '\0');
  guest.say(garbage + '\n');
  serve();
  EXPECT_EQ(guest.hear(), "you said " + garbage);
  expect_well();
}

TEST_F(DoorTest, ASecondRequestEndsTheConnection) {
  open();
  keeps_ = true;
  Guest guest;
  guest.say("one\n");
  serve();
  guest.say("two\n");
  serve();
  EXPECT_EQ(guest.hear(), "");
  EXPECT_EQ(requests_, std::vector<std::string>{"one"});
  kept_.front()("for nobody");
  serve();
  expect_well();
}

TEST_F(DoorTest, OfTwoRequestsAtOnceTheFirstIsAnswered) {
  open();
  const Guest guest;
  guest.say("one\ntwo\n");
  serve();
  EXPECT_EQ(guest.hear(), "you said one");
  EXPECT_EQ(requests_, std::vector<std::string>{"one"});
  expect_well();
}

TEST_F(DoorTest, AnAnswerForAGuestThatHasGoneIsDropped) {
  open();
  keeps_ = true;
  for (const bool served : {true, false}) {
    Guest guest;
    guest.say("hang\n");
    serve();
    guest.leave();
    if (served) serve();
    kept_.back()(std::string(1 << 20, 'x'));
    serve();
  }
  EXPECT_EQ(kept_.size(), 2U);
  expect_well();
}

TEST_F(DoorTest, AGuestThatLeavesInTheMidstOfAnAnswerHarmsNobody) {
  open();
  answer_.assign(4 << 20, 'x');
  Guest guest;
  guest.say("hang\n");
  serve();
  guest.leave();
  serve();
  expect_well();
}

TEST_F(DoorTest, AnAnswerMayComeAfterTheDoorHasClosed) {
  open();
  keeps_ = true;
  const Guest guest;
  guest.say("hang\n");
  serve();
  ASSERT_EQ(kept_.size(), 1U);
  door_.reset();
  kept_.front()("too late");
  EXPECT_EQ(guest.hear(), "");
}

// A guest that keeps its slot and says nothing makes room for others.
TEST_F(DoorTest, ManyGuestsThatSayNothingKeepNobodyOut) {
  open();
  std::vector<std::unique_ptr<Guest>> silent;
  for (int i = 0; i < 200; ++i) {
    silent.push_back(std::make_unique<Guest>());
    serve();
  }
  EXPECT_EQ(silent.front()->hear(), "");
  expect_well();
  silent.clear();
  serve();
  expect_well();
}

// A guest that connects while this process may have no more descriptors is accepted later.
// Meanwhile the door does not ask to be served for ever.
TEST_F(DoorTest, AGuestThatFindsNoDescriptorWaits) {
  open();
  const Guest early;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const base::Fd next(::dup(0));
  ASSERT_TRUE(next.valid());
  rlimit few = before;
  few.rlim_cur = static_cast<rlim_t>(next.get());  // no larger number is free, nor this one
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  early.say("early\n");
  serve();
  EXPECT_TRUE(requests_.empty());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  expect_well();
  EXPECT_EQ(early.hear(), "you said early");
}

TEST_F(DoorTest, WhereThereIsNoneNobodyAnswers) {
  EXPECT_EQ(tap::ask_door(::getpid(), "hang", kLongMs).status(), HEDDLE_ERR_BOOTSTRAP);
  EXPECT_NE(std::string(base::last_message()).find("watches no job"), std::string::npos) << base::last_message();
}

TEST_F(DoorTest, WhoIsNotServedDoesNotWaitForEver) {
  open();
  EXPECT_EQ(tap::ask_door(::getpid(), "hang", 20).status(), HEDDLE_ERR_TIMEOUT);
  keeps_ = true;
  std::thread asker([] { EXPECT_EQ(tap::ask_door(::getpid(), "hang", 20).status(), HEDDLE_ERR_TIMEOUT); });
  asker.join();
  serve();
  expect_well();
}

// A child that was only forked does not keep the door open.
TEST_F(DoorTest, EndsWithTheProcessThatHasOpenedIt) {
  open();
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    char byte = 'r';
    ::_exit(::write(ends[1], &byte, 1) == 1 && ::read(ends[1], &byte, 1) == 0 ? 0 : 1);
  }
  ::close(ends[1]);
  char byte = 0;
  EXPECT_EQ(::read(ends[0], &byte, 1), 1) << "it runs";
  door_.reset();
  EXPECT_EQ(std::ranges::count(tap::find_doors(), ::getpid()), 0);
  EXPECT_EQ(tap::ask_door(::getpid(), "hang", 20).status(), HEDDLE_ERR_BOOTSTRAP);
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace heddle::bootstrap::local::door_test
