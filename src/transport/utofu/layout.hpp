// Layout of the memory that peers reach: a rank's directory and a worker's block. Also how many
// slots a worker may promise to its senders.
//
//   directory (of a rank, registered on its device VCQ): DirectoryEntry of worker 0, of worker 1, …
//   block (of a worker, registered on its own VCQ):      claim word | rings of slots | pool |
//                                                        credit words | entries read
//
// Only the NIC writes to the directory, the claim word and the credit words; the owner's own writes
// go through it, too. Data that the NIC wrote is read only after a notice. So nothing depends on
// how the NIC and the processor see each other's stores.
//
// The MRQ of a worker cannot overflow. It holds at most:
//   notices of its own operations under way                                operations
//   messages in the slots that it promised to senders                      rings × slots
//   credits that return to it: at most 2 for each connection that it opens 2 × peer_states
// Sizes are chosen so that the sum is at most the depth. A sender writes to a slot only with a
// credit for it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "bootstrap/bootstrap.hpp"
#include "transport/agreed.hpp"
#include "transport/transport.hpp"

namespace heddle::transport::utofu {

inline constexpr std::uint32_t kSlotBytes = 2048;
inline constexpr std::uint32_t kMtu = 1920;      // a message is one packet
inline constexpr std::uint32_t kPiggyback = 32;  // bytes that a command can carry itself
// the NIC's limit, down to a multiple of 256
inline constexpr std::uint64_t kMostTransfer = 16'776'960;
inline constexpr std::uint32_t kMostSlots = 16;

// Stands before each message in its slot.
struct SlotHead {
  std::uint32_t immediate = 0;
  std::uint32_t bytes = 0;
};
static_assert(sizeof(SlotHead) == 8);
inline constexpr std::uint32_t kMostMessage = kMtu - sizeof(SlotHead);

// The first message of a sender in its ring: who the sender is, and where its credit returns to.
struct RingGreeting {
  std::uint32_t rank = 0;
  std::uint16_t worker = 0;
  std::uint16_t magic = kMagic;
  std::uint64_t vcq = 0;
  std::uint64_t credit_stadd = 0;
  std::uint64_t seal = 0;
  static constexpr std::uint16_t kMagic = 0x4855;  // "UH"
};
static_assert(sizeof(RingGreeting) == kPiggyback);

enum class State : std::uint8_t { unopened = 0, open = 1, closed = 2 };

// One worker in its rank's directory. It is written and read as one packet; the seal shows that it
// is complete.
struct DirectoryEntry {
  std::uint64_t vcq = 0;
  std::uint64_t block_stadd = 0;  // of the claim word; the rings follow
  State state = State::unopened;
  std::uint8_t slots = 0;
  std::uint16_t rings = 0;
  std::uint32_t padding = 0;
  std::uint64_t seal = 0;
};
static_assert(sizeof(DirectoryEntry) == kPiggyback);

inline constexpr std::uint64_t kClaimBytes = 256;

// How the MRQ entries that a worker may use are divided up.
struct Sizes {
  std::uint32_t operations = 0;
  std::uint32_t peer_states = 0;
  std::uint32_t rings = 0;
  std::uint32_t slots = 0;
  std::uint32_t buffers = 0;  // of the pool

