// Traced jobs: compares the contents of their picture with the ranks' own counts.
#include "observe/trace/test_perfetto.hpp"

#include <filesystem>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "launched.hpp"
#include "networks.hpp"

namespace heddle::tests::trace_test {
namespace {

using observe::trace::see;
using observe::trace::Seen;
using observe::trace::SeenEvent;

struct Kind {
  const char* transport;
  const char* sharing;
  const char* progress;
};
[[maybe_unused]] std::ostream& operator<<(std::ostream& out, const Kind& kind) {
  return out << kind.transport << ' ' << kind.sharing << ' ' << kind.progress;
}

class Traced {
 public:
  Traced() {
    std::string name = (std::filesystem::temp_directory_path() / "heddle-traced-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  Traced(const Traced&) = delete;
  Traced& operator=(const Traced&) = delete;
  ~Traced() { std::filesystem::remove_all(folder_); }

  // The exit code of the job.
  int run(const Kind& kind, const std::string& what = "") {
    std::vector<std::string> words = {HEDDLE_TOOL, "run", "-n", "3", "--grace", "1", "--trace", path()};
    for (const std::string& set :
         {std::string("HEDDLE_TRANSPORT=") + kind.transport, std::string("HEDDLE_SHARING=") + kind.sharing,
          std::string("HEDDLE_PROGRESS=") + kind.progress}) {
      words.insert(words.end(), {"--env", set});
    }
    words.insert(words.end(), {HEDDLE_TRACE_RANK, what});
    Launched job(words);
    const int code = job.wait();
    out_ = job.out();
    err_ = job.err();
    return code;
  }
  [[nodiscard]] std::string path() const { return (folder_ / "job.pftrace").string(); }
  [[nodiscard]] Seen seen() const { return see(path()); }
  [[nodiscard]] const std::string& out() const { return out_; }
  [[nodiscard]] const std::string& err() const { return err_; }
  // "rank R process P messages M …": the number behind the word in the line of the rank.
  [[nodiscard]] std::uint64_t counted(std::uint32_t rank, const std::string& word) const {
    const std::size_t line = out_.find("rank " + std::to_string(rank) + " process ");
    if (line == std::string::npos) return ~std::uint64_t{0};
    return std::stoull(out_.substr(out_.find(" " + word + " ", line) + word.size() + 2));
  }
  [[nodiscard]] std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) names.push_back(entry.path().filename());
    return names;
  }

