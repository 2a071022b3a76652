// The messages between the two sides of a partitioned operation. They go to the extension of the
// peer's worker.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "heddle/heddle.h"
#include "wire/packed_region.hpp"
#include "wire/packet.hpp"

namespace heddle::wire {

enum class PartitionedKind : std::uint32_t {
  // sender → worker: there is a send. `number`: its index, from 0, among this worker's sends to
  // that worker
  offer = 1,
  // receiver → sender: it is matched; the places follow. `number`: the run that the receiver is in
  accept,
  begun,  // receiver → sender: `number`: the run that it has begun
  // to either: `status` says why it cannot be; `bytes` and `partitions` are the other's
  refused,
  freed  // to either: the other side has freed its operation
};

struct PartitionedHeader {
  PartitionedKind kind;
  std::int32_t status;   // refused
  std::uint64_t to;      // number of the operation that it is about, at its receiver; offer: 0
  std::uint64_t from;    // number of the operation that it comes from
  std::uint64_t tag;     // offer
  std::uint64_t number;  // see above
  std::uint64_t bytes;   // offer, refused: of all parts
  std::uint32_t partitions;
  std::uint32_t zero;
};
static_assert(sizeof(PartitionedHeader) == 56);

// Where the sender puts parts: the data goes `offset` bytes into a region (none if there are no
// bytes), and each part has a word.
struct PartitionedPlaces {
  std::uint64_t offset;
  std::array<std::byte, kNarrowRegionBytes> data;
  std::array<std::byte, kNarrowRegionBytes> words;
};
static_assert(sizeof(PartitionedPlaces) == 200);

struct PartitionedMessage {
  PartitionedHeader head;
  PartitionedPlaces places;  // accept
};

inline std::optional<PartitionedMessage> decode_partitioned(std::span<const std::byte> packet) {
  PartitionedMessage message{};
  if (packet.size() < sizeof message.head) return std::nullopt;
  std::memcpy(&message.head, packet.data(), sizeof message.head);
  const PartitionedHeader& head = message.head;
  const std::span<const std::byte> rest = packet.subspan(sizeof head);
  if (head.zero != 0 || (head.kind == PartitionedKind::offer) != (head.to == 0) || head.from == 0) return std::nullopt;
  switch (head.kind) {
    case PartitionedKind::offer:
      if (head.partitions == 0 || head.partitions > HEDDLE_MOST_PARTITIONS || head.bytes % head.partitions != 0)
        return std::nullopt;
      break;
    case PartitionedKind::accept:
      if (rest.size() != sizeof message.places) return std::nullopt;
      std::memcpy(&message.places, rest.data(), sizeof message.places);
      return message;
    case PartitionedKind::refused:
      if (!status_known(head.status) || head.status == HEDDLE_DONE) return std::nullopt;
      break;
    case PartitionedKind::begun:
    case PartitionedKind::freed:
      break;
    default:
      return std::nullopt;
  }
  return rest.empty() ? std::optional(message) : std::nullopt;
}

}  // namespace heddle::wire
