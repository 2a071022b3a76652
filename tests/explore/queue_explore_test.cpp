// src/queue, the code itself, over the explorer's atomics.
//
// The ring copies with memcpy; explore::Memory stands for its data (memory.hpp says why that is the
// same).
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "expect.hpp"
#include "queue/bounded_queue.hpp"
#include "queue/record_ring.hpp"

// Atomics of a ring whose copies have one word in each line: with those of the real ring there are
// too many schedules.
namespace heddle::explore {
template <class T>
struct ShortLines : Atomic<T> {
  using Atomic<T>::Atomic;
};
template <class T>
struct RelaxedShortLines : RelaxedStores<T> {
  using RelaxedStores<T>::RelaxedStores;
};
struct OneWordLines {
  static constexpr std::size_t kCopyWords = 1;
  static constexpr std::size_t kRestWords = 1;
  static constexpr std::size_t kRestLines = 1;
};
}  // namespace heddle::explore
template <>
struct heddle::queue::CopyShape<heddle::explore::ShortLines> : heddle::explore::OneWordLines {};
template <>
struct heddle::queue::CopyShape<heddle::explore::RelaxedShortLines> : heddle::explore::OneWordLines {};

namespace heddle::explore::queue_explore_test {
namespace {

enum class Bug { none, published_before_filled, released_before_read };

// 64 bytes of ring, 24 of them used before the threads start, so that the following records run
// into the end: padding, wrap, and (with four records) a producer that finds the ring full and
// waits for the consumer.
template <template <class> class A, Bug kBug, std::uint32_t kRecords>
struct RingModel final : Model {
  static constexpr std::uint32_t kCapacity = 64;
  static constexpr std::array<std::uint32_t, 4> kBytes = {8, 8, 5, 8};

  queue::RingControl<A> control;
  Memory data{0, kCapacity / 8, "data"};
  queue::RecordProducer<A> producer{&control, data.for_writer(), kCapacity};
  queue::RecordConsumer<A> consumer{&control, data.for_readers(), kCapacity};

  RingModel() {
    control.tail.name("tail");
    control.head.name("head");
    for (const std::uint32_t bytes : {8U, 8U, 0U}) {
      static_cast<void>(producer.begin(2, 99, bytes));
      producer.publish();
      data.collect();
      queue::Record record;
      check(consumer.take(&record) == queue::Take::record, "the first lap works");
      consumer.release();
    }
  }
  [[nodiscard]] std::uint32_t threads() const override { return 2; }
  void run(std::uint32_t thread) override { thread == 0 ? produce() : consume(); }

  static std::byte pattern(std::uint32_t record, std::uint32_t at) { return std::byte(16 * (record + 1) + at); }

  void produce() {
    for (std::uint32_t i = 0; i < kRecords; ++i) {
      std::byte* room = nullptr;
      while ((room = producer.begin(static_cast<std::uint8_t>(2 + i), 100 + i, kBytes[i])) == nullptr) pause();
      if (kBug == Bug::published_before_filled) producer.publish();
      for (std::uint32_t at = 0; at < kBytes[i]; ++at) room[at] = pattern(i, at);
      if (kBug != Bug::published_before_filled) producer.publish();
    }
  }

