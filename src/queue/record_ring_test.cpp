#include "queue/record_ring.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "base/random.hpp"

namespace heddle::queue::record_ring_test {
namespace {

// One ring with both ends, on one mapping, so that ThreadSanitizer sees what each side does.
struct Ring {
  explicit Ring(std::uint32_t capacity_bytes)
      : capacity(capacity_bytes),
        data(capacity_bytes / 8),
        producer(&control, bytes(), capacity),
        consumer(&control, bytes(), capacity) {}

  std::byte* bytes() { return reinterpret_cast<std::byte*>(data.data()); }
  void set_header(std::uint64_t place, std::uint32_t length, std::uint8_t type) {
    data[place / 8] = length | std::uint64_t{type} << 24;
  }

  std::uint32_t capacity;
  RingControl<> control;
  std::vector<std::uint64_t> data;
  RecordProducer<> producer;
  RecordConsumer<> consumer;
};

std::vector<std::byte> pattern(std::uint64_t seed, std::uint32_t bytes) {
  base::Random random(seed);
  std::vector<std::byte> out(bytes);
  for (std::byte& b : out) b = static_cast<std::byte>(random.next() >> 32);
  return out;
}

bool push(Ring& ring, const std::vector<std::byte>& payload, std::uint32_t immediate, std::uint8_t type = 2) {
  std::byte* room = ring.producer.begin(type, immediate, static_cast<std::uint32_t>(payload.size()));
  if (room == nullptr) return false;
  if (!payload.empty()) std::memcpy(room, payload.data(), payload.size());
  ring.producer.publish();
  return true;
}

TEST(RecordRing, EmptyRingGivesNothing) {
  Ring ring(1024);
  Record record;
  EXPECT_FALSE(ring.consumer.has_more());
  EXPECT_EQ(ring.consumer.take(&record), Take::none);
}

// Where a lap ends without a copy, as the transport does. False: the ring is full.
bool push_with_copy(Ring& ring, const std::vector<std::byte>& payload, std::uint32_t immediate) {
  RecordProducer<>::Row row(ring.producer);
  std::byte* room = row.begin(2, immediate, static_cast<std::uint32_t>(payload.size()));
  if (room == nullptr) return push(ring, payload, immediate);
  if (!payload.empty()) std::memcpy(room, payload.data(), payload.size());
  row.publish_with_copy(room);
  return true;
}

// The next record as a consumer that waits takes it; *copied: from the copy.
std::vector<std::byte> take_any(Ring& ring, std::uint32_t* immediate, bool* copied) {
  std::array<std::byte, RecordConsumer<>::kCopyBytes> room{};
  Record record;
  EXPECT_EQ(ring.consumer.look(), Take::record);
  *copied = ring.consumer.take_copy(2, 1000, room.data(), &record);
  if (!*copied) {
    EXPECT_EQ(ring.consumer.take(&record), Take::record);
  }
  *immediate = record.immediate;
  return {record.data, record.data + record.bytes};
}

TEST(RecordRing, AShortRecordIsTakenFromItsCopy) {
  Ring ring(4096);
  std::uint32_t most_copied = 0;
  for (std::uint32_t round = 0; round < 600; ++round) {  // several laps, every length
    const std::uint32_t bytes = round * 7 % 600;
    const std::vector<std::byte> payload = pattern(round, bytes);
    ASSERT_TRUE(push_with_copy(ring, payload, round));
    std::uint32_t immediate = 0;
    bool copied = false;
    EXPECT_EQ(take_any(ring, &immediate, &copied), payload);
    EXPECT_EQ(immediate, round);
    const bool fits = bytes + kRecordHeaderBytes <= RecordConsumer<>::kCopyBytes;
    if (round < 20) {  // the first lap, so no record is where a lap ends
      EXPECT_TRUE(copied);
    } else if (!fits) {
      EXPECT_FALSE(copied);
    }
    if (copied) most_copied = std::max(most_copied, bytes);
    ring.consumer.release();
  }
  EXPECT_EQ(most_copied, RecordConsumer<>::kCopyBytes - kRecordHeaderBytes);
}

TEST(RecordRing, OnlyTheRecordOfACopyIsTakenFromIt) {
  Ring ring(1024);
  std::uint32_t immediate = 0;
  bool copied = false;
  ASSERT_TRUE(push_with_copy(ring, pattern(1, 8), 1));
  ASSERT_TRUE(push(ring, pattern(2, 8), 2));
  ASSERT_TRUE(push_with_copy(ring, pattern(3, 8), 3));
  ASSERT_TRUE(push(ring, pattern(4, 8), 4));
  for (std::uint32_t i = 1; i <= 4; ++i) {
    EXPECT_EQ(take_any(ring, &immediate, &copied), pattern(i, 8));
    EXPECT_EQ(immediate, i);
    EXPECT_EQ(copied, i == 3) << "there is one copy, of the last record that was published with one";
  }
}

TEST(RecordRing, ACopyThatLiesIsNotTaken) {
  Ring ring(1024);
  std::array<std::byte, RecordConsumer<>::kCopyBytes> room{};
  Record record;
  ASSERT_TRUE(push_with_copy(ring, pattern(1, 8), 1));
  ASSERT_EQ(ring.consumer.look(), Take::record);
  EXPECT_FALSE(ring.consumer.take_copy(3, 1000, room.data(), &record)) << "another type";
  EXPECT_FALSE(ring.consumer.take_copy(2, 7, room.data(), &record)) << "longer than is allowed";
  for (const std::uint64_t bytes : {17U, 41U, kMaxRecordBytes}) {
    ring.control.copy[0].store(bytes | std::uint64_t{2} << 24, std::memory_order_release);
    EXPECT_FALSE(ring.consumer.take_copy(2, kMaxRecordBytes, room.data(), &record)) << bytes;
  }
  ASSERT_EQ(ring.consumer.take(&record), Take::record);
  EXPECT_EQ(record.bytes, 8U);
}

TEST(RecordRing, ACopyWithALineOfAnotherRecordIsNotTaken) {
  for (std::size_t line = 0; line < RingControl<>::kRestLines; ++line) {
    Ring ring(1024);
    std::array<std::byte, RecordConsumer<>::kCopyBytes> room{};
    Record record;
    const std::vector<std::byte> payload = pattern(line, RecordConsumer<>::kCopyBytes - kRecordHeaderBytes);
    ASSERT_TRUE(push_with_copy(ring, payload, 1));
    ASSERT_EQ(ring.consumer.look(), Take::record);
    ring.control.rest[line].copied.fetch_add(8, std::memory_order_acq_rel);
    EXPECT_FALSE(ring.consumer.take_copy(2, 1000, room.data(), &record)) << line;
    ASSERT_EQ(ring.consumer.take(&record), Take::record);
    EXPECT_EQ(std::vector(record.data, record.data + record.bytes), payload);
  }
}

// A producer that goes on while the consumer reads the copy.
TEST(RecordRing, CopiesAreWholeWhileTheProducerGoesOn) {
  constexpr std::uint64_t kCount = 200'000;
  constexpr std::size_t kWords = 16;  // three lines
  Ring ring(4096);
  std::thread producer([&] {
    for (std::uint64_t i = 0; i < kCount;) {
      std::array<std::uint64_t, kWords> words{};
      for (std::size_t at = 0; at < kWords; ++at) words[at] = i ^ (at * ~std::uint64_t{0});
      std::vector<std::byte> payload(sizeof words);
      std::memcpy(payload.data(), words.data(), sizeof words);
      if (push_with_copy(ring, payload, static_cast<std::uint32_t>(i)))
        ++i;
      else
        std::this_thread::yield();
    }
  });
  std::uint64_t copies = 0;
  for (std::uint64_t i = 0; i < kCount;) {
    if (ring.consumer.look() == Take::none) {
      std::this_thread::yield();
      continue;
    }
    std::uint32_t immediate = 0;
    bool copied = false;
    const std::vector<std::byte> got = take_any(ring, &immediate, &copied);
    std::array<std::uint64_t, kWords> payload{};
    ASSERT_EQ(got.size(), sizeof payload);
    std::memcpy(payload.data(), got.data(), sizeof payload);
    for (std::size_t at = 0; at < kWords; ++at) ASSERT_EQ(payload[at], i ^ (at * ~std::uint64_t{0}));
    ASSERT_EQ(immediate, static_cast<std::uint32_t>(i));
    copies += copied ? 1 : 0;
    ring.consumer.release();
    ++i;
  }
  producer.join();
  EXPECT_GT(copies, 0U);
}

TEST(RecordRing, RecordsAreInvisibleUntilPublished) {
  Ring ring(1024);
  Record record;
  ASSERT_NE(ring.producer.begin(2, 7, 0), nullptr);
  ASSERT_NE(ring.producer.begin(3, 8, 5), nullptr);
  EXPECT_EQ(ring.consumer.take(&record), Take::none);
  ring.producer.publish();
  EXPECT_TRUE(ring.consumer.has_more());
  ASSERT_EQ(ring.consumer.take(&record), Take::record);
  EXPECT_EQ(record.immediate, 7U);
  EXPECT_EQ(record.type, 2);
  EXPECT_EQ(record.bytes, 0U);
  ASSERT_EQ(ring.consumer.take(&record), Take::record);
  EXPECT_EQ(record.immediate, 8U);
  EXPECT_EQ(record.bytes, 5U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(record.data) % 8, 0U);
  EXPECT_EQ(ring.consumer.take(&record), Take::none);
}

TEST(RecordRing, FullRingRejectsUntilSpaceComesBack) {
  Ring ring(256);
  const auto payload = pattern(1, 24);  // 32 bytes of space, so exactly 8 records
  for (std::uint32_t i = 0; i < 8; ++i) ASSERT_TRUE(push(ring, payload, i));
  EXPECT_FALSE(push(ring, payload, 8));
  Record record;
  ASSERT_EQ(ring.consumer.take(&record), Take::record);
  EXPECT_FALSE(push(ring, payload, 8)) << "taken, but not released";
  ring.consumer.release();
  EXPECT_FALSE(push(ring, payload, 8)) << "less than a quarter comes back later";
  ASSERT_EQ(ring.consumer.take(&record), Take::record);
  ring.consumer.release();
  EXPECT_TRUE(push(ring, payload, 8));
  EXPECT_TRUE(push(ring, payload, 9));
  EXPECT_FALSE(push(ring, payload, 10));
}

// The largest record must be accepted whatever the producer's place is, once the consumer has found
// the ring empty.
TEST(RecordRing, LargestRecordFitsAtEveryPlace) {
  for (std::uint32_t skip = 0; skip < 512; skip += 8) {
    Ring ring(512);
    Record record;
    std::uint32_t at = 0;
    for (; at < skip; at += 8) {
      ASSERT_TRUE(push(ring, {}, at));
      ASSERT_EQ(ring.consumer.take(&record), Take::record);
      ring.consumer.release();
    }
    EXPECT_EQ(ring.consumer.take(&record), Take::none);
    const auto payload = pattern(skip, largest_record(512));
    ASSERT_TRUE(push(ring, payload, 1)) << "at " << skip;
    ASSERT_EQ(ring.consumer.take(&record), Take::record);
    EXPECT_EQ(std::memcmp(record.data, payload.data(), payload.size()), 0);
  }
}

TEST(RecordRing, AgreesWithADequeUnderRandomOperations) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    base::Random random(seed);
    Ring ring(static_cast<std::uint32_t>(64 + 8 * random.below(100)));
    std::deque<std::pair<std::uint32_t, std::vector<std::byte>>> model;
    std::uint32_t next = 0;
    std::uint64_t pushed = 0;
    for (int step = 0; step < 4000; ++step) {
      if (random.below(2) == 0) {
        const auto payload =
            pattern(seed + next, static_cast<std::uint32_t>(random.below(largest_record(ring.capacity) + 1)));
        if (push(ring, payload, next)) {
          model.emplace_back(next++, payload);
          ++pushed;
        }
      } else {
        Record record;
        const Take taken = ring.consumer.take(&record);
        ASSERT_EQ(taken, model.empty() ? Take::none : Take::record);
        if (taken == Take::record) {
          ASSERT_EQ(record.immediate, model.front().first);
          ASSERT_EQ(record.bytes, model.front().second.size());
          ASSERT_TRUE(record.bytes == 0 || std::memcmp(record.data, model.front().second.data(), record.bytes) == 0);
          model.pop_front();
        }
        if (random.below(3) != 0) ring.consumer.release();
      }
    }
    EXPECT_GT(pushed, 100U);
  }
}

