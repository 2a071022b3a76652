// Threads that wait, as a debugger finds them: from the directory on.
#include "worker/inspection.hpp"

#include <gtest/gtest.h>

#include <string>

#include "engine/handles.hpp"

// NOLINTNEXTLINE(readability-identifier-naming): the library's name for it
extern "C" heddle::tap::DebugDirectory heddle_debug_directory;

namespace heddle::worker::debug_board_test {
namespace {

using tap::DebugWait;
using tap::DebugWaiting;

std::size_t count(const tap::DebugContext& context, DebugWaiting waiting) {
  std::size_t found = 0;
  for (const DebugWait* wait = context.waits; wait != nullptr; wait = wait->next) found += wait->waits == waiting;
  return found;
}

TEST(DebugBoard, IsInTheDirectoryWhileItLives) {
  const tap::DebugContext* const before = heddle_debug_directory.contexts;
  {
    DebugBoard board;
    EXPECT_EQ(heddle_debug_directory.contexts, before);
    board.begin(3, 8);
    board.name(42);
    const tap::DebugContext* const shown = heddle_debug_directory.contexts;
    ASSERT_NE(shown, before);
    EXPECT_EQ(shown->rank, 3U);
    EXPECT_EQ(shown->size, 8U);
    EXPECT_EQ(shown->handle, 42U);
    EXPECT_EQ(shown->next, before);
    const DebugBoard never_begun;
    EXPECT_EQ(heddle_debug_directory.contexts, shown);
  }
  EXPECT_EQ(heddle_debug_directory.contexts, before);
}

TEST(DebugBoard, ARowLastsAsLongAsItsWaitAndIsUsedAgain) {
  DebugBoard board;
  board.begin(0, 1);
  const tap::DebugContext& shown = *heddle_debug_directory.contexts;
  {
    DebugBoard::Row first = board.enter(100);
    first.begin("heddle_recv_wait", 2);
    DebugBoard::Row second = board.enter(101);
    second.begin(nullptr, tap::kNobody);
    EXPECT_EQ(count(shown, DebugWaiting::yes), 2U);
    EXPECT_STREQ(shown.waits->call.data(), "a loop of the program");
    // As in a vector from which the first is erased.
    first = std::move(second);
    EXPECT_EQ(count(shown, DebugWaiting::yes), 2U);
    first.returned();
    EXPECT_EQ(count(shown, DebugWaiting::returned), 1U);
    first.resumed();
    EXPECT_EQ(count(shown, DebugWaiting::yes), 2U);
  }
  EXPECT_EQ(count(shown, DebugWaiting::yes), 0U);
  const DebugBoard::Row again = board.enter(102);
  std::size_t rows = 0;
  for (const DebugWait* wait = shown.waits; wait != nullptr; wait = wait->next) ++rows;
  EXPECT_EQ(rows, 2U);
}

TEST(DebugBoard, LongTextsAreCutAndFewThingsKept) {
  DebugBoard board;
  board.begin(0, 1);
  const tap::DebugContext& shown = *heddle_debug_directory.contexts;
  DebugBoard::Row row = board.enter(100);
  row.begin("call", 0);
  tap::Wait wait;
  wait.call = std::string(1000, 'c');
  wait.awaited = std::string(1000, 'a');
  wait.things.resize(10);
  for (tap::Awaited& thing : wait.things) thing.what = std::string(1000, 'w');
  row.tell(wait, 5);
  EXPECT_EQ(std::string(shown.waits->call.data()), std::string(shown.waits->call.size() - 1, 'c'));
  EXPECT_EQ(std::string(shown.waits->awaited.data()), std::string(shown.waits->awaited.size() - 1, 'a'));
  EXPECT_EQ(shown.waits->thing_count, DebugWait::kMostThings);
  EXPECT_EQ(shown.waits->told_ns, 5U);
  row.begin("another", 0);
  EXPECT_EQ(shown.waits->told_ns, 0U);
  EXPECT_EQ(shown.waits->thing_count, 0U);
}

}  // namespace
}  // namespace heddle::worker::debug_board_test
