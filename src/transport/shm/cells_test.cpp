// Long messages in the cells of their sender; the ranks are objects of this process.
#include "transport/shm/cells.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

#include "base/random.hpp"
#include "transport/shm/device.hpp"
#include "transport/test/shm_job.hpp"

namespace heddle::transport::shm::cells_test {
namespace {

Command message_of(std::uint32_t to, std::span<const std::byte> data, const std::uint64_t* header,
                   std::uint32_t immediate = 0) {
  Command command;
  command.rank = to;
  command.immediate = immediate;
  command.header = header;
  command.header_bytes = header == nullptr ? 0 : sizeof *header;
  command.local = const_cast<std::byte*>(data.data());
  command.bytes = data.size();
  return command;
}

// How many messages of `data` the rank takes for that peer.
std::size_t fill(TestRank& from, std::uint32_t to, std::span<const std::byte> data) {
  std::size_t taken = 0;
  for (;; ++taken) {
    Command command = message_of(to, data, nullptr);
    if (from.worker->post({&command, 1}) == 0) return taken;
  }
}

// Takes everything that is there.
std::size_t drain(TestRank& at, std::size_t bytes) {
  std::size_t got = 0;
  for (int empty = 0; empty < 100;) {
    const auto arrived = at.poll(64);
    for (const auto& one : arrived) EXPECT_EQ(one.completion.bytes, bytes);
    got += arrived.size();
    empty = arrived.empty() ? empty + 1 : 0;
  }
  return got;
}

TEST(Cells, MessagesAreWholeWhereverTheirSourceLies) {
  TestCards cards;
  TestRank a(cards, 0, 2);
  TestRank b(cards, 1, 2);
  const auto data = bytes_of(1, kCellBytes + 200);
  const std::uint64_t header = 0x1122334455667788;
  for (const std::uint64_t bytes : {std::uint64_t{kLeastInCell} - 8, std::uint64_t{kLeastInCell}, std::uint64_t{10'001},
                                    std::uint64_t{kCellBytes} - 8, std::uint64_t{kCellBytes}}) {
    for (std::size_t at = 0; at < 130; ++at) {
      for (const std::uint64_t* head : {static_cast<const std::uint64_t*>(nullptr), &header}) {
        const std::size_t length = head == nullptr ? bytes : bytes - sizeof header;
        const std::span<const std::byte> source = std::span(data).subspan(at, length);
        Command command = message_of(1, source, head, static_cast<std::uint32_t>(at));
        ASSERT_EQ(a.worker->post({&command, 1}), 1U);
        EXPECT_TRUE(command.done && command.source_free);
        const auto got = b.poll(1);
        ASSERT_EQ(got.size(), 1U);
        const Completion& one = got[0].completion;
        EXPECT_EQ(one.immediate, at);
        ASSERT_EQ(one.bytes, bytes);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(one.data) % 8, 0U);
        const std::byte* payload = got[0].data.data();
        if (head != nullptr) {
          EXPECT_EQ(std::memcmp(payload, head, sizeof header), 0);
          payload += sizeof header;
        }
        ASSERT_TRUE(std::equal(source.begin(), source.end(), payload)) << bytes << " bytes from " << at;
      }
    }
  }
}

// Short ones lie in the ring, long ones in cells, and those for which there is no cell in the ring:
// they arrive in the order of posting.
TEST(Cells, OrderIsKeptAmongMessagesOfAllLengths) {
  TestCards cards;
  TestRank a(cards, 0, 2);
  TestRank b(cards, 1, 2);
  base::Random random(3);
  const auto data = bytes_of(2, 40'000);
  std::uint32_t posted = 0;
  std::uint32_t got = 0;
  std::vector<std::size_t> lengths;
  for (int round = 0; round < 3000; ++round) {
    if (random.below(3) != 0) {
      const std::size_t bytes = random.below(4) == 0 ? 1 + random.below(200) : 1 + random.below(33'500);
      Command command = message_of(1, std::span(data).first(bytes), nullptr, posted);
      if (a.worker->post({&command, 1}) == 1) {
        lengths.push_back(bytes);
        ++posted;
      }
    }
    if (random.below(8) != 0) continue;
    for (const auto& one : b.poll(1 + random.below(16))) {
      ASSERT_EQ(one.completion.immediate, got);
      ASSERT_EQ(one.completion.bytes, lengths[got]);
      ASSERT_TRUE(std::equal(one.data.begin(), one.data.end(), data.begin()));
      ++got;
    }
  }
  while (got < posted) got += static_cast<std::uint32_t>(b.poll(64).size());
  EXPECT_GT(posted, 1000U);
}

// A peer that does not look takes neither all cells, nor what others need; and all come back.
TEST(Cells, APeerThatDoesNotLookLeavesCellsToOthers) {
  TestCards cards;
  TestRank a(cards, 0, 3);
  TestRank silent(cards, 1, 3);
  TestRank lively(cards, 2, 3);
  const auto data = bytes_of(4, kCellBytes);
  const std::size_t first = fill(a, 1, data);
  EXPECT_GE(first, kCells / 2);
  EXPECT_LT(first, kCells);
  for (int round = 0; round < 10; ++round) {
    const std::size_t more = fill(a, 2, data);
    EXPECT_GE(more, kCells / 6) << "round " << round;
    EXPECT_EQ(drain(lively, data.size()), more);
  }
  EXPECT_EQ(drain(silent, data.size()), first);
  EXPECT_EQ(fill(a, 1, data), first) << "cells are lost";
  EXPECT_EQ(drain(silent, data.size()), first);
}

TEST(Cells, OneMessageAtATimeGoesOnForEver) {
  TestCards cards;
  TestRank a(cards, 0, 2);
  TestRank b(cards, 1, 2);
  const auto data = bytes_of(5, 9000);
  for (int i = 0; i < 2000; ++i) {
    Command command = message_of(1, data, nullptr);
    ASSERT_EQ(a.worker->post({&command, 1}), 1U);
    const auto got = b.poll(1);
    ASSERT_EQ(got.size(), 1U);
    ASSERT_TRUE(std::equal(data.begin(), data.end(), got[0].data.begin()));
  }
}

// A thread of a rank that was only declared dead may still read: its cells are not used again.
TEST(Cells, ThoseOfADeadPeerAreNotGivenToOthers) {
  TestCards cards;
  TestRank a(cards, 0, 3);
  TestRank b(cards, 1, 3);
  TestRank c(cards, 2, 3);
  const auto data = bytes_of(6, kCellBytes);
  const auto other = bytes_of(7, kCellBytes);
  Command command = message_of(1, data, nullptr);
  ASSERT_EQ(a.worker->post({&command, 1}), 1U);
  std::array<Completion, 1> arrived;
  ASSERT_EQ(b.worker->poll(arrived), 1U);
  a.worker->peer_failed(1);
  for (int round = 0; round < 3; ++round) {
    const std::size_t more = fill(a, 2, other);
    EXPECT_EQ(drain(c, other.size()), more);
  }
  EXPECT_TRUE(std::equal(data.begin(), data.end(), arrived[0].data)) << "it was written over while it is read";
}

TEST(Cells, TwoThreadsStream) {
  TestCards cards;
  TestRank a(cards, 0, 2);
  TestRank b(cards, 1, 2);
  constexpr std::uint32_t kMessages = 4000;
  std::thread sender([&] {
    std::vector<std::byte> data(kCellBytes);
    for (std::uint32_t i = 0; i < kMessages; ++i) {
      const std::size_t bytes = 4000 + i * 37 % 12'000;
      std::memset(data.data(), static_cast<int>(i), bytes);
      Command command = message_of(1, std::span(data).first(bytes), nullptr, i);
      while (a.worker->post({&command, 1}) == 0) std::this_thread::yield();
    }
  });
  std::array<Completion, 16> got;
  std::uint32_t wrong = 0;
  for (std::uint32_t next = 0; next < kMessages;) {
    const std::size_t count = b.worker->poll(got);
    for (const Completion& one : std::span(got).first(count)) {
      if (one.event != Event::message) continue;
      const auto is_right = [next](std::byte byte) { return byte == static_cast<std::byte>(next); };
      if (one.immediate != next || one.bytes != 4000 + next * 37 % 12'000 ||
          !std::all_of(one.data, one.data + one.bytes, is_right)) {
        ++wrong;
      }
      ++next;
    }
  }
  sender.join();
  EXPECT_EQ(wrong, 0U);
}

// Records that name no cell, or more than one: the ring is closed, and nothing else is read.
TEST(Cells, ForgedRecordsAreRefused) {
  const std::uint32_t odd = kCellBytes / 2;
  const CellRecord forged[] = {{kCells, 0, 8, 0},
                               {~0U, 0, 8, 0},
                               {0, 4, 8, 0},
                               {0, 0, kCellBytes + 1, 0},
                               {0, static_cast<std::uint32_t>(kCellStride), 8, 0},
                               {kCells - 1, static_cast<std::uint32_t>(kCellStride) - odd + 8, odd, 0},
                               {0, ~0U & ~7U, 16, 0}};
  for (std::size_t i = 0; i <= std::size(forged); ++i) {
    const bool announced = i < std::size(forged);
    TestCards cards;
    TestRank b(cards, 1, 2);
    TestBootstrap bootstrap(cards, 0, 2);
    base::Environment environment;
    environment.config = *base::Config::read();
    auto device = Device::create(bootstrap, environment);
    ASSERT_TRUE(device.ok());
    auto& segment = (*device)->segment();
    const auto extent = segment.allocate(kCellPoolBytes, Segment::Use::own);
    ASSERT_TRUE(extent.ok());
    (*device)->control().worker(0).cells_at.store(announced ? extent->offset : 0);
    auto memory_of_ring = (*device)->open_ring(0, **(*device)->peer(1), 0);
    auto* control = reinterpret_cast<queue::RingControl<>*>(*memory_of_ring);
    queue::RecordProducer<> ring(control, *memory_of_ring + sizeof *control, (*device)->layout().ring_capacity);
    const CellRecord record = announced ? forged[i] : CellRecord{0, 0, 8, 0};
    std::byte* room = ring.begin(kCellType, 0, sizeof record);
    ASSERT_NE(room, nullptr);
    std::memcpy(room, &record, sizeof record);
    ring.publish();
    testing::internal::CaptureStderr();
    for (int polls = 0; polls < 5; ++polls) EXPECT_TRUE(b.poll().empty());
    EXPECT_NE(testing::internal::GetCapturedStderr().find("malformed"), std::string::npos);
    EXPECT_EQ(b.worker->counters().malformed, 1U) << "record " << i;
    EXPECT_TRUE(ring.rejected());
  }
}

}  // namespace
}  // namespace heddle::transport::shm::cells_test