// Rows of records, and records by themselves where a row has no room, give what single ones would.
TEST(RecordRing, RowsAgreeWithADeque) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    base::Random random(seed);
    Ring ring(static_cast<std::uint32_t>(64 + 8 * random.below(100)));
    std::deque<std::pair<std::uint32_t, std::vector<std::byte>>> model;
    std::uint32_t next = 0;
    std::uint32_t in_rows = 0;
    for (int step = 0; step < 4000; ++step) {
      if (random.below(2) == 0) {
        const bool published = random.below(2) == 0;
        const std::uint64_t most = random.below(5);
        std::size_t begun = 0;
        RecordProducer<>::Row row(ring.producer);
        for (; begun < most; ++begun) {
          const auto payload = pattern(next, static_cast<std::uint32_t>(random.below(40)));
          const auto bytes = static_cast<std::uint32_t>(payload.size());
          if (bytes > largest_record(ring.capacity)) break;
          std::byte* const room = row.begin(2, next, bytes);
          if (room == nullptr) break;
          if (bytes != 0) std::memcpy(room, payload.data(), bytes);
          model.emplace_back(next++, payload);
          ++in_rows;
        }
        if (published) {
          row.publish();
        } else {
          row.end();
          ring.producer.publish();
        }
        if (begun == most) continue;
        const auto payload = pattern(next, static_cast<std::uint32_t>(random.below(largest_record(ring.capacity) + 1)));
        if (push(ring, payload, next)) model.emplace_back(next++, payload);
      } else {
        Record record;
        const Take taken = ring.consumer.take(&record);
        ASSERT_EQ(taken, model.empty() ? Take::none : Take::record) << "seed " << seed << " step " << step;
        if (taken == Take::record) {
          ASSERT_EQ(record.immediate, model.front().first);
          ASSERT_EQ(record.bytes, model.front().second.size());
          ASSERT_TRUE(record.bytes == 0 || std::memcmp(record.data, model.front().second.data(), record.bytes) == 0);
          model.pop_front();
        }
        ring.consumer.release();
      }
    }
    EXPECT_GT(in_rows, 100U);
    EXPECT_GT(next, in_rows) << "no row has ended at the end of the room";
  }
}

