// How records are drawn: slices that nest, arrows from each message to its arrival, spans of
// operations, and what was lost at either end.
#include "observe/trace/picture.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "observe/trace/test_perfetto.hpp"
#include "tap/tracer.hpp"

namespace heddle::observe::trace::picture_test {
namespace {

using tap::TraceEvent;
using tap::TraceRecord;

class Pictures : public testing::Test {
 protected:
  Pictures() {
    std::string name = (std::filesystem::temp_directory_path() / "heddle-trace-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~Pictures() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<tap::Tracer> open(std::uint32_t rank, bool ordered = true) {
    auto tracer = tap::Tracer::open({path() + ".rank" + std::to_string(rank), rank, 2, 1, 4096, ordered});
    EXPECT_TRUE(tracer) << base::last_message();
    return std::move(*tracer);
  }
  [[nodiscard]] std::string path() const { return (folder_ / "job").string(); }

  Seen drawn() {
    std::vector<std::string> others;
    auto processes = find(path(), &others);
    EXPECT_TRUE(processes) << base::last_message();
    EXPECT_EQ(align(*processes), HEDDLE_DONE) << base::last_message();
    Drawn counts;
    EXPECT_EQ(draw(*processes, path(), &counts), HEDDLE_DONE) << base::last_message();
    records_ = counts.records;
    Seen seen = see(path());
    expect_nested(seen);
    return seen;
  }
  // On each track: ends match begins, and times never go back.
  static void expect_nested(const Seen& seen) {
    std::map<std::uint64_t, std::pair<int, std::uint64_t>> tracks;
    for (const SeenEvent& event : seen.events) {
      ASSERT_TRUE(seen.tracks.contains(event.track));
      auto& [depth, ns] = tracks[event.track];
      depth += event.type == 1 ? 1 : event.type == 2 ? -1 : 0;
      EXPECT_GE(depth, 0);
      EXPECT_GE(event.ns, ns) << event.name;
      ns = event.ns;
    }
    for (const auto& [track, state] : tracks) EXPECT_EQ(state.first, 0);
  }
  static std::vector<SeenEvent> named(const Seen& seen, const std::string& name) {
    std::vector<SeenEvent> found;
    std::ranges::copy_if(seen.events, std::back_inserter(found),
                         [&](const SeenEvent& event) { return event.name == name; });
    return found;
  }
  static TraceRecord record(TraceEvent event, std::uint64_t id, std::uint64_t bytes = 0, std::uint32_t rank = 0) {
    TraceRecord made{};
    made.event = event;
    made.id = id;
    made.bytes = bytes;
    made.rank = rank;
    return made;
  }
  static TraceRecord message(TraceEvent event, std::uint64_t number, std::uint32_t rank) {
    TraceRecord made = record(event, number, 8, rank);
    made.kind = 1;
    return made;
  }

  std::filesystem::path folder_;
  std::uint64_t records_ = 0;
};

TEST_F(Pictures, HaveAnArrowFromEachMessageToItsArrival) {
  {
    const auto first = open(0);
    const auto second = open(1);
    for (std::uint64_t i = 1; i <= 5; ++i) {
      first->note(message(TraceEvent::posted, i, 1));
      second->note(message(TraceEvent::arrived, i, 0));
      second->note(record(TraceEvent::progressed, 1));
    }
  }
  const Seen seen = drawn();
  const auto sent = named(seen, "active message 8 B to rank 1");
  const auto arrived = named(seen, "active message 8 B from rank 0");
  ASSERT_EQ(sent.size(), 5U);
  ASSERT_EQ(arrived.size(), 5U);
  for (std::size_t i = 0; i < 5; ++i) {
    ASSERT_EQ(sent[i].flows.size(), 1U);
    EXPECT_EQ(sent[i].flows, arrived[i].flow_ends);
    EXPECT_EQ(sent[i].numbers.at("number"), i + 1);
    EXPECT_LE(sent[i].ns, arrived[i].ns);
  }
  EXPECT_EQ(named(seen, "progress").size(), 5U);
  EXPECT_EQ(records_, 15U);
}

TEST_F(Pictures, HaveNoArrowsWhereMessagesOvertake) {
  open(0, false)->note(message(TraceEvent::posted, 1, 1));
  const auto sent = named(drawn(), "active message 8 B to rank 1");
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_TRUE(sent[0].flows.empty());
}

TEST_F(Pictures, ShowOperationsFromTheirPostToTheirEnd) {
  {
    const auto tracer = open(0);
    for (const std::uint64_t slot : {3U, 7U}) {
      TraceRecord get = record(TraceEvent::posted, 0, tap::trace_size(65536, slot + 1), 1);
      get.detail = 2;
      tracer->note(get);
    }
    TraceRecord freed = record(TraceEvent::ended, 3);
    freed.detail = 1;  // its source only
    tracer->note(freed);
    tracer->note(record(TraceEvent::ended, 7));
    TraceRecord failed = record(TraceEvent::ended, 3);
    failed.kind = 2;
    tracer->note(failed);
    TraceRecord put = record(TraceEvent::posted, 0, tap::trace_size(8, 4), 1);
    put.detail = 1;
    tracer->note(put);
  }
  const Seen seen = drawn();
  std::vector<SeenEvent> spans;
  for (const SeenEvent& event : seen.events) {
    if (event.type == 1 && seen.tracks.at(event.track).name == "worker 0: operations") spans.push_back(event);
  }
  ASSERT_EQ(spans.size(), 3U);
  EXPECT_EQ(spans[0].name, "get 64 KiB to rank 1");
  EXPECT_FALSE(spans[0].texts.contains("ended"));
  EXPECT_EQ(spans[1].texts.at("ended"), "with an error");
  EXPECT_NE(spans[0].track, spans[1].track);  // they overlap
  EXPECT_EQ(spans[2].name, "put 8 B to rank 1");
  EXPECT_EQ(spans[2].texts.at("ended"), "not in this trace");
}

TEST_F(Pictures, ShowReceivesUntilTheirMessage) {
  {
    const auto tracer = open(0);
    tracer->note(record(TraceEvent::receive, 7, 64, 1));
    TraceRecord any = record(TraceEvent::receive, 0, 64, tap::kAnyRank);
    any.detail = 1;  // of any tag
    tracer->note(any);
    tracer->note(record(TraceEvent::kept, 9, 16, 1));
    tracer->note(record(TraceEvent::matched, 7, 8, 1));
    TraceRecord was_here = record(TraceEvent::matched, 9, 16, 1);
    was_here.detail = 1;
    tracer->note(was_here);
  }
  const Seen seen = drawn();
  const auto receives = named(seen, "receive from rank 1");
  ASSERT_EQ(receives.size(), 2U);
  EXPECT_EQ(receives[0].numbers.at("tag"), 7U);
  EXPECT_EQ(receives[1].numbers.at("tag"), 9U);
  EXPECT_EQ(named(seen, "unexpected message from rank 1").size(), 1U);
  EXPECT_EQ(named(seen, "from rank 1").size(), 1U);  // how long it lay there
}

TEST_F(Pictures, ShowCallsWithTheirArguments) {
  {
    const auto tracer = open(0);
    const std::string text(100, 'x');
    tracer->begin_call("outer", ("count=8 dest=1 " + text).c_str());
    tracer->begin_call("inner", "");
    tracer->end_call("inner");
    tracer->end_call("outer");
    tracer->begin_call("never ends", "a");
  }
  const Seen seen = drawn();
  const auto outer = named(seen, "outer");
  ASSERT_EQ(outer.size(), 1U);
  EXPECT_EQ(outer[0].texts.at("arguments"), "count=8 dest=1 " + std::string(100, 'x'));
  EXPECT_EQ(named(seen, "inner").size(), 1U);
  EXPECT_EQ(named(seen, "never ends").size(), 1U);
}

// Rings forget their beginnings, and processes are killed: any records give a picture that nests.
TEST_F(Pictures, NestWhateverIsMissing) {
  std::mt19937_64 random(11);
  {
    const auto tracer = open(0);
    constexpr auto kLast = static_cast<unsigned>(TraceEvent::schedule_end);
    for (int i = 0; i < 3000; ++i) {
      TraceRecord made =
          record(static_cast<TraceEvent>(random() % (kLast + 3)), random() % 5, random() % 4, random() % 2);
      made.worker = static_cast<std::uint8_t>(random() % 2);
      made.detail = random() % 3 & 0xFU;
      made.kind = random() & 0x7U;
      if (made.event == TraceEvent::posted) made.bytes = tap::trace_size(8, random() % 4);
      if (made.event == TraceEvent::away || made.event == TraceEvent::refused) made.id = made.bytes = base::ticks();
      random() % 2 == 0 ? tracer->note(made) : tracer->note_many(made);
    }
  }
  const Seen seen = drawn();
  EXPECT_GT(seen.events.size(), 1000U);
}

}  // namespace
}  // namespace heddle::observe::trace::picture_test
