// The packets between processes: a head of 64 bytes and up to kMtu bytes of data.
//
// Requests and responses have separate rings. Handling a request may emit responses; handling a
// response emits nothing. So a response is always taken in the end, and a request ring may wait for
// room in a response ring.
#pragma once

#include <utofu.h>

#include <cstdint>

#include "tofu/emulator/machine.hpp"

namespace tofu_emulator {

// The type of the record in the ring.
enum class PacketKind : std::uint8_t {
  put = 2,
  get,
  armw,       // also compare and swap: operand and compare are the data
  gate,       // a barrier gate's signal: every member except kind belongs to the gates
  ack,        // responses from here on
  got,        // data of a get
  exchanged,  // armw: the old value in `stadd`
};

// Why a request was not executed.
enum class Refusal : std::uint8_t { none, peer, stadd, length, memory };

// PacketHead::op of a put whose sender could not continue to read its memory: ignored.
inline constexpr std::uint8_t kGivenUp = 0xFF;

inline constexpr std::size_t kExchangeBytes = 16;  // operand and compare

struct PacketHead {
  std::uint64_t source_vcq = 0;  // raw id
  std::uint64_t stadd = 0;       // requests: of the message's first byte, at the target
  std::uint64_t message = 0;     // the initiator's number for the answer; 0: no answer is expected
  std::uint64_t model_ns = 0;    // when it arrives, in the timing model
  std::uint32_t length = 0;      // of the message
  std::uint32_t offset = 0;      // of this packet's data in it
  std::uint32_t sequence = 0;    // of the message among those of the source VCQ to this process
  // of the target's CQ, as the source knew it: a later owner ignores packets for an earlier one
  std::uint32_t generation = 0;
  std::uint16_t bytes = 0;  // data in this packet
  std::uint16_t flags = 0;  // UTOFU_ONESIDED_FLAG_*
  std::uint8_t tni = 0;     // the target VCQ
  std::uint8_t cq = 0;
  std::uint8_t slot = 0;
  std::uint8_t path = kNoPath;
  std::uint8_t edata = 0;
  std::uint8_t sps = 0;
  std::uint8_t op = 0;      // armw: enum utofu_armw_op; 0: compare and swap. put: 0 or kGivenUp
  std::uint8_t denied = 0;  // responses: a Refusal
  std::uint32_t spare = 0;  // used by the gates
};
static_assert(sizeof(PacketHead) == 64);

}  // namespace tofu_emulator
