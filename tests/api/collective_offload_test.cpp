// Persistent broadcasts that the network's interface executes: a rank that computes between start
// and wait is not needed, the results are those of the software, and if there are not enough
// queues, the software runs them. On the emulator of uTofu.
#include <array>
#include <atomic>

#include "api/test_collective.hpp"
#include "base/test_support.hpp"

namespace heddle::test::collective_offload_test {
namespace {

constexpr const char* kAlgorithms[] = {"broadcast.chain_session", "broadcast.trinary_session"};

const Setting kUtofu{"utofu", "utofu", {{"HEDDLE_LIBRARIES", "utofu=" HEDDLE_TOFUCOM}}};

// One member's persistent broadcast.
class Broadcast {
 public:
  Broadcast(const Member& member, const char* algorithm, std::uint64_t bytes, std::uint32_t root,
            std::uint64_t segment_bytes = 0, Memory memory = Memory::own)
      : rank_(member.rank()), root_(root), own_(memory == Memory::own ? bytes : 0) {
    if (memory == Memory::allocated) region_ = member.context.alloc(std::max<std::uint64_t>(bytes, 1));
    data_ = memory == Memory::own ? std::span(own_) : region_.memory<std::byte>().first(bytes);
    const heddle_collective_options options{sizeof options, algorithm, segment_bytes};
    must(heddle_broadcast_init(member.world.handle(), data_.data(), bytes, root, &options, &handle_), "init");
  }
  Broadcast(const Broadcast&) = delete;
  Broadcast& operator=(const Broadcast&) = delete;
  ~Broadcast() { EXPECT_EQ(heddle_collective_free(handle_), HEDDLE_DONE) << heddle_last_error(); }

  [[nodiscard]] bool offloaded() const {
    int offloaded = -1;
    must(heddle_collective_offloaded(handle_, &offloaded), "offloaded");
    return offloaded == 1;
  }
  void start(std::uint64_t run) {
    for (std::size_t i = 0; i < data_.size(); ++i) data_[i] = rank_ == root_ ? given(run, root_, i) : std::byte{0xee};
    must(heddle_collective_start(handle_), "start");
  }
  [[nodiscard]] Status test() const { return heddle_collective_test(handle_); }
  [[nodiscard]] Status wait(std::int64_t timeout_ns = HEDDLE_FOREVER) const {
    return heddle_collective_wait(handle_, timeout_ns);
  }
  void verify(std::uint64_t run) const {
    for (std::size_t i = 0; i < data_.size(); ++i)
      if (data_[i] != given(run, root_, i))
        throw std::runtime_error("run " + std::to_string(run) + ", byte " + std::to_string(i) + " of " +
                                 std::to_string(data_.size()) + " is wrong");
  }
  void finish(std::uint64_t run) const {
    must(wait(), "wait");
    verify(run);
  }
  [[nodiscard]] heddle_collective handle() const { return handle_; }