TEST(RecordRing, ARowThatIsNotEndedHasBegunNothing) {
  Ring ring(256);
  {
    RecordProducer<>::Row row(ring.producer);
    ASSERT_NE(row.begin(2, 1, 8), nullptr);
  }
  ASSERT_TRUE(push(ring, {}, 2));
  Record record;
  ASSERT_EQ(ring.consumer.take(&record), Take::record);
  EXPECT_EQ(record.immediate, 2U);
  EXPECT_EQ(ring.consumer.take(&record), Take::none);
}

TEST(RecordRing, MalformedContentsAreReported) {
  const auto check = [](const char* what, auto spoil) {
    Ring ring(256);
    spoil(ring);
    Record record;
    EXPECT_EQ(ring.consumer.take(&record), Take::malformed) << what;
  };
  check("type 0", [](Ring& r) { r.set_header(0, 8, 0), r.control.tail = 16; });
  check("longer than what was published", [](Ring& r) { r.set_header(0, 16, 2), r.control.tail = 16; });
  check("longer than the ring", [](Ring& r) { r.set_header(0, kMaxRecordBytes, 2), r.control.tail = 256; });
  check("tail beyond the ring", [](Ring& r) { r.set_header(0, 8, 2), r.control.tail = 264; });
  check("tail not aligned", [](Ring& r) { r.set_header(0, 8, 2), r.control.tail = 15; });
  check("tail far away", [](Ring& r) { r.set_header(0, 8, 2), r.control.tail = ~std::uint64_t{7}; });
  check("padding in the middle", [](Ring& r) { r.set_header(0, 8, kPaddingType), r.control.tail = 32; });
}