 private:
  std::filesystem::path folder_;
  std::string out_;
  std::string err_;
};

// The events of a rank's tracks: those of its threads, and those under its own.
std::vector<SeenEvent> of_rank(const Seen& seen, std::uint32_t rank) {
  std::set<std::uint64_t> tracks;
  const std::string begins = "rank " + std::to_string(rank) + " (";
  for (const auto& [uuid, track] : seen.tracks) {
    if (track.name.starts_with(begins)) tracks.insert(uuid);
  }
  for (const auto& [uuid, track] : seen.tracks) {
    const bool thread = track.thread != 0 && track.process == static_cast<std::int64_t>(rank) + 1;
    if (thread || tracks.contains(track.parent)) tracks.insert(uuid);
  }
  std::vector<SeenEvent> events;
  std::ranges::copy_if(seen.events, std::back_inserter(events),
                       [&](const SeenEvent& event) { return tracks.contains(event.track); });
  return events;
}

constexpr std::int64_t kBegin = 1;
constexpr std::int64_t kInstant = 3;

std::uint64_t count(const std::vector<SeenEvent>& events, std::int64_t type, const std::string& begins,
                    const std::string& has = "") {
  return static_cast<std::uint64_t>(std::ranges::count_if(events, [&](const SeenEvent& event) {
    return event.type == type && event.name.starts_with(begins) && event.name.find(has) != std::string::npos;
  }));
}

class Traces : public testing::TestWithParam<Kind> {};

TEST_P(Traces, HaveWhatTheRanksHaveCounted) {
  Traced job;
  ASSERT_EQ(job.run(GetParam()), 0) << job.out() << job.err();
  EXPECT_EQ(job.files(), std::vector<std::string>{"job.pftrace"}) << job.err();
  const Seen seen = job.seen();
  std::multiset<std::uint64_t> begins;
  std::multiset<std::uint64_t> ends;
  for (const SeenEvent& event : seen.events) {
    begins.insert(event.flows.begin(), event.flows.end());
    ends.insert(event.flow_ends.begin(), event.flow_ends.end());
  }
  EXPECT_EQ(begins, ends);  // each message has arrived once
  EXPECT_GT(begins.size(), 3U * 80);
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    SCOPED_TRACE("rank " + std::to_string(rank));
    const std::vector<SeenEvent> events = of_rank(seen, rank);
    const std::uint64_t active = count(events, kInstant, "active message", " to ");
    const std::uint64_t user = count(events, kInstant, "message of class USER", " to ");
    EXPECT_EQ(active + user, job.counted(rank, "messages"));
    EXPECT_EQ(count(events, kInstant, "tagged message", " to "), job.counted(rank, "sends"));
    EXPECT_EQ(count(events, kInstant, "matched message"), job.counted(rank, "receives"));
    EXPECT_EQ(count(events, kInstant, "unexpected message"), job.counted(rank, "kept"));
    EXPECT_EQ(count(events, kBegin, "handler of class USER"), job.counted(rank, "tasks"));
    EXPECT_EQ(count(events, kBegin, "receive from rank "), job.counted(rank, "receives"));
    EXPECT_EQ(count(events, kBegin, "all of it"), 1U);
    EXPECT_EQ(count(events, kBegin, "allreduce"), 1U);
  }
}

// Which thread has advanced it. With executors all is queued, and they post it or a thread that
// waits; without them the program's thread does.
TEST_P(Traces, SayWhichThreadHasPosted) {
  Traced job;
  ASSERT_EQ(job.run(GetParam()), 0) << job.out() << job.err();
  const Seen seen = job.seen();
  std::uint64_t by_executor = 0;
  std::uint64_t by_program = 0;
  std::uint64_t queued = 0;
  for (const SeenEvent& event : seen.events) {
    const bool executor = seen.tracks.at(event.track).name.starts_with("heddle-");
    if (event.type == kInstant && event.name.starts_with("active message 8 B to"))
      ++(executor ? by_executor : by_program);
    if (event.type == kBegin && event.name == "queued") ++queued;
  }
  const bool offload = std::string(GetParam().sharing) == "offload";
  EXPECT_EQ(by_executor + by_program, 120U);
  if (offload) {
    EXPECT_GE(queued, 120U);
  } else {
    EXPECT_EQ(by_executor, 0U);
  }
}

std::vector<Kind> kinds() {
  std::vector<Kind> all = {{"shm", "exclusive", "none"}, {"shm", "offload", "none"}};
  if (transport::ucx::why_no_ucx().empty()) all.push_back({"ucx", "auto", "none"});
  if (transport::ofi::why_no_ofi().empty()) all.push_back({"ofi", "auto", "none"});
  return all;
}

INSTANTIATE_TEST_SUITE_P(each, Traces, testing::ValuesIn(kinds()), [](const testing::TestParamInfo<Kind>& one) {
  return std::string(one.param.transport) + "_" + one.param.sharing + "_" + one.param.progress;
});

TEST(KilledRank, IsInThePicture) {
  Traced job;
  EXPECT_EQ(job.run({"shm", "auto", "none"}, "die"), 128 + SIGKILL) << job.out() << job.err();
  const Seen seen = job.seen();
  EXPECT_EQ(count(of_rank(seen, 1), kInstant, "active message", " to "), 40U);
  EXPECT_EQ(count(of_rank(seen, 1), kBegin, "all of it"), 1U);
}

TEST(OtherPrograms, HaveNoTrace) {
  Traced job;
  Launched other({HEDDLE_TOOL, "run", "--trace", job.path(), "/bin/true"});
  EXPECT_EQ(other.wait(), 0);
  EXPECT_NE(
      other.err().find("warning: there is no trace: the program has not joined a Heddle job (it made no context)"),
      std::string::npos)
      << other.err();
}

TEST(Jobs, ThatAreNotTracedAreToldSo) {
  Launched job({HEDDLE_TOOL, "run", "-n", "3", HEDDLE_TRACE_RANK});
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.numbers("traced"), (std::vector<long long>{0, 0, 0}));
}

}  // namespace
}  // namespace heddle::tests::trace_test