 private:
  std::uint32_t rank_;
  std::uint32_t root_;
  std::vector<std::byte> own_;
  Region region_;
  std::span<std::byte> data_;
  heddle_collective handle_{};
};

class Offloaded : public testing::Test {
 protected:
  const Variables variables_{kUtofu.variables};
};

TEST_F(Offloaded, AllSizesAndRanks) {
  for (const std::uint32_t ranks : base::few_if_sanitized<std::vector<std::uint32_t>>({3}, {2, 3, 4, 6})) {
    run_members(ranks, "utofu", [&](const Member& member) {
      for (const char* algorithm : kAlgorithms) {
        for (const std::uint64_t bytes : {1U, 8U, 1000U, 65'536U, 200'001U}) {
          const auto root = static_cast<std::uint32_t>(bytes % ranks);
          Broadcast broadcast(member, algorithm, bytes, root, 8192, bytes % 2 == 0 ? Memory::allocated : Memory::own);
          must_be(broadcast.offloaded(), std::string(algorithm) + " is offloaded");
          for (std::uint64_t run = 1; run <= 5; ++run) {
            broadcast.start(run);
            broadcast.finish(run);
          }
        }
      }
    });
    ASSERT_FALSE(HasFailure()) << ranks << " ranks";
  }
}

TEST_F(Offloaded, LongOnesInManySegments) {
  run_members(3, "utofu", [&](const Member& member) {
    for (const std::uint64_t segment : {std::uint64_t{0}, std::uint64_t{16'384}}) {
      Broadcast broadcast(member, "broadcast.chain_session", base::few_if_sanitized<std::uint64_t>(700'017, 3'000'017),
                          1, segment);
      must_be(broadcast.offloaded(), "offloaded");
      for (std::uint64_t run = 1; run <= 3; ++run) {
        broadcast.start(run);
        broadcast.finish(run);
      }
    }
  });
}

// The last of the chain has everything though root and middle call nothing until it says so.
TEST_F(Offloaded, NobodyIsNeededBetweenStartAndEnd) {
  constexpr std::uint32_t kRanks = 4;
  constexpr std::uint64_t kRuns = 20;
  std::atomic<std::uint64_t> arrived{0};
  run_members(kRanks, "utofu", [&](const Member& member) {
    // 20 segments: within the least room that queues have here.
    Broadcast broadcast(member, "broadcast.chain_session", 100'000, 0, 5056);
    must_be(broadcast.offloaded(), "offloaded");
    for (std::uint64_t run = 1; run <= kRuns; ++run) {
      broadcast.start(run);
      if (member.rank() == kRanks - 1) {
        broadcast.finish(run);
        arrived.store(run, std::memory_order_release);
      } else {
        must_be(within_time([&] { return arrived.load(std::memory_order_acquire) >= run; }), "it arrives");
        broadcast.finish(run);
      }
    }
  });
}

// Faster members are a run ahead: their credits are kept.
TEST_F(Offloaded, ManyStartsAndTests) {
  run_members(3, "utofu", [&](const Member& member) {
    Broadcast broadcast(member, "broadcast.trinary_session", 3000, 2);
    must_be(broadcast.offloaded(), "offloaded");
    for (std::uint64_t run = 1; run <= 500; ++run) {
      broadcast.start(run);
      Status status = HEDDLE_AGAIN;
      must_be(within_time([&] { return (status = broadcast.test()) != HEDDLE_AGAIN; }), "the run ends");
      must(status, "test");
      broadcast.verify(run);
    }
  });
}

TEST_F(Offloaded, SeveralAtOnceAndBesideOthers) {
  run_members(2, "utofu", [&](const Member& member) {
    Broadcast first(member, "broadcast.chain_session", 40'000, 0, 4096);
    Broadcast second(member, "broadcast.chain_session", 30'000, 1, 4096);
    must_be(first.offloaded() && second.offloaded(), "offloaded");
    for (std::uint64_t run = 1; run <= 20; ++run) {
      first.start(run);
      second.start(run + 100);
      must(heddle_barrier(member.world.handle()), "barrier");
      second.finish(run + 100);
      first.finish(run);
    }
  });
}

// Operations that find no queues are run by software, for all members.
TEST_F(Offloaded, MoreOperationsThanQueues) {
  run_members(2, "utofu", [&](const Member& member) {
    std::vector<std::unique_ptr<Broadcast>> all;
    std::size_t offloaded = 0;
    constexpr std::size_t kOperations = 12;
    for (std::size_t i = 0; i < kOperations; ++i) {
      all.push_back(std::make_unique<Broadcast>(member, "broadcast.chain_session", 10'000, i % 2, 4096));
      offloaded += all.back()->offloaded() ? 1 : 0;
    }
    must_be(offloaded > 0 && offloaded < kOperations, std::to_string(offloaded) + " are offloaded");
    for (std::uint64_t run = 1; run <= 5; ++run) {
      for (std::size_t i = 0; i < kOperations; ++i) all[i]->start(run + i);
      for (std::size_t i = kOperations; i-- > 0;) all[i]->finish(run + i);
    }
    all.clear();
    must(heddle_barrier(member.world.handle()), "barrier");
    Broadcast again(member, "broadcast.chain_session", 10'000, 0, 4096);
    must_be(again.offloaded(), "queues come back");
  });
}

// Operations of the interface bypass the decorator: with faults they are not offered.
TEST_F(Offloaded, BehindTheFaultDecoratorIfNoFaultIsSet) {
  for (const bool faults : {false, true}) {
    const Variables variables(faults ? std::vector<std::pair<const char*, const char*>>{{"HEDDLE_FAULT", "delay=3"}}
                                     : std::vector<std::pair<const char*, const char*>>{});
    run_members(2, "fault+utofu", [&](const Member& member) {
      Broadcast broadcast(member, "broadcast.chain_session", 10'000, 1, 4096);
      must_be(broadcast.offloaded() != faults, "offloaded, or there are faults");
      heddle_collective barrier{};
      must(heddle_barrier_init(member.world.handle(), nullptr, &barrier), "init");
      int by_gates = -1;
      must(heddle_collective_offloaded(barrier, &by_gates), "offloaded");
      must_be((by_gates == 1) != faults, "barrier gates, or there are faults");
      for (std::uint64_t run = 1; run <= 3; ++run) {
        broadcast.start(run);
        broadcast.finish(run);
        must(heddle_collective_start(barrier), "start");
        must(heddle_collective_wait(barrier, HEDDLE_FOREVER), "wait");
      }
      must(heddle_barrier(member.world.handle()), "barrier");
      must(heddle_collective_free(barrier), "free");
    });
    ASSERT_FALSE(HasFailure()) << (faults ? "with faults" : "without faults");
  }
}

TEST_F(Offloaded, NotWhereOneMemberHasNone) {
  const Job job(2, "utofu");
  std::vector<std::thread> threads;
  std::atomic<bool> joined{false};
  for (const std::uint32_t rank : {0U, 1U}) {
    threads.emplace_back([&, rank] {
      // The environment is read when a rank joins: one after the other.
      if (rank == 1) {
        EXPECT_TRUE(within_time([&] { return joined.load(std::memory_order_acquire); }));
        setenv("HEDDLE_UTOFU_SESSIONS", "0", 1);
      }
      Context context = job.join(rank);
      joined.store(true, std::memory_order_release);
      try {
        Team world = Team::world(context);
        const Member member{job.handle(), context, world};
        {
          Broadcast broadcast(member, "broadcast.chain_session", 10'000, 0);
          must_be(!broadcast.offloaded(), "not offloaded");
          for (std::uint64_t run = 1; run <= 3; ++run) {
            broadcast.start(run);
            broadcast.finish(run);
          }
        }
        must(heddle_barrier(world.handle()), "the last barrier");
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
        static_cast<void>(heddle_inproc_fail(job.handle(), rank));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  unsetenv("HEDDLE_UTOFU_SESSIONS");
}

TEST_F(Offloaded, MisuseIsRefused) {
  run_members(2, "utofu", [&](const Member& member) {
    Broadcast broadcast(member, "broadcast.chain_session", 1000, 0);
    must_be(broadcast.offloaded(), "offloaded");
    if (member.rank() == 0) {
      broadcast.start(1);
      must_be(heddle_collective_start(broadcast.handle()) == HEDDLE_ERR_STATE, "no second start");
      must_be(broadcast.wait(0) == HEDDLE_ERR_TIMEOUT, "the other one has not started");
      must_be(heddle_collective_free(broadcast.handle()) == HEDDLE_ERR_STATE, "it is active");
      must(heddle_barrier(member.world.handle()), "barrier");
    } else {
      must(heddle_barrier(member.world.handle()), "barrier");
      broadcast.start(1);
    }
    broadcast.finish(1);
  });
}

// Without a root nothing comes; without a middle nothing passes. Last in this file: an operation
// that has not ended keeps its queues.
TEST_F(Offloaded, ZTheDeathOfAMemberIsTold) {
  constexpr std::uint32_t kRanks = 3;
  for (const std::uint32_t dead : {0U, 1U}) {
    const Job job(kRanks, "utofu");
    std::atomic<std::uint32_t> ready{0};
    std::atomic<std::uint32_t> through{0};
    std::vector<std::thread> threads;
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        // Peers may still put to a member whose receive has failed, until all are gone.
        static std::array<std::array<std::vector<std::byte>, kRanks>, 2> buffers;
        std::vector<std::byte>& buffer = buffers[dead][rank];
        buffer.resize(50'000);
        Context context = job.join(rank);
        try {
          Team world = Team::world(context);
          heddle_collective handle{};
          const heddle_collective_options options{sizeof options, "broadcast.chain_session", 4096};
          must(heddle_broadcast_init(world.handle(), buffer.data(), buffer.size(), 0, &options, &handle), "init");
          int offloaded = 0;
          must(heddle_collective_offloaded(handle, &offloaded), "offloaded");
          must_be(offloaded == 1, "offloaded");
          ready.fetch_add(1);
          must_be(within_time([&] { return ready.load() == kRanks; }), "all are ready");
          if (rank == dead) {
            must(heddle_inproc_fail(job.handle(), rank), "fail");
          } else {
            must(heddle_collective_start(handle), "start");
            const Status status = heddle_collective_wait(handle, HEDDLE_FOREVER);
            must_be(status == HEDDLE_ERR_PEER_FAILED, "PEER_FAILED from wait");
            must_be(heddle_collective_start(handle) == HEDDLE_ERR_PEER_FAILED, "and from the next start");
            must(heddle_collective_free(handle), "free");
          }
          through.fetch_add(1);
          must_be(within_time([&] { return through.load() == kRanks; }, [&] { static_cast<void>(context.progress()); }),
                  "all are through");
        } catch (const std::exception& error) {
          ADD_FAILURE() << "rank " << rank << ": " << error.what();
          through.fetch_add(kRanks);
          static_cast<void>(heddle_inproc_fail(job.handle(), rank));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace heddle::test::collective_offload_test
