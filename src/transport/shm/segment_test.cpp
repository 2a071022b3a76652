// Segments and their mappings, region keys, and the states of a bounce chunk.
#include "transport/shm/segment.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/random.hpp"
#include "transport/shm/bounce.hpp"
#include "transport/shm/region_key.hpp"

namespace heddle::transport::shm::segment_test {
namespace {

TEST(Segment, ExtentsInOneWindowShareAMapping) {
  auto segment = Segment::create(page_bytes());
  ASSERT_TRUE(segment.ok());
  for (int i = 0; i < 100; ++i) ASSERT_TRUE((*segment)->allocate(1000).ok());
  EXPECT_EQ((*segment)->mapping().mappings(), 1U);
}

TEST(Segment, ExtentsThatCrossWindowsComeAndGoAlone) {
  auto segment = Segment::create(page_bytes());
  Mapping peer(fcntl((*segment)->mapping().fd(), F_DUPFD_CLOEXEC, 0));
  const auto big = (*segment)->allocate(2 * kWindowBytes);
  ASSERT_TRUE(big.ok());
  const auto first = peer.map(big->offset, 2 * kWindowBytes);
  const auto second = peer.map(big->offset, 2 * kWindowBytes);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(*first, *second);
  EXPECT_EQ(peer.mappings(), 1U);
  big->address[kWindowBytes] = std::byte{9};
  EXPECT_EQ((*first)[kWindowBytes], std::byte{9});
  peer.unmap(big->offset, 2 * kWindowBytes);
  EXPECT_EQ(peer.mappings(), 1U);
  peer.unmap(big->offset, 2 * kWindowBytes);
  EXPECT_EQ(peer.mappings(), 0U);
}

TEST(Segment, MappingFollowsTheFileAsItGrows) {
  auto segment = Segment::create(page_bytes());
  Mapping peer(fcntl((*segment)->mapping().fd(), F_DUPFD_CLOEXEC, 0));
  ASSERT_TRUE(peer.map(0, page_bytes()).ok());
  EXPECT_EQ(peer.map(page_bytes(), page_bytes()).status(), HEDDLE_ERR_RANGE);
  const auto extent = (*segment)->allocate(page_bytes());
  const auto there = peer.map(extent->offset, page_bytes());
  ASSERT_TRUE(there.ok());
  extent->address[5] = std::byte{3};
  EXPECT_EQ((*there)[5], std::byte{3});
  EXPECT_EQ(peer.mappings(), 1U);
}

TEST(Segment, ImpossibleExtentsAreRefused) {
  auto segment = Segment::create(page_bytes());
  Mapping& mapping = (*segment)->mapping();
  EXPECT_EQ(mapping.map(0, 0).status(), HEDDLE_ERR_RANGE);
  EXPECT_EQ(mapping.map(1, 8).status(), HEDDLE_ERR_RANGE);
  EXPECT_EQ(mapping.map(0, ~std::uint64_t{0}).status(), HEDDLE_ERR_RANGE);
  EXPECT_EQ(mapping.map(~std::uint64_t{0} - page_bytes() + 1, page_bytes()).status(), HEDDLE_ERR_RANGE);
}

TEST(Segment, FreedExtentsGiveTheirMemoryBackAndReturnZeroed) {
  auto segment = Segment::create(page_bytes());
  constexpr std::uint64_t kBytes = std::uint64_t{8} << 20;
  const std::uint64_t before = (*segment)->bytes_in_use();
  const auto extent = (*segment)->allocate(kBytes);
  std::memset(extent->address, 1, kBytes);
  EXPECT_GE((*segment)->bytes_in_use(), before + kBytes);
  (*segment)->free(extent->offset, kBytes);
  EXPECT_LT((*segment)->bytes_in_use(), before + kBytes / 8);
  const auto again = (*segment)->allocate(kBytes);
  EXPECT_EQ(again->offset, extent->offset);
  for (std::uint64_t i = 0; i < kBytes; i += 512) ASSERT_EQ(again->address[i], std::byte{0});
}

// A region of a few bytes that comes and goes with an operation does not give its page back each
// time, which would cost a fault; but many that are freed at once do.
TEST(Segment, APageThatComesAndGoesIsKept) {
  const auto segment = Segment::create(page_bytes());
  ASSERT_TRUE(segment);
  constexpr std::uint64_t kTimes = 1000;
  const auto use_one = [&] {
    const auto extent = (*segment)->allocate(48);
    ASSERT_TRUE(extent);
    ASSERT_TRUE(
        std::all_of(extent->address, extent->address + page_bytes(), [](std::byte b) { return b == std::byte{}; }));
    std::memset(extent->address, 7, page_bytes());
    const std::uint64_t used = (*segment)->bytes_in_use();
    (*segment)->free(extent->offset, 48);
    ASSERT_EQ((*segment)->bytes_in_use(), used);
  };
  for (std::uint64_t i = 0; i < kTimes; ++i) use_one();
  const std::uint64_t in_use = (*segment)->bytes_in_use();
  std::vector<Segment::Extent> all;
  for (std::uint64_t i = 0; i < kTimes; ++i) {
    const auto extent = (*segment)->allocate(48);
    ASSERT_TRUE(extent);
    extent->address[0] = std::byte{1};
    all.push_back(*extent);
  }
  for (const Segment::Extent& extent : all) (*segment)->free(extent.offset, 48);
  EXPECT_LT((*segment)->bytes_in_use(), in_use + kTimes * page_bytes() / 10);
}

// A program that has called mlockall() has the segment locked, too.
TEST(Segment, LockedExtentsGiveTheirMemoryBack) {
  auto segment = Segment::create(page_bytes());
  const std::uint64_t bytes = 16 * page_bytes();
  const std::uint64_t before = (*segment)->bytes_in_use();
  const auto extent = (*segment)->allocate(bytes);
  std::memset(extent->address, 1, bytes);
  if (mlock(extent->address + page_bytes(), page_bytes()) != 0) GTEST_SKIP() << "skipped: no memory may be locked";
  (*segment)->free(extent->offset, bytes);
  EXPECT_EQ((*segment)->bytes_in_use(), before);
  const auto again = (*segment)->allocate(bytes);
  EXPECT_EQ(again->offset, extent->offset);
  EXPECT_EQ(again->address[page_bytes()], std::byte{0});
}

TEST(Segment, PeersCannotShrinkIt) {
  auto segment = Segment::create(page_bytes());
  EXPECT_NE(ftruncate((*segment)->mapping().fd(), 0), 0);
  EXPECT_EQ(check_seals((*segment)->mapping().fd(), 1), HEDDLE_DONE);
  const int open_file = memfd_create("unsealed", MFD_CLOEXEC);
  EXPECT_EQ(check_seals(open_file, 1), HEDDLE_ERR_PROTOCOL);
  close(open_file);
}

// Well-formed keys that describe impossible ranges.
TEST(RegionKey, ImpossibleRangesAreRefused) {
  RegionKey good;
  good.kind = RegionKind::allocated;
  good.bytes = 100;
  good.address = page_bytes();
  good.offset = page_bytes();
  ASSERT_TRUE(decode(encode(good)).ok());
  const auto refused = [&good](auto change) {
    RegionKey key = good;
    change(key);
    return decode(encode(key)).status() == HEDDLE_ERR_PROTOCOL;
  };
  EXPECT_TRUE(refused([](RegionKey& key) { key.bytes = 0; }));
  EXPECT_TRUE(refused([](RegionKey& key) { key.bytes = ~std::uint64_t{0}; }));
  EXPECT_TRUE(refused([](RegionKey& key) { key.address = ~std::uint64_t{0} - 50; }));
  EXPECT_TRUE(refused([](RegionKey& key) { key.offset = 3; }));
  EXPECT_TRUE(refused([](RegionKey& key) { key.offset = ~std::uint64_t{0} & ~(page_bytes() - 1); }));
  EXPECT_TRUE(refused([](RegionKey& key) { key.kind = static_cast<RegionKind>(4); }));
  EXPECT_TRUE(refused([](RegionKey& key) { key.magic = 0; }));
}

TEST(SegmentRegions, RemovedAndReusedSlotsDoNotAnswerToOldIds) {
  SegmentRegions table;
  std::byte memory[2] = {};
  const std::uint64_t first = table.add({memory, 1, 0, RegionKind::registered});
  ASSERT_TRUE(table.find(first));
  ASSERT_TRUE(table.remove(first));
  EXPECT_FALSE(table.find(first));
  EXPECT_FALSE(table.remove(first));
  const std::uint64_t second = table.add({memory + 1, 1, 0, RegionKind::registered});
  EXPECT_FALSE(table.find(first));
  EXPECT_EQ(table.find(second)->address, memory + 1);
  EXPECT_EQ(table.locate(second, 0, 1)->address, memory + 1);
  EXPECT_FALSE(table.locate(second, 0, 2));
  EXPECT_FALSE(table.locate(first, 0, 1));
  EXPECT_FALSE(table.find(~std::uint64_t{0}));
  EXPECT_FALSE(table.find(0));
}

struct Pool {
  Pool() : segment(std::move(*Segment::create(page_bytes()))), pool(3, 4096) {
    EXPECT_EQ(pool.prepare(*segment, header), HEDDLE_DONE);
  }
  std::unique_ptr<Segment> segment;
  ControlHeader header;
  BouncePool pool;
};

TEST(Bounce, ChunksGoRoundInOrder) {
  Pool p;
  EXPECT_NE(p.header.pool_offset.load(), 0U);
  std::uint32_t chunk = 9;
  for (std::uint32_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(p.pool.lend(&chunk));
    EXPECT_EQ(chunk, i);
  }
  EXPECT_FALSE(p.pool.lend(&chunk));
  p.pool.give_back(1);
  p.pool.give_back(0);
  ASSERT_TRUE(p.pool.lend(&chunk));
  EXPECT_EQ(chunk, 1U);
}

TEST(Bounce, OneSideHasAChunk) {
  Pool p;
  std::uint32_t chunk = 0;
  ASSERT_TRUE(p.pool.lend(&chunk));
  const std::uint64_t first = p.pool.request(chunk);
  std::atomic<std::uint64_t>& word = p.pool.view().word(chunk);
  EXPECT_EQ(word.load(), chunk_word(first, ChunkState::requested));
  ASSERT_TRUE(p.pool.cancel(chunk, first));
  EXPECT_FALSE(p.pool.cancel(chunk, first));
  std::uint64_t expected = chunk_word(first, ChunkState::requested);
  EXPECT_FALSE(word.compare_exchange_strong(expected, chunk_word(first, ChunkState::taken))) << "a stale request";
  const std::uint64_t second = p.pool.request(chunk);
  EXPECT_GT(second, first);
  expected = chunk_word(second, ChunkState::requested);
  ASSERT_TRUE(word.compare_exchange_strong(expected, chunk_word(second, ChunkState::taken)));
  EXPECT_FALSE(p.pool.cancel(chunk, second)) << "the target has it";
}

TEST(Bounce, PoolIsMadeOnce) {
  Pool p;
  const std::uint64_t offset = p.header.pool_offset.load();
  EXPECT_EQ(p.pool.prepare(*p.segment, p.header), HEDDLE_DONE);
  EXPECT_EQ(p.header.pool_offset.load(), offset);
}

}  // namespace
}  // namespace heddle::transport::shm::segment_test