  void consume() {
    for (std::uint32_t i = 0; i < kRecords; ++i) {
      queue::Record record;
      queue::Take taken = queue::Take::none;
      while ((taken = consumer.take(&record)) == queue::Take::none) pause();
      check(taken == queue::Take::record, "the ring is well formed");
      data.note_read(record.data - queue::kRecordHeaderBytes, queue::kRecordHeaderBytes);
      check(record.type == 2 + i && record.immediate == 100 + i && record.bytes == kBytes[i], "the header is whole");
      if (kBug == Bug::released_before_read) consumer.release();
      step();  // the application looks at it for a while
      data.note_read(record.data - queue::kRecordHeaderBytes, queue::kRecordHeaderBytes + record.bytes);
      std::uint32_t immediate = 0;
      std::memcpy(&immediate, record.data - 4, sizeof immediate);
      check(immediate == 100 + i, "nobody writes what was not released");
      for (std::uint32_t at = 0; at < record.bytes; ++at) {
        check(record.data[at] == pattern(i, at), "the payload is whole");
      }
      if (kBug != Bug::released_before_read) consumer.release();
    }
  }
  void finish() override {
    queue::Record record;
    check(consumer.take(&record) == queue::Take::none, "nothing comes twice");
  }
};

TEST(RecordRing, HoldsInAllSchedules) {
  expect_holds<RingModel<Atomic, Bug::none, 3>>("ring, 3 records with padding and wrap", kOrdered);
  expect_holds<RingModel<Atomic, Bug::none, 4>>("ring, 4 records, full", kOrdered);
  expect_holds<RingModel<Atomic, Bug::none, 2>>("ring, 2 records with padding and wrap, data delayed", kByData);
}

// Two records that become visible together, then one by itself: over the end of the ring, and full.
template <template <class> class A>
struct RowModel final : Model {
  static constexpr std::uint32_t kCapacity = 64;
  static constexpr std::uint32_t kRecords = 5;

  queue::RingControl<A> control;
  Memory data{0, kCapacity / 8, "data"};
  queue::RecordProducer<A> producer{&control, data.for_writer(), kCapacity};
  queue::RecordConsumer<A> consumer{&control, data.for_readers(), kCapacity};

  RowModel() {
    control.tail.name("tail");
    control.head.name("head");
  }
  [[nodiscard]] std::uint32_t threads() const override { return 2; }
  void run(std::uint32_t thread) override { thread == 0 ? produce() : consume(); }

  void produce() {
    for (std::uint32_t next = 0; next < kRecords;) {
      typename queue::RecordProducer<A>::Row row(producer);
      std::uint32_t begun = 0;
      for (; begun < 2 && next + begun < kRecords; ++begun) {
        std::byte* const room = row.begin(2, next + begun, 8);
        if (room == nullptr) break;
        *room = std::byte(next + begun);
      }
      if (begun != 0) {
        row.publish();
      } else {
        std::byte* room = nullptr;
        while ((room = producer.begin(2, next, 8)) == nullptr) pause();
        *room = std::byte(next);
        producer.publish();
        begun = 1;
      }
      next += begun;
    }
  }
  void consume() {
    for (std::uint32_t i = 0; i < kRecords; ++i) {
      queue::Record record;
      queue::Take taken = queue::Take::none;
      while ((taken = consumer.take(&record)) == queue::Take::none) pause();
      check(taken == queue::Take::record, "the ring is well formed");
      data.note_read(record.data - queue::kRecordHeaderBytes, queue::kRecordHeaderBytes + record.bytes);
      check(record.immediate == i && record.bytes == 8, "the header is whole");
      check(*record.data == std::byte(i), "the payload is whole");
      consumer.release();
    }
  }
  void finish() override {
    queue::Record record;
    check(consumer.take(&record) == queue::Take::none, "nothing comes twice");
  }
};

TEST(RecordRing, RowsHoldInAllSchedules) {
  expect_holds<RowModel<Atomic>>("ring, rows, full", kOrdered);
  expect_finds<RowModel<RelaxedStores>>("rows, no release", kOrdered, "race");
}

// Records that are published with a copy beside the tail, to a consumer that takes each from there
// if it can. The words could be of two records: in one line, or in two.
// So many of the records lie there before the threads start, which makes fewer schedules.
template <template <class> class A, std::uint64_t kRecords, std::uint32_t kWords, std::uint64_t kBefore = 0>
struct CopyModel final : Model {
  static constexpr std::uint32_t kCapacity = 8 * (kWords + 1) * kRecords + 16;

  queue::RingControl<A> control;
  Memory data{0, kCapacity / 8, "data"};
  queue::RecordProducer<A> producer{&control, data.for_writer(), kCapacity};
  queue::RecordConsumer<A> consumer{&control, data.for_readers(), kCapacity};

