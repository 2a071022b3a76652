// The walk of the paper [Morie et al., Prototyping of Offloaded Persistent Broadcast on Tofu2]:
// four processes in a chain, a message of two segments, pointer by pointer. The test acts as the
// network: it decides when a segment arrives.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <deque>

#include "collective/algorithms/algorithms.hpp"
#include "collective/session_queue.hpp"

namespace heddle::collective::session_walk_test {
namespace {

constexpr Rank kRanks = 4;
constexpr std::uint64_t kSegment = 8;
// the counter and the queue of the segments, see broadcast_session.cpp
constexpr std::uint32_t kData = 0;

// The connection from one rank to another.
class Wire final : public Carrier {
 public:
  void lead_to(const RankMemory& target) { target_ = target; }
  bool put(const std::byte* source, std::uint64_t bytes, Place place, std::uint64_t offset,
           std::atomic<std::int32_t>* ended) override {
    segments_.push_back({source, bytes, target_.places[static_cast<std::size_t>(place)] + offset, ended});
    ++sent_;
    return true;
  }
  base::Status give(std::uint32_t counter, std::uint64_t credits) override {
    target_.counters[counter].credits.fetch_add(credits);
    return HEDDLE_POSTED;
  }
  void deliver() {
    const Segment segment = segments_.front();
    segments_.pop_front();
    std::memcpy(segment.to, segment.source, segment.bytes);
    segment.ended->store(kThere);
  }
  [[nodiscard]] std::uint64_t sent() const { return sent_; }

 private:
  struct Segment {
    const std::byte* source;
    std::uint64_t bytes;
    std::byte* to;
    std::atomic<std::int32_t>* ended;
  };
  RankMemory target_;
  std::deque<Segment> segments_;
  std::uint64_t sent_ = 0;
};

class Walk : public testing::Test {
 protected:
  Walk() {
    AlgorithmRequest request{Operation::broadcast, 0, kRanks, 0, 2 * kSegment, 1, kSegment, {0, 0, 0}};
    std::array<Schedule, kRanks> schedules;
    std::array<RankMemory, kRanks> memory;
    for (Rank rank = 0; rank < kRanks; ++rank) {
      request.rank = rank;
      schedules[rank] = broadcast_chain_session(request);
      counters_[rank] = std::vector<CounterWord>(schedules[rank].counters.size());
      SessionQueue::prepare(schedules[rank], counters_[rank].data());
      memory[rank].places[static_cast<std::size_t>(Place::receive)] = data_[rank].data();
      memory[rank].counters = counters_[rank].data();
      for (const ScheduleCommand& command : schedules[rank].commands)
        producer_[rank] += command.queue == kData ? 1U : 0U;
    }
    for (Rank rank = 0; rank < kRanks; ++rank) {
      std::array<RankMemory, kRanks> seen = memory;
      for (Rank other = 0; other < kRanks; ++other) {
        wires_[rank][other].lead_to(memory[other]);
        seen[other].carrier = &wires_[rank][other];
      }
      queues_[rank] = std::make_unique<SessionQueue>(schedules[rank], seen, Reduction{});
    }
  }

  void fill(std::uint64_t run) {
    for (std::uint64_t i = 0; i < 2 * kSegment; ++i) data_[0][i] = static_cast<std::byte>(run * 16 + i);
  }
  [[nodiscard]] bool has(Rank rank, unsigned segment) const {
    return std::memcmp(data_[rank].data() + segment * kSegment, data_[0].data() + segment * kSegment, kSegment) == 0;
  }
  bool advance(Rank rank) { return queues_[rank]->advance(); }
  // Stores the segment at the next rank; then that rank's scheduling pointer moves.
  void deliver(Rank from) {
    const std::uint64_t before = scheduling(from + 1);
    wires_[from][from + 1].deliver();
    EXPECT_EQ(scheduling(from + 1), before) << "the pointer moved before the data were stored";
    static_cast<void>(advance(from));
    EXPECT_EQ(scheduling(from + 1), before + 1);
  }
  // The pointers of the queue of segments, over all runs.
  [[nodiscard]] std::uint64_t scheduling(Rank rank) const { return counters_[rank][kData].credits.load(); }
  [[nodiscard]] std::uint64_t consumer(Rank rank) const { return wires_[rank][rank + 1].sent(); }

