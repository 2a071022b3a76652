#include "tools/run/interests.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace heddle::tools::run::interests_test {
namespace {

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe(ends.data()), 0);
    read.reset(ends[0]);
    write.reset(ends[1]);
  }
  void fill() const { EXPECT_EQ(::write(write.get(), "x", 1), 1); }
  void drain() const {
    char byte = 0;
    EXPECT_EQ(::read(read.get(), &byte, 1), 1);
  }
  base::Fd read;
  base::Fd write;
};

std::vector<std::uint32_t> ready(Interests& interests) {
  const auto now = interests.ready();
  std::vector<std::uint32_t> sorted(now.begin(), now.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

using Numbers = std::vector<std::uint32_t>;

TEST(Interests, TellsWhichAreReadyUntilTheyAreNot) {
  Interests interests;
  ASSERT_EQ(interests.open(3), HEDDLE_DONE);
  const Pipe first;
  const Pipe second;
  ASSERT_EQ(interests.set(0, first.read.get(), POLLIN), HEDDLE_DONE);
  ASSERT_EQ(interests.set(2, second.read.get(), POLLIN), HEDDLE_DONE);
  EXPECT_EQ(ready(interests), Numbers{});
  first.fill();
  second.fill();
  EXPECT_EQ(ready(interests), (Numbers{0, 2}));
  EXPECT_EQ(ready(interests), (Numbers{0, 2})) << "nobody has read";
  first.drain();
  EXPECT_EQ(ready(interests), Numbers{2});
  pollfd whole{interests.fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&whole, 1, 0), 1);
  second.drain();
  EXPECT_EQ(::poll(&whole, 1, 0), 0);
}

TEST(Interests, OneThatIsNotWaitedForSaysNothingEvenAtItsEnd) {
  Interests interests;
  ASSERT_EQ(interests.open(1), HEDDLE_DONE);
  Pipe pipe;
  ASSERT_EQ(interests.set(0, pipe.read.get(), POLLIN), HEDDLE_DONE);
  pipe.fill();
  ASSERT_EQ(interests.set(0, pipe.read.get(), 0), HEDDLE_DONE);
  ASSERT_EQ(interests.set(0, pipe.read.get(), 0), HEDDLE_DONE) << "again";
  pipe.write.reset();
  EXPECT_EQ(ready(interests), Numbers{}) << "its end would be told for ever";
  ASSERT_EQ(interests.set(0, pipe.read.get(), POLLIN), HEDDLE_DONE);
  EXPECT_EQ(ready(interests), Numbers{0});
}

TEST(Interests, OtherEventsReplaceThoseBefore) {
  Interests interests;
  ASSERT_EQ(interests.open(1), HEDDLE_DONE);
  const Pipe pipe;
  ASSERT_EQ(interests.set(0, pipe.write.get(), POLLIN), HEDDLE_DONE);
  EXPECT_EQ(ready(interests), Numbers{});
  ASSERT_EQ(interests.set(0, pipe.write.get(), POLLIN | POLLOUT), HEDDLE_DONE);
  EXPECT_EQ(ready(interests), Numbers{0});
  ASSERT_EQ(interests.set(0, pipe.write.get(), POLLIN), HEDDLE_DONE);
  EXPECT_EQ(ready(interests), Numbers{});
}

TEST(Interests, AClosedOneIsForgottenThoughItsNumberIsUsedAgain) {
  Interests interests;
  ASSERT_EQ(interests.open(2), HEDDLE_DONE);
  Pipe first;
  ASSERT_EQ(interests.set(0, first.read.get(), POLLIN), HEDDLE_DONE);
  const int number = first.read.get();
  first.read.reset();
  const Pipe second;
  ASSERT_EQ(::dup2(second.read.get(), number), number);
  const base::Fd again(number);
  ASSERT_EQ(interests.set(1, number, POLLIN), HEDDLE_DONE);
  ASSERT_EQ(interests.set(0, -1, 0), HEDDLE_DONE);
  second.fill();
  EXPECT_EQ(ready(interests), Numbers{1});
}

// A child that has not come to its exec holds copies of all descriptors, so the kernel does not
// forget one that is closed here.
TEST(Interests, AClosedOneOfWhichAChildHoldsACopySaysNothing) {
  Interests interests;
  ASSERT_EQ(interests.open(3), HEDDLE_DONE);
  Pipe closed;
  Pipe other;
  const Pipe quiet;
  ASSERT_EQ(interests.set(0, closed.read.get(), POLLIN), HEDDLE_DONE);
  ASSERT_EQ(interests.set(1, other.read.get(), POLLIN), HEDDLE_DONE);
  ASSERT_EQ(interests.set(2, quiet.write.get(), POLLIN), HEDDLE_DONE);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    for (;;) ::pause();
  }
  closed.fill();
  closed.read.reset();
  ASSERT_EQ(interests.set(0, -1, 0), HEDDLE_DONE);
  EXPECT_EQ(ready(interests), Numbers{});
  pollfd whole{interests.fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&whole, 1, 0), 0) << "who waits for it is woken on and on";
  other.fill();
  EXPECT_EQ(ready(interests), Numbers{1}) << "the others are as they were";
  ASSERT_EQ(interests.set(2, quiet.write.get(), POLLOUT), HEDDLE_DONE);
  EXPECT_EQ(ready(interests), (Numbers{1, 2}));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST(Interests, AnErrorIsTold) {
  Interests interests;
  ASSERT_EQ(interests.open(1), HEDDLE_DONE);
  EXPECT_EQ(interests.set(0, 1'000'000, POLLIN), HEDDLE_ERR_SYSTEM);
}

}  // namespace
}  // namespace heddle::tools::run::interests_test
