// Errors of partitioned operations: wrong calls, sides that do not fit, peers that are gone. No
// call waits for ever.
#include <array>
#include <atomic>
#include <cstdlib>
#include <optional>
#include <vector>

#include "api/test_job.hpp"

namespace heddle::test::partitioned_errors_test {
namespace {

// TEST_TRANSPORT=NAME: that one alone, as all_settings().
const std::vector<const char*> kTransports = [] {
  const char* only = std::getenv("TEST_TRANSPORT");
  return only != nullptr ? std::vector<const char*>{only} : std::vector<const char*>{"shm", "loopback-messages"};
}();

bool says(const char* text) {
  return std::string(heddle_last_error()).find(text) != std::string::npos;
}

// A send of this worker to itself with its receive, four parts of eight bytes each.
struct Pair {
  explicit Pair(const Context& context, const Worker& worker)
      : send(worker, std::span<const std::byte>(out), 4, {context.rank(), 0}, 1),
        receive(worker, std::span(in), 4, {context.rank(), 0}, 1) {}
  std::array<std::byte, 32> out{};
  std::array<std::byte, 32> in{};
  PartitionedSend send;
  PartitionedReceive receive;
};

void run_alone(const char* transport, const std::function<void(Context&, Worker&)>& body) {
  const Job job(1, transport);
  job.run(body);
}

TEST(PartitionedErrors, OfArguments) {
  run_alone("shm", [](Context&, Worker& worker) {
    std::array<std::byte, 16> data{};
    heddle_partitioned made{};
    const heddle_worker own = worker.handle();
    EXPECT_EQ(heddle_psend_init({}, data.data(), 2, 8, {0, 0}, 1, &made), HEDDLE_ERR_HANDLE);
    EXPECT_EQ(heddle_psend_init(own, data.data(), 2, 8, {0, 0}, 1, nullptr), HEDDLE_ERR_ARGUMENT);
    EXPECT_EQ(heddle_psend_init(own, nullptr, 2, 8, {0, 0}, 1, &made), HEDDLE_ERR_ARGUMENT);
    EXPECT_EQ(heddle_psend_init(own, data.data(), 0, 8, {0, 0}, 1, &made), HEDDLE_ERR_ARGUMENT);
    EXPECT_EQ(heddle_psend_init(own, data.data(), HEDDLE_MOST_PARTITIONS + 1, 0, {0, 0}, 1, &made), HEDDLE_ERR_SIZE);
    EXPECT_EQ(heddle_precv_init(own, data.data(), 2, SIZE_MAX, {0, 0}, 1, &made), HEDDLE_ERR_SIZE);
    EXPECT_EQ(heddle_precv_init(own, data.data(), 2, 8, {1, 0}, 1, &made), HEDDLE_ERR_RANK);
    EXPECT_TRUE(says("rank 1")) << heddle_last_error();
    EXPECT_EQ(heddle_psend_init(own, data.data(), 2, 8, {0, 1'000'000}, 1, &made), HEDDLE_ERR_RANK);
    EXPECT_EQ(made.id, 0U);
    for (const auto call : {heddle_partitioned_start, heddle_partitioned_test, heddle_partitioned_free}) {
      EXPECT_EQ(call(made), HEDDLE_ERR_HANDLE);
    }
    EXPECT_EQ(heddle_partitioned_wait(made, 0), HEDDLE_ERR_HANDLE);
    EXPECT_EQ(heddle_pready(made, 0), HEDDLE_ERR_HANDLE);
    EXPECT_EQ(heddle_pready_range(made, 0, 0), HEDDLE_ERR_HANDLE);
    EXPECT_EQ(heddle_parrived(made, 0), HEDDLE_ERR_HANDLE);
  });
}

TEST(PartitionedErrors, OfOrder) {
  for (const char* transport : kTransports) {
    run_alone(transport, [](Context& context, Worker& worker) {
      const Pair pair(context, worker);
      // Before a run.
      EXPECT_EQ(pair.send.ready(0), HEDDLE_ERR_STATE);
      EXPECT_TRUE(says("no run")) << heddle_last_error();
      EXPECT_EQ(pair.send.test(), HEDDLE_DONE);
      EXPECT_EQ(pair.receive.wait(), HEDDLE_DONE);
      EXPECT_EQ(pair.receive.arrived(0), HEDDLE_DONE);
      for (int run = 0; run < 3; ++run) {
        ASSERT_EQ(pair.send.start(), HEDDLE_DONE) << heddle_last_error();
        EXPECT_EQ(pair.send.start(), HEDDLE_ERR_STATE);
        ASSERT_EQ(pair.receive.start(), HEDDLE_DONE) << heddle_last_error();
        EXPECT_EQ(pair.receive.start(), HEDDLE_ERR_STATE);
        EXPECT_EQ(heddle_partitioned_free(pair.send.handle()), HEDDLE_ERR_STATE);
        EXPECT_EQ(heddle_partitioned_free(pair.receive.handle()), HEDDLE_ERR_STATE);
        EXPECT_EQ(pair.send.ready(4), HEDDLE_ERR_ARGUMENT);
        EXPECT_EQ(pair.send.ready(1, 4), HEDDLE_ERR_ARGUMENT);
        EXPECT_EQ(pair.send.ready(2, 1), HEDDLE_ERR_ARGUMENT);
        EXPECT_EQ(pair.receive.arrived(4), HEDDLE_ERR_ARGUMENT);
        EXPECT_EQ(heddle_pready(pair.receive.handle(), 0), HEDDLE_ERR_ARGUMENT);
        EXPECT_TRUE(says("receiving")) << heddle_last_error();
        EXPECT_EQ(heddle_parrived(pair.send.handle(), 0), HEDDLE_ERR_ARGUMENT);
        EXPECT_EQ(pair.send.ready(2), HEDDLE_DONE) << heddle_last_error();
        EXPECT_EQ(pair.send.ready(2), HEDDLE_ERR_STATE);
        EXPECT_TRUE(says("partition 2")) << heddle_last_error();
        // Part 0 was not marked: nothing ends.
        EXPECT_EQ(pair.receive.arrived(0), HEDDLE_AGAIN);
        EXPECT_EQ(pair.receive.wait(1'000'000), HEDDLE_ERR_TIMEOUT);
        EXPECT_TRUE(says("have not come") || says("no heddle_psend_init")) << heddle_last_error();
        EXPECT_EQ(pair.send.wait(1'000'000), HEDDLE_ERR_TIMEOUT);
        EXPECT_TRUE(says("3 of 4 partitions are not marked")) << heddle_last_error();
        EXPECT_EQ(pair.send.test(), HEDDLE_AGAIN);
        EXPECT_EQ(pair.send.ready(0, 1), HEDDLE_DONE);
        EXPECT_EQ(pair.send.ready(3), HEDDLE_DONE);
        EXPECT_EQ(pair.receive.wait(), HEDDLE_DONE) << heddle_last_error();
        EXPECT_EQ(pair.send.wait(), HEDDLE_DONE) << heddle_last_error();
        // After it.
        EXPECT_EQ(pair.send.ready(0), HEDDLE_ERR_STATE);
        EXPECT_EQ(pair.receive.arrived(3), HEDDLE_DONE);
      }
    });
  }
}

TEST(PartitionedErrors, TotalsThatDiffer) {
  for (const char* transport : kTransports) {
    const Job job(2, transport);
    job.run([](Context& context, Worker& worker) {
      std::array<std::byte, 24> data{};
      std::optional<PartitionedSend> send;
      std::optional<PartitionedReceive> receive;
      if (context.rank() == 0) {
        send.emplace(worker, std::span<const std::byte>(data), 3, heddle_peer{1, 0}, 1);
      } else {
        receive.emplace(worker, std::span(data).first(16), 2, heddle_peer{0, 0}, 1);
      }
      const Partitioned& own = send ? static_cast<Partitioned&>(*send) : *receive;
      // Known at once, or told by wait.
      Status status = own.start();
      if (status == HEDDLE_DONE) status = own.wait();
      EXPECT_EQ(status, HEDDLE_ERR_ARGUMENT);
      EXPECT_TRUE(says("3 partitions, 24 bytes") && says("2 partitions, 16 bytes")) << heddle_last_error();
      EXPECT_EQ(own.start(), HEDDLE_ERR_ARGUMENT);
      if (send) {
        EXPECT_EQ(send->ready(0), HEDDLE_ERR_ARGUMENT);
      }
      context.barrier(worker);
    });
  }
}

// Each side meets one that was freed: before it was matched, and after a run.
TEST(PartitionedErrors, PeersThatFree) {
  for (const char* transport : kTransports) {
    const Job job(2, transport);
    job.run([](Context& context, Worker& worker) {
      for (const std::uint32_t frees : {0U, 1U}) {
        for (const int runs : {0, 2}) {
          std::array<std::byte, 8> data{};
          // a freed send still takes a receive
          const std::uint64_t tag = frees * 2 + (runs > 0 ? 1 : 0);
          PartitionedSend send;
          PartitionedReceive receive;
          const bool sends = context.rank() == 0;
          if (sends) {
            send = PartitionedSend(worker, std::span<const std::byte>(data), 1, {1, 0}, tag);
          } else {
            receive = PartitionedReceive(worker, std::span(data), 1, {0, 0}, tag);
          }
          const Partitioned& own = sends ? static_cast<Partitioned&>(send) : receive;
          for (int run = 0; run < runs; ++run) {
            ASSERT_EQ(own.start(), HEDDLE_DONE) << heddle_last_error();
            if (sends) {
              ASSERT_EQ(send.ready(0), HEDDLE_DONE) << heddle_last_error();
            }
            ASSERT_EQ(own.wait(), HEDDLE_DONE) << heddle_last_error();
          }
          if (context.rank() == frees && (sends || runs > 0)) {
            ASSERT_EQ(heddle_partitioned_free(own.handle()), HEDDLE_DONE) << heddle_last_error();
            EXPECT_EQ(own.start(), HEDDLE_ERR_HANDLE);
          } else if (context.rank() != frees && (frees == 0 || runs > 0)) {
            Status status = own.start();
            if (status == HEDDLE_DONE && sends) status = send.ready(0);
            if (status == HEDDLE_DONE) status = own.wait();
            EXPECT_EQ(status, HEDDLE_ERR_CANCELLED) << heddle_last_error();
            EXPECT_TRUE(says("freed")) << heddle_last_error();
          }
          context.barrier(worker);
        }
      }
    });
  }
}

TEST(PartitionedErrors, AWorkerThatIsClosed) {
  for (const char* transport : kTransports) {
    const Job job(2, transport);
    job.run([](Context& context, Worker& worker) {
      std::array<std::byte, 8> data{};
      if (context.rank() == 0) {
        Worker second = context.open_worker();
        const PartitionedSend send(second, std::span<const std::byte>(data), 1, {1, 0}, 1);
        ASSERT_EQ(send.start(), HEDDLE_DONE);
        ASSERT_EQ(send.ready(0), HEDDLE_DONE);
        ASSERT_EQ(send.wait(), HEDDLE_DONE) << heddle_last_error();
        ASSERT_EQ(send.start(), HEDDLE_DONE);
        ASSERT_EQ(heddle_worker_close(second.release()), HEDDLE_DONE) << heddle_last_error();
        EXPECT_EQ(send.test(), HEDDLE_ERR_HANDLE);
        EXPECT_EQ(send.ready(0), HEDDLE_ERR_HANDLE);
      } else {
        const PartitionedReceive receive(worker, std::span(data), 1, {0, 1}, 1);
        ASSERT_EQ(receive.start(), HEDDLE_DONE);
        ASSERT_EQ(receive.wait(), HEDDLE_DONE) << heddle_last_error();
        ASSERT_EQ(receive.start() == HEDDLE_DONE ? receive.wait() : HEDDLE_ERR_CANCELLED, HEDDLE_ERR_CANCELLED)
            << heddle_last_error();
      }
      context.barrier(worker);
    });
  }
}

TEST(PartitionedErrors, SendsWithoutReceivesAreBounded) {
  run_alone("loopback-messages", [](Context& context, Worker& worker) {
    std::array<std::byte, 8> data{};
    std::vector<PartitionedSend> sends;
    for (std::uint32_t i = 0; i < HEDDLE_MOST_UNMATCHED; ++i) {
      sends.emplace_back(worker, std::span<const std::byte>(data), 1, heddle_peer{context.rank(), 0}, 9);
    }
    heddle_partitioned made{};
    EXPECT_EQ(heddle_psend_init(worker.handle(), data.data(), 1, 8, {context.rank(), 0}, 9, &made),
              HEDDLE_ERR_NO_MEMORY);
    EXPECT_TRUE(says("heddle_precv_init")) << heddle_last_error();
    // One receive makes room for one, and the first send is its peer.
    std::array<std::byte, 8> in{};
    const PartitionedReceive receive(worker, std::span(in), 1, {context.rank(), 0}, 9);
    data.fill(std::byte{5});
    ASSERT_EQ(receive.start(), HEDDLE_DONE);
    ASSERT_EQ(sends.front().start(), HEDDLE_DONE);
    ASSERT_EQ(sends.front().ready(0), HEDDLE_DONE);
    ASSERT_EQ(receive.wait(), HEDDLE_DONE) << heddle_last_error();
    ASSERT_EQ(sends.front().wait(), HEDDLE_DONE) << heddle_last_error();
    EXPECT_EQ(in, data);
    sends.emplace_back(worker, std::span<const std::byte>(data), 1, heddle_peer{context.rank(), 0}, 9);
    EXPECT_EQ(heddle_psend_init(worker.handle(), data.data(), 1, 8, {context.rank(), 0}, 9, &made),
              HEDDLE_ERR_NO_MEMORY);
  });
}

// ---- inside handlers ----------------------------------------------------------------------------

struct Inside {
  heddle_partitioned send{};
  heddle_partitioned receive{};
  heddle_worker worker{};
  std::array<Status, 6> told{};
  bool ran = false;
};

void in_handler(const heddle_am_arrival*, void* arg) {
  auto& inside = *static_cast<Inside*>(arg);
  std::array<std::byte, 8> data{};
  heddle_partitioned made{};
  inside.told = {heddle_psend_init(inside.worker, data.data(), 1, 8, {0, 0}, 2, &made),
                 heddle_partitioned_wait(inside.send, 0),
                 heddle_partitioned_free(inside.send),
                 heddle_partitioned_start(inside.receive),
                 heddle_partitioned_start(inside.send),
                 heddle_pready_range(inside.send, 0, 3)};
  inside.ran = true;
}

TEST(PartitionedErrors, InsideHandlersOfItsWorker) {
  for (const char* transport : kTransports) {
    run_alone(transport, [](Context& context, Worker& worker) {
      Pair pair(context, worker);
      pair.out.fill(std::byte{3});
      Inside inside{pair.send.handle(), pair.receive.handle(), worker.handle(), {}, false};
      context.register_am(3, in_handler, &inside);
      const heddle_am_message message{3, 0, nullptr, nullptr, 0};
      ASSERT_EQ(heddle_am(worker.handle(), {0, 0}, &message, nullptr) >= 0, true) << heddle_last_error();
      ASSERT_TRUE(within_time([&] { return inside.ran; }, [&] { turn(worker); }));
      const std::array<Status, 6> expected = {HEDDLE_ERR_STATE, HEDDLE_ERR_STATE, HEDDLE_ERR_STATE,
                                              HEDDLE_DONE,      HEDDLE_DONE,      HEDDLE_DONE};
      EXPECT_EQ(inside.told, expected) << heddle_last_error();
      ASSERT_EQ(pair.receive.wait(), HEDDLE_DONE) << heddle_last_error();
      ASSERT_EQ(pair.send.wait(), HEDDLE_DONE) << heddle_last_error();
      EXPECT_EQ(pair.in, pair.out);
    });
  }
}

// Handlers of one worker mark parts of another's send while that is busy: nobody waits for the
// other.
TEST(PartitionedErrors, InsideHandlersOfAnotherWorker) {
  run_alone("loopback-messages", [](Context& context, Worker& worker) {
    Worker shared = context.open_worker(HEDDLE_SHARING_SHARED);
    std::array<std::byte, 32> out{};
    std::array<std::byte, 32> in{};
    out.fill(std::byte{4});
    const PartitionedSend send(shared, std::span<const std::byte>(out), 4, {0, 1}, 1);
    const PartitionedReceive receive(shared, std::span(in), 4, {0, 1}, 1);
    Inside inside{send.handle(), receive.handle(), shared.handle(), {}, false};
    context.register_am(3, in_handler, &inside);
    const heddle_am_message message{3, 0, nullptr, nullptr, 0};
    ASSERT_GE(heddle_am(worker.handle(), {0, 0}, &message, nullptr), 0) << heddle_last_error();
    // Somebody is inside the shared worker while the handler of the other runs.
    struct Meeting {
      std::atomic<bool> here{false};
      std::atomic<bool> go{false};
    } meeting;
    std::thread busy([&] {
      const auto stay = [](void* arg) {
        auto& with = *static_cast<Meeting*>(arg);
        with.here = true;
        EXPECT_TRUE(within_time([&] { return with.go.load(); }));
      };
      EXPECT_GE(heddle_run_on_engine(shared.handle(), stay, &meeting, nullptr), 0) << heddle_last_error();
    });
    EXPECT_TRUE(within_time([&] { return meeting.here.load(); }));
    EXPECT_TRUE(within_time([&] { return inside.ran; }, [&] { turn(worker); }));
    meeting.go = true;
    busy.join();
    EXPECT_EQ(inside.told[3], HEDDLE_ERR_STATE);
    EXPECT_EQ(inside.told[4], HEDDLE_DONE);
    EXPECT_EQ(inside.told[5], HEDDLE_DONE) << heddle_last_error();
    ASSERT_EQ(receive.start(), HEDDLE_DONE) << heddle_last_error();
    ASSERT_EQ(send.wait(), HEDDLE_DONE) << heddle_last_error();
    ASSERT_EQ(receive.wait(), HEDDLE_DONE) << heddle_last_error();
    EXPECT_EQ(in, out);
  });
}

// ---- a rank that dies ---------------------------------------------------------------------------

// Rank 1 dies in the stage `stage`; rank 0, a sender or a receiver, gets the error.
enum class Stage { unmatched, between_runs, in_a_run };

void live_and_tell(const Job& job, const char* transport, bool sends, Stage stage) {
  SCOPED_TRACE(testing::Message() << transport << (sends ? ", a send" : ", a receive") << ", stage "
                                  << static_cast<int>(stage));
  std::atomic<bool> made_it{false};
  std::atomic<bool> dead{false};
  std::atomic<std::uint32_t> through{0};
  const auto rank = [&](std::uint32_t own) {
    Context context = job.join(own);
    Worker worker = context.open_worker();
    std::vector<std::byte> data(4000);
    PartitionedSend send;
    PartitionedReceive receive;
    const bool makes = own == 0 || stage != Stage::unmatched;
    const bool is_sender = (own == 0) == sends;
    if (makes && is_sender) send = PartitionedSend(worker, std::span<const std::byte>(data), 4, {1 - own, 0}, 1);
    if (makes && !is_sender) receive = PartitionedReceive(worker, std::span(data), 4, {1 - own, 0}, 1);
    const Partitioned& side = is_sender ? static_cast<Partitioned&>(send) : receive;
    if (stage != Stage::unmatched) {
      ASSERT_EQ(side.start(), HEDDLE_DONE) << heddle_last_error();
      if (is_sender) {
        ASSERT_EQ(send.ready(0, 3), HEDDLE_DONE) << heddle_last_error();
      }
      ASSERT_EQ(side.wait(), HEDDLE_DONE) << heddle_last_error();
    }
    if (own == 0) made_it = true;
    if (own == 1) {
      // Else the other's init would be told.
      EXPECT_TRUE(within_time([&] { return made_it.load(); }, [&] { static_cast<void>(worker.progress()); }));
      if (stage == Stage::in_a_run) {
        ASSERT_EQ(side.start(), HEDDLE_DONE) << heddle_last_error();
        if (is_sender) {
          ASSERT_EQ(send.ready(1), HEDDLE_DONE) << heddle_last_error();
        }
      }
      ASSERT_EQ(heddle_inproc_fail(job.handle(), 1), HEDDLE_DONE);
      dead = true;
    } else {
      if (stage == Stage::between_runs) {
        EXPECT_TRUE(within_time([&] { return dead.load(); }, [&] { static_cast<void>(worker.progress()); }));
      }
      Status status = side.start();
      if (status == HEDDLE_DONE && is_sender) status = send.ready(0, 1);  // never all
      if (status == HEDDLE_DONE) status = side.wait();
      EXPECT_EQ(status, HEDDLE_ERR_PEER_FAILED);
      EXPECT_TRUE(says("rank 1")) << heddle_last_error();
      EXPECT_EQ(side.start(), HEDDLE_ERR_PEER_FAILED);
      if (is_sender) {
        EXPECT_EQ(send.ready(2), HEDDLE_ERR_PEER_FAILED);
      }
      if (!is_sender && stage == Stage::in_a_run) {
        EXPECT_EQ(receive.arrived(0), HEDDLE_ERR_PEER_FAILED);
      }
      EXPECT_EQ(heddle_partitioned_free(is_sender ? send.release() : receive.release()), HEDDLE_DONE);
      heddle_partitioned made{};
      EXPECT_EQ(heddle_psend_init(worker.handle(), data.data(), 1, 8, {1, 0}, 1, &made), HEDDLE_ERR_PEER_FAILED);
      EXPECT_EQ(heddle_precv_init(worker.handle(), data.data(), 1, 8, {1, 0}, 1, &made), HEDDLE_ERR_PEER_FAILED);
    }
    // Buffers of both stay until nobody uses them.
    ++through;
    EXPECT_TRUE(within_time([&] { return through.load() == 2; }, [&] { static_cast<void>(context.progress()); }));
  };
  std::thread other([&] { rank(1); });
  rank(0);
  other.join();
}

TEST(PartitionedErrors, ARankThatDies) {
  for (const char* transport : kTransports) {
    for (const bool sends : {true, false}) {
      for (const Stage stage : {Stage::unmatched, Stage::between_runs, Stage::in_a_run}) {
        const Job job(2, transport);
        live_and_tell(job, transport, sends, stage);
        ASSERT_FALSE(testing::Test::HasFailure());
      }
    }
  }
}

}  // namespace
}  // namespace heddle::test::partitioned_errors_test