  std::array<std::array<std::byte, 2 * kSegment>, kRanks> data_{};
  std::array<std::vector<CounterWord>, kRanks> counters_;
  std::array<std::array<Wire, kRanks>, kRanks> wires_;
  std::array<std::uint32_t, kRanks> producer_{};
  std::array<std::unique_ptr<SessionQueue>, kRanks> queues_;
};

TEST_F(Walk, OfFourProcessesAndTwoSegments) {
  for (std::uint64_t run = 1; run <= 3; ++run) {
    const std::uint64_t base = 2 * (run - 1);
    fill(run);
    // All ranks enqueue their commands and report; no rank sends before the root knows that all are
    // ready.
    for (const Rank rank : {0U, 2U, 1U}) {
      queues_[rank]->start();
      EXPECT_EQ(consumer(rank), base) << rank;
    }
    EXPECT_EQ(consumer(0), base) << "rank 3 is not ready";
    queues_[3]->start();
    for (const Rank rank : {2U, 1U, 0U}) static_cast<void>(advance(rank));
    for (const Rank rank : {1U, 2U, 3U}) {
      EXPECT_EQ(producer_[rank], 2U);
      EXPECT_EQ(scheduling(rank), base) << rank;
    }
    EXPECT_EQ(consumer(1), base);
    EXPECT_EQ(consumer(2), base);
    // Rank 0 sends both: its commands wait for nothing else.
    EXPECT_EQ(consumer(0), base + 2);

    deliver(0);  // the first segment arrives at rank 1, which then sends it and nothing more
    EXPECT_TRUE(has(1, 0));
    EXPECT_FALSE(has(1, 1));
    EXPECT_FALSE(advance(1));
    EXPECT_FALSE(advance(1));
    EXPECT_EQ(consumer(1), base + 1) << "the consumer pointer has passed the scheduling pointer";
    EXPECT_EQ(consumer(2), base);

    deliver(0);  // the second arrives at rank 1, while the first arrives at rank 2
    EXPECT_TRUE(queues_[0]->done());
    static_cast<void>(advance(1));
    EXPECT_EQ(consumer(1), base + 2);
    deliver(1);
    static_cast<void>(advance(2));
    EXPECT_EQ(scheduling(2), base + 1);
    EXPECT_EQ(consumer(2), base + 1);

    deliver(1);
    EXPECT_TRUE(queues_[1]->done());
    static_cast<void>(advance(2));
    EXPECT_EQ(consumer(2), base + 2);
    EXPECT_FALSE(advance(3));
    deliver(2);
    EXPECT_FALSE(advance(3));
    EXPECT_TRUE(has(3, 0));
    deliver(2);
    EXPECT_TRUE(queues_[2]->done());
    EXPECT_TRUE(advance(3));
    for (Rank rank = 0; rank < kRanks; ++rank) EXPECT_EQ(data_[rank], data_[0]) << rank;
  }
}

// Credits that arrive before their commands are kept: rank 2 has not returned to its queue while
// both segments arrived.
TEST_F(Walk, KeepsCreditsThatComeEarly) {
  fill(1);
  for (const Rank rank : {3U, 2U, 1U, 0U}) queues_[rank]->start();
  deliver(0);
  deliver(0);
  static_cast<void>(advance(1));
  deliver(1);
  deliver(1);
  EXPECT_EQ(scheduling(2), 2U);
  EXPECT_EQ(consumer(2), 0U);
  static_cast<void>(advance(2));
  EXPECT_EQ(consumer(2), 2U);
}

}  // namespace
}  // namespace heddle::collective::session_walk_test