TEST(RecordRing, TailThatGoesBackIsReported) {
  Ring ring(256);
  ASSERT_TRUE(push(ring, pattern(1, 40), 1));
  Record record;
  ASSERT_EQ(ring.consumer.take(&record), Take::record);
  ring.control.tail = 8;
  EXPECT_EQ(ring.consumer.take(&record), Take::malformed);
}

TEST(RecordRing, ImpossibleHeadMeansFull) {
  Ring ring(256);
  ring.control.head = 1000;  // beyond the tail
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(push(ring, pattern(1, 24), 1)) << "room that was known before";
  EXPECT_FALSE(push(ring, pattern(1, 24), 1));
}

// The consumer may release later what it has taken before: the producer still sees that nothing
// more is taken.
TEST(RecordRing, RejectedRingNeverHasRoomAgain) {
  Ring ring(256);
  Record record;
  ASSERT_TRUE(push(ring, pattern(1, 200), 1));
  ASSERT_EQ(ring.consumer.take(&record), Take::record);
  EXPECT_FALSE(ring.producer.rejected());
  ring.consumer.reject();
  ring.consumer.release();
  EXPECT_TRUE(ring.producer.rejected());
  EXPECT_FALSE(push(ring, pattern(1, 200), 1));
  EXPECT_FALSE(push(ring, pattern(1, 200), 1)) << "nor by the head that is known now";
}

