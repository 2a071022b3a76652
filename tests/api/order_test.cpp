// The contract of fence, seen by the target rank: a reader that sees a later operation sees the
// earlier ones.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <numeric>

#include "api/test_job.hpp"

namespace heddle::test::order_test {
namespace {

class Order : public testing::TestWithParam<Setting> {
 protected:
  void run(std::uint32_t size, const std::function<void(Context&, Worker&)>& body) {
    const Variables variables(GetParam().variables);
    Job(size, GetParam().transport).run(body);
  }
};

std::uint64_t load(const std::uint64_t& word) {
  return std::atomic_ref(const_cast<std::uint64_t&>(word)).load(std::memory_order_acquire);
}

void accepted(Status status) {
  ASSERT_GE(status, 0) << heddle_status_name(status) << ": " << heddle_last_error();
}

constexpr std::uint64_t kRounds = 400;

// Rank 0 writes word 0, fences, writes word 1, fences, …; rank 1 reads them in the opposite order.
TEST_P(Order, APutAfterAFenceIsNeverSeenBeforeThePutBeforeIt) {
  run(2, [](Context& context, Worker& worker) {
    const Region region = context.alloc(4096);
    const auto remote = context.exchange(region);
    const auto words = region.memory<std::uint64_t>();
    std::vector<std::uint64_t> values(kRounds + 1);
    std::iota(values.begin(), values.end(), 0);
    if (context.rank() == 0) {
      for (std::uint64_t i = 1; i <= kRounds; ++i) {
        accepted(worker.put(bytes_of(values[i]), remote[1].at(0)));
        ASSERT_EQ(worker.fence(), HEDDLE_DONE);
        accepted(worker.put(bytes_of(values[i]), remote[1].at(2048)));
        ASSERT_EQ(worker.fence(), HEDDLE_DONE);
      }
      ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
    } else {
      std::uint64_t second = 0;
      while (second < kRounds) {
        turn(worker);
        second = load(words[256]);
        const std::uint64_t first = load(words[0]);
        ASSERT_GE(first, second) << "the later put overtook the earlier";
        ASSERT_LE(first, second + kRounds);
      }
    }
    context.barrier(worker);
  });
}

// As above with data of many pieces before the fence, to allocated and to registered memory.
TEST_P(Order, AWholeBlockIsThereBeforeTheFlagAfterAFence) {
  run(2, [](Context& context, Worker& worker) {
    constexpr std::size_t kWords = 5000;
    constexpr std::uint64_t kBlocks = 30;
    std::vector<std::uint64_t> block(kWords);
    const Region data = context.register_memory(std::as_writable_bytes(std::span(block)));
    const Region control = context.alloc(64);
    const auto blocks = context.exchange(data);
    const auto controls = context.exchange(control);
    // 0: block number. 1: number that was checked
    const auto flags = control.memory<std::uint64_t>();
    for (std::uint64_t i = 1; i <= kBlocks; ++i) {
      if (context.rank() == 0) {
        const std::vector<std::uint64_t> source(kWords, i);
        accepted(worker.put(std::as_bytes(std::span(source)), blocks[1].at(0)));
        ASSERT_EQ(worker.fence(), HEDDLE_DONE);
        accepted(worker.put(bytes_of(i), controls[1].at(0)));
        ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
        ASSERT_EQ(worker.wait(flags[1], HEDDLE_GE, i), HEDDLE_DONE);
      } else {
        ASSERT_EQ(worker.wait(flags[0], HEDDLE_GE, i), HEDDLE_DONE);
        for (const std::uint64_t& word : block) ASSERT_EQ(load(word), i);
        accepted(worker.put(bytes_of(i), controls[0].at(8)));
        ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
      }
    }
    context.barrier(worker);
  });
}

// A get after a fence sees the same rank's put before it, and an atomic is ordered as a put is.
TEST_P(Order, AGetAfterAFenceSeesThePutAndTheAtomicBeforeIt) {
  run(2, [](Context& context, Worker& worker) {
    const Region region = context.alloc(4096);
    const auto remote = context.exchange(region);
    const RemoteRegion& peer = remote[1 - context.rank()];
    for (std::uint64_t i = 1; i <= 100; ++i) {
      std::array<std::uint64_t, 2> seen{};
      accepted(worker.put(bytes_of(i), peer.at(0)));
      accepted(worker.atomic(HEDDLE_ADD64, peer.at(8), 1));
      ASSERT_EQ(worker.fence(), HEDDLE_DONE);
      accepted(worker.get(writable_bytes_of(seen), peer.at(0)));
      ASSERT_EQ(worker.quiet(), HEDDLE_DONE);
      ASSERT_EQ(seen[0], i);
      ASSERT_EQ(seen[1], i);
    }
    context.barrier(worker);
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, Order, testing::ValuesIn(all_settings()), name_of);

}  // namespace
}  // namespace heddle::test::order_test
