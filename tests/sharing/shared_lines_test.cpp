// No cache line is written by more than one thread where each thread has a worker of its own:
// neither by an operation nor by data beside it in memory. Then many threads can be as fast as one.
// Two cores suffice for the test, since it counts lines and not time.
//
// Two ranks in this process, 16 lanes each: a thread of rank 0 and one of rank 1 with their
// workers. Every lane does the same operation many times in each of three phases.
#include <gtest/gtest.h>
#include <malloc.h>
#include <sched.h>

#include <array>
#include <atomic>
#include <barrier>
#include <cstdlib>
#include <thread>

#include "api/test_job.hpp"
#include "base/cache_line.hpp"
#include "sharing/findings.hpp"

namespace heddle::sharing::shared_lines_test {
namespace {

constexpr std::uint32_t kLanes = 16;
constexpr std::uint32_t kPhases = 3;
constexpr std::uint64_t kBytesOfLane = 8192;
constexpr std::uint64_t kApart = 1024;  // no two in lines, or pages of lines, that come together

// One rank's side of a lane.
struct alignas(kApart) Side {
  std::uint32_t rank = 0;
  std::uint32_t lane = 0;
  heddle_worker worker{};
  heddle_peer peer{};
  heddle_remote there{};     // allocated memory of the other side
  heddle_remote ordinary{};  // registered memory of the other side
  heddle_collective meeting{};
  heddle_receive receive{};
  alignas(kApart) std::array<std::byte, 4096> data{};
  alignas(kApart) std::array<std::byte, 4096> came{};
  alignas(kApart) std::uint64_t old = 0;
  std::uint64_t ended = 0;                                // operations that a completion told of
  alignas(kApart) std::atomic<std::uint64_t> handled{0};  // messages
  alignas(kApart) std::atomic<std::uint32_t> over{0};     // phases that the other side has left

