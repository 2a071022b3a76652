// Puts of one word, which take the shortest way through post(): the ends of regions, and refusals.
#include <set>
#include <span>

#include "transport/test/utofu_side.hpp"

namespace heddle::transport::utofu::puts_test {
namespace {

// Puts of words up to the last byte of a region, and none beyond it; regions shorter than a word.
TEST(Puts, WordsAtTheEndOfARegion) {
  bootstrap::inproc::ThreadJob job(kRanks);
  const base::Config::Overrides variables = {{"HEDDLE_LIBRARIES", "utofu=" HEDDLE_TOFUCOM}};
  Side sides[kRanks] = {{job, 0, variables}, {job, 1, variables}};
  ASSERT_NE(sides[0].transport(), nullptr);
  ASSERT_NE(sides[1].transport(), nullptr);
  auto worker = sides[0].transport()->open_worker(0);
  ASSERT_TRUE(worker.ok()) << base::last_message();
  for (const std::uint64_t bytes : {1U, 7U, 8U, 9U, 15U, 16U, 4096U}) {
    SCOPED_TRACE(bytes);
    auto region = sides[1].transport()->allocate(bytes);
    ASSERT_TRUE(region.ok()) << base::last_message();
    auto remote = sides[0].transport()->import(1, region->key);
    ASSERT_TRUE(remote.ok()) << base::last_message();
    ASSERT_EQ(remote->bytes, bytes);
    for (std::uint64_t offset = bytes < 8 ? 0 : bytes - 8; offset <= bytes + 1; ++offset) {
      const bool inside = offset + 8 <= bytes;
      ASSERT_NO_FATAL_FAILURE(
          put_word(**worker, *remote, offset, 1000 + offset, inside ? HEDDLE_DONE : HEDDLE_ERR_RANGE));
      if (!inside) continue;
      EXPECT_EQ(word_at(region->address, offset), 1000 + offset);
    }
    for (const std::uint64_t offset : {~std::uint64_t{0}, ~std::uint64_t{0} - 7, std::uint64_t{1} << 63}) {
      ASSERT_NO_FATAL_FAILURE(put_word(**worker, *remote, offset, 7, HEDDLE_ERR_RANGE));
    }
    sides[0].transport()->release(*remote);
    sides[1].transport()->free(*region);
  }
}

// Words are posted without a poll until no more is accepted. A refused command is as it was, and is
// accepted when others have ended.
TEST(Puts, ARefusedWordIsAsItWas) {
  bootstrap::inproc::ThreadJob job(kRanks);
  const base::Config::Overrides variables = {{"HEDDLE_LIBRARIES", "utofu=" HEDDLE_TOFUCOM}};
  Side sides[kRanks] = {{job, 0, variables}, {job, 1, variables}};
  ASSERT_NE(sides[0].transport(), nullptr);
  ASSERT_NE(sides[1].transport(), nullptr);
  auto region = sides[1].transport()->allocate(8);
  ASSERT_TRUE(region.ok()) << base::last_message();
  auto remote = sides[0].transport()->import(1, region->key);
  ASSERT_TRUE(remote.ok()) << base::last_message();
  auto worker = sides[0].transport()->open_worker(0);
  ASSERT_TRUE(worker.ok()) << base::last_message();
  const test::Deadline deadline;
  std::uint64_t value = 0;
  std::set<Token> under_way;
  for (Token token = 1; token <= 2000;) {
    ASSERT_FALSE(deadline.over());
    Command put;
    put.opcode = Opcode::put;
    put.rank = 1;
    put.remote = &*remote;
    put.local = &value;
    put.bytes = sizeof value;
    put.token = token;
    value = token;
    if ((*worker)->post({&put, 1}) == 1) {
      EXPECT_TRUE(put.source_free);
      EXPECT_FALSE(put.done);
      ASSERT_TRUE(under_way.insert(token++).second);
      if (token <= 2000) continue;
    } else {
      EXPECT_FALSE(put.source_free);
    }
    while (!under_way.empty()) {
      ASSERT_FALSE(deadline.over());
      Completion completions[7];
      const std::size_t count = (*worker)->poll(completions);
      for (const Completion& completion : std::span(completions).first(count)) {
        ASSERT_EQ(completion.status, HEDDLE_DONE) << base::last_message();
        ASSERT_EQ(under_way.erase(completion.token), 1U);
      }
      if (count == 0) sched_yield();
    }
  }
  EXPECT_NE(word_at(region->address, 0), 0U);
  worker->reset();
  sides[0].transport()->release(*remote);
  sides[1].transport()->free(*region);
}

}  // namespace
}  // namespace heddle::transport::utofu::puts_test