  CopyModel() {
    control.tail.name("tail");
    control.head.name("head");
    control.copied.name("copied");
    for (auto& word : control.copy) word.name("copy");
    for (auto& line : control.rest) {
      line.copied.name("copied");
      for (auto& word : line.words) word.name("copy");
    }
    for (std::uint64_t i = 0; i < kBefore; ++i) publish(i);
    data.collect();
  }
  [[nodiscard]] std::uint32_t threads() const override { return 2; }
  void run(std::uint32_t thread) override { thread == 0 ? produce() : consume(); }

  void publish(std::uint64_t i) {
    typename queue::RecordProducer<A>::Row row(producer);
    std::array<std::uint64_t, kWords> payload{};
    payload.fill(i);
    std::byte* const room = row.begin(2, static_cast<std::uint32_t>(i), sizeof payload);
    check(room != nullptr, "there is room for all");
    std::memcpy(room, payload.data(), sizeof payload);
    row.publish_with_copy(room);
  }
  void produce() {
    for (std::uint64_t i = kBefore; i < kRecords; ++i) publish(i);
  }
  void consume() {
    for (std::uint64_t i = 0; i < kRecords; ++i) {
      std::array<std::byte, queue::RecordConsumer<A>::kCopyBytes> room{};
      std::array<std::uint64_t, kWords> payload{};
      queue::Record record;
      queue::Take taken = queue::Take::none;
      while ((taken = consumer.look()) == queue::Take::none) pause();
      check(taken == queue::Take::record, "the ring is well formed");
      if (!consumer.take_copy(2, 64, room.data(), &record)) {
        check(consumer.take(&record) == queue::Take::record, "the ring is well formed");
        data.note_read(record.data - queue::kRecordHeaderBytes, queue::kRecordHeaderBytes + record.bytes);
      }
      check(record.immediate == i && record.bytes == sizeof payload, "the header is whole");
      std::memcpy(payload.data(), record.data, sizeof payload);
      for (const std::uint64_t word : payload) check(word == i, "the payload is whole");
      consumer.release();
    }
  }
  void finish() override {
    queue::Record record;
    check(consumer.take(&record) == queue::Take::none, "nothing comes twice");
  }
};

TEST(RecordRing, CopiesHoldInAllSchedules) {
  expect_holds<CopyModel<Atomic, 2, 1>>("ring, copies", kOrdered);
  expect_finds<CopyModel<RelaxedStores, 3, 1>>("copies, no release", kByData, "is whole");
}

TEST(RecordRing, CopiesOfTwoLinesHoldInAllSchedules) {
  expect_holds<CopyModel<ShortLines, 2, 1, 1>>("ring, copies of two lines", kOrdered);
  expect_finds<CopyModel<RelaxedShortLines, 3, 1, 1>>("copies of two lines, no release", kByData, "is whole");
}

TEST(RecordRing, PlantedBugsAreFound) {
  expect_finds<RingModel<Atomic, Bug::published_before_filled, 3>>("published before filled", kOrdered, "race");
  expect_finds<RingModel<Atomic, Bug::published_before_filled, 2>>("published before filled, data delayed", kByData,
                                                                   "the payload is whole");
  expect_finds<RingModel<Atomic, Bug::released_before_read, 4>>("released before read", kOrdered, "race");
  expect_finds<RingModel<RelaxedStores, Bug::none, 3>>("no release", kOrdered, "race");
  expect_finds<RingModel<RelaxedStores, Bug::none, 2>>("no release, data delayed", kByData, "not so");
  expect_finds<RingModel<RelaxedLoads, Bug::none, 3>>("no acquire", kOrdered, "race");
}

// A consumer that finds the first record not to its liking and rejects the ring, and a producer
// that has more than there is room for. As in the transport, the consumer gives its records back
// once more afterwards.
enum class Rejection : std::uint8_t { kept, taken_back };

template <template <class> class A, Rejection kRejection>
struct RejectedRing final : Model {
  static constexpr std::uint32_t kCapacity = 64;