  void turn() {
    const int events = heddle_worker_progress(worker);
    ASSERT_GE(events, 0) << heddle_last_error();
    if (events == 0) sched_yield();
  }
  // The library's waits are not watched: here it executes the operation alone.
  template <class Try>
  heddle_status insist(Try&& attempt) {
    heddle_status status = attempt();
    for (; status == HEDDLE_AGAIN; status = attempt()) turn();
    EXPECT_GE(status, 0) << heddle_last_error();
    return status;
  }
  template <class Condition>
  void until(Condition&& condition) {
    while (!condition()) turn();
  }
};

void count_end(void* arg, heddle_status status) {
  EXPECT_EQ(status, HEDDLE_DONE);
  ++static_cast<Side*>(arg)->ended;
}

// With a completion; until that is there.
template <class Try>
void complete(Side& side, Try&& attempt) {
  const heddle_completion completion{count_end, &side, {}, HEDDLE_WHEN_REMOTE};
  const std::uint64_t before = side.ended;
  if (side.insist([&] { return attempt(&completion); }) == HEDDLE_POSTED) {
    side.until([&] { return side.ended != before; });
  }
}

void receive_one(Side& side, std::uint64_t bytes) {
  const heddle_wanted wanted{side.peer, side.lane, UINT64_MAX};
  side.insist([&] { return heddle_try_recv(side.worker, &wanted, side.came.data(), bytes, &side.receive, nullptr); });
  side.until([&] { return side.receive.status != HEDDLE_POSTED; });
  EXPECT_EQ(side.receive.status, HEDDLE_DONE);
}
template <std::uint64_t kBytes>
void send_one(Side& side) {
  complete(side, [&](const heddle_completion* completion) {
    return heddle_try_send(side.worker, side.peer, side.lane, side.data.data(), kBytes, completion);
  });
}
template <std::uint64_t kBytes>
void send_active(Side& side) {
  const heddle_am_message message{side.lane, 0, nullptr, side.data.data(), kBytes};
  side.insist([&] { return heddle_try_am(side.worker, side.peer, &message, nullptr); });
}

alignas(kApart) std::atomic<std::uint64_t> planted{0};
alignas(kApart) std::array<std::uint64_t, kLanes> planted_neighbours{};

// The operation of rank 0's side, and that of the other side as often; null: the other side makes
// progress until rank 0's side is ready.
struct Operation {
  const char* name;
  void (*active)(Side& side);
  void (*passive)(Side& side) = nullptr;
};

void PrintTo(const Operation& operation, std::ostream* out) {
  *out << operation.name;
}

const Operation kOperationsOfAll[] = {
    {"put",
     [](Side& side) {
       complete(side, [&](auto* done) { return heddle_try_put(side.worker, side.data.data(), 8, side.there, done); });
     }},
    {"put_unnotified_quiet",
     [](Side& side) {
       side.insist([&] { return heddle_try_put(side.worker, side.data.data(), 8, side.there, nullptr); });
       side.insist([&] { return heddle_try_quiet(side.worker); });
     }},
    {"put_registered",
     [](Side& side) {
       complete(side,
                [&](auto* done) { return heddle_try_put(side.worker, side.data.data(), 8, side.ordinary, done); });
     }},
    {"put_signal",
     [](Side& side) {
       const heddle_signal signal{{side.there.region, side.there.offset + 4096}, 1, HEDDLE_SIGNAL_ADD};
       complete(side, [&](auto* done) {
         return heddle_try_put_signal(side.worker, side.data.data(), 8, side.there, &signal, done);
       });
     }},
    {"get",
     [](Side& side) {
       complete(side, [&](auto* done) { return heddle_try_get(side.worker, side.came.data(), 8, side.there, done); });
     }},
    {"get_registered",
     [](Side& side) {
       complete(side,
                [&](auto* done) { return heddle_try_get(side.worker, side.came.data(), 8, side.ordinary, done); });
     }},
    {"fetch_add",
     [](Side& side) {
       const heddle_fetch fetch{1, 0, &side.old};
       complete(side, [&](auto* done) {
         return heddle_try_fetch_atomic(side.worker, HEDDLE_ADD64, side.there, &fetch, done);
       });
     }},
    {"am_8", send_active<8>,
     [](Side& side) { side.until([&, before = side.ended++] { return side.handled > before; }); }},
    {"am_4096", send_active<4096>,
     [](Side& side) { side.until([&, before = side.ended++] { return side.handled > before; }); }},
    {"tagged_8", send_one<8>, [](Side& side) { receive_one(side, 8); }},
    {"tagged_4096", send_one<4096>, [](Side& side) { receive_one(side, 4096); }},
    {"tagged_pingpong",
     [](Side& side) {
       send_one<8>(side);
       receive_one(side, 8);
     },
     [](Side& side) {
       receive_one(side, 8);
       send_one<8>(side);
     }},
    {"collective",
     [](Side& side) {
       EXPECT_GE(heddle_collective_start(side.meeting), 0) << heddle_last_error();
       while (heddle_collective_test(side.meeting) == HEDDLE_AGAIN) sched_yield();
     },
     [](Side& side) {
       EXPECT_GE(heddle_collective_start(side.meeting), 0) << heddle_last_error();
       while (heddle_collective_test(side.meeting) == HEDDLE_AGAIN) sched_yield();
     }},
};

// Planted for the test to find: a counter of all, and words of each in common lines.
const Operation kPlanted = {
    "planted", [](Side& side) {
      planted.fetch_add(1, std::memory_order_relaxed);
      side.insist([&] { return heddle_try_put(side.worker, side.data.data(), 8, side.there, nullptr); });
    }};

const Operation kPlantedBeside = {
    "planted_beside", [](Side& side) {
      ++planted_neighbours[side.lane];
      side.insist([&] { return heddle_try_put(side.worker, side.data.data(), 8, side.there, nullptr); });
    }};

// One rank of the job: its lanes, and what they use.
class Rank {
 public:
  Rank(const test::Job& job, std::uint32_t rank)
      : context_(job.join(rank)), sides_(kLanes), ordinary_(kLanes * kBytesOfLane) {
    for (std::uint32_t i = 0; i < kLanes; ++i) workers_.push_back(context_.open_worker(HEDDLE_SHARING_EXCLUSIVE));
    allocated_ = context_.alloc(kLanes * kBytesOfLane);
    registered_ = context_.register_memory(ordinary_);
    there_ = context_.exchange(allocated_);
    ordinary_there_ = context_.exchange(registered_);
    for (std::uint32_t i = 0; i < kLanes; ++i) open(rank, i);
    context_.barrier();
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  ~Rank() {
    context_.barrier();
    for (Side& side : sides_) static_cast<void>(heddle_collective_free(side.meeting));
  }
  [[nodiscard]] Side& side(std::uint32_t lane) { return sides_[lane]; }

 private:
  void open(std::uint32_t rank, std::uint32_t lane) {
    Side& side = sides_[lane];
    side.rank = rank;
    side.lane = lane;
    side.worker = workers_[lane].handle();
    side.peer = {1 - rank, workers_[lane].index()};
    side.there = there_[1 - rank].at(lane * kBytesOfLane);
    side.ordinary = ordinary_there_[1 - rank].at(lane * kBytesOfLane);
    teams_.push_back(Team::world(context_));
    check(heddle_barrier_init(teams_.back().handle(), nullptr, &side.meeting));
    const auto handle = [](const heddle_am_arrival*, void* arg) {
      Side& mine = *static_cast<Side*>(arg);
      mine.handled.store(mine.handled.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    };
    context_.register_am(lane, handle, &side);
  }

  Context context_;
  std::vector<Worker> workers_;
  std::vector<Side> sides_;
  std::vector<std::byte> ordinary_;
  Region allocated_;
  Region registered_;
  std::vector<RemoteRegion> there_;
  std::vector<RemoteRegion> ordinary_there_;
  std::vector<Team> teams_;
};

struct Load {
  const char* transport;
  std::uint32_t operations;  // of a lane in a phase
};

void run_phase(Side& side, Side& partner, std::uint32_t phase, const Operation& operation, std::uint32_t count) {
  if (side.rank == 0) {
    for (std::uint32_t i = 0; i < count; ++i) operation.active(side);
    // what is under way ends while both are still there
    side.insist([&] { return heddle_try_quiet(side.worker); });
    partner.over.fetch_add(1);
    return;
  }
  side.ended = side.handled.load();
  for (std::uint32_t i = 0; operation.passive != nullptr && i < count; ++i) operation.passive(side);
  side.until([&] { return side.over.load() > phase; });
}

// The first phase is not watched: contacts are made, tables grow.
std::vector<Finding> watch_operation(const Load& load, const Operation& operation) {
  const std::vector<std::pair<const char*, const char*>> alone = {{"HEDDLE_PROGRESS", "none"}};
  const test::Variables set(alone);
  // As on a machine with a core for each thread: no two threads use the same part of the C
  // library's heap, and memory freed by one is not the other's next.
  mallopt(M_ARENA_MAX, 8 * kLanes);
  const test::Job job(2, load.transport);
  std::vector<Part> parts(2 * kLanes * kPhases);
  std::barrier<> all(2 * kLanes);
  std::array<std::unique_ptr<Rank>, 2> ranks;
  const auto work = [&](Rank& own, std::uint32_t rank, std::uint32_t lane) {
    Side& side = own.side(lane);
    all.arrive_and_wait();
    Side& partner = ranks[1 - rank]->side(lane);
    for (std::uint32_t phase = 0; phase <= kPhases; ++phase) {
      all.arrive_and_wait();
      if (phase > 0) {
        Part& part = parts[((phase - 1) * 2 + rank) * kLanes + lane];
        part.lane = lane;
        part.phase = phase;
        watch(part.record.get());
      }
      run_phase(side, partner, phase, operation, load.operations);
      watch(nullptr);
    }
  };
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      ranks[rank] = std::make_unique<Rank>(job, rank);
      std::vector<std::thread> lanes;
      for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
        lanes.emplace_back([&, lane] { work(*ranks[rank], rank, lane); });
      }
      for (std::thread& lane : lanes) lane.join();
      ranks[rank].reset();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Part& part : parts) EXPECT_FALSE(part.record->overflowed());
  return shared_lines(parts, kPhases, double{kLanes} * kPhases * load.operations, "/emulator/");
}

// The reason why an operation may write lines of the process. Null: it may not.
const char* known_to_share(const std::string& transport, const std::string& operation) {
  if (transport != "shm" && operation == "collective") {
    return "over a network the collectives of all teams go by one worker of the context";
  }
  if (transport == "utofu" && operation == "tagged_4096") {
    return "a message that the target fetches is registered, and the process has one table of regions";
  }
  return nullptr;
}

class Sharing : public testing::TestWithParam<Operation> {};
INSTANTIATE_TEST_SUITE_P(Of, Sharing, testing::ValuesIn(kOperationsOfAll),
                         [](const auto& row) { return std::string(row.param.name); });

TEST_P(Sharing, NoLineIsWrittenByTwoThreads) {
  const char* given = std::getenv("TEST_TRANSPORT");
  const std::string transport = given != nullptr ? given : "shm";
  if (const char* reason = known_to_share(transport, GetParam().name); reason != nullptr) GTEST_SKIP() << reason;
  const std::vector<Finding> found = watch_operation({transport.c_str(), transport == "shm" ? 300U : 50U}, GetParam());
  EXPECT_TRUE(found.empty()) << describe(found);
}

TEST(SharingOf, APlantedCounterIsFound) {
  const std::vector<Finding> found = watch_operation({"shm", 300}, kPlanted);
  ASSERT_EQ(found.size(), 1U) << describe(found);
  EXPECT_EQ(found[0].lanes.size(), kLanes);
  EXPECT_DOUBLE_EQ(found[0].writes, 1);
  const std::string text = describe(found);
  EXPECT_NE(text.find("shared_lines_test.cpp:"), std::string::npos) << text;
  EXPECT_NE(text.find("planted"), std::string::npos) << text;
}

TEST(SharingOf, PlantedWordsInCommonLinesAreFound) {
  const std::vector<Finding> found = watch_operation({"shm", 300}, kPlantedBeside);
  constexpr std::size_t kWordsOfLine = base::kCacheLine / sizeof(std::uint64_t);
  ASSERT_EQ(found.size(), (kLanes + kWordsOfLine - 1) / kWordsOfLine) << describe(found);
  for (const Finding& one : found) {
    EXPECT_EQ(one.lanes.size(), std::min<std::size_t>(kLanes, kWordsOfLine));
    EXPECT_NE(one.where.find("planted_neighbours"), std::string::npos) << describe(found);
  }
}

}  // namespace
}  // namespace heddle::sharing::shared_lines_test
