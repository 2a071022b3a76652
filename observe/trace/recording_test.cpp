// The files of a traced job, whole and damaged.
#include "observe/trace/recording.hpp"
#include "tap/trace_file.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <utility>

#include "observe/trace/merge.hpp"
#include "tap/tracer.hpp"

namespace heddle::observe::trace::recording_test {
namespace {

using tap::TraceEvent;

class Recordings : public testing::Test {
 protected:
  Recordings() {
    std::string name = (std::filesystem::temp_directory_path() / "heddle-trace-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~Recordings() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string path() const { return (folder_ / "job").string(); }
  [[nodiscard]] std::string file(std::uint32_t rank) const { return path() + ".rank" + std::to_string(rank); }

  std::unique_ptr<tap::Tracer> open(std::uint32_t rank, std::uint64_t job = 1, std::uint64_t records = 1024) {
    auto tracer = tap::Tracer::open({file(rank), rank, 2, job, records, true});
    EXPECT_TRUE(tracer) << base::last_message();
    return std::move(*tracer);
  }
  // The records of the one thread of the one process.
  [[nodiscard]] Thread read_one() const {
    std::vector<std::string> others;
    const auto processes = find(path(), &others);
    EXPECT_TRUE(processes) << base::last_message();
    const auto threads = read(processes->front());
    EXPECT_TRUE(threads) << base::last_message();
    EXPECT_EQ(threads->size(), 1U);
    return threads->front();
  }
  static tap::TraceRecord message(std::uint64_t number, std::uint32_t rank, TraceEvent event) {
    tap::TraceRecord record{};
    record.id = number;
    record.rank = rank;
    record.event = event;
    record.kind = 1;
    return record;
  }
  static std::string contents(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  static void write(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }

  std::filesystem::path folder_;
};

TEST_F(Recordings, AreReadInTheOrderOfTime) {
  {
    const auto tracer = open(1);
    for (std::uint64_t i = 1; i <= 500; ++i) {
      i % 7 == 0 ? tracer->note(message(i, 0, TraceEvent::arrived))
                 : tracer->note_many(message(i, 0, TraceEvent::posted));
    }
  }
  std::vector<std::string> others;
  const auto processes = find(path(), &others);
  ASSERT_TRUE(processes) << base::last_message();
  ASSERT_EQ(processes->size(), 1U);
  EXPECT_EQ(processes->front().rank, 1U);
  EXPECT_TRUE(processes->front().ordered);
  const auto threads = read(processes->front());
  ASSERT_TRUE(threads) << base::last_message();
  ASSERT_EQ(threads->size(), 1U);
  const std::vector<Moment>& moments = threads->front().moments;
  ASSERT_EQ(moments.size(), 500U);
  EXPECT_EQ(threads->front().lost, 0U);
  for (std::size_t i = 0; i < moments.size(); ++i) {
    EXPECT_EQ(moments[i].record.id, i + 1);
    if (i == 0) continue;
    EXPECT_GE(moments[i].ns, moments[i - 1].ns);
  }
}

TEST_F(Recordings, MayHaveNoRecordsYet) {
  open(0).reset();
  std::vector<std::string> others;
  const auto processes = find(path(), &others);
  ASSERT_TRUE(processes) << base::last_message();
  const auto threads = read(processes->front());
  ASSERT_TRUE(threads) << base::last_message();
  EXPECT_TRUE(threads->empty());
}

TEST_F(Recordings, CountWhatHadNoRoom) {
  {
    const auto tracer = open(0, 1, 2048);
    for (std::uint64_t i = 1; i <= 2100; ++i) tracer->note_many(message(i, 1, TraceEvent::posted));
  }
  std::vector<std::string> others;
  const auto processes = find(path(), &others);
  ASSERT_TRUE(processes);
  const auto threads = read(processes->front());
  ASSERT_TRUE(threads);
  EXPECT_EQ(threads->front().lost, 53U);  // the oldest could have been half overwritten
  ASSERT_EQ(threads->front().moments.size(), 2047U);
  EXPECT_EQ(threads->front().moments.front().record.id, 54U);
}

TEST_F(Recordings, OfTheLastJobAloneAreTaken) {
  open(0, 1).reset();
  open(1, 2).reset();
  write(path() + ".rank7", "not ours");
  write(path() + ".rank0.bak", contents(file(0)));
  std::vector<std::string> others;
  const auto processes = find(path(), &others);
  ASSERT_TRUE(processes) << base::last_message();
  ASSERT_EQ(processes->size(), 1U);
  EXPECT_EQ(processes->front().rank, 1U);
  EXPECT_EQ(others.size(), 2U);
  EXPECT_FALSE(tap::is_trace_file(path() + ".rank7"));
  EXPECT_TRUE(tap::is_trace_file(file(0)));
}

TEST_F(Recordings, ThatAreNotThereAreNamed) {
  std::vector<std::string> others;
  EXPECT_FALSE(find(path(), &others));
  EXPECT_NE(std::string(base::last_message()).find(path()), std::string::npos);
  EXPECT_FALSE(find((folder_ / "no" / "folder").string(), &others));
}

TEST_F(Recordings, OfAnEarlierJobAreLeftAndSaidToBe) {
  open(0, 1).reset();
  open(1, 1).reset();
  open(0, 2).reset();
  write(path() + ".rank7", "not ours");
  testing::internal::CaptureStderr();
  EXPECT_EQ(merge(path(), Parts::remove, "who"), HEDDLE_DONE) << base::last_message();
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("who: 1 file of an earlier job was left out, and may be deleted: rm " + file(1) + "\n"),
            std::string::npos)
      << said;
  EXPECT_NE(said.find("who: " + path() + ".rank7 is no trace of this job and was left out\n"), std::string::npos)
      << said;
  EXPECT_FALSE(std::filesystem::exists(file(0)));
  EXPECT_EQ(left(path()), file(1));
}

TEST_F(Recordings, StayWhereThePictureCannotBeWritten) {
  open(0).reset();
  std::filesystem::create_directory(path());
  EXPECT_EQ(merge(path(), Parts::remove, "who"), HEDDLE_ERR_ARGUMENT);
  EXPECT_EQ(std::string(base::last_message()), path() + " cannot be written: it is a directory");
  EXPECT_EQ(left(path()), file(0));
}

TEST_F(Recordings, AWrongPathIsSaidToBeWhatItIs) {
  const auto said = [](const std::string& path) {
    std::vector<std::string> others;
    EXPECT_FALSE(find(path, &others));
    return std::string(base::last_message());
  };
  EXPECT_EQ(said(path()).find(path() + " does not exist, nor do " + path() + ".rank0, …, "), 0U) << said(path());
  EXPECT_EQ(said(folder_.string()).find(folder_.string() + " is a directory; give the FILE"), 0U);
  write(path(), "a picture");
  EXPECT_NE(said(path()).find("; there is only " + path()), std::string::npos) << said(path());
  open(3).reset();
  EXPECT_EQ(said(file(3)), file(3) + " is the part of one rank; give " + path() + ", which means all ranks");
  std::filesystem::rename(file(3), folder_ / "renamed");
  EXPECT_NE(said((folder_ / "renamed").string()).find("call it PATH.rank0, and give PATH"), std::string::npos);
}

std::uint64_t total(const Thread& thread) {
  std::uint64_t all = thread.moments.size();
  for (const Moment& moment : thread.moments) all += moment.more;
  return all;
}

tap::TraceNote note(TraceEvent event, std::uint64_t id) {
  return {id, 8, tap::TraceNote::who_of(event, 1, 0, 0, 0, 1)};
}

// Each as if it had been noted by itself.
TEST_F(Recordings, ListWhatWasCounted) {
  {
    const auto tracer = open(0, 1, 4096);
    for (std::uint64_t i = 1; i <= 3000; ++i) {
      tracer->note_alike(note(TraceEvent::posted, i));
      if (i % 500 == 0) tracer->note(message(7, 1, TraceEvent::progressed));
    }
    for (int i = 0; i < 50; ++i) tracer->note_alike(note(TraceEvent::receive, 9));
    tracer->ring()->add_alike(note(TraceEvent::arrived, 5), tracer->ring()->time(), 40);
  }
  const Thread thread = read_one();
  EXPECT_EQ(thread.lost, 0U);
  ASSERT_EQ(thread.moments.size(), 3096U);
  std::uint64_t posted = 0;
  std::uint64_t arrived = 4;
  std::uint64_t receives = 0;
  std::int64_t before = 0;
  for (const Moment& moment : thread.moments) {
    EXPECT_EQ(moment.more, 0U);
    EXPECT_GE(moment.ns, before);
    before = moment.ns;
    if (moment.record.event == TraceEvent::posted) {
      EXPECT_EQ(moment.record.id, ++posted);
    }
    if (moment.record.event == TraceEvent::arrived) {
      EXPECT_EQ(moment.record.id, ++arrived);
    }
    if (moment.record.event == TraceEvent::progressed) {
      EXPECT_EQ(posted % 500, 0U);
    }
    if (moment.record.event == TraceEvent::receive) ++receives;
    EXPECT_NE(moment.record.event, TraceEvent::repeated);
  }
  EXPECT_EQ(posted, 3000U);
  EXPECT_EQ(arrived, 44U);
  EXPECT_EQ(receives, 50U);
}

TEST_F(Recordings, ListNoMoreThanARingHolds) {
  {
    const auto tracer = open(0, 1, 2048);
    tap::TraceRing& ring = *tracer->ring();
    for (std::uint64_t i = 0; i < 10; ++i) ring.add_alike(note(TraceEvent::arrived, 1 + 1000 * i), ring.time(), 999);
  }
  const Thread thread = read_one();
  EXPECT_EQ(thread.lost, 0U);
  EXPECT_EQ(thread.moments.size(), 8U + 2 * 999);
  EXPECT_EQ(total(thread), 9990U);
  EXPECT_EQ(thread.moments.front().more, 998U);
}

// For every position of the ring's oldest record: in a run, before it, behind the last one.
TEST_F(Recordings, KnowWhatIsLostOfRuns) {
  std::mt19937_64 random(5);
  for (const std::uint64_t singles : {0, 1, 3, 3000}) {
    std::uint64_t noted = 0;
    std::uint64_t number = 0;
    {
      const auto tracer = open(0, 1, 2048);
      tap::TraceRing& ring = *tracer->ring();
      const auto post = [&](std::uint64_t times) {
        ring.add_alike(note(TraceEvent::posted, number + 1), ring.time(), times);
        number += times;
        noted += times;
      };
      for (int i = 0; i < 2500 + static_cast<int>(random() % 7); ++i) {
        post(1 + random() % 4);
        ring.add(message(7, 1, TraceEvent::progressed));
        ++noted;
      }
      for (std::uint64_t i = 0; i < singles; ++i, ++noted) tracer->note(message(7, 1, TraceEvent::progressed));
    }
    const Thread thread = read_one();
    EXPECT_EQ(thread.lost + total(thread), noted);
    EXPECT_LT(total(thread), 4 * 2048U);
    for (const Moment& moment : thread.moments) {
      if (moment.record.event == TraceEvent::posted) {
        EXPECT_LE(moment.record.id, number);
      }
    }
    std::filesystem::remove(file(0));
  }
}

// Killed at any point: the noted records are there, and no others.
TEST_F(Recordings, OfKilledProcessesTellTheTruth) {
  struct Shared {
    std::atomic<std::uint64_t> begun;
    std::atomic<std::uint64_t> noted;
  };
  void* const at = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(at, MAP_FAILED);
  for (unsigned round = 0; round < 20; ++round) {
    auto* const shared = new (at) Shared{};
    const pid_t child = ::fork();
    if (child == 0) {
      const auto tracer = open(0, round + 1, 2048);
      for (std::uint64_t i = 1;; ++i) {
        shared->begun.store(i);
        tracer->note_alike(note(TraceEvent::posted, i));
        shared->noted.store(i);
      }
    }
    while (shared->noted.load() == 0) ::usleep(100);
    ::usleep(200 + round * 137);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const Thread thread = read_one();
    EXPECT_GE(thread.lost + total(thread), shared->noted.load());
    EXPECT_LE(thread.lost + total(thread), shared->begun.load());
    EXPECT_EQ(thread.moments.back().record.id + thread.moments.back().more, thread.lost + total(thread));
  }
  ::munmap(at, sizeof(Shared));
}

// After any part was cut off or overwritten: an error that names the file, or fewer records; never
// a crash.
TEST_F(Recordings, MayBeDamaged) {
  {
    const auto tracer = open(0, 1, 2048);
    for (std::uint64_t i = 1; i <= 100; ++i) tracer->note(message(i, 1, TraceEvent::posted));
    for (std::uint64_t i = 1; i <= 100; ++i) tracer->note_alike(note(TraceEvent::arrived, i));
  }
  const std::string whole = contents(file(0));
  std::mt19937_64 random(7);
  std::size_t were_read = 0;
  for (int round = 0; round < 400; ++round) {
    std::string bytes = whole;
    if (round % 2 == 0) bytes.resize(random() % (bytes.size() + 1));
    for (std::uint64_t n = round % 4 == 0 ? 0 : random() % 20; n > 0 && !bytes.empty(); --n) {
      // mostly in what describes the rest
      const std::size_t at =
          random() % 3 == 0 ? random() % bytes.size() : random() % std::min<std::size_t>(bytes.size(), 256);
      bytes[at] = static_cast<char>(random());
    }
    write(file(0), bytes);
    std::vector<std::string> others;
    const auto processes = find(path(), &others);
    if (!processes) continue;
    const auto threads = read(processes->front());
    if (!threads) continue;
    ++were_read;
    for (const Thread& thread : *threads) EXPECT_LE(thread.moments.size(), 2 * 2048U);
  }
  EXPECT_GT(were_read, 20U);
}

// As if the second rank's machine had its own clock, three seconds ahead.
// Whoever reads it makes lists of as many ranks as the head says.
TEST_F(Recordings, OfNoPossibleRankAreDamaged) {
  open(0, 1, 64)->note(message(1, 1, TraceEvent::posted));
  const std::string whole = contents(file(0));
  for (const auto& [rank, size] : {std::pair{0U, 0U}, {1U, 1U}, {0U, ~0U}, {5U, 1U << 21}}) {
    std::string bytes = whole;
    std::memcpy(bytes.data() + offsetof(tap::TraceFileHead, rank), &rank, sizeof rank);
    std::memcpy(bytes.data() + offsetof(tap::TraceFileHead, size), &size, sizeof size);
    write(file(0), bytes);
    const auto process = head_of(file(0));
    ASSERT_FALSE(process) << rank << " of " << size;
    EXPECT_EQ(process.status(), HEDDLE_ERR_ARGUMENT);
  }
  write(file(0), whole);
  EXPECT_TRUE(head_of(file(0)));
}

TEST_F(Recordings, OfSeveralMachinesAreAlignedByTheirMessages) {
  {
    const auto first = open(0);
    const auto second = open(1);
    for (std::uint64_t i = 1; i <= 50; ++i) {
      first->note(message(i, 1, TraceEvent::posted));
      second->note(message(i, 0, TraceEvent::arrived));
      second->note(message(i, 0, TraceEvent::posted));
      first->note(message(i, 1, TraceEvent::arrived));
    }
  }
  constexpr std::uint64_t kAhead = 3'000'000'000;
  std::string bytes = contents(file(1));
  tap::TraceFileHead head;
  std::memcpy(static_cast<void*>(&head), bytes.data(), sizeof head);
  for (tap::TraceMoment* moment : {&head.first, &head.last[0], &head.last[1]}) moment->monotonic_ns += kAhead;
  std::strcpy(head.machine.data(), "another");
  std::memcpy(bytes.data(), static_cast<const void*>(&head), sizeof head);
  write(file(1), bytes);

  std::vector<std::string> others;
  auto processes = find(path(), &others);
  ASSERT_TRUE(processes) << base::last_message();
  ASSERT_EQ(align(*processes), HEDDLE_DONE) << base::last_message();
  EXPECT_EQ(processes->front().offset_ns, 0);
  EXPECT_NEAR(static_cast<double>(processes->back().offset_ns), -static_cast<double>(kAhead), 1e8);
  const auto first = read(processes->front());
  const auto second = read(processes->back());
  ASSERT_TRUE(first && second);
  // None arrives before it was sent.
  for (std::size_t i = 0; i < 50; ++i) {
    EXPECT_LE(first->front().moments[2 * i].ns, second->front().moments[2 * i].ns);
    EXPECT_LE(second->front().moments[2 * i + 1].ns, first->front().moments[2 * i + 1].ns);
  }
}

}  // namespace
}  // namespace heddle::observe::trace::recording_test