  [[nodiscard]] std::uint64_t ring_bytes() const { return std::uint64_t{slots} * kSlotBytes; }
  [[nodiscard]] std::uint64_t rings_at() const { return kClaimBytes; }
  [[nodiscard]] std::uint64_t pool_at() const { return rings_at() + rings * ring_bytes(); }
  [[nodiscard]] std::uint64_t credits_at() const { return pool_at() + std::uint64_t{buffers} * kSlotBytes; }
  [[nodiscard]] std::uint64_t entries_at() const {
    return credits_at() + std::uint64_t{peer_states} * sizeof(std::uint64_t);
  }
  [[nodiscard]] std::uint64_t block_bytes() const {
    return entries_at() + std::uint64_t{peer_states} * sizeof(DirectoryEntry);
  }
  [[nodiscard]] constexpr std::uint64_t most_notices() const {
    return operations + 2 * std::uint64_t{peer_states} + std::uint64_t{rings} * slots;
  }
};

// For a worker that may have `depth` notices in its MRQ, in a job in which `workers` workers may
// send to it (and it to them).
constexpr Sizes sizes_for(std::uint64_t depth, std::uint64_t workers) {
  Sizes sizes;
  sizes.operations = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(depth / 4, 16, 1024));
  const std::uint64_t left = depth - std::min<std::uint64_t>(depth, sizes.operations);
  // A peer costs a connection (2 notices) and a ring of at least 2 slots.
  const std::uint64_t peers = std::clamp<std::uint64_t>(std::min(workers, left / 4), 1, 65535);
  sizes.peer_states = static_cast<std::uint32_t>(peers);
  sizes.rings = static_cast<std::uint32_t>(peers);
  const std::uint64_t promised = left - std::min(left, 2 * peers);
  sizes.slots = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(promised / peers, 1, kMostSlots));
  sizes.buffers = std::min<std::uint32_t>(sizes.operations, 256);
  return sizes;
}
inline constexpr std::uint64_t kLeastMrqDepth = 64;
static_assert(sizes_for(kLeastMrqDepth, 1'000'000).most_notices() <= kLeastMrqDepth);
static_assert(sizes_for(1024, 192).most_notices() <= 1024 && sizes_for(1024, 192).rings == 192);
static_assert(sizes_for(2048, 4).most_notices() <= 2048 && sizes_for(2048, 4).slots == kMostSlots);
static_assert(sizes_for(8192, 256).most_notices() <= 8192 && sizes_for(8192, 256).slots == kMostSlots);

// A checksum that depends on the job's secret. It detects damaged bytes and bytes of another job;
// it does not stop an attacker who computes.
std::uint64_t seal_of(const void* bytes, std::size_t count, const bootstrap::JobSecret& secret);

template <class Record>
void seal(Record* record, const bootstrap::JobSecret& secret) {
  record->seal = seal_of(record, offsetof(Record, seal), secret);
}
template <class Record>
bool sealed(const Record& record, const bootstrap::JobSecret& secret) {
  return record.seal == seal_of(&record, offsetof(Record, seal), secret);
}

// VCQs of a rank through which its regions are reached: at most one for each TNI. The first is the
// device VCQ (see device.hpp).
inline constexpr std::size_t kMostPorts = 6;
struct Ports {
  std::uint64_t count = 0;
  std::uint64_t vcq[kMostPorts] = {};
};

// One way to a region: a VCQ of its owner, and the region's STADD there. Each import has kWays of
// them, so that a worker on TNI i can take way i whatever the number of ports.
struct Way {
  std::uint64_t stadd = 0;
  std::uint64_t vcq = 0;
};
inline constexpr std::size_t kWays = 8;

// The contents of a rank's card.
struct CardBytes {
  std::uint32_t magic = kMagic;
  std::uint32_t max_workers = 0;
  Ports ports;
  std::uint64_t directory_stadd = 0;
  std::uint64_t mrq_depth = 0;
  Agreed agreed;
  static constexpr std::uint32_t kMagic = 0x33435548;  // "HUC3"
};

// The bytes of a region's key.
struct KeyBytes {
  std::uint32_t magic = kMagic;
  std::uint32_t rank = 0;
  std::uint32_t id = 0;
  std::uint16_t stag = kNoStag;  // under which it is registered with all ports
  std::uint16_t port = 0;        // if there is no stag: the port with which it is registered
  std::uint64_t bytes = 0;
  std::uint64_t stadd = 0;    // on that port
  std::uint64_t address = 0;  // in the owner: gives the alignment of its words
  std::uint64_t seal = 0;
  static constexpr std::uint32_t kMagic = 0x32545548;  // "HUT2"
  static constexpr std::uint16_t kNoStag = 0xFFFF;
};
static_assert(sizeof(KeyBytes) == kKeyBytes);

}  // namespace heddle::transport::utofu
