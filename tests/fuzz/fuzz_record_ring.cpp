// A ring whose other side writes anything: the consumer must stay inside and come to an end. A
// wrong head must never make the producer write outside its place.
#include <array>

#include "fuzz.hpp"
#include "queue/record_ring.hpp"

namespace {

using heddle::fuzz::inside;
using heddle::fuzz::require;

constexpr std::uint32_t kCapacity = 512;

struct Ring {
  heddle::queue::RingControl<> control;
  alignas(8) std::array<std::byte, kCapacity> data{};
};

// Contents and tail from the input, tail moved again while the consumer works.
void hostile_producer(heddle::fuzz::Input input) {
  Ring ring;
  heddle::queue::RecordConsumer<> consumer(&ring.control, ring.data.data(), kCapacity);
  std::uint64_t tail = 0;
  while (!input.rest().empty()) {
    const auto step = input.take<std::uint16_t>();
    const auto at = input.take<std::uint16_t>() % kCapacity;
    const auto contents = input.bytes(std::min<std::size_t>(input.take<std::uint8_t>(), kCapacity - at));
    if (!contents.empty()) std::memcpy(ring.data.data() + at, contents.data(), contents.size());
    tail += (step & 0x8000U) != 0 ? input.take<std::uint64_t>() : step % (kCapacity / 4) * 8U;
    if ((step & 0x4000U) != 0) {
      const std::uint64_t guard = input.take<std::uint16_t>();
      ring.control.copied.store(guard, std::memory_order_release);
      for (auto& word : ring.control.copy) word.store(input.take<std::uint64_t>(), std::memory_order_release);
      for (auto& line : ring.control.rest) line.copied.store(guard, std::memory_order_release);
    }
    ring.control.tail.store(tail, std::memory_order_release);
    std::array<std::byte, heddle::queue::RecordConsumer<>::kCopyBytes> copy{};
    for (std::uint32_t taken = 0;; ++taken) {
      require(taken <= kCapacity / heddle::queue::kRecordHeaderBytes, "more records than can be");
      heddle::queue::Record record;
      if (consumer.look() == heddle::queue::Take::record &&
          consumer.take_copy(input.take<std::uint8_t>(), input.take<std::uint8_t>(), copy.data(), &record)) {
        require(inside({record.data, record.bytes}, copy), "record leaves its copy");
        consumer.release();
        continue;
      }
      const auto result = consumer.take(&record);
      if (result == heddle::queue::Take::malformed) return;  // must not be asked again
      if (result == heddle::queue::Take::none) break;
      require(inside({record.data, record.bytes}, ring.data), "record leaves the ring");
      require(record.type != 0 && record.type != heddle::queue::kPaddingType, "type of record");
      consumer.release();
    }
  }
}

// Head from the input. A record that the producer begins must lie inside, whatever the head says.
void hostile_consumer(heddle::fuzz::Input input) {
  Ring ring;
  heddle::queue::RecordProducer<> producer(&ring.control, ring.data.data(), kCapacity);
  while (!input.rest().empty()) {
    const auto kind = input.take<std::uint8_t>();
    if (kind % 4 == 0) ring.control.head.store(input.take<std::uint64_t>(), std::memory_order_release);
    if (kind % 4 == 1) ring.control.head.store(producer.index(), std::memory_order_release);
    const std::uint32_t bytes = input.take<std::uint8_t>() % (heddle::queue::largest_record(kCapacity) + 1);
    std::byte* payload = producer.begin(2, 0, bytes);
    if (payload == nullptr) continue;
    require(inside({payload, bytes}, ring.data), "the producer leaves the ring");
    std::memset(payload, 0xA5, bytes);
    producer.publish();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  heddle::fuzz::Input input(data, size);
  if (input.take<std::uint8_t>() % 2 == 0) {
    hostile_producer(input);
  } else {
    hostile_consumer(input);
  }
  return 0;
}
