#include "tap/tracer.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "base/fence.hpp"

namespace heddle::tap::tracer_test {
namespace {

class Traces : public testing::Test {
 protected:
  Traces() {
    std::string name = (std::filesystem::temp_directory_path() / "heddle-tracer-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~Traces() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<Tracer> open(std::uint64_t records = 256, std::uint64_t job = 1) {
    auto tracer = Tracer::open({(folder_ / "file").string(), 3, 4, job, records, true});
    EXPECT_TRUE(tracer) << base::last_message();
    return std::move(*tracer);
  }
  [[nodiscard]] std::string bytes(const std::string& name = "file") const {
    std::ifstream in(folder_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  static const TraceFileHead& head_of(const std::string& bytes) {
    return *reinterpret_cast<const TraceFileHead*>(bytes.data());
  }
  static std::size_t ring_at(const std::string& bytes, std::size_t index) {
    return kTraceHeadBytes + index * (kTraceRingHeadBytes + head_of(bytes).ring_records * sizeof(TraceRecord));
  }
  static const TraceRingHead& ring_of(const std::string& bytes, std::size_t index) {
    return *reinterpret_cast<const TraceRingHead*>(bytes.data() + ring_at(bytes, index));
  }
  static TraceRecord record_of(const std::string& bytes, std::size_t ring, std::size_t index) {
    TraceRecord record{};
    std::memcpy(&record, bytes.data() + ring_at(bytes, ring) + kTraceRingHeadBytes + index * sizeof record,
                sizeof record);
    return record;
  }
  static TraceRecord record(std::uint64_t id) {
    TraceRecord made{};
    made.id = id;
    made.event = TraceEvent::posted;
    return made;
  }

  std::filesystem::path folder_;
};

TEST_F(Traces, AreInTheFileWhileTheProcessRuns) {
  const auto tracer = open();
  tracer->note(record(5));
  tracer->note_many(record(6));
  const std::string now = bytes();
  const TraceFileHead& head = head_of(now);
  EXPECT_EQ(head.magic, kTraceMagic);
  EXPECT_EQ(head.rank, 3U);
  EXPECT_EQ(head.size, 4U);
  EXPECT_EQ(head.process, static_cast<std::uint64_t>(::getpid()));
  ASSERT_EQ(head.rings.load(), 1U);
  EXPECT_EQ(ring_of(now, 0).count.load(), 2U);
  EXPECT_EQ(record_of(now, 0, 0).id, 5U);
  EXPECT_NE(record_of(now, 0, 0).ticks, 0U);
  EXPECT_EQ(record_of(now, 0, 1).id, 6U);
  // So the rate of ticks is known whatever ends the process.
  const TraceMoment& last = head.last[head.last_at.load()];
  EXPECT_GT(last.ticks, head.first.ticks);
  EXPECT_GT(last.monotonic_ns, head.first.monotonic_ns);
}

TEST_F(Traces, KeepTheNewest) {
  const auto tracer = open(2500, 2);
  for (std::uint64_t i = 0; i < 5000; ++i) tracer->note_many(record(i));
  const std::string now = bytes();
  EXPECT_EQ(head_of(now).ring_records, 4096U);
  EXPECT_EQ(ring_of(now, 0).count.load(), 5000U);
  EXPECT_EQ(record_of(now, 0, 4999 % 4096).id, 4999U);
}

TraceNote note_of(TraceEvent event, std::uint64_t id, std::uint64_t bytes = 8) {
  return {id, bytes, TraceNote::who_of(event, 1, 2, 3, 4, 5)};
}

TEST(TraceNotes, AreRecords) {
  const TraceRecord made = TraceNote{6, 7, TraceNote::who_of(TraceEvent::arrived, 70'000, 2, 3, 4, 5)}.record(9);
  EXPECT_EQ(made.ticks, 9U);
  EXPECT_EQ(made.id, 6U);
  EXPECT_EQ(made.bytes, 7U);
  EXPECT_EQ(made.rank, 70'000U);
  EXPECT_EQ(made.peer, 2U);
  EXPECT_EQ(made.worker, 3U);
  EXPECT_EQ(made.event, TraceEvent::arrived);
  EXPECT_EQ(made.detail, 4U);
  EXPECT_EQ(made.kind, 5U);
}

// After each of them the file says all that has happened, whatever comes next.
TEST_F(Traces, CountWhatIsAlike) {
  const auto tracer = open();
  TraceRing& ring = *tracer->ring();
  for (std::uint64_t i = 1; i <= 100; ++i) {
    ring.add_alike(note_of(TraceEvent::posted, i), i == 1 ? 1000 : 0);
    const std::string now = bytes();
    ASSERT_EQ(ring_of(now, 0).count.load(), i == 1 ? 1U : 2U);
    EXPECT_EQ(record_of(now, 0, 0).id, 1U);
    if (i == 1) continue;
    const TraceRecord repeated = record_of(now, 0, 1);
    EXPECT_EQ(repeated.event, TraceEvent::repeated);
    EXPECT_EQ(repeated.id, i - 1);
    EXPECT_EQ(repeated.bytes, 0U);
  }
  EXPECT_EQ(ring_of(bytes(), 0).folded.load(), 0U);  // the last record says it
  ring.add(record(0));
  EXPECT_EQ(ring_of(bytes(), 0).folded.load(), 98U);
  ring.add_alike(note_of(TraceEvent::arrived, 1), 0, 32);
  EXPECT_EQ(record_of(bytes(), 0, 4).id, 31U);
  EXPECT_EQ(record_of(bytes(), 0, 4).bytes, 98U);
}

TEST_F(Traces, BeginAnewWhereSomethingDiffers) {
  const auto tracer = open();
  TraceRing& ring = *tracer->ring();
  std::uint64_t records = 0;
  const auto expect = [&](std::uint64_t more) {
    records += more;
    EXPECT_EQ(ring_of(bytes(), 0).count.load(), records);
  };
  ring.add_alike(note_of(TraceEvent::posted, 1), 1000);
  expect(1);
  ring.add_alike(note_of(TraceEvent::posted, 3), 0);  // not the next number
  expect(1);
  ring.add_alike(note_of(TraceEvent::posted, 4, 9), 0);  // of another size
  expect(1);
  ring.add_alike(note_of(TraceEvent::arrived, 5, 9), 0);
  expect(1);
  ring.add_alike(note_of(TraceEvent::matched, 5), 0);
  expect(1);
  ring.add_alike(note_of(TraceEvent::matched, 5), 0);  // a tag stays
  expect(1);
  ring.add_alike(note_of(TraceEvent::matched, 5), 1'000'000);  // long after
  expect(1);
  ring.add_alike(note_of(TraceEvent::matched, 5), 1'000'500);
  expect(1);
  for (int i = 0; i < 3; ++i) ring.add_alike(note_of(TraceEvent::matched, 5), 1'000'600);
  expect(0);
  EXPECT_EQ(record_of(bytes(), 0, records - 1).ticks, 1'000'600U);
}

TEST_F(Traces, CountUpWhatTheirWriterHasCompared) {
  const auto tracer = open();
  TraceRing& ring = *tracer->ring();
  const TraceNote note = note_of(TraceEvent::matched, 5);
  TraceRepeat repeat;
  EXPECT_FALSE(repeat.suffices());
  ring.add_alike(note, ring.time());
  repeat.begin(ring);
  EXPECT_FALSE(repeat.suffices()) << "there is no run yet";
  std::uint64_t noted = 1;
  std::uint64_t sufficed = 0;
  // A busy machine may end runs by the clock: not more of them than a ring has records for.
  for (; sufficed < 100 && noted < 110; ++noted) {
    if (repeat.suffices()) {
      repeat.note();
      ++sufficed;
    } else {
      ring.add_alike(note, ring.time_of_many());
      repeat.begin(ring);
    }
  }
  const std::string then = bytes();
  const std::uint64_t count = ring_of(then, 0).count.load();
  ASSERT_LE(count, 256U) << "a ring's records";
  std::uint64_t counted = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const TraceRecord one = record_of(then, 0, i);
    if (one.event == TraceEvent::core_time) continue;
    counted += one.event == TraceEvent::repeated ? one.id : 1;
  }
  EXPECT_EQ(counted, noted);

  static_cast<void>(ring.time_of_many());
  std::thread([&] { EXPECT_FALSE(repeat.suffices()) << "another thread"; }).join();
  std::thread([&] {
    static_cast<void>(base::thread_number());
    EXPECT_FALSE(repeat.suffices()) << "another thread that has a ring";
  }).join();
  ring.add(record(0));
  EXPECT_FALSE(repeat.suffices()) << "something lies between";
  ring.add_alike(note, ring.time());
  ring.add_alike(note, 0);
  repeat.begin(ring);
  repeat.end();
  EXPECT_FALSE(repeat.suffices());
  // With its checks a note may take longer than a run may last.
  if (base::kThreadSanitizer && sufficed == 0) GTEST_SKIP() << "skipped: the clock has ended every run";
  EXPECT_GT(sufficed, 0U);
}

// The look at the clock that ended a run is the next record's, and the one after it takes its own.
TEST_F(Traces, LookOnceWhereARunHasEndedByTheClock) {
  const auto tracer = open();
  TraceRing& ring = *tracer->ring();
  const TraceNote note = note_of(TraceEvent::matched, 5);
  ring.add_alike(note, ring.time());
  ring.add_alike(note, 0);
  TraceRepeat repeat;
  repeat.begin(ring);
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const std::uint64_t before = base::ticks();
  EXPECT_FALSE(repeat.suffices());
  const std::uint64_t after = base::ticks();
  const std::uint64_t time = ring.time_of_many();
  EXPECT_GE(time, before);
  EXPECT_LE(time, after);
  EXPECT_NE(ring.time_of_many(), 0U);
}

TEST_F(Traces, NameEachNameOnce) {
  const auto tracer = open();
  const std::string copy = "one";
  const std::uint64_t one = tracer->name("one");
  EXPECT_EQ(tracer->name("one"), one);
  EXPECT_EQ(tracer->name(copy.c_str()), one);
  EXPECT_NE(tracer->name("two"), one);
  const std::string now = bytes();
  EXPECT_STREQ(head_of(now).text[one - 1].data(), "one");
  EXPECT_EQ(head_of(now).names.load(), 2U);
  std::vector<std::string> many;
  for (std::size_t i = 0; i < kTraceNames + 5; ++i) many.push_back("name " + std::to_string(i));
  for (const std::string& name : many) static_cast<void>(tracer->name(name.c_str()));
  const std::string then = bytes();
  EXPECT_EQ(head_of(then).names.load(), kTraceNames);
  EXPECT_EQ(head_of(then).unnamed.load(), 7U);
}

TEST_F(Traces, OfOneJobStandBesideEachOtherAndReplaceThoseOfOthers) {
  const auto first = open();
  const auto second = open();
  EXPECT_NE(first->path(), second->path());
  EXPECT_EQ(second->path(), (folder_ / "file-2").string());
  // it is being written
  EXPECT_FALSE(Tracer::open({(folder_ / "file").string(), 0, 1, 2, 256, true}));
  // as a copy of what an ended job has left
  std::filesystem::copy_file(folder_ / "file", folder_ / "old");
  auto other = Tracer::open({(folder_ / "old").string(), 0, 1, 2, 256, true});
  ASSERT_TRUE(other) << base::last_message();
  EXPECT_EQ((*other)->path(), (folder_ / "old").string());
}

TEST_F(Traces, DoNotReplaceWhatIsNoTrace) {
  for (const std::size_t length : {0, 10, 100'000}) {
    std::ofstream(folder_ / "file") << std::string(length, 'x');
    EXPECT_FALSE(Tracer::open({(folder_ / "file").string(), 0, 1, 1, 256, true}));
    EXPECT_NE(std::string(base::last_message()).find("file"), std::string::npos);
    EXPECT_EQ(bytes(), std::string(length, 'x'));
  }
}

TEST_F(Traces, SayWhereTheyCannotBe) {
  EXPECT_FALSE(Tracer::open({(folder_ / "no" / "file").string(), 0, 1, 1, 256, true}));
  EXPECT_NE(std::string(base::last_message()).find("HEDDLE_TRACE"), std::string::npos);
}

// Each thread has a ring; threads without a number are counted. Names are asked for meanwhile.
TEST_F(Traces, AreWrittenByAllThreadsAtOnce) {
  constexpr std::uint32_t kThreads = base::kThreadNumbers + 4;
  constexpr std::uint64_t kEach = 300;
  const auto tracer = open(64);
  std::latch all(kThreads);
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      tracer->note(record(0));
      all.arrive_and_wait();  // all have asked for a number
      for (std::uint64_t n = 1; n < kEach; ++n) tracer->note_many(record(n));
      tracer->begin_call("a call", "with an argument");
      tracer->end_call("a call");
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string now = bytes();
  std::uint64_t noted = head_of(now).untraced.load();
  EXPECT_GT(noted, 0U);
  EXPECT_GE(head_of(now).rings.load(), base::kThreadNumbers - 1);  // this thread may have a number
  for (std::size_t i = 0; i < head_of(now).rings.load(); ++i) noted += ring_of(now, i).count.load();
  EXPECT_EQ(noted, kThreads * (kEach + 3));
  EXPECT_EQ(head_of(now).names.load(), 1U);
}

}  // namespace
}  // namespace heddle::tap::tracer_test