  queue::RingControl<A> control;
  Memory data{0, kCapacity / 8, "data"};
  queue::RecordProducer<A> producer{&control, data.for_writer(), kCapacity};
  queue::RecordConsumer<A> consumer{&control, data.for_readers(), kCapacity};
  bool told = false;

  RejectedRing() {
    control.tail.name("tail");
    control.head.name("head");
  }
  [[nodiscard]] std::uint32_t threads() const override { return 2; }
  void run(std::uint32_t thread) override { thread == 0 ? produce() : reject(); }

  void produce() {
    for (;;) {
      while (producer.begin(2, 0, 8) != nullptr) producer.publish();
      told = producer.rejected();
      if (told) break;
      pause();
    }
    check(producer.begin(2, 0, 8) == nullptr, "a ring that is refused has no room");
  }

  void reject() {
    queue::Record record;
    while (consumer.take(&record) == queue::Take::none) pause();
    data.note_read(record.data - queue::kRecordHeaderBytes, queue::kRecordHeaderBytes + record.bytes);
    consumer.reject();
    consumer.release();
    if (kRejection == Rejection::taken_back) control.head.store(16, std::memory_order_release);
  }
  void finish() override { check(told && producer.rejected(), "the producer is told, and for good"); }
};

TEST(RejectedRing, TellsItsProducerInAllSchedules) {
  expect_holds<RejectedRing<Atomic, Rejection::kept>>("refused ring", kOrdered);
}

TEST(RejectedRing, PlantedBugsAreFound) {
  expect_finds<RejectedRing<Atomic, Rejection::taken_back>>("a head after the refusal", kOrdered, "for good");
}

// Two producers and a consumer over two cells that have been round once. The explorer does not see
// the value in a cell. The test checks that each value arrives once and in its producer's order,
// over all interleavings and delays of the turns and tickets.
template <template <class> class A>
struct QueueModel final : Model {
  queue::BoundedQueue<A> queue{2};
  std::array<std::uint32_t, 2> got{};

  QueueModel() {
    std::uint32_t value = 0;
    for (std::uint32_t i = 0; i < 2; ++i) check(queue.push(9) && queue.pop(&value), "the first lap works");
  }
  [[nodiscard]] std::uint32_t threads() const override { return 3; }
  void run(std::uint32_t thread) override {
    if (thread < 2) return check(queue.push(10 + thread), "there is room for both");
    for (std::uint32_t& value : got) {
      while (!queue.pop(&value)) pause();
    }
  }
  void finish() override {
    check(got[0] + got[1] == 21 && got[0] != got[1], "each value arrives once");
    std::uint32_t value = 0;
    check(!queue.pop(&value), "nothing comes twice");
  }
};

// Two consumers and one value.
template <template <class> class A>
struct QueueTakers final : Model {
  queue::BoundedQueue<A> queue{2};
  std::array<bool, 2> got{};

  QueueTakers() { check(queue.push(5), "there is room"); }
  [[nodiscard]] std::uint32_t threads() const override { return 2; }
  void run(std::uint32_t thread) override {
    std::uint32_t value = 0;
    got[thread] = queue.pop(&value);
    check(!got[thread] || value == 5, "the value is whole");
  }
  void finish() override { check(got[0] != got[1], "one of them has it"); }
};

TEST(BoundedQueue, HoldsInAllSchedules) {
  expect_holds<QueueModel<Atomic>>("queue, 2 producers, 1 consumer", kOrdered);
  expect_holds<QueueTakers<Atomic>>("queue, 2 consumers", kOrdered);
}

TEST(BoundedQueue, PlantedBugsAreFound) {
  expect_finds<QueueModel<TornSwap>>("a swap that is none, producers", kInterleaved, "waits for ever");
  expect_finds<QueueTakers<TornSwap>>("a swap that is none, consumers", kInterleaved, "one of them has it");
}

}  // namespace
}  // namespace heddle::explore::queue_explore_test