// Random bytes as ring contents: every record that take() gives lies in the ring, and the loop
// ends.
TEST(RecordRing, RandomContentsStayInBounds) {
  for (std::uint64_t seed = 1; seed <= 20000; ++seed) {
    base::Random random(seed);
    Ring ring(256);
    for (std::uint64_t& word : ring.data) {
      word = random.next();
      // plausible lengths and types get further
      if (random.below(2) == 0) word &= 0xFFFFFFFF0300003FULL;
    }
    ring.control.tail = random.below(4) == 0 ? random.next() : 8 * random.below(40);
    Record record;
    std::size_t taken = 0;
    while (ring.consumer.take(&record) == Take::record) {
      ASSERT_LE(++taken, 256U / 8);
      ASSERT_GE(record.data, ring.bytes());
      ASSERT_LE(record.data + record.bytes, ring.bytes() + ring.capacity);
      if (random.below(2) == 0) ring.consumer.release();
    }
  }
}

TEST(RecordRing, TwoThreadsKeepOrderAndContents) {
  Ring ring(2048);
  constexpr std::uint32_t kRecords = 60000;
  std::thread sender([&ring] {
    base::Random random(42);
    for (std::uint32_t i = 0; i < kRecords; ++i) {
      const auto bytes = static_cast<std::uint32_t>(random.below(i % 16 == 0 ? largest_record(2048) : 64));
      std::byte* room = nullptr;
      while ((room = ring.producer.begin(2, i, bytes)) == nullptr) {
        ring.producer.publish();
        std::this_thread::yield();
      }
      std::memset(room, static_cast<int>(i & 0xFF), bytes);
      if (random.below(4) != 0) ring.producer.publish();
    }
    ring.producer.publish();
  });
  base::Random random(42);
  for (std::uint32_t i = 0; i < kRecords; ++i) {
    Record record;
    Take taken = Take::none;
    while ((taken = ring.consumer.take(&record)) == Take::none) std::this_thread::yield();
    ASSERT_EQ(taken, Take::record);
    ASSERT_EQ(record.immediate, i);
    ASSERT_EQ(record.bytes, random.below(i % 16 == 0 ? largest_record(2048) : 64));
    for (std::uint32_t b = 0; b < record.bytes; ++b)
      ASSERT_EQ(std::to_integer<std::uint32_t>(record.data[b]), i & 0xFF);
    ring.consumer.release();
    random.below(4);
  }
  sender.join();
}

}  // namespace
}  // namespace heddle::queue::record_ring_test
