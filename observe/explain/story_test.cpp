// Stories out of recordings: whole, packed into a picture, damaged, and with records lost.
#include "observe/explain/story.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>

#include "base/random.hpp"
#include "observe/explain/blame.hpp"
#include "observe/trace/merge.hpp"
#include "tap/tracer.hpp"

namespace heddle::observe::explain::story_test {
namespace {

using tap::TraceEvent;
using tap::TraceRecord;

class Stories : public testing::Test {
 protected:
  Stories() {
    std::string name = (std::filesystem::temp_directory_path() / "heddle-story-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~Stories() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string path() const { return (folder_ / "job").string(); }
  std::unique_ptr<tap::Tracer> open(std::uint32_t rank, std::uint64_t records = 4096, const char* more = "") {
    auto tracer = tap::Tracer::open({path() + ".rank" + std::to_string(rank) + more, rank, 2, 1, records, true});
    EXPECT_TRUE(tracer) << base::last_message();
    return std::move(*tracer);
  }
  static TraceRecord record_of(TraceEvent event) {
    TraceRecord record{};
    record.event = event;
    record.worker = 0;
    return record;
  }
  static void begin_wait(tap::Tracer& tracer, const char* call) {
    TraceRecord record = record_of(TraceEvent::wait_begin);
    record.id = tracer.name(call);
    tracer.note(record);
  }
  static void end_wait(tap::Tracer& tracer) { tracer.note(record_of(TraceEvent::wait_end)); }
  // Rank 0 waits until rank 1 has sent, which takes so long.
  void write_late_sender() {
    auto waits = open(0);
    auto sends = open(1);
    begin_wait(*waits, "heddle_recv_wait");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    TraceRecord message = record_of(TraceEvent::posted);
    message.id = 1;
    message.kind = 5;
    sends->note(message);
    message.event = TraceEvent::arrived;
    message.rank = 1;
    waits->note(message);
    TraceRecord match = record_of(TraceEvent::matched);
    match.rank = 1;
    waits->note(match);
    end_wait(*waits);
  }
  [[nodiscard]] base::Result<Report> report() const {
    std::vector<std::string> others;
    auto recordings = trace::open(path(), &others);
    if (!recordings) return recordings.status();
    if (const base::Status status = trace::align(recordings->processes); status != HEDDLE_DONE) return status;
    auto story = tell(recordings->processes);
    if (!story) return story.status();
    Report made = sum_up(*story);
    EXPECT_FALSE(text_of(made, *story, 10).empty());
    EXPECT_FALSE(json_of(made, *story).empty());
    return made;
  }

  std::filesystem::path folder_;
};

TEST_F(Stories, TheSameFromTheFilesAndFromThePicture) {
  write_late_sender();
  const auto before = report();
  ASSERT_TRUE(before) << base::last_message();
  ASSERT_FALSE(before->losses.empty());
  EXPECT_EQ(before->losses.front().why, Why::late_sender);
  EXPECT_GE(before->losses.front().ns, 19'000'000);
  ASSERT_EQ(trace::merge(path(), trace::Parts::remove, "test"), HEDDLE_DONE) << base::last_message();
  const auto after = report();
  ASSERT_TRUE(after) << base::last_message();
  ASSERT_EQ(after->losses.size(), before->losses.size());
  EXPECT_EQ(after->losses.front().ns, before->losses.front().ns);
  EXPECT_EQ(after->waits, before->waits);
}

TEST_F(Stories, AWaitWithinAnotherOneIsCutOutOfIt) {
  {
    auto tracer = open(0);
    begin_wait(*tracer, "heddle_recv_wait");
    begin_wait(*tracer, "a turn");
    end_wait(*tracer);
    end_wait(*tracer);
    end_wait(*tracer);  // the begin of it was lost
  }
  std::vector<std::string> others;
  auto recordings = trace::open(path(), &others);
  ASSERT_TRUE(recordings);
  const auto story = tell(recordings->processes);
  ASSERT_TRUE(story);
  ASSERT_EQ(story->waits.size(), 3U);
  EXPECT_EQ(story->waits[0].call, "heddle_recv_wait");
  EXPECT_EQ(story->waits[1].call, "a turn");
  EXPECT_EQ(story->waits[2].call, "heddle_recv_wait");
  EXPECT_EQ(story->waits[0].end, story->waits[1].begin);
  EXPECT_EQ(story->waits[1].end, story->waits[2].begin);
}

TEST_F(Stories, OfARankWithTwoContextsTheFirstIsTold) {
  write_late_sender();
  {
    auto second = open(1, 4096, "-2");
    begin_wait(*second, "heddle_quiet");
    end_wait(*second);
  }
  std::vector<std::string> others;
  auto recordings = trace::open(path(), &others);
  ASSERT_TRUE(recordings);
  ASSERT_EQ(recordings->processes.size(), 3U);
  const auto story = tell(recordings->processes);
  ASSERT_TRUE(story);
  EXPECT_EQ(story->ranks.size(), 2U);
  EXPECT_EQ(story->left_out, 1U);
}

// Anything in any order, and most of it overwritten.
TEST_F(Stories, LostRecordsDoNoHarm) {
  base::Random random(5);
  for (int round = 0; round < 20; ++round) {
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      auto tracer = open(rank, 64);
      for (int i = 0; i < 5000; ++i) {
        auto record =
            record_of(static_cast<TraceEvent>(random.below(static_cast<std::uint64_t>(TraceEvent::core_time) + 1)));
        if (record.event == TraceEvent::repeated) continue;  // the tracer writes these itself
        record.id = random.below(6);
        record.bytes = random.below(3) << tap::kTraceSlotShift | random.below(100'000);
        record.rank = static_cast<std::uint32_t>(random.below(4));
        record.detail = static_cast<unsigned>(random.below(16)) & 0xFU;
        record.kind = static_cast<unsigned>(random.below(9)) & 0xFU;
        tracer->note(record);
      }
    }
    const auto made = report();
    ASSERT_TRUE(made) << base::last_message();
    EXPECT_GT(made->lost_records, 0U);
    std::filesystem::remove(path() + ".rank0");
    std::filesystem::remove(path() + ".rank1");
  }
}

// Cut off anywhere, or with a byte changed: it is told or refused, and never worse.
TEST_F(Stories, DamagedPicturesAreToldOrRefused) {
  write_late_sender();
  ASSERT_EQ(trace::merge(path(), trace::Parts::remove, "test"), HEDDLE_DONE) << base::last_message();
  std::ifstream in(path(), std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  base::Random random(11);
  for (int round = 0; round < 300; ++round) {
    std::string damaged = whole;
    if (round % 2 == 0) damaged.resize(random.below(whole.size()));
    for (int i = 0; i < 3 && !damaged.empty(); ++i) {
      damaged[random.below(damaged.size())] = static_cast<char>(random.below(256));
    }
    std::ofstream(path(), std::ios::binary | std::ios::trunc) << damaged;
    static_cast<void>(report());
  }
}

// Each wait overlaps the next of the other rank, which it is for.
TEST_F(Stories, WaitsForEachOtherWithoutEnd) {
  constexpr int kWaits = 100'000;
  Story story;
  story.size = 2;
  story.ranks.resize(2);
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    story.ranks[rank].number = rank;
    story.ranks[rank].seen = {0, kWaits * 100};
    story.ranks[rank].threads.resize(1);
  }
  for (int i = 0; i < kWaits; ++i) {
    WaitStory wait;
    wait.begin = i * 100;
    wait.end = wait.until = wait.begin + 150;
    wait.rank = static_cast<std::size_t>(i % 2);
    AwaitedThing awaited;
    awaited.cause = tap::Cause::word;
    wait.awaited.push_back(awaited);
    story.waits.push_back(wait);
  }
  EXPECT_EQ(blame_all(story).size(), static_cast<std::size_t>(kWaits));
}

}  // namespace
}  // namespace heddle::observe::explain::story_test
