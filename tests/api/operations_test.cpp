// Every operation of the API with the same meaning over every transport, plain and decorated with
// faults.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <numeric>

#include "api/test_job.hpp"

namespace heddle::test::operations_test {
namespace {

class Operations : public testing::TestWithParam<Setting> {
 protected:
  void run(std::uint32_t size, const std::function<void(Context&, Worker&)>& body) {
    const Variables variables(GetParam().variables);
    Job(size, GetParam().transport).run(body);
  }
};

// Accepts DONE and POSTED; for operations that are then waited for.
void accepted(Status status) {
  ASSERT_GE(status, 0) << heddle_status_name(status) << ": " << heddle_last_error();
}

std::vector<std::byte> pattern(std::size_t bytes, unsigned seed) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(i * 31 + seed * 7 + (i >> 8));
  return data;
}

TEST_P(Operations, PutsAndGetsOfAllSizesToAllocatedAndRegisteredMemory) {
  run(3, [](Context& context, Worker& worker) {
    constexpr std::size_t kBytes = 300'000;
    const Region allocated = context.alloc(3 * kBytes);
    std::vector<std::byte> mine(3 * kBytes + 64);
    const Region registered = context.register_memory(mine);
    const auto first = context.exchange(allocated);
    const auto second = context.exchange(registered);
    const std::uint32_t me = context.rank();
    const std::uint32_t next = (me + 1) % context.size();
    for (const auto* regions : {&first, &second}) {
      for (const std::size_t bytes : {1UL, 2UL, 7UL, 8UL, 64UL, 4096UL, 8191UL, 20'000UL, kBytes}) {
        const auto source = pattern(bytes, me + static_cast<unsigned>(bytes));
        std::vector<std::byte> back(bytes);
        const heddle_remote target = (*regions)[next].at(me * kBytes);
        accepted(worker.put(source, target));
        ASSERT_EQ(worker.flush(next), HEDDLE_DONE);
        accepted(worker.get(back, target));
        ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
        ASSERT_EQ(back, source) << bytes << " bytes";
      }
    }
    context.barrier(worker);
  });
}

TEST_P(Operations, CompletionsComeOnceByCallbackAndByCounter) {
  run(2, [](Context& context, Worker& worker) {
    const Region region = context.alloc(4096);
    const auto remote = context.exchange(region);
    const Counter counter = context.counter(worker);
    const Counter shared = context.counter();
    std::uint64_t value = 42;
    std::uint64_t raised = 0;
    int called = 0;
    const heddle_completion by_counter = counter.completion();
    const heddle_completion by_shared = shared.completion(HEDDLE_WHEN_LOCAL);
    std::uint64_t raised_shared = 0;
    int expected = 0;
    const heddle_completion by_call{
        [](void* arg, Status status) { *static_cast<int*>(arg) += status == HEDDLE_DONE ? 1 : 1000; },
        &called,
        {},
        HEDDLE_WHEN_REMOTE};
    for (int i = 0; i < 200; ++i) {
      const heddle_remote target = remote[1 - context.rank()].at(static_cast<std::uint64_t>(i % 64) * 8);
      if (worker.put(bytes_of(value), target, &by_counter) == HEDDLE_POSTED) ++raised;
      if (worker.put(bytes_of(value), target, &by_shared) == HEDDLE_POSTED) ++raised_shared;
      if (worker.put(bytes_of(value), target, &by_call) == HEDDLE_POSTED) ++expected;
    }
    ASSERT_EQ(worker.wait(counter, raised), HEDDLE_DONE);
    ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
    EXPECT_EQ(counter.value(), raised);
    EXPECT_EQ(shared.value(), raised_shared);
    EXPECT_EQ(called, expected);
    context.barrier(worker);
  });
}

TEST_P(Operations, StridedMovesExactlyItsBlocks) {
  run(2, [](Context& context, Worker& worker) {
    const Region region = context.alloc(8192);
    const auto remote = context.exchange(region);
    const heddle_remote_region peer = remote[1 - context.rank()].handle();
    const auto source = pattern(2000, 5);
    const heddle_strided shape{24, 40, 50, 100};
    accepted(heddle_put_strided(worker.handle(), source.data(), {peer, 8}, &shape, nullptr));
    ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
    std::vector<std::byte> all(8192);
    accepted(worker.get(all, {peer, 0}));
    ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
    std::vector<std::byte> expected(8192);
    for (std::size_t i = 0; i < 40; ++i) std::memcpy(&expected[8 + i * 100], &source[i * 50], 24);
    ASSERT_EQ(all, expected);
    std::vector<std::byte> back(2000, std::byte{0});
    accepted(heddle_get_strided(worker.handle(), back.data(), {peer, 8}, &shape, nullptr));
    ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
    for (std::size_t i = 0; i < 40; ++i) ASSERT_EQ(std::memcmp(&back[i * 50], &source[i * 50], 24), 0);
    context.barrier(worker);
  });
}

TEST_P(Operations, ListsMayNameSeveralRanks) {
  run(3, [](Context& context, Worker& worker) {
    const Region region = context.alloc(30'000);
    const auto remote = context.exchange(region);
    const std::uint32_t me = context.rank();
    auto source = pattern(9000, me);
    std::vector<heddle_segment> segments;
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
      segments.push_back({&source[rank * 3000], 2999, remote[rank].at(me * 9000)});
      segments.push_back({&source[rank * 3000], 0, remote[rank].at(30'000)});
    }
    const Counter counter = context.counter(worker);
    const heddle_completion completion = counter.completion();
    const Status put = heddle_put_list(worker.handle(), segments.data(), segments.size(), &completion);
    accepted(put);
    if (put == HEDDLE_POSTED) {
      ASSERT_EQ(worker.wait(counter, 1), HEDDLE_DONE);
    }
    std::vector<std::byte> back(9000);
    for (std::uint32_t rank = 0; rank < 3; ++rank) segments[rank * 2].local = &back[rank * 3000];
    accepted(heddle_get_list(worker.handle(), segments.data(), segments.size(), nullptr));
    ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
    for (std::size_t rank = 0; rank < 3; ++rank) {
      ASSERT_EQ(std::memcmp(&back[rank * 3000], &source[rank * 3000], 2999), 0);
      ASSERT_EQ(back[rank * 3000 + 2999], std::byte{0});
    }
    context.barrier(worker);
  });
}

TEST_P(Operations, ASignalIsSeenAfterItsData) {
  run(2, [](Context& context, Worker& worker) {
    constexpr std::size_t kBytes = 40'000;
    const Region region = context.alloc(kBytes + 16);
    const auto remote = context.exchange(region);
    const std::uint32_t peer = 1 - context.rank();
    auto memory = region.memory();
    const std::uint64_t* word = region.memory<std::uint64_t>().data() + kBytes / 8;
    for (std::uint64_t round = 1; round <= 20; ++round) {
      const auto source = pattern(kBytes, static_cast<unsigned>(round) + context.rank());
      const heddle_signal signal{remote[peer].at(kBytes), round % 2 == 0 ? round : 1,
                                 round % 2 == 0 ? HEDDLE_SIGNAL_SET : HEDDLE_SIGNAL_ADD};
      accepted(worker.put_signal(source, remote[peer].at(0), signal));
      ASSERT_EQ(worker.wait(*word, HEDDLE_EQ, round), HEDDLE_DONE);
      const auto expected = pattern(kBytes, static_cast<unsigned>(round) + peer);
      ASSERT_EQ(std::memcmp(memory.data(), expected.data(), kBytes), 0) << "round " << round;
      ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
      context.barrier(worker);
    }
  });
}

TEST_P(Operations, ASignalIsSeenAfterAllBlocksOfItsPut) {
  run(2, [](Context& context, Worker& worker) {
    constexpr heddle_strided kShape{1000, 40, 1000, 1024};
    constexpr std::size_t kBytes = 40 * 1024;
    const Region allocated = context.alloc(kBytes + 16);
    std::vector<std::uint64_t> mine(kBytes / 8 + 2);
    const Region registered = context.register_memory(std::as_writable_bytes(std::span(mine)));
    const auto first = context.exchange(allocated);
    const auto second = context.exchange(registered);
    const std::uint32_t peer = 1 - context.rank();
    for (const auto& [region, remote] : {std::pair(&allocated, &first), std::pair(&registered, &second)}) {
      const auto memory = region->memory();
      const auto* word = reinterpret_cast<const std::uint64_t*>(memory.data() + kBytes);
      std::vector<std::byte> between(24, std::byte{0});
      for (std::uint64_t round = 1; round <= 10; ++round) {
        const auto source = pattern(40'000, static_cast<unsigned>(round) + context.rank());
        const heddle_signal signal{(*remote)[peer].at(kBytes), round % 2 == 0 ? round : 1,
                                   round % 2 == 0 ? HEDDLE_SIGNAL_SET : HEDDLE_SIGNAL_ADD};
        accepted(worker.put_strided_signal(source.data(), (*remote)[peer].at(0), kShape, signal));
        ASSERT_EQ(worker.wait(*word, HEDDLE_EQ, round), HEDDLE_DONE);
        const auto expected = pattern(40'000, static_cast<unsigned>(round) + peer);
        for (std::size_t i = 0; i < 40; ++i) {
          ASSERT_EQ(std::memcmp(&memory[i * 1024], &expected[i * 1000], 1000), 0) << "round " << round;
          ASSERT_EQ(std::memcmp(&memory[i * 1024 + 1000], between.data(), 24), 0) << "between the blocks";
        }
        ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
        context.barrier(worker);
      }
      // Without data only the signal is left, however many blocks there are.
      const heddle_strided nothing{0, std::uint64_t{1} << 40, 0, 0};
      const heddle_signal last{(*remote)[peer].at(kBytes), 77, HEDDLE_SIGNAL_SET};
      accepted(worker.put_strided_signal(nullptr, (*remote)[peer].at(0), nothing, last));
      ASSERT_EQ(worker.wait(*word, HEDDLE_EQ, 77), HEDDLE_DONE);
      ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
      context.barrier(worker);
    }
  });
}

TEST_P(Operations, WaitingFormsBringTheValue) {
  constexpr std::uint64_t kTimes = 50;
  run(2, [&](Context& context, Worker& worker) {
    const Region allocated = context.alloc(64);
    alignas(8) std::array<std::uint64_t, 8> mine{};
    const Region registered = context.register_memory(std::as_writable_bytes(std::span(mine)));
    const auto first = context.exchange(allocated);
    const auto second = context.exchange(registered);
    for (const auto* remote : {&first, &second}) {
      // Each draws from both ranks' words; the values that one draws grow.
      for (std::uint32_t of = 0; of < 2; ++of) {
        std::uint64_t before = 0;
        for (std::uint64_t i = 0; i < kTimes; ++i) {
          const std::uint64_t ticket = worker.fetch_add((*remote)[of].at(8), 1) + 1;
          ASSERT_GT(ticket, before);
          before = ticket;
        }
      }
      context.barrier(worker);
      for (std::uint32_t of = 0; of < 2; ++of) {
        std::uint64_t all = 0;
        ASSERT_EQ(worker.get_wait(writable_bytes_of(all), (*remote)[of].at(8)), HEDDLE_DONE) << heddle_last_error();
        ASSERT_EQ(all, 2 * kTimes);
        std::array<std::uint64_t, 3> three{9, 9, 9};
        ASSERT_EQ(worker.get_wait(std::as_writable_bytes(std::span(three)), (*remote)[of].at(0)), HEDDLE_DONE);
        ASSERT_EQ(three[0] + three[2], 0U);
        ASSERT_EQ(three[1], 2 * kTimes);
        ASSERT_EQ(worker.get_wait({}, (*remote)[of].at(64)), HEDDLE_DONE);
      }
      // a get beside an atomic of the same word is a race, though none changes it
      context.barrier(worker);
      for (std::uint32_t of = 0; of < 2; ++of) {
        std::uint32_t low = 0;
        ASSERT_EQ(worker.fetch_atomic_wait(HEDDLE_OR32, (*remote)[of].at(8), {0, 0, &low}), HEDDLE_DONE);
        ASSERT_EQ(low, 2 * kTimes);
      }
      context.barrier(worker);
    }
  });
}

// The counter reaches exactly their number, whether each of them is done at once or later.
TEST_P(Operations, ACounterOfAllReachesTheNumberOfOperations) {
  run(2, [](Context& context, Worker& worker) {
    const Region allocated = context.alloc(4096);
    std::vector<std::byte> mine(4096);
    const Region registered = context.register_memory(mine);
    const auto first = context.exchange(allocated);
    const auto second = context.exchange(registered);
    context.register_am(3, [](const heddle_am_arrival*, void*) {}, nullptr);
    context.barrier(worker);
    const std::uint32_t peer = 1 - context.rank();
    for (const bool own : {false, true}) {
      const Counter counter = own ? context.counter_of_all(worker) : context.counter_of_all();
      const heddle_completion completion = counter.completion();
      const auto source = pattern(2048, 3);
      std::uint64_t old = 0;
      std::uint64_t number = 0;
      std::vector<std::byte> back(2048);
      std::vector<std::byte> room(2048);
      for (const auto* remote : {&first, &second}) {
        const heddle_remote at = (*remote)[peer].at(0);
        const heddle_remote word = (*remote)[peer].at(4088);
        const heddle_strided shape{100, 10, 200, 200};
        const heddle_signal signal{word, 1, HEDDLE_SIGNAL_ADD};
        heddle_segment segment{back.data(), 1000, at};
        const heddle_am_message message{3, 0, nullptr, source.data(), 8};
        const auto one = [&](Status status) {
          accepted(status);
          ++number;
        };
        one(worker.put(std::span(source).first(8), at, &completion));
        one(worker.put(source, at, &completion));
        one(worker.put({}, at, &completion));
        one(worker.put_strided(source.data(), at, shape, &completion));
        one(worker.put_signal(source, at, signal, &completion));
        one(worker.put_strided_signal(source.data(), at, shape, signal, &completion));
        one(worker.get(std::span(back).first(8), at, &completion));
        // gets write to one place
        ASSERT_EQ(worker.wait(counter, number), HEDDLE_DONE) << heddle_last_error();
        one(worker.get_strided(back.data(), at, shape, &completion));
        ASSERT_EQ(worker.wait(counter, number), HEDDLE_DONE) << heddle_last_error();
        one(worker.get_list({&segment, 1}, &completion));
        ASSERT_EQ(worker.wait(counter, number), HEDDLE_DONE) << heddle_last_error();
        one(worker.put_list({&segment, 1}, &completion));
        one(worker.atomic(HEDDLE_ADD64, word, 1, &completion));
        one(worker.fetch_atomic(HEDDLE_ADD64, word, {1, 0, &old}, &completion));
        one(worker.am({peer, 0}, message, &completion));
        one(worker.send({peer, 0}, 1, source, &completion));
        heddle_receive receive{};
        one(worker.recv({{peer, 0}, 1, UINT64_MAX}, room, &receive, &completion));
        one(worker.run_on_engine([](void*) {}, nullptr, &completion));
        ASSERT_EQ(worker.wait(counter, number), HEDDLE_DONE) << heddle_last_error();
        ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
        ASSERT_EQ(counter.value(), number);
      }
      context.barrier(worker);
    }
  });
}

TEST_P(Operations, AtomicsOfBothWidthsHaveTheirMeaning) {
  run(2, [](Context& context, Worker& worker) {
    const Region region = context.alloc(64);
    const auto remote = context.exchange(region);
    if (context.rank() == 0) {
      const auto fetch = [&](heddle_atomic_op op, std::uint64_t offset, std::uint64_t operand, std::uint64_t compare) {
        std::uint64_t result = 0;
        const heddle_fetch request{operand, compare, &result};
        accepted(heddle_fetch_atomic(worker.handle(), op, remote[1].at(offset), &request, nullptr));
        EXPECT_EQ(worker.quiet(), HEDDLE_DONE);
        return result;
      };
      for (const auto base : {HEDDLE_ADD32, HEDDLE_ADD64}) {
        const std::uint64_t at = base == HEDDLE_ADD32 ? 4 : 8;
        const auto op = [base](int which) { return static_cast<heddle_atomic_op>(base + which); };
        EXPECT_EQ(fetch(op(0), at, 12, 0), 0U);   // add: 12
        EXPECT_EQ(fetch(op(1), at, 10, 0), 12U);  // and: 8
        EXPECT_EQ(fetch(op(2), at, 3, 0), 8U);    // or: 11
        EXPECT_EQ(fetch(op(3), at, 1, 0), 11U);   // xor: 10
        EXPECT_EQ(fetch(op(4), at, 77, 0), 10U);  // swap: 77
        EXPECT_EQ(fetch(op(5), at, 5, 76), 77U);  // compare-swap: no
        EXPECT_EQ(fetch(op(5), at, 5, 77), 77U);  // compare-swap: 5
        accepted(heddle_atomic(worker.handle(), op(0), remote[1].at(at), 2, nullptr));
        EXPECT_EQ(worker.quiet(), HEDDLE_DONE);
        EXPECT_EQ(fetch(op(0), at, 0, 0), 7U);
      }
      EXPECT_EQ(fetch(HEDDLE_ADD32, 0, 0, 0), 0U) << "the neighbour was touched";
    }
    context.barrier(worker);
  });
}

TEST_P(Operations, AtomicsFromAllRanksLoseNothing) {
  run(3, [](Context& context, Worker& worker) {
    std::vector<std::uint64_t> words(8);
    const Region allocated = context.alloc(64);
    const Region registered = context.register_memory(std::as_writable_bytes(std::span(words)));
    const auto first = context.exchange(allocated);
    const auto second = context.exchange(registered);
    constexpr std::uint64_t kAdds = 300;
    // by the processor where it can reach the word: atomic towards the others all the same
    void* mapped = nullptr;
    const bool direct = heddle_remote_pointer(first[0].at(16), &mapped) == HEDDLE_DONE;
    for (std::uint64_t i = 0; i < kAdds; ++i) {
      accepted(heddle_atomic(worker.handle(), HEDDLE_ADD64, first[0].at(16), 1, nullptr));
      if (direct) {
        std::atomic_ref(*static_cast<std::uint64_t*>(mapped)).fetch_add(1);
      } else {
        accepted(heddle_atomic(worker.handle(), HEDDLE_ADD64, first[0].at(16), 1, nullptr));
      }
      accepted(heddle_atomic(worker.handle(), HEDDLE_ADD64, second[0].at(24), 1, nullptr));
    }
    ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
    context.barrier(worker);
    std::uint64_t sums[2] = {};
    accepted(worker.get(writable_bytes_of(sums[0]), first[0].at(16)));
    accepted(worker.get(writable_bytes_of(sums[1]), second[0].at(24)));
    ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
    EXPECT_EQ(sums[0], 6 * kAdds);
    EXPECT_EQ(sums[1], 3 * kAdds);
    context.barrier(worker);
  });
}

struct Inbox {
  std::atomic<int> messages{0};
  std::uint64_t bytes = 0;
  int wrong = 0;
};

void check_message(const heddle_am_arrival* message, void* arg) {
  auto* inbox = static_cast<Inbox*>(arg);
  std::uint64_t seed = 0;
  std::memcpy(&seed, message->header, sizeof seed);
  const auto expected = pattern(message->payload_bytes, static_cast<unsigned>(seed));
  const bool same =
      message->payload_bytes == 0 || std::memcmp(message->payload, expected.data(), message->payload_bytes) == 0;
  const bool aligned = reinterpret_cast<std::uintptr_t>(message->payload) % 8 == 0;
  if (!same || !aligned || message->header_bytes != 8 + seed % 57) ++inbox->wrong;
  inbox->bytes += message->payload_bytes;
  ++inbox->messages;
}

TEST_P(Operations, ActiveMessagesOfAllSizesArriveWhole) {
  run(3, [](Context& context, Worker& worker) {
    Inbox inbox;
    context.register_am(7, check_message, &inbox);
    context.barrier(worker);
    const std::vector<std::size_t> sizes = {0, 1, 8, 63, 64, 65, 4096, 8192, 9000, 70'000, 1'000'000};
    std::vector<std::vector<std::byte>> payloads;
    for (std::size_t i = 0; i < sizes.size(); ++i) payloads.push_back(pattern(sizes[i], static_cast<unsigned>(i)));
    for (std::uint32_t rank = 0; rank < context.size(); ++rank) {
      for (std::uint64_t i = 0; i < sizes.size(); ++i) {
        std::array<std::byte, 64> header{};
        std::memcpy(header.data(), &i, sizeof i);
        const heddle_am_message message{7, static_cast<std::uint32_t>(8 + i % 57), header.data(), payloads[i].data(),
                                        sizes[i]};
        accepted(worker.am({rank, 0}, message));
      }
    }
    ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
    const int expected = static_cast<int>(sizes.size() * context.size());
    while (inbox.messages < expected) turn(worker);
    EXPECT_EQ(inbox.wrong, 0);
    EXPECT_EQ(inbox.bytes, 3 * std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}));
    context.barrier(worker);
    EXPECT_EQ(inbox.messages, expected);
  });
}

constexpr std::uint64_t kAnswer = 2;  // lives longer than any message

TEST_P(Operations, HandlersMayReply) {
  run(2, [](Context& context, Worker& worker) {
    // atomic: handlers may run on an executor or a helper while this thread is outside of calls
    struct State {
      Worker* worker;
      std::atomic<int> pings{0};
      std::atomic<int> pongs{0};
      std::atomic<int> owed{0};  // replies that the worker did not take in the handler
    } state{&worker};
    context.register_am(
        1,
        [](const heddle_am_arrival* message, void* arg) {
          auto* self = static_cast<State*>(arg);
          ++self->pings;
          const heddle_am_message pong{2, 0, nullptr, &kAnswer, 8};
          if (heddle_try_am(message->worker, message->source, &pong, nullptr) == HEDDLE_AGAIN) ++self->owed;
        },
        &state);
    context.register_am(2, [](const heddle_am_arrival*, void* arg) { ++static_cast<State*>(arg)->pongs; }, &state);
    context.barrier(worker);
    const std::uint64_t value = 1;
    constexpr int kPings = 500;
    for (int i = 0; i < kPings; ++i) {
      const heddle_am_message ping{1, 0, nullptr, &value, 8};
      accepted(worker.am({1 - context.rank(), 0}, ping));
      for (; state.owed > 0; --state.owed) accepted(worker.am({1 - context.rank(), 0}, {2, 0, nullptr, &value, 8}));
    }
    while (state.pongs < kPings || state.pings < kPings || state.owed > 0) {
      turn(worker);
      for (; state.owed > 0; --state.owed) accepted(worker.am({1 - context.rank(), 0}, {2, 0, nullptr, &value, 8}));
    }
    context.barrier(worker);
  });
}

TEST_P(Operations, FenceOrdersAPutBeforeAMessage) {
  run(2, [](Context& context, Worker& worker) {
    const Region region = context.alloc(8);
    const auto remote = context.exchange(region);
    struct State {
      std::uint64_t* word;
      // the handler may run on an engine thread; this also hands back what it read
      std::atomic<std::uint64_t> seen{0};
      std::atomic<int> wrong{0};
    } state{region.memory<std::uint64_t>().data()};
    context.register_am(
        3,
        [](const heddle_am_arrival* message, void* arg) {
          auto* self = static_cast<State*>(arg);
          std::uint64_t told = 0;
          std::memcpy(&told, message->payload, 8);
          const std::atomic_ref<std::uint64_t> word(*self->word);
          if (word.load() < told) ++self->wrong;
          ++self->seen;
        },
        &state);
    context.barrier(worker);
    if (context.rank() == 0) {
      // a source belongs to its operation until that has ended
      std::vector<std::uint64_t> values(301);
      std::iota(values.begin(), values.end(), 0);
      for (std::size_t i = 1; i <= 300; ++i) {
        accepted(worker.put(bytes_of(values[i]), remote[1].at(0)));
        ASSERT_EQ(worker.fence(), HEDDLE_DONE);
        accepted(worker.am({1, 0}, {3, 0, nullptr, &values[i], 8}));
      }
      ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
    } else {
      while (state.seen < 300) turn(worker);
    }
    EXPECT_EQ(state.wrong, 0);
    context.barrier(worker);
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, Operations, testing::ValuesIn(all_settings()), name_of);

}  // namespace
}  // namespace heddle::test::operations_test
