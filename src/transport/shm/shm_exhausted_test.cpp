// Tests a batch in which memory runs out.
#include <algorithm>
#include <array>
#include <new>
#include <vector>

#include "base/test_memory.hpp"
#include "transport/test/shm_job.hpp"

namespace heddle::transport::shm::shm_exhausted_test {
namespace {

// post() returns how many commands it accepted, and their receiver gets them; the rest may be
// posted again.
TEST(ShmExhausted, ABatchEndsWhereItsNextPeerCannotBeMet) {
  heddle::test::with_every_allocation_failing([](long allocations) {
    TestCards cards;
    TestRank a(cards, 0, 3);
    TestRank b(cards, 1, 3);
    TestRank c(cards, 2, 3);
    std::array<std::byte, 8> payload{};
    std::array<Command, 4> batch;
    for (std::uint32_t i = 0; i < batch.size(); ++i) {
      batch[i].rank = 1 + i / 2;
      batch[i].immediate = i;
      batch[i].local = payload.data();
      batch[i].bytes = payload.size();
    }
    std::size_t accepted = 0;
    {
      const heddle::test::Exhausted exhausted(allocations);
      try {
        accepted = a.worker->post(batch);
      } catch (const std::bad_alloc&) {
        EXPECT_EQ(accepted, 0U);
      }
    }
    EXPECT_EQ(b.poll().size(), std::min<std::size_t>(accepted, 2)) << "with " << allocations << " allocations";
    ASSERT_EQ(a.worker->post(std::span(batch).subspan(accepted)), batch.size() - accepted);
    std::vector<std::uint32_t> numbers;
    for (const auto& got : b.poll()) numbers.push_back(got.completion.immediate);
    EXPECT_EQ(numbers, accepted == 0 ? (std::vector<std::uint32_t>{0, 1}) : std::vector<std::uint32_t>{});
    numbers.clear();
    for (const auto& got : c.poll()) numbers.push_back(got.completion.immediate);
    EXPECT_EQ(numbers, (std::vector<std::uint32_t>{2, 3}));
  });
}

}  // namespace
}  // namespace heddle::transport::shm::shm_exhausted_test
