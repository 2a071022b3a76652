// Structures with a size: those of older and newer headers are accepted, impossible sizes are
// refused.
#include "api/arguments.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>

#include "api/test_job.hpp"

namespace heddle::test::sized_options_test {
namespace {

// A structure as a later header may have it: this version's, with more at its end.
template <class Options>
struct Newer {
  Options known{};
  std::uint64_t more[3] = {};
};

void expect_refused(Status status, const char* words) {
  EXPECT_EQ(status, HEDDLE_ERR_ARGUMENT);
  EXPECT_NE(std::string(heddle_last_error()).find(words), std::string::npos) << heddle_last_error();
}

TEST(Options, OfANewerProgramAreAcceptedIfTheyAskForNothingNew) {
  Newer<heddle_context_options> join;
  join.known.size = sizeof join;
  heddle_context context{};
  ASSERT_EQ(heddle_context_join(&join.known, &context), HEDDLE_DONE) << heddle_last_error();
  const Context owner(context);
  Newer<heddle_worker_options> open;
  open.known.size = sizeof open;
  heddle_worker handle{};
  ASSERT_EQ(heddle_worker_open(context, &open.known, &handle), HEDDLE_DONE) << heddle_last_error();
  const Worker worker(handle);
  Newer<heddle_counter_options> create;
  create.known.size = sizeof create;
  create.known.worker = handle;
  heddle_counter counter{};
  ASSERT_EQ(heddle_counter_create(context, &create.known, &counter), HEDDLE_DONE) << heddle_last_error();
  const Counter counter_owner(counter);

  Newer<heddle_region_options> keep;
  keep.known.size = sizeof keep;
  std::uint64_t word = 0;
  heddle_region region{};
  ASSERT_EQ(heddle_region_register_with(context, &word, sizeof word, &keep.known, &region), HEDDLE_DONE)
      << heddle_last_error();
  EXPECT_EQ(heddle_region_release(region), HEDDLE_DONE);

  open.more[2] = 1;
  expect_refused(heddle_worker_open(context, &open.known, &handle),
                 ("byte " + std::to_string(sizeof(heddle_worker_options) + 16) + " is set").c_str());
  keep.more[1] = 1;
  expect_refused(heddle_region_register_with(context, &word, sizeof word, &keep.known, &region), "does not know");
  create.more[0] = 1;
  expect_refused(heddle_counter_create(context, &create.known, &counter), "does not know");
  join.more[1] = 1;
  expect_refused(heddle_context_join(&join.known, &context), "does not know");
}

// The size claims memory that does not exist: it must not be read.
TEST(Options, OfASizeThatNoVersionHasAreRefused) {
  const Context context = Context::join();
  heddle_worker handle{};
  for (const std::size_t size : {SIZE_MAX, SIZE_MAX - 7, std::size_t{1} << 40, api::kMostOptions + 8}) {
    const heddle_worker_options open{size, HEDDLE_SHARING_DEFAULT, 0, HEDDLE_CHOICE_DEFAULT, nullptr, 0};
    expect_refused(heddle_worker_open(context.handle(), &open, &handle), "no version has more");
    heddle_worker_stats stats{};
    stats.size = size;
    const Worker worker = context.open_worker();
    expect_refused(heddle_worker_stats_read(worker.handle(), &stats), "no version has more");
  }
  // Half of a pointer is none.
  heddle_context_options join{};
  join.size = sizeof join - 3;
  join.progress = "none";
  heddle_context other{};
  expect_refused(heddle_context_join(&join, &other), "inside a field");
}

TEST(Options, SmallerThanTheFirstVersionAreRefused) {
  const Context context = Context::join();
  heddle_worker worker{};
  heddle_worker_options open{
      api::kFirstWorkerOptions - 1, HEDDLE_SHARING_DEFAULT, 0, HEDDLE_CHOICE_DEFAULT, nullptr, 0};
  expect_refused(heddle_worker_open(context.handle(), &open, &worker), "size 15");
  heddle_counter counter{};
  const heddle_counter_options create{0, {}, 0};
  expect_refused(heddle_counter_create(context.handle(), &create, &counter), "size 0");
  open.size = api::kFirstWorkerOptions;
  ASSERT_EQ(heddle_worker_open(context.handle(), &open, &worker), HEDDLE_DONE);
  EXPECT_EQ(heddle_worker_close(worker), HEDDLE_DONE);
}

TEST(Options, OfAnOlderProgramTakeTheDefaults) {
  struct Grown {  // a second version of {size, first}
    std::size_t size;
    std::uint64_t first;
    std::uint64_t second;
  };
  Grown own{0, 1, 2};
  // Two of them, so that a compiler that cannot see the size need not fear for what lies behind the
  // first.
  const std::array<Grown, 2> older{{{16, 10, 99}, {}}};
  ASSERT_EQ(api::read_options("grown options", older.data(), 16, &own), HEDDLE_DONE);
  EXPECT_EQ(own.first, 10U);
  EXPECT_EQ(own.second, 2U) << "the default, not what lies behind the older structure";
  EXPECT_EQ(own.size, sizeof own);
  const Grown* none = nullptr;
  ASSERT_EQ(api::read_options("grown options", none, 16, &own), HEDDLE_DONE);
  EXPECT_EQ(own.first, 10U);
}

TEST(Stats, FillWhatTheCallerHas) {
  const Context context = Context::join();
  const Worker worker = context.open_worker();
  static_cast<void>(heddle_worker_progress(worker.handle()));
  Newer<heddle_worker_stats> newer;
  newer.known.size = sizeof newer;
  newer.more[0] = newer.more[2] = 7;
  ASSERT_EQ(heddle_worker_stats_read(worker.handle(), &newer.known), HEDDLE_DONE) << heddle_last_error();
  EXPECT_EQ(newer.known.size, sizeof newer);
  EXPECT_EQ(newer.known.polls, 1U);
  EXPECT_EQ(newer.more[0] + newer.more[2], 0U) << "this version counts nothing there";
  heddle_worker_stats small{};
  small.size = api::kFirstWorkerStats - 8;
  expect_refused(heddle_worker_stats_read(worker.handle(), &small), "size 88");
  small.size = 100;  // ends inside a field
  expect_refused(heddle_worker_stats_read(worker.handle(), &small), "size 100");

  struct Grown {
    std::size_t size;
    std::uint64_t first;
    std::uint64_t second;
  };
  Grown older{16, 0, 99};
  ASSERT_EQ(api::write_results("grown results", Grown{24, 5, 6}, 16, &older), HEDDLE_DONE);
  EXPECT_EQ(older.first, 5U);
  EXPECT_EQ(older.second, 99U) << "not the older caller's";
}

}  // namespace
}  // namespace heddle::test::sized_options_test
